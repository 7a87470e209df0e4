//! A table on a local file system, kept by the LSM engine `fjall`.
//!
//! `docs/decisions/0002-engine.md` lists the traps of the engine, and how this module avoids each.
//! The folder of a table holds `engine` (the files of the engine), `flushed` (how much of the
//! journal was synced, see `sync_record`) and `owner` (locked while the table is open).
//!
//! The module guarantees:
//!
//! 1. A snapshot lies between two batches, never inside one (`TableInner::between_batches`).
//! 2. The end of the journal is known to the byte (`tail`). After a failed write the journal is
//!    truncated there, so that a batch that was not acknowledged never appears.
//! 3. An open either finds everything that was safe, or fails (`verify`).
//! 4. After a failed commit or sync, or a panic of the engine, reads and writes return
//!    [`Error::Stopped`] until [`Table::reopen`].

use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use super::{Batch, Error, Pressure, Snapshot, Table, TableRead, Usage, Visitor};
use crate::folder::Folder;
use crate::reserve::Reserve;

pub use options::Options;
pub use panics::panics_are_caught;

use inner::TableInner;
use snapshot::FjallSnapshot;

mod archive;
pub(crate) mod carry;
mod disk_space;
mod engine;
mod found;
mod inner;
mod journal;
mod manifest;
mod opening;
mod options;
mod pages;
mod panics;
mod runs;
pub mod salvage;
mod snapshot;
mod sync_record;
mod tail;
mod verify;

/// A table in a folder of a local file system. Dropping it closes it.
pub struct FjallTable {
    inner: Arc<TableInner>,
}

impl FjallTable {
    /// Opens the table in the folder `path`, which is created if it is missing.
    ///
    /// # Errors
    /// As [`FjallTable::open_in`].
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let failed = |error| Error::from_io("opening the table", error);
        fs::create_dir_all(path).map_err(failed)?;
        let path = fs::canonicalize(path).map_err(failed)?;
        let folder = Folder::open(&path).map_err(|error| failed(io::Error::other(error)))?;
        Self::open_in(&folder, options)
    }

    /// Opens the table in a folder that only this user can write. The engine reaches the folder
    /// through its descriptor, so that a rename or a swap of the folder does not matter.
    ///
    /// # Errors
    /// [`Error::InUse`] if the table is open already. [`Error::Corrupt`] if something that was safe
    /// is missing or damaged; then nothing was changed. [`Error::Io`] and [`Error::NoSpace`] for
    /// other failures.
    pub fn open_in(folder: &Folder, options: Options) -> Result<Self, Error> {
        Ok(Self { inner: Arc::new(TableInner::open(folder, options)?) })
    }

    /// Makes everything safe, ends the threads of the engine and unlocks the folder. If there is
    /// space, all rows are flushed and the journals emptied, so that the next open has nothing to
    /// replay. All later calls return [`Error::Stopped`], also [`Table::reopen`].
    ///
    /// # Errors
    /// As [`Table::persist`]. The threads of the engine have ended all the same.
    pub fn close(&self) -> Result<(), Error> {
        self.inner.close()
    }

    /// Lets the journal take blocks from `reserve` when the file system has none left.
    pub fn set_reserve(&self, reserve: Arc<Reserve>) {
        self.inner.set_reserve(reserve);
    }
}

impl Drop for FjallTable {
    fn drop(&mut self) {
        if self.inner.is_open()
            && let Err(error) = self.close()
        {
            tracing::warn!(%error, "the table did not close cleanly: the next open recovers it");
        }
    }
}

impl TableRead for FjallTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.inner.get(key)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        FjallSnapshot::take(&self.inner)?.scan(from, to, visit)
    }
}

impl Table for FjallTable {
    fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(Box::new(FjallSnapshot::take(&self.inner)?))
    }

    fn write(&self, batch: &Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return self.inner.with_engine(|_| Ok(()));
        }
        match engine::without_repeated_keys(batch) {
            None => self.inner.write(batch),
            Some(batch) => self.inner.write(&batch),
        }
    }

    fn persist(&self) -> Result<(), Error> {
        self.inner.persist()
    }

    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        self.inner.ingest(rows)
    }

    fn pressure(&self) -> Pressure {
        if self.inner.is_under_pressure() { Pressure::High } else { Pressure::None }
    }

    fn has_failed_sync(&self) -> bool {
        self.inner.has_failed_sync()
    }

    fn reopen(&self) -> Result<bool, Error> {
        self.inner.reopen()
    }

    fn resume_flushes(&self) -> Result<(), Error> {
        self.inner.resume_flushes()
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}
