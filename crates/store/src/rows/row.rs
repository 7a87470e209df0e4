//! The common part of all values: header, checksum, encoding and decoding.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::codec::{Reader, Writer};
use super::error::{DecodeError, RowError};
use crate::key::RowKind;

const HEADER_BYTES: usize = 13;
pub(super) const CHECKSUM_BYTES: usize = 4;

/// The writer of a value and the position of the write among all writes of that shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp {
    /// The number of the shard's owner. It counts up with each change of owner.
    pub epoch: u32,
    /// The number of the batch among those of the shard.
    pub sequence: u64,
}

/// A value of one kind. `'a` is the lifetime of the bytes that it was decoded from.
pub trait Row<'a>: Body<'a> {
    /// The kind of the rows that hold such values.
    const KIND: RowKind;
    /// The newest version of the body. This program reads all from 1 on.
    const VERSION: u8 = 1;

    /// Returns the version of the body that this value is written in.
    fn version(&self) -> u8 {
        Self::VERSION
    }

    /// Encodes the value, with one allocation.
    ///
    /// # Panics
    /// If a field exceeds a limit of [`pelago_wire::limits`]; callers check limits before.
    #[must_use]
    fn encode(&self, stamp: Stamp) -> Vec<u8> {
        let mut out = Writer::with_capacity(HEADER_BYTES + self.body_bytes() + CHECKSUM_BYTES);
        out.u8(self.version());
        out.u32(stamp.epoch);
        out.u64(stamp.sequence);
        self.encode_body(&mut out);
        let sum = checksum(Self::KIND, out.written());
        out.u32(sum);
        out.into_bytes()
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// [`RowError`] if the value is damaged, of another kind, or of an unknown version.
    fn decode(value: &'a [u8]) -> Result<(Stamp, Self), RowError> {
        decode_value(value).map_err(|reason| RowError { kind: Self::KIND, reason })
    }
}

/// The body of a value, between header and checksum. Only this crate can implement it.
pub trait Body<'a>: Sized {
    #[doc(hidden)]
    fn body_bytes(&self) -> usize;
    #[doc(hidden)]
    fn encode_body(&self, out: &mut Writer);
    #[doc(hidden)]
    fn decode_body(body: &mut Reader<'a>) -> Result<Self, DecodeError>;
}

fn decode_value<'a, R: Row<'a>>(value: &'a [u8]) -> Result<(Stamp, R), DecodeError> {
    let (written, sum) = value.split_last_chunk::<CHECKSUM_BYTES>().ok_or(DecodeError::Length)?;
    if u32::from_le_bytes(*sum) != checksum(R::KIND, written) {
        return Err(DecodeError::Checksum);
    }
    let mut rest = Reader::new(written);
    let version = rest.u8()?;
    if !(1..=R::VERSION).contains(&version) {
        return Err(DecodeError::Version(version));
    }
    rest.set_version(version);
    let stamp = Stamp { epoch: rest.u32()?, sequence: rest.u64()? };
    let row = R::decode_body(&mut rest)?;
    rest.finish()?;
    Ok((stamp, row))
}

/// Returns the stamp of the value of a row of any kind, without a check of the value; `None` if it
/// is too short for one.
#[must_use]
pub fn stamp_of(value: &[u8]) -> Option<Stamp> {
    let mut rest = Reader::new(value.get(..HEADER_BYTES)?);
    rest.u8().ok()?;
    Some(Stamp { epoch: rest.u32().ok()?, sequence: rest.u64().ok()? })
}

fn checksum(kind: RowKind, written: &[u8]) -> u32 {
    // XXH3 mixes every bit of the input into the low half too.
    xxh3_64_with_seed(written, u64::from(kind.number())) as u32
}
