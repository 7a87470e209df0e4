//! The encoding of requests and replies, as `docs/protocol.md` specifies it.
//!
//! Numbers are little-endian, and fields follow each other without padding. Decoding checks every
//! length against its limit before it takes memory, uses the whole body, and never panics. The
//! bytes of a file are the bulk of a frame and no part of a body.

pub use field::{DecodeError, LayoutRow};
use field::{Field, Reader};
use fields::ErrorPayload;
pub use fields::RECORDS;
use lists::RecalledThings;
pub use lists::chain_bytes;
pub use tables::{REPLIES, REQUESTS};

use crate::attr::{Attr, Time};
use crate::error::{Code, Error};
use crate::id::{Handle, SessionId};
use crate::leases::{Granted, Leases};
use crate::local_cache::Recalled;
use crate::origin::Origin;
use crate::reply::{DirEntry, Entry, Reply};
use crate::request::Request;
use crate::{limits, reserved};

mod access;
pub(crate) mod field;
pub(crate) mod fields;
mod flag_sets;
pub(crate) mod lists;
mod search;
mod set_attr;
mod tables;

/// A request with its caller, as a body has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// User id of the caller, as the volume numbers users.
    pub uid: u32,
    /// Group id, as the volume numbers groups.
    pub gid: u32,
    /// The number of the mutation in its session, from 1 and without gaps; 0 for a request that is
    /// none.
    pub mutation: u64,
    /// The request.
    pub request: Request,
}

/// The moment of a change: the stamp of its batch, or zeros for a request that changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ReplyStamp {
    /// The server's turn of owning the shard.
    pub epoch: u32,
    /// The number of the change in its shard; 0 if there is none.
    pub sequence: u64,
}

/// The parts of the answer to a mutation with which its repetition must agree: the mutation was
/// done, and not safe, when the server's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// The stamp of the answer: the place of the change among all others.
    pub stamp: ReplyStamp,
    /// The inode that the change has made, or whose bytes it has written.
    pub node: Option<Handle>,
    /// The time that the change has shown.
    pub time: Option<Time>,
}

/// The answer to a request.
#[derive(Debug)]
pub struct DecodedReply {
    /// The moment of its change.
    pub stamp: ReplyStamp,
    /// The reply, or the error.
    pub result: Result<Reply, Error>,
    /// The leases, and the attributes of what was changed.
    pub granted: Granted,
}

/// The status of a reply without an error; others are numbers of [`Code`].
const OK: u16 = 0;

const MOST_REPLAYED: usize =
    u32::MOST + u64::MOST + <Option<Handle> as Field>::MOST + <Option<Time> as Field>::MOST;
/// Bytes of user, group and mutation number.
const MOST_CALLER: usize = 2 * u32::MOST + u64::MOST;
const MOST_CALL: usize = MOST_CALLER + tables::MOST_REQUEST;
/// Bytes of an answer besides its reply.
const MOST_ANSWER_START: usize = u32::MOST + u64::MOST + u16::MOST + MOST_GRANTED;
const MOST_ANSWER: usize = MOST_ANSWER_START + tables::MOST_REPLY;
const MOST_GRANTED: usize = <Option<Attr> as Field>::MOST + Leases::MOST;
const _: () = assert!(CLIENT_BODY_BYTES <= limits::FRAME_BODY_BYTES, "every request fits a frame");
const _: () = assert!(RecalledThings::MOST <= limits::RECALL_BYTES, "every recall fits a frame");
const _: () = assert!(MOST_ANSWER <= limits::FRAME_BODY_BYTES, "every reply fits a frame");
const _: () = assert!(ErrorPayload::MOST <= tables::MOST_REPLY, "every error fits a frame");

/// Bytes of the longest body that a client sends: of a request that is passed on and replayed.
pub const CLIENT_BODY_BYTES: usize = ORIGIN_BYTES + MOST_REPLAYED + MOST_CALL;

/// Bytes of an origin.
pub const ORIGIN_BYTES: usize = 25;

/// The bytes of the mutation number in the body of a request: after user and group.
pub const MUTATION: std::ops::Range<usize> = 8..16;

/// Appends the body of a request; `mutation` is 0 for a request that is none.
///
/// # Errors
/// Returns the error with which every server refuses a name or a value over its limit: such a
/// request is not sent. `out` is then as it was.
pub fn encode_call(
    uid: u32,
    gid: u32,
    mutation: u64,
    request: &Request,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let start = out.len();
    let result = u32::put(&uid, out)
        .and_then(|()| u32::put(&gid, out))
        .and_then(|()| u64::put(&mutation, out))
        .and_then(|()| tables::put_request(request, out));
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Decodes the body of a request.
///
/// # Errors
/// Returns [`DecodeError`] if the body is no request of this version.
pub fn decode_call(body: &[u8]) -> Result<Call, DecodeError> {
    let mut from = Reader::new(body, "a request");
    let call = Call {
        uid: u32::take(from.at("the request's uid"))?,
        gid: u32::take(from.at("the request's gid"))?,
        mutation: u64::take(from.at("the request's mutation"))?,
        request: tables::take_request(&mut from)?,
    };
    from.finish("a request")?;
    Ok(call)
}

/// Appends the bytes that precede the body of a request in a frame that replays it.
pub fn encode_replayed(replayed: &Replayed, out: &mut Vec<u8>) {
    let Replayed { stamp, node, time } = replayed;
    let put = u32::put(&stamp.epoch, out)
        .and_then(|()| u64::put(&stamp.sequence, out))
        .and_then(|()| <Option<Handle> as Field>::put(node, out))
        .and_then(|()| <Option<Time> as Field>::put(time, out));
    debug_assert!(put.is_ok(), "none of these has a limit");
}

/// Decodes the body of a frame that replays a request. Returns the body of the request, too, as it
/// was sent first.
///
/// # Errors
/// Returns [`DecodeError`] if the body is no such message of this version.
pub fn decode_replay(body: &[u8]) -> Result<(Replayed, &[u8]), DecodeError> {
    let mut from = Reader::new(body, "a replay");
    let stamp = ReplyStamp {
        epoch: u32::take(from.at("the replay's epoch"))?,
        sequence: u64::take(from.at("the replay's sequence"))?,
    };
    let node = <Option<Handle> as Field>::take(from.at("the replay's node"))?;
    let time = <Option<Time> as Field>::take(from.at("the replay's time"))?;
    let call = from.bytes(from.left())?;
    Ok((Replayed { stamp, node, time }, call))
}

/// Appends the origin of a request, which precedes its body in a frame that passes it on.
pub fn encode_origin(origin: &Origin, out: &mut Vec<u8>) {
    let Origin { session, mutation, acknowledged, may_be_repeated } = origin;
    let put = u64::put(&session.0, out)
        .and_then(|()| u64::put(mutation, out))
        .and_then(|()| u64::put(acknowledged, out))
        .and_then(|()| bool::put(may_be_repeated, out));
    debug_assert!(put.is_ok(), "none of these has a limit");
}

/// Decodes an origin. Returns the bytes after it, too.
///
/// # Errors
/// Returns [`DecodeError`] if the body does not begin with an origin.
pub fn decode_origin(body: &[u8]) -> Result<(Origin, &[u8]), DecodeError> {
    let mut from = Reader::new(body, "a request that is passed on");
    let origin = Origin {
        session: SessionId(u64::take(from.at("the session of the origin"))?),
        mutation: u64::take(from.at("the mutation of the origin"))?,
        acknowledged: u64::take(from.at("the acknowledged mutation of the origin"))?,
        may_be_repeated: bool::take(from.at("the repetition of the origin"))?,
    };
    let rest = from.bytes(from.left())?;
    Ok((origin, rest))
}

/// Appends the body of the answer to a request. The caller sends [`Reply::bulk`] after it.
pub fn encode_answer(
    stamp: ReplyStamp,
    result: &Result<Reply, Error>,
    granted: Granted,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    if try_encode_answer(stamp, result, granted, out).is_err() {
        // Only a bug of the server makes a reply over its limit. The client must get an answer.
        out.truncate(start);
        let bug = try_encode_answer(stamp, &Err(Code::Bug.into()), Granted::default(), out);
        debug_assert!(bug.is_ok(), "an error without a payload has no limit");
    }
}

fn try_encode_answer(
    stamp: ReplyStamp,
    result: &Result<Reply, Error>,
    granted: Granted,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    u32::put(&stamp.epoch, out)?;
    u64::put(&stamp.sequence, out)?;
    match result {
        Ok(reply) => {
            u16::put(&OK, out)?;
            tables::put_reply(reply, out)?;
            <Option<Attr> as Field>::put(&granted.changed, out)?;
        }
        Err(error) => {
            Code::put(&error.code, out)?;
            ErrorPayload::put(&Vec::new(), out)?;
        }
    }
    Leases::put(&granted.leases, out)
}

/// Decodes the body of the answer to a request; `bulk` has the bulk bytes of its frame, which the
/// reply keeps without a copy.
///
/// # Errors
/// Returns [`DecodeError`] if the body is no answer of this version, or if there are bulk bytes and
/// the reply is not [`Reply::Data`].
pub fn decode_answer(body: &[u8], bulk: Vec<u8>) -> Result<DecodedReply, DecodeError> {
    let mut from = Reader::with_bulk(body, bulk, "an answer");
    let stamp = ReplyStamp {
        epoch: u32::take(from.at("the answer's epoch"))?,
        sequence: u64::take(from.at("the answer's sequence"))?,
    };
    let mut changed = None;
    let result = match u16::take(from.at("the answer's status"))? {
        OK => {
            let reply = tables::take_reply(&mut from)?;
            changed = <Option<Attr> as Field>::take(from.at("the changed attributes"))?;
            Ok(reply)
        }
        number => {
            let code = Code::from_number(number)
                .ok_or_else(|| from.not_spoken(reserved::ERRORS, number))?;
            ErrorPayload::take(from.at("the error's payload"))?;
            Err(Error::new(code))
        }
    };
    let leases = Leases::take(from.at("the answer's leases"))?;
    from.finish("an answer")?;
    Ok(DecodedReply { stamp, result, granted: Granted { leases, changed, may_be_done: false } })
}

/// Appends the body of a recall.
///
/// # Errors
/// If they are more than a recall can name.
pub fn encode_recall(recalled: &Recalled, out: &mut Vec<u8>) -> Result<(), Error> {
    let start = out.len();
    let put = RecalledThings::put(recalled, out);
    if put.is_err() {
        out.truncate(start);
    }
    put
}

/// Decodes the body of a recall.
///
/// # Errors
/// Returns [`DecodeError`] if the body is no recall of this version.
pub fn decode_recall(body: &[u8]) -> Result<Recalled, DecodeError> {
    let mut from = Reader::new(body, "a recall");
    let recalled = RecalledThings::take(from.at("what is recalled"))?;
    from.finish("a recall")?;
    Ok(recalled)
}

/// Appends a reply alone, as it is stored for a repeated request: its number and its fields.
///
/// # Errors
/// Returns [`Code::Bug`] or the like for a reply over its limit.
pub fn encode_reply(reply: &Reply, out: &mut Vec<u8>) -> Result<(), Error> {
    tables::put_reply(reply, out)
}

/// Decodes a reply of [`encode_reply`]. The bytes of [`Reply::Data`] are no part of it.
///
/// # Errors
/// Returns [`DecodeError`] if the bytes are no reply.
pub fn decode_reply(bytes: &[u8]) -> Result<Reply, DecodeError> {
    let mut from = Reader::new(bytes, "a reply");
    let reply = tables::take_reply(&mut from)?;
    from.finish("a reply")?;
    Ok(reply)
}

impl Reply {
    /// Returns the bulk bytes, which are sent after the body: those of [`Reply::Data`], otherwise
    /// none.
    #[must_use]
    pub fn bulk(&self) -> &[u8] {
        match self {
            Self::Data(buffer) => buffer.as_bytes(),
            _ => &[],
        }
    }
}

impl Request {
    /// Returns whether bulk bytes may follow the body.
    #[must_use]
    pub const fn has_bulk(&self) -> bool {
        self.describe().operation.has_bulk()
    }

    /// Returns the most bytes that the answer may have, bulk included, by the arguments of the
    /// request.
    #[must_use]
    pub const fn answer_bytes(&self) -> usize {
        let longest = self.describe().operation.longest_answer();
        let asked = match self {
            Self::Read { size, .. } => return longest + least(*size as usize, limits::IO_BYTES),
            Self::ReadLink { .. } => limits::TARGET_BYTES,
            Self::List { entries, attributes, .. } => {
                let each = if *attributes { DirEntry::MOST } else { DirEntry::MOST - Entry::MOST };
                least(*entries as usize, limits::LIST_ENTRIES) * each
            }
            // The longest answer of its kind bounds any other request.
            _ => return longest,
        };
        least(longest, MOST_ANSWER_START + ANSWER_ROOM + asked)
    }
}

/// Bytes of a reply besides those of a list or a string in it.
const ANSWER_ROOM: usize = 16;

const fn least(one: usize, other: usize) -> usize {
    if one < other { one } else { other }
}
