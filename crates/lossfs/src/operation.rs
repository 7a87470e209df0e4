//! A call to the disk: its kind and its arguments.

use crate::model::BLOCK_BYTES;

/// A kind of call to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Makes a file or a node.
    Create,
    /// Makes a folder.
    MakeDir,
    /// Moves a name, or gives a file one more.
    Rename,
    /// Removes a name.
    Remove,
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Truncates or extends a file.
    Resize,
    /// Reserves space or frees it.
    Reserve,
    /// Syncs a file.
    Sync,
    /// Syncs a folder.
    SyncNames,
    /// Looks a name up that the kernel has not cached.
    Look,
    /// Reads attributes: size, times, owner.
    Measure,
    /// Sets a time, an owner or a mode.
    Change,
    /// Opens a file.
    Open,
    /// Opens a folder for a listing.
    List,
}

impl Operation {
    /// Returns whether the call changes nothing.
    pub(crate) const fn only_reads(self) -> bool {
        matches!(self, Self::Read | Self::Look | Self::Measure | Self::Open | Self::List)
    }
}

/// The arguments of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallArgs<'a> {
    pub(crate) operation: Operation,
    /// The file, or the folder that a name is in.
    pub(crate) ino: u64,
    /// The name.
    pub(crate) name: Option<&'a [u8]>,
    /// The thread of the caller.
    pub(crate) thread: u32,
    /// The bytes to read or write.
    pub(crate) range: Range,
}

/// A range of a file's bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Range {
    pub(crate) at: u64,
    pub(crate) bytes: usize,
}

impl Range {
    /// Returns the bytes before the last boundary of a block in the range; 0 if the range lies
    /// within one block.
    pub(crate) fn cut(self) -> usize {
        let last = (self.at + self.bytes as u64).saturating_sub(1) / BLOCK_BYTES * BLOCK_BYTES;
        usize::try_from(last.saturating_sub(self.at)).unwrap_or(0)
    }
}
