//! The values of a table: what each kind of row holds, and how it is written.
//!
//! Every value is `version u8 · epoch u32 · sequence u64 · body · checksum u32`, little-endian. The
//! version is that of its kind's body; epoch and sequence are of the shard that wrote it
//! ([`Stamp`]). The checksum is the low half of XXH3 over all before it, with the kind's number as
//! the seed, so that a value under a key of another kind is found too. `docs/format.md` has every
//! body byte by byte, and `vectors/rows.txt` an example of each.
//!
//! Decoding checks every length and range, takes the whole value, and never panics; whether rows
//! make sense together, only their owner can check.

use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use file::{Inline, Orphan, Writing, Xattr, XattrNames};
pub use names::{MAP_BYTES, Moved, NameRow, ParentPointer, Partition};
pub use rnode::{Rnode, RnodeFlags};
pub use volume::{CACHED_REPLY_BYTES, CachedReply, HighWater, Identity};

use self::codec::{Reader, Writer};
use crate::key::RowKind;

mod codec;
mod file;
mod names;
mod rnode;
mod volume;

/// Who wrote a value, and when in the order of that shard's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp {
    /// Which owner of the shard: counts up with each change of owner.
    pub epoch: u32,
    /// The number of the batch among those of the shard.
    pub sequence: u64,
}

/// Why a value could not be read: it is damaged, or of a newer version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a row of kind {kind:?} cannot be read: {what}")]
pub struct RowError {
    /// The kind of the row.
    pub kind: RowKind,
    /// What is wrong with it.
    pub what: Fault,
}

/// What is wrong with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The checksum does not fit the bytes.
    #[error("its checksum does not match")]
    Checksum,
    /// The body has a version that this program does not know.
    #[error("its version {0} is not known")]
    Version(u8),
    /// The value ends too early or goes on behind its end.
    #[error("its length is wrong")]
    Length,
    /// A field holds what it cannot hold.
    #[error("its {0} is out of range")]
    Field(&'static str),
}

/// A value of one kind. `'a` is the life of the bytes that it was decoded from.
pub trait Row<'a>: Body<'a> {
    /// The kind of the rows it is kept under.
    const KIND: RowKind;
    /// The version that is written.
    const VERSION: u8 = 1;

    /// The value, as written by the shard at `stamp`. One allocation.
    ///
    /// # Panics
    /// Where a field breaks a limit of [`pelago_wire::limits`]: whoever made it had to check.
    #[must_use]
    fn encode(&self, stamp: Stamp) -> Vec<u8> {
        let mut out = Writer::with_capacity(HEADER_BYTES + self.bytes() + CHECKSUM_BYTES);
        out.u8(Self::VERSION);
        out.u32(stamp.epoch);
        out.u64(stamp.sequence);
        self.put(&mut out);
        let sum = checksum(Self::KIND, out.written());
        out.u32(sum);
        out.into_bytes()
    }

    /// The row that a value holds, and who wrote it.
    ///
    /// # Errors
    /// [`RowError`] where it holds none.
    fn decode(value: &'a [u8]) -> Result<(Stamp, Self), RowError> {
        decode_value(value).map_err(|what| RowError { kind: Self::KIND, what })
    }
}

/// The body of a value, between header and checksum. Only this crate has any.
pub trait Body<'a>: Sized {
    #[doc(hidden)]
    fn bytes(&self) -> usize;
    #[doc(hidden)]
    fn put(&self, out: &mut Writer);
    #[doc(hidden)]
    fn take(body: &mut Reader<'a>) -> Result<Self, Fault>;
}

const HEADER_BYTES: usize = 13;
const CHECKSUM_BYTES: usize = 4;

fn decode_value<'a, R: Row<'a>>(value: &'a [u8]) -> Result<(Stamp, R), Fault> {
    let (written, sum) = value.split_last_chunk::<CHECKSUM_BYTES>().ok_or(Fault::Length)?;
    if u32::from_le_bytes(*sum) != checksum(R::KIND, written) {
        return Err(Fault::Checksum);
    }
    let mut rest = Reader::new(written);
    let version = rest.u8()?;
    if version != R::VERSION {
        return Err(Fault::Version(version));
    }
    let stamp = Stamp { epoch: rest.u32()?, sequence: rest.u64()? };
    let row = R::take(&mut rest)?;
    rest.finish()?;
    Ok((stamp, row))
}

fn checksum(kind: RowKind, written: &[u8]) -> u32 {
    // The low half is as good as any: XXH3 mixes all of them.
    xxh3_64_with_seed(written, u64::from(kind.number())) as u32
}
