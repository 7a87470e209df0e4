//! Notices that invalidate names, and their counts.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::AtomicU64;

use pelago_client::At;
use pelago_fuse::Notifier;
use pelago_fuse::ids::NodeId;
use pelago_wire::{InodeId, Name};

/// A name in a directory, as a notice names it to the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DirEntryKey {
    pub(crate) dir: InodeId,
    pub(crate) name: Name,
}

impl From<&At> for DirEntryKey {
    fn from(at: &At) -> Self {
        Self { dir: at.dir.ino, name: at.name.clone() }
    }
}

impl DirEntryKey {
    /// Invalidates the name. Linux takes the lock of its directory, so the calling thread may wait
    /// for a program whose request has no reply yet.
    ///
    /// # Errors
    /// The kernel's errno; `ENOENT` if it does not know the name.
    pub(crate) fn invalidate(&self, kernel: &Notifier) -> io::Result<()> {
        kernel.inval_entry(NodeId(self.dir.raw()), OsStr::from_bytes(self.name.as_bytes()))
    }
}

/// Counts of notices that were sent to the kernel because other sessions changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notices {
    /// Names that were invalidated one by one.
    pub names: u64,
    /// Invalidations of all names at once.
    pub epochs: u64,
}

/// Counters of notices.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) names: AtomicU64,
    pub(crate) epochs: AtomicU64,
}
