//! The table of the owner, which reports changes as safe only after the baton has confirmed them.

use std::fmt;
use std::sync::Arc;

use super::baton::Baton;
use super::error::OwnerError;
use crate::table::{
    Batch, Error, Pressure, SharedTable, Snapshot, Table, TableRead, Usage, Visitor,
};

/// The table of a shard that this process owns. Once the process is fenced, every call fails with
/// [`Error::Fenced`], for ever: snapshots and [`Table::reopen`] too.
///
/// The caller that opened its engine closes it, before [`Baton::release`].
pub struct OwnedTable {
    inner: SharedTable,
    baton: Arc<Baton>,
}

impl OwnedTable {
    /// Wraps the table in the engine's folder of a run that has `baton`.
    #[must_use]
    pub const fn new(inner: SharedTable, baton: Arc<Baton>) -> Self {
        Self { inner, baton }
    }

    /// Runs `call` unless the process is fenced, and fails if it was fenced meanwhile.
    fn owned<T>(&self, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        owned(&self.baton, call)
    }

    /// Confirms all that was made safe in the engine's folder.
    fn confirm(&self) -> Result<(), Error> {
        match self.baton.advance() {
            Ok(()) => Ok(()),
            Err(OwnerError::Fenced) => Err(Error::Fenced),
            Err(error) => Err(Error::from_io("confirming a persist", std::io::Error::other(error))),
        }
    }
}

fn owned<T>(baton: &Baton, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    if baton.is_fenced() {
        return Err(Error::Fenced);
    }
    let done = call();
    if baton.is_fenced() { Err(Error::Fenced) } else { done }
}

impl fmt::Debug for OwnedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedTable").field("baton", &self.baton).finish_non_exhaustive()
    }
}

impl TableRead for OwnedTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.owned(|| self.inner.get(key))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.owned(|| self.inner.scan(from, to, visit))
    }
}

impl Table for OwnedTable {
    fn snapshot(&self) -> Result<Snapshot, Error> {
        let inner = self.owned(|| self.inner.snapshot())?;
        Ok(Box::new(OwnedSnapshot { inner, baton: Arc::clone(&self.baton) }))
    }

    fn write(&self, batch: &Batch) -> Result<(), Error> {
        self.owned(|| self.inner.write(batch))
    }

    fn persist(&self) -> Result<(), Error> {
        self.owned(|| self.inner.persist())?;
        self.confirm()
    }

    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        self.owned(|| self.inner.ingest(rows))?;
        self.confirm()
    }

    fn pressure(&self) -> Pressure {
        self.inner.pressure()
    }

    fn has_failed_sync(&self) -> bool {
        self.inner.has_failed_sync()
    }

    fn reopen(&self) -> Result<bool, Error> {
        self.owned(|| self.inner.reopen())
    }

    fn resume_flushes(&self) -> Result<(), Error> {
        self.owned(|| self.inner.resume_flushes())
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}

/// A snapshot that cannot be read once the process is fenced.
struct OwnedSnapshot {
    inner: Snapshot,
    baton: Arc<Baton>,
}

impl TableRead for OwnedSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        owned(&self.baton, || self.inner.get(key))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        owned(&self.baton, || self.inner.scan(from, to, visit))
    }
}
