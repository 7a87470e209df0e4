//! For tests: how many rows are read and written under one hold of a shard's lock.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::MutexGuard;
use pelago_store::table::{
    Batch, Change, Error, Pressure, SharedTable, Snapshot, Table, TableRead, Usage, Visitor,
};

use super::State;

thread_local! {
    /// RowCache since this thread took the lock; `None`: it does not have it.
    static NOW: Cell<Option<Work>> = const { Cell::new(None) };
    /// The most of each under any hold of this thread.
    static MOST: Cell<Work> = const { Cell::new(Work::NOTHING) };
}

/// RowCache and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) read: usize,
    pub(crate) read_bytes: usize,
    pub(crate) written: usize,
}

impl Work {
    const NOTHING: Self = Self { read: 0, read_bytes: 0, written: 0 };

    /// The most work of this thread under one hold since this was asked last.
    pub(crate) fn take_most() -> Self {
        MOST.replace(Self::NOTHING)
    }

    fn add(more: Self) {
        if let Some(now) = NOW.get() {
            NOW.set(Some(Self {
                read: now.read + more.read,
                read_bytes: now.read_bytes + more.read_bytes,
                written: now.written + more.written,
            }));
        }
    }

    fn read(bytes: usize) {
        Self::add(Self { read: 1, read_bytes: bytes, ..Self::NOTHING });
    }
}

/// The state of a shard, for as long as its lock is held.
pub(super) struct Turn<'a>(MutexGuard<'a, State>);

impl<'a> From<MutexGuard<'a, State>> for Turn<'a> {
    fn from(state: MutexGuard<'a, State>) -> Self {
        NOW.set(Some(Work::NOTHING));
        Self(state)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(now) = NOW.take() {
            let most = MOST.get();
            MOST.set(Work {
                read: most.read.max(now.read),
                read_bytes: most.read_bytes.max(now.read_bytes),
                written: most.written.max(now.written),
            });
        }
    }
}

impl Deref for Turn<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.0
    }
}

/// A table whose rows are counted.
struct Counted(SharedTable);

/// The same table, with its rows counted.
pub(super) fn counted(table: SharedTable) -> SharedTable {
    Arc::new(Counted(table))
}

impl TableRead for Counted {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.0.get(key)?;
        Work::read(value.as_ref().map_or(0, Vec::len));
        Ok(value)
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.0.scan(from, to, &mut |key, value| {
            Work::read(value.len());
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
        Work::add(Work { written: changes.len(), ..Work::NOTHING });
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
