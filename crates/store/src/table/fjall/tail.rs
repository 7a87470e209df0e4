//! The tail of the journal: its end, and the blocks preallocated after it.
//!
//! The engine does not say where its journal ends, so we count the bytes of each batch. It starts a
//! new journal between two batches, on a thread of its own. We notice the new file late, and then
//! read the end of the old one: about [`STEP_BYTES`], all that was added since the last look.
//!
//! The file has [`DiskSpace::preallocation`] bytes of blocks after its last batch. So a full disk
//! shows before a batch is written and not in the middle of it, and batches that free space can be
//! written when no block is free. The length of the file is the end of its last batch: an open that
//! had to truncate it would free the blocks.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

use super::disk_space::DiskSpace;
use super::journal::{self, Position};
use crate::reserve::Reserve;
use crate::table::Error;

/// Bytes that one `fallocate` allocates. If it fails, tmpfs frees every block of the range that
/// holds no data, even blocks from before: so each range must be a new one.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes of batches between two attempts to take blocks from the reserve, after a failed one.
const RETRY_BYTES: u64 = 64 << 10;
/// Greatest size of the blocks of a file that hold the file system's block map and no data.
const MAP_BYTES: u64 = 128 << 10;

/// The tail of the journal.
#[derive(Debug)]
pub(super) struct JournalTail {
    folder: PathBuf,
    /// The end of the newest journal known.
    end: Position,
    /// The file of that journal; `None` after [`JournalTail::close_file`].
    file: Option<Arc<File>>,
    /// An offset at or before `end` at which a batch ends: where the next look at the file starts.
    scanned: u64,
    /// The offset up to which the file has blocks.
    allocated: u64,
    /// Bytes to allocate after the last batch, if the disk has them.
    preallocation: u64,
    /// True if the file was truncated to its batches. The engine makes new files 64 MiB long.
    is_trimmed: bool,
    /// True if the last allocation found the disk full.
    disk_is_full: bool,
    /// Gives blocks if the disk has none.
    reserve: Option<Arc<Reserve>>,
    /// The offset from which on the reserve is asked again.
    ask_reserve_at: u64,
    /// The value of `unsealed_bytes` from which on free space is checked again for a seal.
    check_seal_at: u64,
    /// The position up to which the journals are synced.
    safe: Position,
    /// Bytes of batches since the memtable was last sealed.
    unsealed_bytes: u64,
    /// True if a sync failed. Then the disk may hold anything after `safe`.
    sync_failed: bool,
}

impl JournalTail {
    /// Opens the journals in `folder`, which end at `end` and are safe up to there.
    pub(super) fn open(folder: &Path, end: Position) -> io::Result<Self> {
        let file = open(folder, end.journal)?;
        let meta = file.metadata()?;
        let is_trimmed = meta.len() == end.bytes && end.bytes > 0;
        // Blocks that an earlier process preallocated are still there.
        let had = if is_trimmed { (meta.blocks() * 512).saturating_sub(MAP_BYTES) } else { 0 };
        let mut tail = Self {
            folder: folder.to_owned(),
            end,
            scanned: end.bytes,
            allocated: end.bytes.max(had),
            preallocation: DiskSpace::of_file(&file)?.preallocation(),
            is_trimmed,
            disk_is_full: false,
            reserve: None,
            ask_reserve_at: 0,
            check_seal_at: 0,
            file: Some(Arc::new(file)),
            safe: end,
            unsealed_bytes: end.bytes,
            sync_failed: false,
        };
        tail.trim()?;
        tail.allocate_to(end.bytes + tail.preallocation)?;
        Ok(tail)
    }

    /// Sets the reserve that gives blocks if the disk has none.
    pub(super) fn set_reserve(&mut self, reserve: Option<Arc<Reserve>>) {
        self.reserve = reserve;
    }

    /// Returns the reserve that gives blocks if the disk has none.
    pub(super) fn reserve(&self) -> Option<Arc<Reserve>> {
        self.reserve.clone()
    }

    /// Allocates blocks for a batch of `bytes`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there are too few. A batch that may not use the reserve must leave
    /// half of the preallocated blocks to those that may.
    pub(super) fn preallocate(&mut self, bytes: u64, may_use_reserve: bool) -> Result<(), Error> {
        if self.end.bytes + bytes + self.preallocation <= self.allocated {
            return Ok(());
        }
        self.follow_rotation()?;
        let failed = |error| Error::from_io("allocating blocks for the journal", error);
        let end = self.end.bytes + bytes;
        self.allocate_to(end + self.preallocation).map_err(failed)?;
        let half = self.preallocation / 2;
        if self.allocated < end + half {
            self.allocate_from_reserve(end + half, may_use_reserve).map_err(failed)?;
        }
        let left_for_others = if may_use_reserve { 0 } else { half };
        if end + left_for_others <= self.allocated { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Allocates blocks up to the offset `end`, as far as the disk has them.
    fn allocate_to(&mut self, end: u64) -> io::Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        while self.allocated < end {
            // An allocation that fails may be slow: look at the free space first.
            if self.disk_is_full && DiskSpace::of_file(&file)?.available() < STEP_BYTES {
                return Ok(());
            }
            let keep_size = FallocateFlags::KEEP_SIZE;
            let from = self.allocated;
            let allocated =
                retry_on_intr(|| rustix::fs::fallocate(&*file, keep_size, from, STEP_BYTES));
            match allocated {
                // Without `fallocate` a write meets a full disk, and stops the table.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.allocated += STEP_BYTES,
                Err(Errno::NOSPC | Errno::DQUOT) => {
                    self.disk_is_full = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            self.disk_is_full = false;
        }
        Ok(())
    }

    /// Takes blocks from the reserve until the file has blocks up to the offset `end`. A batch that
    /// may not use the reserve gets half of it, as it gets half of the preallocated blocks.
    fn allocate_from_reserve(&mut self, end: u64, may_use_reserve: bool) -> io::Result<()> {
        let Some(reserve) = self.reserve.clone() else { return Ok(()) };
        let keep = if may_use_reserve { 0 } else { reserve.bytes() / 2 };
        // One step at a time: other programs compete for the blocks that each release frees.
        while self.allocated < end && self.end.bytes >= self.ask_reserve_at {
            if !reserve.release_part(STEP_BYTES, keep)? {
                return Ok(());
            }
            let before = self.allocated;
            self.disk_is_full = false;
            self.allocate_to(before + 1)?;
            if self.allocated == before {
                self.ask_reserve_at = self.end.bytes + RETRY_BYTES;
            }
        }
        Ok(())
    }

    /// Truncates a new file to its batches.
    fn trim(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.is_trimmed {
            return Ok(());
        }
        if file.metadata()?.len() > self.end.bytes {
            file.set_len(self.end.bytes)?;
            self.is_trimmed = true;
            self.allocated = self.end.bytes;
        } else {
            // The engine may not have extended a file without batches yet: look again later.
            self.is_trimmed = self.end.bytes > 0;
        }
        Ok(())
    }

    /// Counts a batch of `bytes` that was applied.
    pub(super) fn add_batch(&mut self, bytes: u64) {
        self.end.bytes += bytes;
        self.unsealed_bytes += bytes;
    }

    /// Records that the memtable was sealed.
    pub(super) fn set_sealed(&mut self) {
        self.unsealed_bytes = 0;
        self.check_seal_at = 0;
    }

    /// Returns whether to check now if there is space to seal the memtable.
    pub(super) fn is_seal_check_due(&self) -> bool {
        self.unsealed_bytes >= self.check_seal_at
    }

    /// Postpones the next check, since there is no space to seal the memtable.
    pub(super) fn postpone_seal(&mut self) {
        self.check_seal_at = self.unsealed_bytes + STEP_BYTES;
    }

    /// Records that the journals are synced up to `position`.
    pub(super) fn set_safe(&mut self, position: Position) {
        self.safe = self.safe.max(position);
    }

    /// Records that a sync failed.
    pub(super) fn set_sync_failed(&mut self) {
        self.sync_failed = true;
    }

    /// Runs `end_engine` and finds out whether a sync by the engine failed, which only the engine
    /// saw. Linux reports a failed write-back once to each descriptor that was open: ours, too.
    pub(super) fn detect_failed_sync(&mut self, end_engine: impl FnOnce()) {
        let followed = self.follow_rotation();
        end_engine();
        if let Some(file) = &self.file
            && (followed.is_err() || file.sync_data().is_err())
        {
            self.sync_failed = true;
        }
    }

    /// Returns whether a sync failed.
    pub(super) fn has_failed_sync(&self) -> bool {
        self.sync_failed
    }

    /// Closes the file. Later calls that need it return [`Error::Stopped`].
    pub(super) fn close_file(&mut self) {
        self.file = None;
    }

    /// Moves to the journal that the engine writes now, if it started new ones.
    pub(super) fn follow_rotation(&mut self) -> Result<(), Error> {
        let reading = |error| Error::from_io("reading the journal", error);
        let mut old = None;
        while journal::path(&self.folder, self.end.journal + 1).try_exists().map_err(reading)? {
            let file = self.file()?;
            let old_end = journal::read(&file, self.scanned, 0).map_err(reading)?.valid;
            old = Some((file, old_end));
            let next = self.end.journal + 1;
            self.file = Some(Arc::new(open(&self.folder, next).map_err(reading)?));
            self.end = Position { journal: next, bytes: self.end.bytes.saturating_sub(old_end) };
            self.scanned = 0;
            self.allocated = 0;
            self.is_trimmed = false;
            self.ask_reserve_at = 0;
        }
        self.trim().map_err(reading)?;
        if let Some((file, end)) = old {
            // Allocate first and free afterwards: the two journals together never have fewer
            // blocks than one needs.
            let allocated = self.allocate_to(self.end.bytes + self.preallocation);
            allocated.and_then(|()| file.set_len(end)).map_err(reading)?;
        }
        self.scanned = self.end.bytes;
        Ok(())
    }

    /// Returns the end, and the file whose sync makes everything up to there safe. The engine
    /// synced older journals before it started this one.
    pub(super) fn end(&self) -> Result<(Position, Arc<File>), Error> {
        Ok((self.end, self.file()?))
    }

    /// Returns the bytes of batches in the newest journal.
    pub(super) fn bytes(&self) -> u64 {
        self.end.bytes
    }

    /// Returns the end at which the journals are truncated when the table stops.
    pub(super) fn end_to_keep(&self) -> Position {
        if self.sync_failed { self.safe } else { self.end }
    }

    /// Returns the bytes of batches since the memtable was last sealed.
    pub(super) fn unsealed_bytes(&self) -> u64 {
        self.unsealed_bytes
    }

    fn file(&self) -> Result<Arc<File>, Error> {
        self.file.clone().ok_or(Error::Stopped)
    }
}

/// Truncates the journals in `folder` so that they end at `end`.
pub(super) fn truncate_journals(folder: &Path, end: Position) -> io::Result<()> {
    // The offset may lie in a journal after that of `end`, which the engine started later.
    let mut left = end.bytes;
    let mut done = false;
    for id in journal::list(folder)?.into_iter().filter(|id| *id >= end.journal) {
        let file = open(folder, id)?;
        let valid = if done { 0 } else { journal::read(&file, 0, 0)?.valid };
        if done || left <= valid {
            let end = if done { 0 } else { left };
            // A file that has this length already keeps its preallocated blocks.
            if file.metadata()?.len() != end {
                file.set_len(end)?;
                file.sync_all()?;
            }
            done = true;
        } else {
            left -= valid;
        }
    }
    Ok(())
}

/// Empties the journal `last` in `folder`, whose rows are all in sorted runs, and preallocates
/// blocks to it.
pub(super) fn empty_journals(folder: &Path, last: u64) -> io::Result<()> {
    let file = open(folder, last)?;
    file.set_len(0)?;
    file.sync_all()?;
    drop(file);
    JournalTail::open(folder, Position { journal: last, bytes: 0 }).map(drop)
}

fn open(folder: &Path, id: u64) -> io::Result<File> {
    File::options().read(true).write(true).open(journal::path(folder, id))
}
