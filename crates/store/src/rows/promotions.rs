//! The row of the promotions in the history of a volume.

use super::codec::{Reader, Writer};
use super::error::DecodeError;
use super::row::{Body, Row, Stamp};
use super::volume::expect_volume_row;
use crate::key::{RowKind, VolumeRow};

/// Promotions that a row has at most: the newest ones.
pub const PROMOTIONS: usize = 64;

/// A promotion: the end of what a primary has in common with the one that replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promotion {
    /// The reign that it began.
    pub reign: u64,
    /// The first epoch of that reign: rows with an epoch below are of earlier primaries.
    pub epoch: u32,
    /// The newest stamp of a row that the mirror had: rows of the replaced primary with a later one
    /// are its own alone.
    pub last: Stamp,
}

/// The promotions in the history of a volume, the oldest first. All primaries of one history have
/// the same, so one that was replaced finds the one by which it was.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Promotions {
    /// At most [`PROMOTIONS`].
    pub list: Vec<Promotion>,
}

impl Promotions {
    /// Adds a promotion, in place of the oldest one if there are too many.
    pub fn add(&mut self, promotion: Promotion) {
        if self.list.len() >= PROMOTIONS {
            self.list.remove(0);
        }
        self.list.push(promotion);
    }

    /// Returns the promotion that replaced a primary of this reign; `None` if it is not known.
    #[must_use]
    pub fn replacing(&self, reign: u64) -> Option<Promotion> {
        self.list.iter().find(|promotion| Some(promotion.reign) == reign.checked_add(1)).copied()
    }
}

impl Row<'_> for Promotions {
    const KIND: RowKind = RowKind::Volume;
}

/// Bytes of a promotion.
const BYTES: usize = 8 + 4 + 4 + 8;

impl Body<'_> for Promotions {
    fn body_bytes(&self) -> usize {
        2 + self.list.len() * BYTES
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.list.len() <= PROMOTIONS, "older ones are left out");
        out.u8(VolumeRow::PROMOTIONS);
        out.u8(self.list.len() as u8);
        for Promotion { reign, epoch, last } in &self.list {
            out.u64(*reign);
            out.u32(*epoch);
            out.u32(last.epoch);
            out.u64(last.sequence);
        }
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        expect_volume_row(body, VolumeRow::PROMOTIONS)?;
        let count = usize::from(body.u8()?);
        if count > PROMOTIONS {
            return Err(DecodeError::Length);
        }
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            let reign = body.u64()?;
            let epoch = body.u32()?;
            let last = Stamp { epoch: body.u32()?, sequence: body.u64()? };
            list.push(Promotion { reign, epoch, last });
        }
        match list.is_sorted_by(|one, next| one.reign < next.reign) {
            true => Ok(Self { list }),
            false => Err(DecodeError::Field("reign")),
        }
    }
}
