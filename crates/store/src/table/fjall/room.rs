//! How much room the medium has: whether the engine may write more than its journal.
//!
//! A flush or a merge that meets the end of the medium stops the engine. So on a medium that is
//! nearly full nothing is sealed, and a table that is opened there is quiet: its engine has no
//! threads, and all that it writes goes into blocks that its journal has already.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use pelago_wire::limits;
use rustix::fs::{StatVfs, fstatvfs, statvfs};

use super::journal;

/// A smaller medium keeps this part of it free.
const FLOOR_PART: u64 = 32;
/// A smaller medium gives this part of it to the journal.
const AHEAD_PART: u64 = 16;

/// The space of a medium at one moment, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// What everybody may have.
    free: u64,
    /// What this process may have.
    own: u64,
    total: u64,
}

impl Room {
    /// The room of the medium that has the folder.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        Ok(Self::from(statvfs(folder)?))
    }

    /// The room of the medium that has the file.
    pub(super) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::from(fstatvfs(file)?))
    }

    /// Whether `bytes` more can be written and others have some still.
    pub(super) fn is_for(self, bytes: u64) -> bool {
        self.free >= self.floor().saturating_add(bytes)
    }

    /// As [`Room::is_for`], with twice as much left, so that it does not change to and fro.
    pub(super) fn is_surely_for(self, bytes: u64) -> bool {
        self.is_for(self.floor().saturating_add(bytes))
    }

    /// Bytes that this process may take.
    pub(super) fn own(self) -> u64 {
        self.own
    }

    /// Bytes that the journal has ahead.
    pub(super) fn ahead(self) -> u64 {
        limits::JOURNAL_AHEAD_BYTES.min(self.total / AHEAD_PART)
    }

    fn floor(self) -> u64 {
        limits::FREE_FLOOR_BYTES.min(self.total / FLOOR_PART)
    }
}

impl From<StatVfs> for Room {
    fn from(stats: StatVfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(stats.f_frsize);
        let own = if rustix::process::geteuid().is_root() { stats.f_bfree } else { stats.f_bavail };
        Self { free: bytes(stats.f_bavail), own: bytes(own), total: bytes(stats.f_blocks) }
    }
}

/// Bytes that the engine may write beside its journal soon after it is opened: each memtable that
/// it finds in the journals, and the merge of that.
pub(super) fn needed_to_open(engine: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for id in journal::list(engine)? {
        bytes += 2 * bytes_of(&fs::metadata(journal::path(engine, id))?);
    }
    Ok(bytes)
}

/// Bytes of all sorted runs: no merge writes more.
pub(super) fn needed_to_merge(engine: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(engine.join("keyspaces/1/tables"))? {
        bytes += bytes_of(&entry?.metadata()?);
    }
    Ok(bytes)
}

/// Bytes of a file that has blocks behind its end, or none before it.
pub(super) fn bytes_of(file: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;

    file.len().min(file.blocks() * 512)
}
