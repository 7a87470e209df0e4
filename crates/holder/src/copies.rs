//! Copies of blocks that outlive the leases under which they were fetched.

use std::fmt;
use std::ops::Range;

use pelago_wire::{Attr, InodeId, Time};

/// A version of the bytes of a file. The home gives each change of a file a later `ctime`, so bytes
/// of the same version are the same bytes; except for two changes within one tick of a clock, see
/// [`BlockLease`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// The file.
    pub ino: InodeId,
    /// Its size in bytes.
    pub size: u64,
    /// The time of its last change of bytes.
    pub mtime: Time,
    /// The time of its last change.
    pub ctime: Time,
}

/// A place for copies of blocks of [`FETCH_BLOCK_BYTES`]; the last one of a file is shorter.
///
/// [`FETCH_BLOCK_BYTES`]: pelago_wire::limits::FETCH_BLOCK_BYTES
pub trait Copies: Send + Sync {
    /// Returns whether there are probably copies of all these blocks of a file. Does no I/O.
    fn has(&self, version: &FileVersion, blocks: Range<u64>) -> bool;

    /// Returns the copy of a block with this number of bytes, if there is one. May read a disk.
    fn block(&self, version: &FileVersion, block: u64, bytes: usize) -> Option<Vec<u8>>;

    /// Returns the blocks within these, from the first to the last, of which there are probably
    /// copies of another version of the file, with as many bytes as in this one. Does no I/O.
    fn older(&self, version: &FileVersion, blocks: Range<u64>) -> Option<Range<u64>>;

    /// Returns such a copy of a block with this number of bytes, if it has this BLAKE3 hash. May
    /// read a disk.
    fn older_block(
        &self,
        version: &FileVersion,
        block: u64,
        bytes: usize,
        hash: &[u8; 32],
    ) -> Option<Vec<u8>>;

    /// Takes a copy of a block, or does not. Does no I/O: it is called on a thread of the network.
    fn keep(&self, version: &FileVersion, block: u64, bytes: &[u8], lease: BlockLease);
}

/// The lease under which a block was fetched.
///
/// A kernel stamps files by a clock whose ticks take milliseconds. Two changes in one tick have the
/// same times, so a copy counts only if its lease has lasted for longer than a tick: then no change
/// after the block was read has the times of its version.
pub struct BlockLease(Box<dyn Fn() -> bool + Send>);

impl BlockLease {
    /// Returns the lease of which `lasts` says whether it has lasted until now.
    pub(crate) fn new(lasts: impl Fn() -> bool + Send + 'static) -> Self {
        Self(Box::new(lasts))
    }

    /// Returns whether the lease has lasted until now.
    #[must_use]
    pub fn lasts(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for BlockLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockLease").field(&self.lasts()).finish()
    }
}

impl From<&Attr> for FileVersion {
    fn from(attr: &Attr) -> Self {
        Self { ino: attr.ino, size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}
