//! Counters for tests: the rows that are read and written under one hold of a shard's lock. They
//! also check that no thread takes it twice.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use pelago_store::sync::MutexGuard;
use pelago_store::table::{
    Batch, Change, Error, Pressure, SharedTable, Snapshot, Table, TableRead, Usage, Visitor,
};

use super::State;

thread_local! {
    /// The cost since this thread took the lock; `None` while it does not hold it.
    static CURRENT: Cell<Option<LockCost>> = const { Cell::new(None) };
    /// The maximum of each count over all holds by this thread.
    static MAX: Cell<LockCost> = const { Cell::new(LockCost::ZERO) };
}

/// The rows and bytes of one hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockCost {
    pub(crate) rows_read: usize,
    pub(crate) bytes_read: usize,
    pub(crate) rows_written: usize,
}

impl LockCost {
    const ZERO: Self = Self { rows_read: 0, bytes_read: 0, rows_written: 0 };

    /// Returns the maximum cost of a hold by this thread since the last call.
    pub(crate) fn take_max() -> Self {
        MAX.replace(Self::ZERO)
    }

    fn add(more: Self) {
        if let Some(cost) = CURRENT.get() {
            CURRENT.set(Some(Self {
                rows_read: cost.rows_read + more.rows_read,
                bytes_read: cost.bytes_read + more.bytes_read,
                rows_written: cost.rows_written + more.rows_written,
            }));
        }
    }

    fn add_read(bytes: usize) {
        Self::add(Self { rows_read: 1, bytes_read: bytes, ..Self::ZERO });
    }
}

/// Asserts that this thread may wait, because it holds the lock of no shard.
pub(super) fn assert_not_locked() {
    assert!(CURRENT.get().is_none(), "I-9: a thread waits while it holds the lock of a shard");
}

/// The state of a shard while its lock is held.
pub(super) struct StateGuard<'a>(MutexGuard<'a, State>);

impl<'a> From<MutexGuard<'a, State>> for StateGuard<'a> {
    fn from(state: MutexGuard<'a, State>) -> Self {
        CURRENT.set(Some(LockCost::ZERO));
        Self(state)
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        if let Some(cost) = CURRENT.take() {
            let max = MAX.get();
            MAX.set(LockCost {
                rows_read: max.rows_read.max(cost.rows_read),
                bytes_read: max.bytes_read.max(cost.bytes_read),
                rows_written: max.rows_written.max(cost.rows_written),
            });
        }
    }
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

/// A table whose rows are counted.
struct Counted(SharedTable);

/// Returns a table that counts rows for [`LockCost`].
pub(super) fn counted(table: SharedTable) -> SharedTable {
    Arc::new(Counted(table))
}

impl TableRead for Counted {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.0.get(key)?;
        LockCost::add_read(value.as_ref().map_or(0, Vec::len));
        Ok(value)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.0.scan(from, to, &mut |key, value| {
            LockCost::add_read(value.len());
            visit(key, value)
        })
    }
}

impl Table for Counted {
    fn snapshot(&self) -> Result<Snapshot, Error> {
        self.0.snapshot()
    }

    fn write(&self, batch: &Batch) -> Result<(), Error> {
        let changes: &[Change] = batch.changes();
        LockCost::add(LockCost { rows_written: changes.len(), ..LockCost::ZERO });
        self.0.write(batch)
    }

    fn persist(&self) -> Result<(), Error> {
        self.0.persist()
    }

    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        self.0.ingest(rows)
    }

    fn has_failed_sync(&self) -> bool {
        self.0.has_failed_sync()
    }

    fn pressure(&self) -> Pressure {
        self.0.pressure()
    }

    fn reopen(&self) -> Result<bool, Error> {
        self.0.reopen()
    }

    fn usage(&self) -> Usage {
        self.0.usage()
    }
}
