//! The messages between the primary of a volume and its mirror.
//!
//! The primary connects with the role [`crate::handshake::Hello::MIRROR`] and names itself
//! ([`GroupPart::Offer`]). The mirror answers with its state ([`GroupState`]). From then on the
//! primary sends *groups*: the changes between two moments, chosen so that the mirror has one state
//! of the volume after each. A group is a [`GroupPart::Begin`], parts in any number, and a
//! [`GroupPart::End`]; each part is the body of a frame. The mirror answers each `End`.
//!
//! Rows and content files are bytes here; only the store can read them.

use crate::attr::Time;
use crate::codec::DecodeError;
use crate::codec::field::{Field, Reader};
use crate::codec::fields::Text;
use crate::error::{Code, Error};
use crate::id::{Generation, InodeId};
use crate::limits;

pub use compare::{ComparedBlocks, ComparedRange};
pub use link::{CloseLink, Groups, LinkError, MirrorLink, Mirrors, OfferRefused, TakenCount, Via};

mod compare;
mod link;

/// The run of a primary: random bytes. A mirror that has the state of another run needs a new copy.
pub type PrimaryRun = [u8; 16];

/// The kind of a group, by the state that a mirror has after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupKind {
    /// The state of the mirror before, and the changes of the group.
    Change,
    /// None: it is all of the volume, but its content files are of different moments. It is put
    /// beside the state of the mirror.
    Copy,
    /// The copy before, and the changes of the group. It takes the place of the state before.
    Completion,
    /// The state of the mirror before, of whatever run, and what differs from it.
    Resync,
}

/// A row that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowChange {
    /// The key: 1 to [`limits::ROW_KEY_BYTES`] bytes.
    pub key: Vec<u8>,
    /// The value, at most [`limits::ROW_BYTES`] bytes; `None` if the row is gone.
    pub value: Option<Vec<u8>>,
}

/// A file beside the table that a mirror has, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeFile {
    /// `format`.
    Format,
    /// `table/seed`.
    Seed,
    /// `policy`.
    Policy,
    /// `clients`.
    Clients,
    /// `keys`.
    Keys,
}

impl VolumeFile {
    /// Every file, in the order of the numbers.
    pub const ALL: [Self; 5] = [Self::Format, Self::Seed, Self::Policy, Self::Clients, Self::Keys];

    const fn number(self) -> u8 {
        match self {
            Self::Format => 1,
            Self::Seed => 2,
            Self::Policy => 3,
            Self::Clients => 4,
            Self::Keys => 5,
        }
    }
}

/// A part of a group, or a message between two groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupPart {
    /// The first message: the primary names itself.
    Offer {
        /// Its reign: rises with each promotion, from 1.
        reign: u64,
        /// Its run.
        run: PrimaryRun,
    },
    /// A group begins.
    Begin {
        /// Its number in the run, from 1 and without gaps.
        number: u64,
        /// Its kind.
        kind: GroupKind,
        /// The time of the cut, by the clock of the primary.
        cut: Time,
    },
    /// Rows that have changed, in the order of their keys.
    Rows(Vec<RowChange>),
    /// All rows of a range of keys: others that the mirror has in the range are deleted. All have
    /// values.
    Range {
        /// The first key of the range; empty for that of the first row.
        from: Vec<u8>,
        /// The first key after the range; empty if no row comes after it.
        until: Vec<u8>,
        /// The rows, in the order of their keys.
        rows: Vec<RowChange>,
    },
    /// The content file that the next parts are of: it has this size and time afterwards.
    Content {
        /// The inode.
        ino: InodeId,
        /// The generation of its content.
        generation: Generation,
        /// Bytes.
        size: u64,
        /// The time of its last change.
        mtime: Time,
    },
    /// Bytes of the content file.
    Bytes {
        /// The offset of the first byte.
        offset: u64,
        /// The bytes: 1 to [`limits::GROUP_BYTES`].
        bytes: Vec<u8>,
    },
    /// A hole of the content file, which reads as zeros.
    Hole {
        /// The offset of its first byte.
        offset: u64,
        /// Its bytes.
        length: u64,
    },
    /// A file beside the table, in one part.
    File {
        /// The file.
        file: VolumeFile,
        /// Its bytes, at most [`limits::VOLUME_FILE_BYTES`]; `None` if there is none any more.
        bytes: Option<Vec<u8>>,
    },
    /// The group is complete.
    End {
        /// XXH3 of the bodies of all its parts, from `Begin` to the one before this.
        sum: u64,
    },
    /// The group is given up: the mirror forgets its parts.
    Abort,
    /// A question within a resync, and no part of it: which of these ranges have other rows at the
    /// mirror? Answered by [`MirrorSays::Differ`].
    Compare(Vec<ComparedRange>),
    /// The question which of these content files the mirror does not have, answered in the same
    /// way.
    Contents(Vec<(InodeId, Generation)>),
    /// The question which of these blocks of a content file are others at the mirror, answered in
    /// the same way.
    Blocks(ComparedBlocks),
    /// The primary lives; answered by [`MirrorSays::Pong`].
    Ping,
    /// The primary has stopped, and everything that it did is in the groups before: the mirror is
    /// to be the primary. Answered by [`MirrorSays::Promoted`].
    HandOver,
    /// The parts that follow travel in datagrams ([`crate::datagram`]), if the mirror can take
    /// them: the first message after the answer to the offer, or none. Answered by
    /// [`MirrorSays::Datagrams`] or [`MirrorSays::NoDatagrams`].
    Datagrams,
    /// The question for the key of the run, which seals the parts that a relay passes on
    /// ([`crate::relay`]): between two groups. Answered by [`MirrorSays::RelayKey`].
    RelayKey,
}

/// The proof of a mirror that it has a group: HMAC-SHA-256 of the group's number, with a key that
/// the primary has and its relay has not.
pub type GroupProof = [u8; 32];

/// A message of the mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// The reign of the mirror's state; 0 if it has none.
    pub reign: u64,
    /// The run of the primary from which the state is.
    pub run: PrimaryRun,
    /// The last group that it has on stable storage.
    pub number: u64,
    /// The message.
    pub says: MirrorSays,
}

/// A message of a mirror about its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MirrorSays {
    /// The answer to an offer.
    Ready,
    /// The group is on stable storage here.
    Safe,
    /// The answer to a ping.
    Pong,
    /// The group cannot be stored, and is given up, for this reason (for people).
    Failed(String),
    /// The answer to a question: whether each thing that it names differs, in its order.
    Differ(Vec<bool>),
    /// The answer to [`GroupPart::HandOver`]: it is the primary from now on, with the reign of the
    /// message.
    Promoted,
    /// The answer to [`GroupPart::Datagrams`]: they are taken from now on.
    Datagrams,
    /// The other answer: the parts come over the connection, for this reason (for people).
    NoDatagrams(String),
    /// The answer to [`GroupPart::RelayKey`].
    RelayKey([u8; 32]),
    /// To a relay, in the place of [`MirrorSays::Safe`], and of [`MirrorSays::Ready`] if the state
    /// is of the run that it offers: the group is on stable storage here, and this proves it to the
    /// primary.
    Proof(GroupProof),
}

const OFFER: u8 = 0;
const BEGIN: u8 = 1;
const ROWS: u8 = 2;
const CONTENT: u8 = 3;
const BYTES: u8 = 4;
const HOLE: u8 = 5;
const FILE: u8 = 6;
const END: u8 = 7;
const ABORT: u8 = 8;
const PING: u8 = 9;
const RANGE: u8 = 10;
const COMPARE: u8 = 11;
const CONTENTS: u8 = 12;
const BLOCKS: u8 = 13;
const HAND_OVER: u8 = 14;
const DATAGRAMS: u8 = 15;
const RELAY_KEY: u8 = 16;

const READY: u8 = 0;
const SAFE: u8 = 1;
const PONG: u8 = 2;
const FAILED: u8 = 3;
const DIFFER: u8 = 4;
const PROMOTED: u8 = 5;
const TAKES_DATAGRAMS: u8 = 6;
const NO_DATAGRAMS: u8 = 7;
const GIVES_RELAY_KEY: u8 = 8;
const PROOF: u8 = 9;

/// The greatest part: a row beside as many others as fit, or bytes with their offset.
const MOST_PART: usize = 1 + limits::GROUP_BYTES + 7 + limits::ROW_KEY_BYTES + limits::ROW_BYTES;
const _: () = assert!(MOST_PART <= limits::FRAME_BODY_BYTES, "each part fits a frame");
const _: () = assert!(limits::VOLUME_FILE_BYTES + 6 <= limits::FRAME_BODY_BYTES);

impl GroupPart {
    /// Encodes the part: its number u8, and its fields.
    ///
    /// # Errors
    /// `TooBig` if a limit is exceeded.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        match self {
            Self::Offer { reign, run } => {
                out.push(OFFER);
                u64::put(reign, &mut out)?;
                out.extend_from_slice(run);
            }
            Self::Begin { number, kind, cut } => {
                out.push(BEGIN);
                u64::put(number, &mut out)?;
                out.push(kind.number());
                Time::put(cut, &mut out)?;
            }
            Self::Rows(rows) => {
                out.push(ROWS);
                rows.iter().try_for_each(|row| row.put(&mut out))?;
            }
            Self::Range { from, until, rows } => {
                out.push(RANGE);
                put_bound(from, &mut out)?;
                put_bound(until, &mut out)?;
                rows.iter().try_for_each(|row| row.put(&mut out))?;
            }
            Self::Compare(ranges) => {
                out.push(COMPARE);
                put_all(ranges, limits::COMPARED, &mut out, ComparedRange::put)?;
            }
            Self::Contents(contents) => {
                out.push(CONTENTS);
                put_all(contents, limits::COMPARED, &mut out, |(ino, generation), out| {
                    u64::put(&ino.raw(), out)?;
                    u32::put(&generation.0, out)
                })?;
            }
            Self::Blocks(blocks) => {
                out.push(BLOCKS);
                blocks.put(&mut out)?;
            }
            Self::Content { ino, generation, size, mtime } => {
                out.push(CONTENT);
                u64::put(&ino.raw(), &mut out)?;
                u32::put(&generation.0, &mut out)?;
                u64::put(size, &mut out)?;
                Time::put(mtime, &mut out)?;
            }
            Self::Bytes { offset, bytes } => {
                out.push(BYTES);
                u64::put(offset, &mut out)?;
                put_bytes(bytes, limits::GROUP_BYTES, &mut out)?;
            }
            Self::Hole { offset, length } => {
                out.push(HOLE);
                u64::put(offset, &mut out)?;
                u64::put(length, &mut out)?;
            }
            Self::File { file, bytes } => {
                out.extend([FILE, file.number(), u8::from(bytes.is_some())]);
                let bytes = bytes.as_deref().unwrap_or_default();
                put_bytes(bytes, limits::VOLUME_FILE_BYTES, &mut out)?;
            }
            Self::End { sum } => {
                out.push(END);
                u64::put(sum, &mut out)?;
            }
            Self::Abort => out.push(ABORT),
            Self::Ping => out.push(PING),
            Self::HandOver => out.push(HAND_OVER),
            Self::Datagrams => out.push(DATAGRAMS),
            Self::RelayKey => out.push(RELAY_KEY),
        }
        if out.len() > limits::FRAME_BODY_BYTES { Err(Code::TooBig.into()) } else { Ok(out) }
    }

    /// Decodes a part.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is no part of this version.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(body, "Group");
        let [number] = from.at("Group.part").array()?;
        let part = match number {
            OFFER => Self::Offer {
                reign: u64::take(from.at("Offer.reign"))?,
                run: from.at("Offer.run").array()?,
            },
            BEGIN => Self::Begin {
                number: u64::take(from.at("Begin.number"))?,
                kind: GroupKind::take(from.at("Begin.kind"))?,
                cut: Time::take(from.at("Begin.cut"))?,
            },
            ROWS => {
                let mut rows = Vec::new();
                while from.left() > 0 {
                    rows.push(RowChange::take(&mut from)?);
                }
                Self::Rows(rows)
            }
            RANGE => {
                let start = take_bound(from.at("Range.from"))?;
                let until = take_bound(from.at("Range.until"))?;
                let mut rows = Vec::new();
                while from.left() > 0 {
                    let row = RowChange::take(&mut from)?;
                    let is_within = row.key >= start && (until.is_empty() || row.key < until);
                    if row.value.is_none() || !is_within {
                        return Err(from.invalid());
                    }
                    rows.push(row);
                }
                Self::Range { from: start, until, rows }
            }
            COMPARE => Self::Compare(take_all(from.at("Compare"), ComparedRange::take)?),
            CONTENTS => Self::Contents(take_all(from.at("Contents"), |from| {
                let ino = InodeId::from_raw(u64::take(from)?);
                Ok((ino, Generation(u32::take(from)?)))
            })?),
            BLOCKS => Self::Blocks(ComparedBlocks::take(from.at("Blocks"))?),
            CONTENT => Self::Content {
                ino: InodeId::from_raw(u64::take(from.at("Content.ino"))?),
                generation: Generation(u32::take(from.at("Content.generation"))?),
                size: take_offset(from.at("Content.size"))?,
                mtime: Time::take(from.at("Content.mtime"))?,
            },
            BYTES => {
                let offset = take_offset(from.at("Bytes.offset"))?;
                let bytes = take_bytes(from.at("Bytes.bytes"), limits::GROUP_BYTES)?;
                check_range(&from, offset, bytes.len() as u64)?;
                Self::Bytes { offset, bytes }
            }
            HOLE => {
                let offset = take_offset(from.at("Hole.offset"))?;
                let length = take_offset(from.at("Hole.length"))?;
                check_range(&from, offset, length)?;
                Self::Hole { offset, length }
            }
            FILE => {
                let [file] = from.at("File.file").array()?;
                let file = VolumeFile::ALL.into_iter().find(|known| known.number() == file);
                let file = file.ok_or_else(|| from.invalid())?;
                let is_there = bool::take(from.at("File.is_there"))?;
                let bytes = take_bytes(from.at("File.bytes"), limits::VOLUME_FILE_BYTES)?;
                if !is_there && !bytes.is_empty() {
                    return Err(from.invalid());
                }
                Self::File { file, bytes: is_there.then_some(bytes) }
            }
            END => Self::End { sum: u64::take(from.at("End.sum"))? },
            ABORT => Self::Abort,
            PING => Self::Ping,
            HAND_OVER => Self::HandOver,
            DATAGRAMS => Self::Datagrams,
            RELAY_KEY => Self::RelayKey,
            number => return Err(from.unknown(number.into())),
        };
        from.finish("Group")?;
        Ok(part)
    }
}

impl RowChange {
    /// Returns the bytes that the row takes in a part.
    #[must_use]
    pub fn bytes(&self) -> usize {
        7 + self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }

    fn put(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let too_big = || Error::from(Code::TooBig);
        if self.key.is_empty() || self.key.len() > limits::ROW_KEY_BYTES {
            return Err(too_big());
        }
        u16::put(&u16::try_from(self.key.len()).map_err(|_| too_big())?, out)?;
        out.extend_from_slice(&self.key);
        out.push(u8::from(self.value.is_some()));
        put_bytes(self.value.as_deref().unwrap_or_default(), limits::ROW_BYTES, out)
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = from.at("Rows.key").length::<u16>(limits::ROW_KEY_BYTES)?;
        if length == 0 {
            return Err(from.invalid());
        }
        let key = from.bytes(length)?.to_vec();
        let is_there = bool::take(from.at("Rows.is_there"))?;
        let value = take_bytes(from.at("Rows.value"), limits::ROW_BYTES)?;
        if !is_there && !value.is_empty() {
            return Err(from.invalid());
        }
        Ok(Self { key, value: is_there.then_some(value) })
    }
}

impl GroupKind {
    const fn number(self) -> u8 {
        match self {
            Self::Change => 0,
            Self::Copy => 1,
            Self::Completion => 2,
            Self::Resync => 3,
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match from.array()? {
            [0] => Ok(Self::Change),
            [1] => Ok(Self::Copy),
            [2] => Ok(Self::Completion),
            [3] => Ok(Self::Resync),
            [number] => Err(from.unknown(number.into())),
        }
    }
}

impl GroupState {
    /// Encodes the message. A text that is too long is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (number, text) = match &self.says {
            MirrorSays::Ready => (READY, ""),
            MirrorSays::Safe => (SAFE, ""),
            MirrorSays::Pong => (PONG, ""),
            MirrorSays::Promoted => (PROMOTED, ""),
            MirrorSays::Datagrams => (TAKES_DATAGRAMS, ""),
            MirrorSays::NoDatagrams(text) => (NO_DATAGRAMS, text.as_str()),
            MirrorSays::Failed(text) => (FAILED, text.as_str()),
            MirrorSays::Differ(_) => (DIFFER, ""),
            MirrorSays::RelayKey(_) => (GIVES_RELAY_KEY, ""),
            MirrorSays::Proof(_) => (PROOF, ""),
        };
        out.push(number);
        out.extend_from_slice(&self.reign.to_le_bytes());
        out.extend_from_slice(&self.run);
        out.extend_from_slice(&self.number.to_le_bytes());
        let put = Text::put(&text.to_owned(), &mut out);
        debug_assert!(put.is_ok(), "a text of any length is cut");
        if let MirrorSays::Differ(differ) = &self.says {
            compare::put_bits(differ, &mut out);
        }
        if let MirrorSays::RelayKey(bytes) | MirrorSays::Proof(bytes) = &self.says {
            out.extend_from_slice(bytes);
        }
        out
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is no such message.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(body, "GroupState");
        let [says] = from.at("GroupState.says").array()?;
        let reign = u64::take(from.at("GroupState.reign"))?;
        let run = from.at("GroupState.run").array()?;
        let number = u64::take(from.at("GroupState.number"))?;
        let text = Text::take(from.at("GroupState.text"))?;
        let says = match says {
            READY => MirrorSays::Ready,
            SAFE => MirrorSays::Safe,
            PONG => MirrorSays::Pong,
            PROMOTED => MirrorSays::Promoted,
            TAKES_DATAGRAMS => MirrorSays::Datagrams,
            NO_DATAGRAMS => MirrorSays::NoDatagrams(text),
            FAILED => MirrorSays::Failed(text),
            DIFFER => MirrorSays::Differ(compare::take_bits(from.at("GroupState.differ"))?),
            GIVES_RELAY_KEY => MirrorSays::RelayKey(from.at("GroupState.key").array()?),
            PROOF => MirrorSays::Proof(from.at("GroupState.proof").array()?),
            number => return Err(from.at("GroupState.says").unknown(number.into())),
        };
        from.finish("GroupState")?;
        Ok(Self { reign, run, number, says })
    }
}

/// Adds a bound of a range of keys, which may be empty: length u16, and the bytes.
fn put_bound(key: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    let length = u16::try_from(key.len()).ok().filter(|_| key.len() <= limits::ROW_KEY_BYTES);
    u16::put(&length.ok_or_else(|| Error::from(Code::TooBig))?, out)?;
    out.extend_from_slice(key);
    Ok(())
}

fn take_bound(from: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let length = from.length::<u16>(limits::ROW_KEY_BYTES)?;
    Ok(from.bytes(length)?.to_vec())
}

/// Adds at most `most` items.
fn put_all<T>(
    items: &[T],
    most: usize,
    out: &mut Vec<u8>,
    put: impl Fn(&T, &mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    if items.len() > most {
        return Err(Code::TooBig.into());
    }
    items.iter().try_for_each(|item| put(item, out))
}

/// Takes items to the end of a body.
fn take_all<T>(
    from: &mut Reader<'_>,
    take: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut items = Vec::new();
    while from.left() > 0 {
        if items.len() == limits::COMPARED {
            return Err(from.invalid());
        }
        items.push(take(from)?);
    }
    Ok(items)
}

fn put_bytes(bytes: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Error> {
    if bytes.len() > limit {
        return Err(Code::TooBig.into());
    }
    u32::put(&u32::try_from(bytes.len()).map_err(|_| Error::from(Code::TooBig))?, out)?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn take_bytes(from: &mut Reader<'_>, limit: usize) -> Result<Vec<u8>, DecodeError> {
    let length = from.length::<u32>(limit)?;
    Ok(from.bytes(length)?.to_vec())
}

/// Takes a place or a length in a file.
fn take_offset(from: &mut Reader<'_>) -> Result<u64, DecodeError> {
    match u64::take(from)? {
        offset if offset > limits::FILE_BYTES => Err(from.invalid()),
        offset => Ok(offset),
    }
}

fn check_range(from: &Reader<'_>, offset: u64, length: u64) -> Result<(), DecodeError> {
    match offset.checked_add(length) {
        Some(end) if length > 0 && end <= limits::FILE_BYTES => Ok(()),
        _ => Err(from.invalid()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<GroupPart> {
        let row = |key: &[u8], value: Option<&[u8]>| RowChange {
            key: key.to_vec(),
            value: value.map(<[u8]>::to_vec),
        };
        let [cut, mtime] = [Time { seconds: -1, nanos: 999_999_999 }; 2];
        vec![
            GroupPart::Offer { reign: 3, run: [7; 16] },
            GroupPart::Begin { number: u64::MAX, kind: GroupKind::Completion, cut },
            GroupPart::Rows(vec![row(b"a", Some(b"1")), row(b"b", None), row(b"c", Some(b""))]),
            GroupPart::Rows(Vec::new()),
            GroupPart::Content {
                ino: InodeId::ROOT,
                generation: Generation(2),
                size: limits::FILE_BYTES,
                mtime,
            },
            GroupPart::Bytes { offset: 9, bytes: vec![1, 2, 3] },
            GroupPart::Hole { offset: 4096, length: 1 << 40 },
            GroupPart::File { file: VolumeFile::Policy, bytes: None },
            GroupPart::File { file: VolumeFile::Clients, bytes: Some(Vec::new()) },
            GroupPart::Range {
                from: Vec::new(),
                until: b"c".to_vec(),
                rows: vec![row(b"a", Some(b"1")), row(b"b", Some(b""))],
            },
            GroupPart::Range { from: b"c".to_vec(), until: Vec::new(), rows: Vec::new() },
            GroupPart::Compare(vec![
                ComparedRange { from: Vec::new(), until: b"k".to_vec(), hash: [1; 32] },
                ComparedRange { from: b"k".to_vec(), until: Vec::new(), hash: [2; 32] },
            ]),
            GroupPart::Contents(vec![(InodeId::ROOT, Generation(2)); 2]),
            GroupPart::Blocks(ComparedBlocks {
                ino: InodeId::ROOT,
                generation: Generation(1),
                first: 7,
                hashes: vec![[3; 32], [4; 32]],
            }),
            GroupPart::End { sum: 5 },
            GroupPart::Abort,
            GroupPart::Ping,
            GroupPart::HandOver,
            GroupPart::Datagrams,
            GroupPart::RelayKey,
        ]
    }

    #[test]
    fn a_part_is_decoded_as_it_was_encoded() {
        for part in samples() {
            let body = part.encode().unwrap();
            assert_eq!(GroupPart::decode(&body), Ok(part));
        }
    }

    #[test]
    fn a_part_with_a_byte_more_is_refused() {
        for part in samples() {
            let mut body = part.encode().unwrap();
            body.push(0);
            assert!(GroupPart::decode(&body).is_err(), "{part:?}");
        }
    }

    #[test]
    fn a_part_is_not_cut() {
        for part in samples() {
            let body = part.encode().unwrap();
            // A list goes to the end of the body.
            let is_list = matches!(
                part,
                GroupPart::Rows(_)
                    | GroupPart::Range { .. }
                    | GroupPart::Compare(_)
                    | GroupPart::Contents(_)
                    | GroupPart::Blocks(_)
            );
            for end in (0..body.len()).filter(|end| !is_list || *end == 0) {
                assert!(GroupPart::decode(&body[..end]).is_err(), "{part:?} cut at {end}");
            }
        }
    }

    #[test]
    fn what_is_beyond_a_limit_is_neither_sent_nor_taken() {
        let bytes = vec![0; limits::GROUP_BYTES + 1];
        let key = vec![1; limits::ROW_KEY_BYTES + 1];
        for part in [
            GroupPart::Bytes { offset: 0, bytes },
            GroupPart::Rows(vec![RowChange { key, value: None }]),
            GroupPart::Rows(vec![RowChange { key: Vec::new(), value: None }]),
            GroupPart::Contents(vec![(InodeId::ROOT, Generation(2)); limits::COMPARED + 1]),
        ] {
            assert_eq!(part.encode(), Err(Code::TooBig.into()));
        }
        for wrong in [
            GroupPart::Hole { offset: limits::FILE_BYTES, length: 1 },
            GroupPart::Hole { offset: 0, length: 0 },
            GroupPart::Bytes { offset: 0, bytes: Vec::new() },
            GroupPart::Range {
                from: b"b".to_vec(),
                until: Vec::new(),
                rows: vec![RowChange { key: b"a".to_vec(), value: Some(Vec::new()) }],
            },
            GroupPart::Range {
                from: Vec::new(),
                until: b"b".to_vec(),
                rows: vec![RowChange { key: b"a".to_vec(), value: None }],
            },
        ] {
            assert!(GroupPart::decode(&wrong.encode().unwrap()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_state_is_decoded_as_it_was_encoded() {
        for says in [
            MirrorSays::Ready,
            MirrorSays::Safe,
            MirrorSays::Pong,
            MirrorSays::Promoted,
            MirrorSays::Datagrams,
            MirrorSays::NoDatagrams("the port is taken".to_owned()),
            MirrorSays::Failed("the disk is full".to_owned()),
            MirrorSays::Differ(vec![true, false, false, false, false, false, false, false, true]),
            MirrorSays::Differ(Vec::new()),
            MirrorSays::RelayKey([6; 32]),
            MirrorSays::Proof([7; 32]),
        ] {
            let state = GroupState { reign: 1, run: [9; 16], number: 4, says };
            let body = state.encode();
            assert_eq!(GroupState::decode(&body), Ok(state));
            for end in 0..body.len() {
                assert!(GroupState::decode(&body[..end]).is_err(), "cut at {end}");
            }
        }
    }
}
