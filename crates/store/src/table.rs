//! The interface between the file system and its storage engine: an ordered map from keys to
//! values, with atomic batches and snapshots.
//!
//! A table has no column families: the first byte of a key names the kind of its row
//! ([`crate::key`]). Two promises are kept apart everywhere:
//!
//! - **done**: [`Table::write`] returned. Every later read sees the whole batch, and the batch
//!   survives `kill -9`.
//! - **safe**, or durable: a [`Table::persist`] that began later returned. The batch survives a
//!   loss of power.
//!
//! After a crash a table holds a prefix of its batches in the order of their writes. No batch is
//! torn, and no safe batch is missing.
//!
//! One conformance suite (`tests/conformance.rs`) runs against every implementation.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

pub use batch::{Batch, Change, MAX_KEY_BYTES};
pub use error::Error;

mod batch;
mod error;
pub mod fake;
pub mod fjall;

/// The reply of a scan's visitor: go on, or stop here.
pub type Visit = ControlFlow<()>;

/// The visitor of a scan, called with the key and the value of each row.
pub type Visitor<'a> = dyn FnMut(&[u8], &[u8]) -> Visit + 'a;

/// A view of a [`Table`] that does not change. Taking one is cheap; old row versions stay on disk
/// for as long as it exists.
pub type Snapshot = Box<dyn TableRead + Send>;

/// A table that several parts of a server share.
pub type SharedTable = Arc<dyn Table>;

/// Reads of a table, or of a snapshot of one.
pub trait TableRead {
    /// Returns the value at `key`, or `None` if there is no such row.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Corrupt`]; [`Error::Stopped`] after a failed write;
    /// [`Error::StaleSnapshot`] if the table was reopened since the snapshot was taken.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Calls `visit` with every row of `from <= key < to`, in the order of the keys, until it
    /// breaks. An empty `to` is the end of the table. `visit` may read the table.
    ///
    /// # Errors
    /// As [`TableRead::get`].
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error>;
}

/// An ordered map from keys of 1 to [`MAX_KEY_BYTES`] bytes to values.
///
/// All methods may block on the disk. A scan sees the rows of one moment.
pub trait Table: TableRead + Send + Sync {
    /// Takes a snapshot, which lies between two batches.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    fn snapshot(&self) -> Result<Snapshot, Error>;

    /// Applies all changes of `batch`, or none. The batch is done when this returns.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the file system is full: nothing was applied, and the table goes on,
    /// unless the engine itself ran out of space in the background. [`Error::Io`] for other
    /// failures. If the end of the journal is unknown after an error, every later call returns
    /// [`Error::Stopped`] until [`Table::reopen`].
    fn write(&self, batch: &Batch) -> Result<(), Error>;

    /// Makes every batch that was written before this call safe.
    ///
    /// # Errors
    /// As [`Table::write`]. Batches that were not safe before may be lost.
    fn persist(&self) -> Result<(), Error>;

    /// Adds many rows at once. They are safe when this returns; after a crash all or none are
    /// there. The rows must be sorted by key, without repeats. None may be in the table, or be
    /// written by another thread meanwhile.
    ///
    /// # Errors
    /// [`Error::Unsorted`] if the rows break these rules: nothing was applied. Others as
    /// [`Table::write`].
    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error>;

    /// Returns whether a write might stall now because flushes or compactions are behind.
    fn pressure(&self) -> Pressure;

    /// Returns whether a sync failed, so that the next [`Table::reopen`] drops every batch that is
    /// not safe.
    fn has_failed_sync(&self) -> bool;

    /// Opens the table again after it stopped, and returns whether batches were dropped: all that
    /// were not safe, if a sync failed.
    ///
    /// It waits for running scans, so no visitor may call it. Meanwhile other calls return
    /// [`Error::Stopped`]. Older snapshots return [`Error::StaleSnapshot`] afterwards.
    ///
    /// # Errors
    /// As opening the table the first time. The table stays stopped.
    fn reopen(&self) -> Result<bool, Error>;

    /// Starts flushes and compactions again if they were off because the disk was nearly full, and
    /// there is space now. Callers call it now and then. No batch is lost, but older snapshots may
    /// return [`Error::StaleSnapshot`] afterwards.
    ///
    /// # Errors
    /// As [`Table::reopen`].
    fn resume_flushes(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns how much disk space and memory the table uses.
    fn usage(&self) -> Usage;
}

/// The pressure of writers on the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// A write returns at once.
    None,
    /// A write may stall. A thread that serves other requests must not write now.
    High,
}

/// Disk space and memory of a table, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes on disk, journals included.
    pub disk_bytes: u64,
    /// Bytes of the journals.
    pub journal_bytes: u64,
    /// Bytes of rows in memory that are not flushed to sorted runs yet.
    pub memory_bytes: u64,
}

/// The first and the last key of a scan.
type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Returns the bounds of a scan, or `None` if no key is between them.
fn bounds<'a>(from: &'a [u8], to: &'a [u8]) -> Option<Bounds<'a>> {
    match to {
        [] => Some((Bound::Included(from), Bound::Unbounded)),
        _ if from >= to => None,
        _ => Some((Bound::Included(from), Bound::Excluded(to))),
    }
}
