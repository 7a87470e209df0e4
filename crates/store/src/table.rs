//! The seam between the file system and its engine: an ordered map of bytes with atomic batches.
//!
//! A table has no keyspaces: the first byte of a key names the kind of its row ([`crate::key`]).
//! Two things are kept apart everywhere:
//!
//! - **done**: [`Table::write`] has returned. Every later read sees the batch whole, and it
//!   survives the death of the process.
//! - **safe**: a [`Table::persist`] that began after that has returned. It survives the machine.
//!
//! After a crash a table holds a prefix of its batches, in the order in which they were written,
//! each whole or absent, and at least those that were safe.
//!
//! One conformance suite (`tests/conformance.rs`) runs over every implementation.

use std::ops::ControlFlow;
use std::sync::Arc;

pub use batch::{Batch, Change, MAX_KEY_BYTES};
pub use error::Error;

mod batch;
mod error;
pub mod fjall;
pub mod mem;

/// What a visitor of a scan answers: go on, or stop here.
pub type Visit = ControlFlow<()>;

/// An ordered map of bytes. All methods block; none may be called from two places that wait for
/// each other, and the server decides on which thread they run. Keys have 1 to
/// [`MAX_KEY_BYTES`] bytes.
pub trait Table: Send + Sync {
    /// The value at `key` now.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Corrupt`] from the medium; [`Error::Stopped`] after a failed
    /// write.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// Visits every row with `from <= key < to` in key order until the visitor breaks.
    /// `to` empty means: to the end of the table.
    ///
    /// # Errors
    /// As [`Table::get`].
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), Error>;

    /// A view of the table as it is between two batches. Cheap; holding one for long keeps old
    /// versions on the medium.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, Error>;

    /// Applies all changes of `batch`, or none. Done when it returns.
    ///
    /// # Errors
    /// [`Error::Full`] with nothing applied where the medium has no space left; the table goes on
    /// unless the engine itself met the end of the medium. [`Error::Io`]; after an error that
    /// leaves the end of the journal unknown, every later call answers [`Error::Stopped`] until
    /// [`Table::reopen`].
    fn write(&self, batch: &Batch) -> Result<(), Error>;

    /// Makes every batch written before this call safe.
    ///
    /// # Errors
    /// As [`Table::write`]. An error means that what was not safe before may never be.
    fn persist(&self) -> Result<(), Error>;

    /// Brings in many rows at once, sorted by key without repeats, none of which may be in the
    /// table or be written meanwhile. All or none is there after a crash; safe when it returns.
    ///
    /// # Errors
    /// [`Error::Unsorted`] with nothing applied; else as [`Table::write`].
    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error>;

    /// Whether a write now might have to wait for the engine's own housekeeping.
    fn pressure(&self) -> Pressure;

    /// Whether it is known already that [`Table::reopen`] loses what was done and is not safe:
    /// making it safe has failed.
    fn loses_unsafe(&self) -> bool;

    /// Opens the table again after it stopped. What was done and not safe may be gone. It waits
    /// for scans that run, so no visitor may call it. While it runs other calls answer
    /// [`Error::Stopped`]; after it, snapshots taken before answer [`Error::Stale`].
    ///
    /// Answers whether it is gone.
    ///
    /// # Errors
    /// As opening it the first time; it then stays stopped.
    fn reopen(&self) -> Result<bool, Error>;

    /// Called now and then: a table that kept what it writes small, because the medium was nearly
    /// full, uses the room that there is again. Nothing is lost by it; snapshots taken before may
    /// answer [`Error::Stale`].
    ///
    /// # Errors
    /// As [`Table::reopen`].
    fn use_room(&self) -> Result<(), Error> {
        Ok(())
    }

    /// What it costs now, for `status`.
    fn usage(&self) -> Usage;
}

/// A view of a [`Table`] that does not change.
pub trait Snapshot: Send {
    /// As [`Table::get`].
    ///
    /// # Errors
    /// As [`Table::get`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// As [`Table::scan`].
    ///
    /// # Errors
    /// As [`Table::get`].
    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), Error>;
}

/// A table shared by the parts of a server.
pub type SharedTable = Arc<dyn Table>;

/// Whether the engine keeps up with its writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pressure {
    /// A write returns at once.
    None,
    /// A write may sleep: no caller who serves others may write now.
    High,
}

/// Bytes a table uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// On the medium, journals included.
    pub disk_bytes: u64,
    /// Of those, journals not yet in sorted runs.
    pub journal_bytes: u64,
    /// In memory, not yet in sorted runs.
    pub memory_bytes: u64,
}
