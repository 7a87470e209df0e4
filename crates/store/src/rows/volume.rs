//! Rows about the volume itself, and the cached replies of its sessions.

use std::io;

use super::codec::{Reader, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use crate::key::{RowKind, VolumeRow};
use crate::volume::VolumeId;

/// The id of the volume that the table belongs to. It shows when a table was put beside the files
/// of another volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The id of the volume.
    pub volume: VolumeId,
}

impl Row<'_> for Identity {
    const KIND: RowKind = RowKind::Volume;
}

impl Body<'_> for Identity {
    fn body_bytes(&self) -> usize {
        17
    }

    fn encode_body(&self, out: &mut Writer) {
        out.u8(VolumeRow::IDENTITY);
        out.bytes(&self.volume.0);
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        expect_volume_row(body, VolumeRow::IDENTITY)?;
        Ok(Self { volume: VolumeId(body.array()?) })
    }
}

/// The end of the inode numbers that a shard has reserved. The shard never assigned one at or above
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HighWater {
    /// The first number that is not reserved, at most 2³⁶.
    pub next: u64,
}

impl Row<'_> for HighWater {
    const KIND: RowKind = RowKind::Volume;
}

impl Body<'_> for HighWater {
    fn body_bytes(&self) -> usize {
        9
    }

    fn encode_body(&self, out: &mut Writer) {
        out.u8(VolumeRow::HIGH_WATER);
        out.u64(self.next);
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        expect_volume_row(body, VolumeRow::HIGH_WATER)?;
        let next = body.u64()?;
        if next > 1 << 36 {
            return Err(DecodeError::Field("high-water mark"));
        }
        Ok(Self { next })
    }
}

/// The last commits of the two indexes of a shard. An index whose last commit is not among these
/// was not made from these rows: one of both was put back, or belongs to another volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct IndexCommits {
    /// The commits of the index of names.
    pub names: HalfCommits,
    /// The commits of the index of texts.
    pub texts: HalfCommits,
}

/// The last two commits of an index: their numbers, which are random; 0 is none. The row is written
/// before the commit, so a crash leaves the index at one or the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HalfCommits {
    /// The last commit, which may have failed.
    pub last: u64,
    /// The commit before.
    pub before: u64,
}

impl HalfCommits {
    /// Returns the commits of an index that is at this commit (0: at none), with a new number for
    /// the next one.
    ///
    /// # Errors
    /// If the system has no random number.
    pub fn after(at: u64) -> io::Result<Self> {
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(io::Error::other)?;
        Ok(Self { last: u64::from_le_bytes(number).max(1), before: at })
    }

    /// Returns whether an index may be at this commit.
    #[must_use]
    pub const fn has(&self, number: u64) -> bool {
        number != 0 && (number == self.last || number == self.before)
    }
}

impl Row<'_> for IndexCommits {
    const KIND: RowKind = RowKind::Volume;
}

impl Body<'_> for IndexCommits {
    fn body_bytes(&self) -> usize {
        33
    }

    fn encode_body(&self, out: &mut Writer) {
        out.u8(VolumeRow::INDEX_COMMITS);
        for half in [self.names, self.texts] {
            out.u64(half.last);
            out.u64(half.before);
        }
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        expect_volume_row(body, VolumeRow::INDEX_COMMITS)?;
        let names = HalfCommits { last: body.u64()?, before: body.u64()? };
        let texts = HalfCommits { last: body.u64()?, before: body.u64()? };
        Ok(Self { names, texts })
    }
}

/// Checks the first byte of a body: it is the number of the row, which the key holds too.
pub(super) fn expect_volume_row(body: &mut Reader<'_>, row: u8) -> Result<(), DecodeError> {
    if body.u8()? == row { Ok(()) } else { Err(DecodeError::Field("volume row")) }
}

/// The reply to a request that changed something, kept so that a repeated request gets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedReply<'a> {
    /// The number of a [`pelago_wire::Code`]; 0 for success.
    pub code: u16,
    /// The encoded reply, at most [`CACHED_REPLY_BYTES`].
    pub reply: &'a [u8],
}

/// Greatest length of a cached reply, in bytes. Only replies to changes are kept, and those are
/// short.
pub const CACHED_REPLY_BYTES: usize = 4096;

impl<'a> Row<'a> for CachedReply<'a> {
    const KIND: RowKind = RowKind::CachedReply;
}

impl<'a> Body<'a> for CachedReply<'a> {
    fn body_bytes(&self) -> usize {
        2 + self.reply.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.reply.len() <= CACHED_REPLY_BYTES, "the reply of a mutation is short");
        out.u16(self.code);
        out.bytes(self.reply);
    }

    fn decode_body(body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let code = body.u16()?;
        let reply = body.rest();
        if reply.len() > CACHED_REPLY_BYTES {
            return Err(DecodeError::Length);
        }
        Ok(Self { code, reply })
    }
}
