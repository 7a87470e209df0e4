//! Free space of the disk: whether the engine may write more than its journal.
//!
//! A flush or compaction that runs out of space stops the engine. So on a disk that is nearly full
//! nothing is sealed, and a table that is opened there is journal-only: its engine has no threads,
//! and everything that it writes goes into blocks that its journal has already.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pelago_wire::limits;
use rustix::fs::{StatVfs, fstatvfs, statvfs};

use super::journal;

/// A small disk keeps one part in this many free.
const FLOOR_PART: u64 = 32;
/// A small disk gives one part in this many to the journal.
const PREALLOCATED_PART: u64 = 16;

/// The space of a file system at one moment, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskSpace {
    /// Free space for all users.
    free: u64,
    /// Free space for this process: for root, the blocks reserved for root too.
    available: u64,
    total: u64,
}

impl DiskSpace {
    /// Measures the file system that has the folder.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        Ok(Self::from(statvfs(folder)?))
    }

    /// Measures the file system that has the file.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::from(fstatvfs(file)?))
    }

    /// Returns whether `bytes` can be written and enough space stays free for others.
    pub(super) fn fits(self, bytes: u64) -> bool {
        self.free >= self.floor().saturating_add(bytes)
    }

    /// As [`DiskSpace::fits`], but twice as much must stay free, so that a decision made with this
    /// is not reversed at once.
    pub(super) fn fits_with_margin(self, bytes: u64) -> bool {
        self.fits(self.floor().saturating_add(bytes))
    }

    /// Returns the bytes that this process can write.
    pub(super) fn available(self) -> u64 {
        self.available
    }

    /// Returns the bytes to preallocate to the journal.
    pub(super) fn preallocation(self) -> u64 {
        limits::JOURNAL_PREALLOCATED_BYTES.min(self.total / PREALLOCATED_PART)
    }

    fn floor(self) -> u64 {
        limits::FREE_FLOOR_BYTES.min(self.total / FLOOR_PART)
    }
}

impl From<StatVfs> for DiskSpace {
    fn from(stats: StatVfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(stats.f_frsize);
        let is_root = rustix::process::geteuid().is_root();
        let available = if is_root { stats.f_bfree } else { stats.f_bavail };
        Self {
            free: bytes(stats.f_bavail),
            available: bytes(available),
            total: bytes(stats.f_blocks),
        }
    }
}

/// Returns the bytes that the engine may write soon after it opens: it flushes each memtable that
/// it finds in the journals, and compacts the new run.
pub(super) fn bytes_to_open(engine: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for id in journal::list(engine)? {
        bytes += 2 * allocated_len(&fs::metadata(journal::path(engine, id))?);
    }
    Ok(bytes)
}

/// Returns the most bytes that a compaction writes: as many as all sorted runs have.
pub(super) fn bytes_to_compact(engine: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(engine.join("keyspaces/1/tables"))? {
        bytes += allocated_len(&entry?.metadata()?);
    }
    Ok(bytes)
}

/// Returns the bytes of a file that have blocks. A file may have blocks after its end
/// (preallocated), or lack some before it (a hole).
pub(super) fn allocated_len(file: &fs::Metadata) -> u64 {
    file.len().min(file.blocks() * 512)
}
