//! Rows of the volume itself and of its sessions.

use super::codec::{Reader, Writer};
use super::{Body, Fault, Row};
use crate::key::{RowKind, VolumeRow};
use crate::volume::VolumeId;

/// Whose table this is: a table that was put beside another volume's files is found at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The volume.
    pub volume: VolumeId,
}

impl Row<'_> for Identity {
    const KIND: RowKind = RowKind::Volume;
}

impl Body<'_> for Identity {
    fn bytes(&self) -> usize {
        17
    }

    fn put(&self, out: &mut Writer) {
        out.u8(VolumeRow::IDENTITY);
        out.bytes(&self.volume.0);
    }

    fn take(body: &mut Reader<'_>) -> Result<Self, Fault> {
        expect_volume_row(body, VolumeRow::IDENTITY)?;
        Ok(Self { volume: VolumeId(body.array()?) })
    }
}

/// Up to where a shard's ids are reserved: none at or above it was ever given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HighWater {
    /// The first counter that is not reserved, to 2³⁶.
    pub next: u64,
}

impl Row<'_> for HighWater {
    const KIND: RowKind = RowKind::Volume;
}

impl Body<'_> for HighWater {
    fn bytes(&self) -> usize {
        9
    }

    fn put(&self, out: &mut Writer) {
        out.u8(VolumeRow::HIGH_WATER);
        out.u64(self.next);
    }

    fn take(body: &mut Reader<'_>) -> Result<Self, Fault> {
        expect_volume_row(body, VolumeRow::HIGH_WATER)?;
        let next = body.u64()?;
        if next > 1 << 36 {
            return Err(Fault::Field("high-water mark"));
        }
        Ok(Self { next })
    }
}

/// The rows of this kind differ; each begins with its number, as its key does.
fn expect_volume_row(body: &mut Reader<'_>, row: u8) -> Result<(), Fault> {
    if body.u8()? == row { Ok(()) } else { Err(Fault::Field("volume row")) }
}

/// The reply to a request that changed something, kept so that a repeated request gets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedReply<'a> {
    /// The number of the error's code; zero where it went well.
    pub code: u16,
    /// The reply as it went over the wire, to [`CACHED_REPLY_BYTES`].
    pub reply: &'a [u8],
}

/// Bytes of a cached reply, at the most: only those of changes are kept, whose replies are short.
pub const CACHED_REPLY_BYTES: usize = 4096;

impl<'a> Row<'a> for CachedReply<'a> {
    const KIND: RowKind = RowKind::CachedReply;
}

impl<'a> Body<'a> for CachedReply<'a> {
    fn bytes(&self) -> usize {
        2 + self.reply.len()
    }

    fn put(&self, out: &mut Writer) {
        assert!(self.reply.len() <= CACHED_REPLY_BYTES, "the reply of a mutation is short");
        out.u16(self.code);
        out.bytes(self.reply);
    }

    fn take(body: &mut Reader<'a>) -> Result<Self, Fault> {
        let code = body.u16()?;
        let reply = body.rest();
        if reply.len() > CACHED_REPLY_BYTES {
            return Err(Fault::Length);
        }
        Ok(Self { code, reply })
    }
}
