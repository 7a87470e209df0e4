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
//! All numbers are little-endian; `docs/format.md` has the layout.

use pelago_store::key;
use pelago_store::rows::{self, Row, Stamp};
use pelago_store::table::Batch;
use pelago_wire::{
    Attr, Context, Entry, FileKind, Handle, InodeId, NameHash, Reply, RequestId, SessionId, Time,
};

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
}

/// A request that may be repeated: its session and its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestKey {
    session: SessionId,
    request: RequestId,
}

impl OpContext {
    /// That of batches which show no time of their own and answer no request.
    pub(crate) const UPKEEP: Self =
        Self { now: Time { seconds: 0, nanos: 0 }, request_key: None, invalidations: None };

    /// Returns the context of a request.
    #[must_use]
    pub fn by(context: &Context, now: Time) -> Self {
        Self { now, request_key: RequestKey::of(context), invalidations: None }
    }
}

impl From<Time> for OpContext {
    fn from(now: Time) -> Self {
        Self { now, request_key: None, invalidations: None }
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

const DONE: u8 = 1;
const ENTRY: u8 = 2;
const ATTR: u8 = 3;
const REMOVED: u8 = 4;
const RENAMED: u8 = 5;

/// Encodes the reply to a change of names or attributes; `None` for any other.
fn encode(reply: &Reply) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(192);
    match reply {
        Reply::Done => out.push(DONE),
        Reply::Entry(entry) => {
            out.push(ENTRY);
            put_entry(&mut out, entry);
        }
        Reply::Attr(attr) => {
            out.push(ATTR);
            put_attr(&mut out, attr);
        }
        Reply::Removed(attr) => {
            out.push(REMOVED);
            put_attr(&mut out, attr);
        }
        Reply::Renamed { moved, replaced } => {
            out.push(RENAMED);
            put_handle(&mut out, *moved);
            out.push(u8::from(replaced.is_some()));
            if let Some(entry) = replaced {
                put_entry(&mut out, entry);
            }
        }
        _ => return None,
    }
    Some(out)
}

/// Decodes a reply; `None` if the bytes are damaged.
pub(crate) fn decode(mut bytes: &[u8]) -> Option<Reply> {
    let rest = &mut bytes;
    let reply = match take::<1>(rest)? {
        [DONE] => Reply::Done,
        [ENTRY] => Reply::Entry(take_entry(rest)?),
        [ATTR] => Reply::Attr(take_attr(rest)?),
        [REMOVED] => Reply::Removed(take_attr(rest)?),
        [RENAMED] => {
            let moved = take_handle(rest)?;
            let replaced = match take::<1>(rest)? {
                [0] => None,
                [1] => Some(take_entry(rest)?),
                _ => return None,
            };
            Reply::Renamed { moved, replaced }
        }
        _ => return None,
    };
    bytes.is_empty().then_some(reply)
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_handle(out, entry.handle);
    put_attr(out, &entry.attr);
}

fn put_handle(out: &mut Vec<u8>, handle: Handle) {
    for number in [handle.ino.raw(), handle.dir.raw(), handle.hash.0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn put_attr(out: &mut Vec<u8>, attr: &Attr) {
    out.extend_from_slice(&attr.ino.raw().to_le_bytes());
    out.push(attr.kind.number());
    out.extend_from_slice(&attr.mode.to_le_bytes());
    for number in [attr.links, attr.uid, attr.gid, attr.rdev] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [attr.size, attr.blocks] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for time in [attr.atime, attr.mtime, attr.ctime, attr.btime] {
        out.extend_from_slice(&time.seconds.to_le_bytes());
        out.extend_from_slice(&time.nanos.to_le_bytes());
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest).map(u32::from_le_bytes)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_le_bytes)
}

fn take_ino(rest: &mut &[u8]) -> Option<InodeId> {
    take_u64(rest).map(InodeId::from_raw)
}

fn take_entry(rest: &mut &[u8]) -> Option<Entry> {
    Some(Entry { handle: take_handle(rest)?, attr: take_attr(rest)? })
}

fn take_handle(rest: &mut &[u8]) -> Option<Handle> {
    let (ino, dir) = (take_ino(rest)?, take_ino(rest)?);
    Some(Handle { ino, dir, hash: NameHash(take_u64(rest)?) })
}

fn take_time(rest: &mut &[u8]) -> Option<Time> {
    let seconds = take(rest).map(i64::from_le_bytes)?;
    let nanos = take_u32(rest).filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Time { seconds, nanos })
}

fn take_attr(rest: &mut &[u8]) -> Option<Attr> {
    Some(Attr {
        ino: take_ino(rest)?,
        kind: take::<1>(rest).and_then(|[kind]| FileKind::from_number(kind))?,
        mode: take(rest).map(u16::from_le_bytes)?,
        links: take_u32(rest)?,
        uid: take_u32(rest)?,
        gid: take_u32(rest)?,
        rdev: take_u32(rest)?,
        size: take_u64(rest)?,
        blocks: take_u64(rest)?,
        atime: take_time(rest)?,
        mtime: take_time(rest)?,
        ctime: take_time(rest)?,
        btime: take_time(rest)?,
        // A replayed reply may be stale: no cache may keep it.
        volatile: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reply_is_decoded_and_no_other_bytes_are() {
        let time = Time { seconds: -5, nanos: 999_999_999 };
        let attr = Attr {
            mode: 0o7777,
            uid: 2,
            gid: 3,
            rdev: 4,
            size: 5,
            blocks: 6,
            atime: time,
            mtime: Time { seconds: 1, nanos: 0 },
            ctime: Time { seconds: 2, nanos: 0 },
            btime: Time { seconds: 3, nanos: 0 },
            volatile: true,
            ..Attr::empty(InodeId::from_raw(7), FileKind::Symlink)
        };
        let handle = Handle::at(InodeId::from_raw(7), InodeId::ROOT, NameHash(9));
        let replies = [
            Reply::Done,
            Reply::Entry(Entry { handle, attr }),
            Reply::Attr(attr),
            Reply::Removed(attr),
            Reply::Renamed { moved: handle, replaced: None },
            Reply::Renamed { moved: handle, replaced: Some(Entry { handle, attr }) },
        ];
        for reply in replies {
            let bytes = encode(&reply).unwrap();
            assert_eq!(format!("{:?}", decode(&bytes).unwrap()), format!("{reply:?}"));
            for end in 0..bytes.len() {
                assert!(decode(&bytes[..end]).is_none(), "{reply:?} cut at {end}");
            }
            assert!(decode(&[bytes, vec![0]].concat()).is_none());
        }
        assert!(encode(&Reply::Bytes(Vec::new())).is_none());
        assert!(decode(&[99]).is_none());
    }
}
