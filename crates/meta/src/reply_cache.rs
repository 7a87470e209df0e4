//! Stored replies, so that a repeated request is not carried out twice.
//!
//! A client that lost its connection cannot know whether its last requests were carried out. It
//! sends them again with the same ids. The reply to each request that changes names or attributes
//! is stored in a row of the batch of the change itself: either both are there, or neither. A
//! request that failed has changed nothing, and is carried out again.
//!
//! Direct calls cannot lose a reply, so none is stored for them. A session repeats only requests
//! among its last 1024; each new reply deletes the one before them.
//!
//! A stored reply is encoded as on the wire (`docs/protocol.md`).

use pelago_store::key;
use pelago_store::rows::{self, Row, Stamp};
use pelago_store::table::Batch;
use pelago_wire::{Context, InodeId, Reply, RequestId, SessionId, Time, codec};

/// Replies that are stored for each session.
pub(crate) const STORED_REPLIES: u64 = 1024;

/// The time of an operation, and the request that it carries out.
#[derive(Debug, Clone, Copy)]
pub struct OpContext {
    /// The time that its changes show.
    pub now: Time,
    /// The request; `None` if its reply is not stored.
    pub request_key: Option<RequestKey>,
    /// [`crate::durability::Durability::invalidations`] before the caller read what the operation
    /// relies on; with another count at its commit the operation fails.
    pub invalidations: Option<u64>,
    /// What the names of the operation must lead to; with other inodes it fails with `Busy`.
    pub expected: Option<ExpectedNodes>,
}

/// The inodes that the names of an operation led to before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedNodes {
    /// That of the name, of a rename the old one.
    pub first: Option<InodeId>,
    /// That of the new name of a rename.
    pub second: Option<InodeId>,
}

/// A request that may be repeated: its session and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestKey {
    session: SessionId,
    request: RequestId,
}

impl OpContext {
    const NONE: Self = Self {
        now: Time { seconds: 0, nanos: 0 },
        request_key: None,
        invalidations: None,
        expected: None,
    };

    /// That of batches which show no time of their own and answer no request.
    pub(crate) const UPKEEP: Self = Self::NONE;

    /// Returns the context of a request.
    #[must_use]
    pub fn by(context: &Context, now: Time) -> Self {
        Self { now, request_key: RequestKey::of(context), ..Self::NONE }
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
        let (session, request) = (context.session, RequestId(context.mutation));
        (session != SessionId::DIRECT && context.mutation > 0).then_some(Self { session, request })
    }

    /// Returns the key of the row.
    pub(crate) fn key(&self) -> Vec<u8> {
        key::cached_reply(self.session, self.request)
    }

    /// Puts the reply into the batch of the change, and deletes the one that is too old.
    pub(crate) fn put(&self, batch: &mut Batch, reply: &Reply, stamp: Stamp) {
        let Some(bytes) = encode(reply) else { return };
        batch.put(self.key(), rows::CachedReply { code: 0, reply: &bytes }.encode(stamp));
        if let Some(old) = self.request.0.checked_sub(STORED_REPLIES) {
            batch.delete(key::cached_reply(self.session, RequestId(old)));
        }
    }
}

/// Encodes the reply to a change of names or attributes; `None` for any other.
fn encode(reply: &Reply) -> Option<Vec<u8>> {
    let stored = match reply {
        Reply::Done
        | Reply::Entry(_)
        | Reply::Attr(_)
        | Reply::Removed(_)
        | Reply::Renamed { .. } => reply,
        Reply::Created { .. }
        | Reply::Opened { .. }
        | Reply::Data(_)
        | Reply::Bytes(_)
        | Reply::Written { .. }
        | Reply::Listed { .. }
        | Reply::Offset(_)
        | Reply::Volume(_)
        | Reply::Lock(_) => return None,
    };
    let mut out = Vec::with_capacity(192);
    codec::encode_reply(stored, &mut out).ok().map(|()| out)
}

/// Decodes a stored reply; `None` if the bytes are damaged.
pub(crate) fn decode(bytes: &[u8]) -> Option<Reply> {
    let mut reply = codec::decode_reply(bytes).ok()?;
    let attr = match &mut reply {
        Reply::Done | Reply::Renamed { replaced: None, .. } => return Some(reply),
        Reply::Entry(entry) | Reply::Renamed { replaced: Some(entry), .. } => &mut entry.attr,
        Reply::Attr(attr) | Reply::Removed(attr) => attr,
        _ => return None,
    };
    // A replayed reply may be stale: no cache may keep it.
    attr.volatile = true;
    Some(reply)
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Attr, Entry, FileKind, Handle, InodeId, NameHash};

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
}
