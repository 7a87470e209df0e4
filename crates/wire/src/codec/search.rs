//! The encoding of the lists, paths and places of searches and of questions for tags.
//!
//! A value over its limit is `TooBig` if a user gave it, and `Bug` if the server made it.

use super::field::{DecodeError, Field, Reader};
use crate::attr::FileKind;
use crate::error::{Code, Error};
use crate::id::InodeId;
use crate::limits;
use crate::search::{Hit, SearchAt};

/// Supplementary groups: the count as u16, then each as u32.
pub(crate) enum Groups {}

impl Field for Groups {
    type Value = Vec<u32>;
    const MOST: usize = u16::MOST + limits::ASKER_GROUPS * u32::MOST;

    fn put(value: &Vec<u32>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::ASKER_GROUPS {
            return Err(Code::TooBig.into());
        }
        u16::put(&u16::try_from(value.len()).map_err(|_| Code::TooBig)?, out)?;
        value.iter().try_for_each(|group| u32::put(group, out))
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<u32>, DecodeError> {
        let number = from.length::<u16>(limits::ASKER_GROUPS)?;
        // The peer may send any number: no more memory is taken than the body has groups.
        let mut groups = Vec::with_capacity(number.min(from.left() / u32::MOST));
        for _ in 0..number {
            groups.push(u32::take(from)?);
        }
        Ok(groups)
    }
}

/// A path from the directory that is searched: length u16 and bytes.
enum HitPath {}

impl Field for HitPath {
    type Value = Vec<u8>;
    const MOST: usize = u16::MOST + limits::HIT_PATH_BYTES;

    fn put(value: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::HIT_PATH_BYTES {
            return Err(Code::Bug.into());
        }
        u16::put(&u16::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
        out.extend_from_slice(value);
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
        let length = from.length::<u16>(limits::HIT_PATH_BYTES)?;
        from.bytes(length).map(<[u8]>::to_vec)
    }
}

/// The first byte of a [`SearchAt`].
const PATH: u8 = 1;
const NODE: u8 = 2;
const RANK: u8 = 3;

impl Field for SearchAt {
    type Value = Self;
    const MOST: usize = u8::MOST + HitPath::MOST;

    fn put(value: &Self, out: &mut Vec<u8>) -> Result<(), Error> {
        match value {
            Self::Path(path) => u8::put(&PATH, out).and_then(|()| HitPath::put(path, out)),
            Self::Node { ino, names } => {
                u8::put(&NODE, out)?;
                InodeId::put(ino, out)?;
                u32::put(names, out)
            }
            Self::Rank(rank) => u8::put(&RANK, out).and_then(|()| u32::put(rank, out)),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(from)? {
            PATH => HitPath::take(from).map(Self::Path),
            NODE => Ok(Self::Node { ino: InodeId::take(from)?, names: u32::take(from)? }),
            RANK => u32::take(from).map(Self::Rank),
            number => Err(from.unknown(number.into())),
        }
    }
}

/// Files that answer a query: the count as u16, then inode number, type and path of each. The
/// server sends at most [`limits::HITS_BYTES`] together; a client is bounded by the frame.
pub(crate) enum Hits {}

impl Field for Hits {
    type Value = Vec<Hit>;
    const MOST: usize = u16::MOST + limits::HITS_BYTES;

    fn put(value: &Vec<Hit>, out: &mut Vec<u8>) -> Result<(), Error> {
        u16::put(&u16::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
        let before = out.len();
        for Hit { ino, kind, path } in value {
            InodeId::put(ino, out)?;
            FileKind::put(kind, out)?;
            HitPath::put(path, out)?;
        }
        if out.len() - before > limits::HITS_BYTES { Err(Code::Bug.into()) } else { Ok(()) }
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<Hit>, DecodeError> {
        let number = usize::from(u16::take(from)?);
        let mut hits = Vec::with_capacity(number.min(from.left() / Hit::LEAST_BYTES));
        for _ in 0..number {
            let ino = InodeId::take(from)?;
            let kind = FileKind::take(from)?;
            hits.push(Hit { ino, kind, path: HitPath::take(from)? });
        }
        Ok(hits)
    }
}

impl Hit {
    /// Bytes of a hit without its path, as it is sent.
    const LEAST_BYTES: usize = InodeId::MOST + FileKind::MOST + u16::MOST;

    /// Returns the bytes of the hit as it is sent, which count towards [`limits::HITS_BYTES`].
    #[must_use]
    pub const fn sent_bytes(&self) -> usize {
        Self::LEAST_BYTES + self.path.len()
    }
}

const _: () = assert!(limits::HIT_PATH_BYTES + Hit::LEAST_BYTES <= limits::HITS_BYTES);

/// A key or a value of a tag, or the first bytes of one: length u32 and bytes.
pub(crate) enum TagPart {}

impl Field for TagPart {
    type Value = Vec<u8>;
    const MOST: usize = u32::MOST + limits::TAG_PART_BYTES;

    fn put(value: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::TAG_PART_BYTES {
            return Err(Code::TooBig.into());
        }
        u32::put(&u32::try_from(value.len()).map_err(|_| Code::TooBig)?, out)?;
        out.extend_from_slice(value);
        Ok(())
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
        let length = from.length::<u32>(limits::TAG_PART_BYTES)?;
        from.bytes(length).map(<[u8]>::to_vec)
    }
}

/// Keys or values of tags: the count as u16, then each of them.
pub(crate) enum TagParts {}

impl Field for TagParts {
    type Value = Vec<Vec<u8>>;
    const MOST: usize = u16::MOST + limits::TAG_PARTS * TagPart::MOST;

    fn put(value: &Vec<Vec<u8>>, out: &mut Vec<u8>) -> Result<(), Error> {
        if value.len() > limits::TAG_PARTS {
            return Err(Code::Bug.into());
        }
        u16::put(&u16::try_from(value.len()).map_err(|_| Code::Bug)?, out)?;
        value.iter().try_for_each(|part| TagPart::put(part, out))
    }

    fn take(from: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
        let number = from.length::<u16>(limits::TAG_PARTS)?;
        // The peer may send any number: no more memory is taken than the body has parts.
        let mut parts = Vec::with_capacity(number.min(from.left() / u32::MOST));
        for _ in 0..number {
            parts.push(TagPart::take(from)?);
        }
        Ok(parts)
    }
}
