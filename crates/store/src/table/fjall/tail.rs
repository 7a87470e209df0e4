//! Where the journal ends: counted with each batch, never asked of the engine.
//!
//! The engine starts a new journal on a thread of its own, between two batches. We learn of it
//! late, by the new file's name, and find where the old one ended by reading the little that was
//! added since we last looked: about [`RESERVE_BYTES`].

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::{Error, Position, journal};

/// Bytes of the journal that are given blocks ahead of the batches: a full medium is then found
/// before a batch is written, not in the middle of it.
const RESERVE_BYTES: u64 = 1 << 20;

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
        Ok(Self {
            folder: folder.to_owned(),
            end,
            file: Some(Arc::new(open(folder, end.journal)?)),
            looked: end.bytes,
            reserved: end.bytes,
            safe: end,
            since_seal: end.bytes,
            doubtful: false,
        })
    }

    /// Finds blocks for `bytes` more.
    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), Error> {
        if self.end.bytes + bytes <= self.reserved {
            return Ok(());
        }
        self.follow()?;
        let from = self.end.bytes;
        let ahead = bytes + RESERVE_BYTES;
        match rustix::fs::fallocate(&*self.file()?, FallocateFlags::KEEP_SIZE, from, ahead) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(Error::from_io("reserving journal space", error.into())),
        }
        self.reserved = from + ahead;
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
        while journal::path(&self.folder, self.end.journal + 1).try_exists().map_err(reading)? {
            let old = journal::read(&*self.file()?, self.looked, 0).map_err(reading)?.valid;
            let next = self.end.journal + 1;
            self.file = Some(Arc::new(open(&self.folder, next).map_err(reading)?));
            self.end = Position { journal: next, bytes: self.end.bytes.saturating_sub(old) };
            self.looked = 0;
            self.reserved = 0;
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
            file.set_len(if done { 0 } else { left })?;
            file.sync_all()?;
            done = true;
        } else {
            left -= valid;
        }
    }
    Ok(())
}

fn open(folder: &Path, id: u64) -> io::Result<File> {
    File::options().read(true).write(true).open(journal::path(folder, id))
}
