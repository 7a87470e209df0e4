//! Stored replies, so that a repeated request is not carried out twice.
//!
//! A client that lost its connection cannot know whether its last requests were carried out. It
//! sends them again with the same ids. The reply to each request that changes names or attributes
//! is a row in the batch of the change: either both are there, or neither. The reply to a
//! truncation, or to a write of bytes that are a row, is stored in a batch of its own, after the
//! change and before the reply is sent. A request that failed has changed nothing, and is carried
//! out again.
//!
//! After a loss of power a client also repeats requests that were answered. The newest batches are
//! lost first: so if the stored reply is still there, the change is too; if the stored reply is
//! gone, the change is lost.
//!
//! The reply to an append to a content file is stored before the bytes are written. It has the
//! offset of the bytes, so that a repetition writes them at the same offset.
//!
//! Direct calls cannot lose a reply, so none is stored for them. A reply that is safe and that the
//! client has acknowledged is deleted by a later batch that stores another reply; all others are
//! deleted at the end of the session. `StoredReplies` is the list of stored replies, in memory.
//!
//! A stored reply is encoded as on the wire (`docs/protocol.md`).

use std::collections::BTreeMap;

use pelago_store::key;
use pelago_store::rows::{self, Row, Stamp};
use pelago_store::table::Batch;
use pelago_wire::id_map::KeyedMap;
use pelago_wire::{
    Context, InodeId, Origin, Reply, RequestId, SessionId, SessionRecord, Time, WriteEra, codec,
};

/// The most stored replies that one batch deletes.
const DELETED_AT_ONCE: usize = 4;

/// The context of an operation: its time, its request, and its conditions.
#[derive(Debug, Clone, Copy)]
pub struct OpContext {
    /// The time of its changes.
    pub now: Time,
    /// The request; `None` if its reply is not stored.
    pub request_key: Option<RequestKey>,
    /// The session that makes the change; `None` for upkeep.
    pub author: Option<SessionId>,
    /// The value of [`crate::durability::Durability::invalidations`] before the caller read the
    /// data that the operation relies on. If the count has changed, the commit fails.
    pub invalidations: Option<u64>,
    /// The inodes to which the names of the operation must lead; with others the operation fails
    /// with `Busy`.
    pub expected: Option<ExpectedNodes>,
}

/// The inodes that the names of an operation led to before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedNodes {
    /// The inode of the name; for a rename, of the old name.
    pub first: Option<InodeId>,
    /// The inode of the new name of a rename.
    pub second: Option<InodeId>,
}

/// A request that may be repeated: its session and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestKey {
    session: SessionId,
    request: RequestId,
    /// The client has acknowledged the replies up to this request.
    acknowledged: u64,
}

/// The sessions that may resume, each with the list of its stored replies.
#[derive(Debug, Default)]
pub(crate) struct StoredReplies {
    of_session: KeyedMap<SessionId, OfSession>,
}

/// A session and its stored replies.
#[derive(Debug)]
struct OfSession {
    record: SessionRecord,
    /// True if the session has no row, so that the next run of the server will not know it.
    is_forgotten: bool,
    /// The requests whose replies are stored, each with the sequence of the batch that stored it; 0
    /// for an earlier epoch.
    replies: BTreeMap<u64, u64>,
}

/// The change of [`StoredReplies`] that follows a batch.
#[derive(Debug)]
pub(crate) struct ReplyStored {
    session: SessionId,
    request: u64,
    sequence: u64,
    deleted: Vec<u64>,
}

impl ReplyStored {
    /// Lets the client go on before the reply is safe.
    pub(crate) fn need_not_be_safe(&mut self) {
        self.sequence = 0;
    }
}

impl StoredReplies {
    /// Begins a session.
    pub(crate) fn begin(&mut self, session: SessionId, record: SessionRecord) {
        let of_session = OfSession { record, is_forgotten: false, replies: BTreeMap::new() };
        self.of_session.insert(session, of_session);
    }

    /// Adds a reply that the last run stored for a session.
    pub(crate) fn add(&mut self, session: SessionId, request: RequestId) {
        if let Some(of_session) = self.of_session.get_mut(&session) {
            // The rows with which this run begins are safe.
            of_session.replies.insert(request.0, 0);
        }
    }

    /// Marks all replies as those of an earlier epoch, which are safe.
    pub(crate) fn begin_epoch(&mut self) {
        for of_session in self.of_session.values_mut() {
            of_session.replies.values_mut().for_each(|sequence| *sequence = 0);
        }
    }

    /// Returns all sessions, each with the record in its row; `None` if it has no row.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (SessionId, Option<&SessionRecord>)> + '_ {
        self.of_session
            .iter()
            .map(|(session, it)| (*session, (!it.is_forgotten).then_some(&it.record)))
    }

    /// Returns the record in the row of a session; `None` if it has no row.
    pub(crate) fn row(&self, session: SessionId) -> Option<SessionRecord> {
        let of_session = self.of_session.get(&session).filter(|it| !it.is_forgotten);
        of_session.map(|it| it.record)
    }

    /// Sets the era of a session's leases on bytes.
    pub(crate) fn set_era(&mut self, session: SessionId, era: WriteEra) {
        if let Some(of_session) = self.of_session.get_mut(&session) {
            of_session.record.era = era;
        }
    }

    /// Sets whether a session has no row.
    pub(crate) fn set_forgotten(&mut self, session: SessionId, is_forgotten: bool) {
        if let Some(of_session) = self.of_session.get_mut(&session) {
            of_session.is_forgotten = is_forgotten;
        }
    }

    /// Returns the record of a session without a row; `None` for any other session.
    pub(crate) fn forgotten(&self, session: SessionId) -> Option<SessionRecord> {
        let of_session = self.of_session.get(&session).filter(|it| it.is_forgotten);
        of_session.map(|it| it.record)
    }

    /// Returns the sequence of the last batch that stored a reply to the request; 0 if there is
    /// none, or if an earlier epoch stored it.
    pub(crate) fn sequence(&self, session: SessionId, request: u64) -> u64 {
        let of_session = self.of_session.get(&session);
        of_session.and_then(|it| it.replies.get(&request)).copied().unwrap_or(0)
    }

    /// Returns whether an earlier epoch stored a reply to the request, and this one did not.
    pub(crate) fn is_of_earlier_run(&self, session: SessionId, request: u64) -> bool {
        let of_session = self.of_session.get(&session);
        of_session.and_then(|it| it.replies.get(&request)) == Some(&0)
    }

    /// Returns whether a reply was stored. The table may have lost it.
    pub(crate) fn names(&self, request_key: &RequestKey) -> bool {
        let of_session = self.of_session.get(&request_key.session);
        of_session.is_some_and(|it| it.replies.contains_key(&request_key.request.0))
    }

    /// Returns whether there is no session.
    pub(crate) fn is_empty(&self) -> bool {
        self.of_session.is_empty()
    }

    /// Returns whether a session has begun and not ended.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.of_session.contains_key(&session)
    }

    /// Returns the requests of a session whose replies are stored.
    pub(crate) fn of(&self, session: SessionId) -> impl Iterator<Item = RequestId> + '_ {
        let replies = self.of_session.get(&session).into_iter().map(|it| &it.replies);
        replies.flat_map(BTreeMap::keys).map(|request| RequestId(*request))
    }

    /// Ends a session.
    pub(crate) fn end(&mut self, session: SessionId) {
        self.of_session.remove(&session);
    }

    pub(crate) fn apply(&mut self, change: ReplyStored) {
        if let Some(OfSession { replies, .. }) = self.of_session.get_mut(&change.session) {
            for request in change.deleted {
                replies.remove(&request);
            }
            replies.insert(change.request, change.sequence);
        }
    }
}

impl OpContext {
    const NONE: Self = Self {
        now: Time { seconds: 0, nanos: 0 },
        request_key: None,
        author: None,
        invalidations: None,
        expected: None,
    };

    /// The context of batches that have no time of their own and answer no request.
    pub(crate) const UPKEEP: Self = Self::NONE;

    /// Returns the context of a request.
    #[must_use]
    pub fn by(context: &Context, now: Time) -> Self {
        let request_key = RequestKey::of(context);
        let author = Some(context.session);
        Self { now, request_key, author, ..Self::NONE }
    }
}

impl From<Time> for OpContext {
    fn from(now: Time) -> Self {
        Self { now, ..Self::NONE }
    }
}

impl RequestKey {
    /// Returns the key of a mutation; `None` for direct calls and for requests that may run twice.
    #[must_use]
    pub fn of(context: &Context) -> Option<Self> {
        let Context { session, mutation, acknowledged, origin, .. } = *context;
        if let Some(Origin { session, mutation, acknowledged, .. }) = origin {
            return Some(Self { session, request: RequestId(mutation), acknowledged });
        }
        let key = Self { session, request: RequestId(mutation), acknowledged };
        (session != SessionId::DIRECT && mutation > 0).then_some(key)
    }

    /// Returns the key of the row.
    pub(crate) fn key(&self) -> Vec<u8> {
        key::cached_reply(self.session, self.request)
    }

    /// Adds the reply to the batch of the change, and deletes old replies that the client has
    /// acknowledged and whose sequence is at most `safe`. Returns the change of memory; `None`, and
    /// stores nothing, for a session that has ended.
    pub(crate) fn put(
        &self,
        batch: &mut Batch,
        reply: &Reply,
        stamp: Stamp,
        stored: &StoredReplies,
        safe: u64,
    ) -> Option<ReplyStored> {
        let bytes = encode(reply)?;
        let replies = &stored.of_session.get(&self.session)?.replies;
        batch.put(self.key(), rows::CachedReply { code: 0, reply: &bytes }.encode(stamp));
        let old = replies.range(..=self.acknowledged).filter(|(_, sequence)| **sequence <= safe);
        let deleted: Vec<u64> = old.map(|(request, _)| *request).take(DELETED_AT_ONCE).collect();
        for request in &deleted {
            batch.delete(key::cached_reply(self.session, RequestId(*request)));
        }
        let session = self.session;
        let request = self.request.0;
        Some(ReplyStored { session, request, sequence: stamp.sequence, deleted })
    }
}

/// Encodes the reply to a change of rows; `None` for any other reply.
fn encode(reply: &Reply) -> Option<Vec<u8>> {
    let stored = match reply {
        Reply::Done
        | Reply::Entry(_)
        | Reply::Attr(_)
        | Reply::Removed(_)
        | Reply::Renamed { .. }
        | Reply::Created { .. }
        | Reply::Opened { .. }
        | Reply::Written { .. } => reply,
        Reply::Data(_)
        | Reply::Bytes(_)
        | Reply::Listed { .. }
        | Reply::Offset(_)
        | Reply::Volume(_)
        | Reply::Lock(_)
        | Reply::Found(_)
        | Reply::Tagged(_)
        | Reply::Issued(_)
        | Reply::Access(_)
        | Reply::Audited(_)
        | Reply::Stepped { .. }
        | Reply::Charter { .. }
        | Reply::Revoked { .. }
        | Reply::Unreached { .. }
        | Reply::Clock { .. }
        | Reply::Hashes(_)
        | Reply::Token(_)
        | Reply::Servers(_) => return None,
    };
    let mut out = Vec::with_capacity(192);
    codec::encode_reply(stored, &mut out).ok().map(|()| out)
}

/// Decodes a stored reply; `None` if the bytes are damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<Reply> {
    let mut reply = codec::decode_reply(bytes).ok()?;
    let attr = match &mut reply {
        Reply::Done | Reply::Written { .. } | Reply::Renamed { replaced: None, .. } => {
            return Some(reply);
        }
        Reply::Entry(entry)
        | Reply::Created { entry, .. }
        | Reply::Renamed { replaced: Some(entry), .. } => &mut entry.attr,
        Reply::Attr(attr) | Reply::Removed(attr) | Reply::Opened { attr, .. } => attr,
        _ => return None,
    };
    // A replayed reply may be stale: no cache may keep it.
    attr.volatile = true;
    Some(reply)
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Attr, DataPath, Entry, FileKind, Handle, InodeId, NameHash, RecordedPeer};

    use super::*;

    #[test]
    fn every_reply_is_decoded_and_no_other_bytes_are() {
        let attr = Attr { mode: 0o7777, ..Attr::empty(InodeId::from_raw(7), FileKind::Symlink) };
        let stale = Attr { volatile: true, ..attr };
        let handle = Handle::at(InodeId::from_raw(7), InodeId::ROOT, NameHash(9));
        let replies = |attr| {
            [
                Reply::Done,
                Reply::Entry(Entry { handle, attr }),
                Reply::Attr(attr),
                Reply::Removed(attr),
                Reply::Renamed { moved: handle, replaced: None },
                Reply::Renamed { moved: handle, replaced: Some(Entry { handle, attr }) },
                Reply::Created { entry: Entry { handle, attr }, path: DataPath::Cached },
                Reply::Opened { attr, path: DataPath::Cached },
                Reply::Written { bytes: 3, size: 5 },
            ]
        };
        for (reply, expected) in replies(attr).iter().zip(replies(stale)) {
            let bytes = encode(reply).unwrap();
            assert_eq!(format!("{:?}", decode(&bytes).unwrap()), format!("{expected:?}"));
            for end in 0..bytes.len() {
                assert!(decode(&bytes[..end]).is_none(), "{reply:?} cut at {end}");
            }
            assert!(decode(&[bytes, vec![0]].concat()).is_none());
        }
    }

    /// A reply that is no reply to a stored change is damage, also if it can be decoded.
    #[test]
    fn other_replies_are_not_stored() {
        let mut bytes = Vec::new();
        codec::encode_reply(&Reply::Offset(1), &mut bytes).unwrap();
        assert!(encode(&Reply::Offset(1)).is_none() && decode(&bytes).is_none());
        assert!(decode(&[99, 0]).is_none());
    }

    /// Only what the client has and what is safe goes, a few at a time.
    #[test]
    fn old_replies_are_deleted_a_few_at_a_time() {
        let session = SessionId(7);
        let mut stored = StoredReplies::default();
        stored.begin(session, SessionRecord::new([0; 16], RecordedPeer::User(0)));
        let stamp = |sequence| Stamp { epoch: 1, sequence };
        let mut put = |request, acknowledged, safe| {
            let context =
                Context { session, mutation: request, acknowledged, ..Context::direct(0, 0) };
            let mut batch = Batch::new();
            let key = RequestKey::of(&context).unwrap();
            let change = key.put(&mut batch, &Reply::Done, stamp(request), &stored, safe).unwrap();
            let deleted = change.deleted.clone();
            stored.apply(change);
            deleted
        };
        for request in 1..=8 {
            assert_eq!(put(request, 0, 0), []);
        }
        assert_eq!(put(9, 8, 0), [], "nothing is safe");
        assert_eq!(put(10, 8, 3), [1, 2, 3]);
        assert_eq!(put(11, 9, 11), [4, 5, 6, 7]);
        assert_eq!(put(12, 9, 11), [8, 9]);
        assert_eq!(stored.of(session).map(|request| request.0).collect::<Vec<_>>(), [10, 11, 12]);
        stored.end(session);
        let late = Context { session, mutation: 13, ..Context::direct(0, 0) };
        let mut batch = Batch::new();
        let key = RequestKey::of(&late).unwrap();
        assert!(key.put(&mut batch, &Reply::Done, stamp(13), &stored, 0).is_none());
        assert!(batch.is_empty());
    }
}
