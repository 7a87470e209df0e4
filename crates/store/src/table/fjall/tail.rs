//! Where the journal ends: counted with each batch, never asked of the engine.
//!
//! The engine starts a new journal on a thread of its own, between two batches. We learn of it
//! late, by the new file's name, and find where the old one ended by reading the little that was
//! added since we last looked: about [`STEP_BYTES`].
//!
//! The file has blocks behind its last batch, [`Room::ahead`] of them. A full medium is then found
//! before a batch is written, not in the middle of it, and what frees space can be written though
//! nobody else finds a free block. The file ends where its last batch ends, so that no open has to
//! cut it and the blocks stay its own from one life to the next.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};

use super::room::Room;
use super::{Error, Position, journal};
use crate::reserve::Reserve;

/// Bytes that get blocks at once. A file system in memory that fails takes back every block of the
/// range that holds no bytes yet, those it had before too: so each range is a new one.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes of batches between two tries to have blocks from the reserve.
const BORROW_BYTES: u64 = 64 << 10;
/// Blocks of a file that are not bytes of it, at the most, in bytes.
const MAP_BYTES: u64 = 128 << 10;

/// The end of the journal.
#[derive(Debug)]
pub(super) struct Tail {
    folder: PathBuf,
    /// The journal at the end, and the bytes of its whole batches.
    end: Position,
    /// Its file, for reserving and for syncing without the engine's lock; none after a release.
    file: Option<Arc<File>>,
    /// A place in that file at or before `end` where a batch ends.
    looked: u64,
    /// Up to where the file has blocks.
    reserved: u64,
    /// Bytes that have blocks behind the last batch, if the medium has them.
    ahead: u64,
    /// The engine's file is 64 MiB long when it is new; whether it was cut to its batches.
    trimmed: bool,
    /// The medium had no blocks for the file the last time.
    refused: bool,
    /// What gives blocks if the medium has none.
    lender: Option<Arc<Reserve>>,
    /// Where the lender is asked again.
    borrow_at: u64,
    /// The memtable is not sealed before so many bytes more: there was no room to write it.
    seal_at: u64,
    /// What is known to be on stable storage.
    safe: Position,
    /// Bytes since the memtable was last sealed.
    since_seal: u64,
    /// A sync failed: what the medium has after `safe` is unknown.
    doubtful: bool,
}

impl Tail {
    /// The tail of the journals in `folder`, which end at `end` and are safe up to there.
    pub(super) fn open(folder: &Path, end: Position) -> io::Result<Self> {
        let file = open(folder, end.journal)?;
        let meta = file.metadata()?;
        let trimmed = meta.len() == end.bytes && end.bytes > 0;
        // Blocks that a former life left behind the end are taken over.
        let blocks = std::os::unix::fs::MetadataExt::blocks(&meta) * 512;
        let had = if trimmed { blocks.saturating_sub(MAP_BYTES) } else { 0 };
        let mut tail = Self {
            folder: folder.to_owned(),
            end,
            looked: end.bytes,
            reserved: end.bytes.max(had),
            ahead: Room::of_file(&file)?.ahead(),
            trimmed,
            refused: false,
            lender: None,
            borrow_at: 0,
            seal_at: 0,
            file: Some(Arc::new(file)),
            safe: end,
            since_seal: end.bytes,
            doubtful: false,
        };
        tail.trim()?;
        tail.extend(end.bytes + tail.ahead)?;
        Ok(tail)
    }

    /// Has blocks from this reserve, too.
    pub(super) fn lend_from(&mut self, lender: Option<Arc<Reserve>>) {
        self.lender = lender;
    }

    /// What gives blocks if the medium has none.
    pub(super) fn lender(&self) -> Option<Arc<Reserve>> {
        self.lender.clone()
    }

    /// Finds blocks for a batch of `bytes`. One that frees space may have all that are there; the
    /// others leave half of those ahead for it.
    pub(super) fn reserve(&mut self, bytes: u64, frees: bool) -> Result<(), Error> {
        if self.end.bytes + bytes + self.ahead <= self.reserved {
            return Ok(());
        }
        self.follow()?;
        let wrong = |error| Error::from_io("reserving journal space", error);
        let end = self.end.bytes + bytes;
        self.extend(end + self.ahead).map_err(wrong)?;
        let half = self.ahead / 2;
        if self.reserved < end + half {
            self.borrow(end + half, frees).map_err(wrong)?;
        }
        let kept = if frees { 0 } else { half };
        if end + kept <= self.reserved { Ok(()) } else { Err(Error::Full) }
    }

    /// Gives the file blocks up to `wanted`, as far as the medium has them.
    fn extend(&mut self, wanted: u64) -> io::Result<()> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        while self.reserved < wanted {
            // Asked first: a try that fails may be slow.
            if self.refused && Room::of_file(&file)?.own() < STEP_BYTES {
                return Ok(());
            }
            let (keep_size, from) = (FallocateFlags::KEEP_SIZE, self.reserved);
            let given =
                retry_on_intr(|| rustix::fs::fallocate(&*file, keep_size, from, STEP_BYTES));
            match given {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.reserved += STEP_BYTES,
                Err(Errno::NOSPC | Errno::DQUOT) => {
                    self.refused = true;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            self.refused = false;
        }
        Ok(())
    }

    /// Gives the file blocks up to `wanted` out of the reserve, a step at a time: others may be
    /// faster at each. What frees space may have all of the reserve, the rest a half of it.
    fn borrow(&mut self, wanted: u64, frees: bool) -> io::Result<()> {
        let Some(lender) = self.lender.clone() else { return Ok(()) };
        let kept = if frees { 0 } else { lender.bytes() / 2 };
        while self.reserved < wanted && self.end.bytes >= self.borrow_at {
            if !lender.lend(STEP_BYTES, kept)? {
                return Ok(());
            }
            let before = self.reserved;
            self.refused = false;
            self.extend(before + 1)?;
            if self.reserved == before {
                self.borrow_at = self.end.bytes + BORROW_BYTES;
            }
        }
        Ok(())
    }

    /// Cuts a new file to its batches, so that it ends where they do.
    fn trim(&mut self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        if self.trimmed {
            return Ok(());
        }
        if file.metadata()?.len() > self.end.bytes {
            file.set_len(self.end.bytes)?;
            self.trimmed = true;
            self.reserved = self.end.bytes;
        } else {
            // One without a batch may be so new that the engine has yet to make it long.
            self.trimmed = self.end.bytes > 0;
        }
        Ok(())
    }

    /// A batch of `bytes` was applied.
    pub(super) fn grow(&mut self, bytes: u64) {
        self.end.bytes += bytes;
        self.since_seal += bytes;
    }

    /// The memtable was sealed.
    pub(super) fn set_sealed(&mut self) {
        self.since_seal = 0;
        self.seal_at = 0;
    }

    /// Whether it is time to look whether the memtable can be sealed.
    pub(super) fn may_seal(&self) -> bool {
        self.since_seal >= self.seal_at
    }

    /// The memtable cannot be sealed now.
    pub(super) fn put_off_seal(&mut self) {
        self.seal_at = self.since_seal + STEP_BYTES;
    }

    /// Everything up to `position` is on stable storage.
    pub(super) fn set_safe(&mut self, position: Position) {
        self.safe = self.safe.max(position);
    }

    /// A sync failed.
    pub(super) fn set_doubtful(&mut self) {
        self.doubtful = true;
    }

    /// Finds out, while `shut` ends the engine, whether a sync of the journal has failed that only
    /// the engine saw: each descriptor that was open then is told once, so ours is asked.
    pub(super) fn look_for_doubt(&mut self, shut: impl FnOnce()) {
        let followed = self.follow();
        shut();
        if let Some(file) = &self.file
            && (followed.is_err() || file.sync_data().is_err())
        {
            self.doubtful = true;
        }
    }

    /// Whether a sync failed.
    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// Lets go of the file, before the engine is waited for.
    pub(super) fn release(&mut self) {
        self.file = None;
    }

    /// Goes on to the journal the engine writes now.
    pub(super) fn follow(&mut self) -> Result<(), Error> {
        let reading = |error| Error::from_io("reading the journal", error);
        let mut left = None;
        while journal::path(&self.folder, self.end.journal + 1).try_exists().map_err(reading)? {
            let file = self.file()?;
            let old = journal::read(&file, self.looked, 0).map_err(reading)?.valid;
            left = Some((file, old));
            let next = self.end.journal + 1;
            self.file = Some(Arc::new(open(&self.folder, next).map_err(reading)?));
            self.end = Position { journal: next, bytes: self.end.bytes.saturating_sub(old) };
            self.looked = 0;
            self.reserved = 0;
            self.trimmed = false;
            self.borrow_at = 0;
        }
        self.trim().map_err(reading)?;
        if let Some((file, end)) = left {
            // The new one has its blocks before the old one gives up those behind its end.
            let extended = self.extend(self.end.bytes + self.ahead);
            extended.and_then(|()| file.set_len(end)).map_err(reading)?;
        }
        self.looked = self.end.bytes;
        Ok(())
    }

    /// The end, and the file to sync for all of it to be safe: older journals were synced by the
    /// engine before it left them.
    pub(super) fn end(&self) -> Result<(Position, Arc<File>), Error> {
        Ok((self.end, self.file()?))
    }

    /// Bytes in the newest journal.
    pub(super) fn bytes(&self) -> u64 {
        self.end.bytes
    }

    /// What a table that stopped may keep.
    pub(super) fn keep(&self) -> Position {
        if self.doubtful { self.safe } else { self.end }
    }

    /// Bytes since the memtable was last sealed.
    pub(super) fn since_seal(&self) -> u64 {
        self.since_seal
    }

    fn file(&self) -> Result<Arc<File>, Error> {
        self.file.clone().ok_or(Error::Stopped)
    }
}

/// Cuts the journals in `folder` so that they end at `keep`.
pub(super) fn cut(folder: &Path, keep: Position) -> io::Result<()> {
    let mut left = keep.bytes;
    let mut done = false;
    for id in journal::list(folder)?.into_iter().filter(|id| *id >= keep.journal) {
        let file = open(folder, id)?;
        let valid = if done { 0 } else { journal::read(&file, 0, 0)?.valid };
        if done || left <= valid {
            let end = if done { 0 } else { left };
            // Else it would lose the blocks behind its end.
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

/// Empties the journals in `folder`, whose rows are all in sorted runs; the last has blocks ahead
/// as before.
pub(super) fn empty(folder: &Path, last: u64) -> io::Result<()> {
    let file = open(folder, last)?;
    file.set_len(0)?;
    file.sync_all()?;
    drop(file);
    Tail::open(folder, Position { journal: last, bytes: 0 }).map(drop)
}

fn open(folder: &Path, id: u64) -> io::Result<File> {
    File::options().read(true).write(true).open(journal::path(folder, id))
}
