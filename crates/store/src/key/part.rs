//! The parts of keys that have a fixed number of bytes: ids, hashes and numbers.
#![expect(clippy::big_endian_bytes, reason = "keys sort as their numbers do")]

use pelago_wire::{InodeId, NameHash, RequestId, SessionId};

use super::VolumeRow;

/// A part of a key that has a fixed number of bytes.
pub(super) trait KeyPart: Sized {
    const BYTES: usize;

    /// Appends the part to a key.
    fn put(self, key: &mut Vec<u8>);

    /// Removes the part from the front of `rest`. Returns `None` if `rest` is too short, or no
    /// such part.
    fn take(rest: &mut &[u8]) -> Option<Self>;
}

impl KeyPart for [u8; 32] {
    const BYTES: usize = 32;

    fn put(self, key: &mut Vec<u8>) {
        key.extend_from_slice(&self);
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        take_array(rest)
    }
}

impl KeyPart for u16 {
    const BYTES: usize = 2;

    fn put(self, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.to_be_bytes());
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        take_array(rest).map(Self::from_be_bytes)
    }
}

impl KeyPart for u32 {
    const BYTES: usize = 4;

    fn put(self, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.to_be_bytes());
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        take_array(rest).map(Self::from_be_bytes)
    }
}

impl KeyPart for u64 {
    const BYTES: usize = 8;

    fn put(self, key: &mut Vec<u8>) {
        key.extend_from_slice(&self.to_be_bytes());
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        take_array(rest).map(Self::from_be_bytes)
    }
}

macro_rules! numbers {
    ($($type:ident { $raw:expr, $from:expr })+) => {$(
        impl KeyPart for $type {
            const BYTES: usize = u64::BYTES;

            fn put(self, key: &mut Vec<u8>) {
                let raw: fn(Self) -> u64 = $raw;
                raw(self).put(key);
            }

            fn take(rest: &mut &[u8]) -> Option<Self> {
                u64::take(rest).map($from)
            }
        }
    )+};
}

numbers! {
    InodeId { InodeId::raw, InodeId::from_raw }
    NameHash { |hash| hash.0, NameHash }
    SessionId { |session| session.0, SessionId }
    RequestId { |request| request.0, RequestId }
}

impl KeyPart for VolumeRow {
    const BYTES: usize = 3;

    fn put(self, key: &mut Vec<u8>) {
        let (number, shard) = match self {
            Self::Identity => (Self::IDENTITY, 0),
            Self::HighWater(shard) => (Self::HIGH_WATER, shard),
            Self::Mirror => (Self::MIRROR, 0),
            Self::SiteTokens(site) => (Self::SITE_TOKENS, site),
            Self::IndexCommits(shard) => (Self::INDEX_COMMITS, shard),
            Self::SiteList => (Self::SITE_LIST, 0),
            Self::Promotions => (Self::PROMOTIONS, 0),
        };
        key.push(number);
        key.extend_from_slice(&shard.to_be_bytes());
    }

    fn take(rest: &mut &[u8]) -> Option<Self> {
        let [number] = take_array(rest)?;
        let shard = u16::from_be_bytes(take_array(rest)?);
        match number {
            Self::IDENTITY if shard == 0 => Some(Self::Identity),
            Self::HIGH_WATER => Some(Self::HighWater(shard)),
            Self::MIRROR if shard == 0 => Some(Self::Mirror),
            Self::SITE_TOKENS => Some(Self::SiteTokens(shard)),
            Self::INDEX_COMMITS => Some(Self::IndexCommits(shard)),
            Self::SITE_LIST if shard == 0 => Some(Self::SiteList),
            Self::PROMOTIONS if shard == 0 => Some(Self::Promotions),
            _ => None,
        }
    }
}

pub(super) fn take_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*first)
}
