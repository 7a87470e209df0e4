//! A table in memory for tests, which can crash and fail on command.
//!
//! It keeps the rows that are safe and the batches since then, so that a test can look at every
//! table that a crash may leave ([`FakeTable::fork_crashed`]). A test also chooses which write
//! fails ([`FakeTable::fail_at`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::sync::Mutex;

use super::batch::{Batch, Change, MAX_KEY_BYTES};
use super::error::Error;
use super::{Pressure, Snapshot, Table, TableRead, Usage, Visitor, bounds};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table in memory. Clones are handles of the same table.
#[derive(Debug, Clone, Default)]
pub struct FakeTable {
    state: Arc<Mutex<State>>,
}

impl FakeTable {
    /// Returns an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of batches that are not safe.
    #[must_use]
    pub fn unsafe_batches(&self) -> usize {
        self.state.lock().unsafe_batches.len()
    }

    /// Returns another table, with the rows that a crash now may leave: all safe batches and the
    /// first `keep_unsafe` of the others, or all others if there are fewer.
    #[must_use]
    pub fn fork_crashed(&self, keep_unsafe: usize) -> Self {
        let state = self.state.lock().crashed(keep_unsafe);
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Crashes the table, for all its handles. The rows are those of [`FakeTable::fork_crashed`].
    pub fn crash(&self, keep_unsafe: usize) {
        let mut state = self.state.lock();
        *state = state.crashed(keep_unsafe);
    }

    /// Makes a later write, persist or ingest fail with `error`: the next if `n` is 0. After
    /// [`Error::NoSpace`] the table goes on; any other error stops it.
    pub fn fail_at(&self, n: usize, error: Error) {
        let mut state = self.state.lock();
        let at = state.calls + n as u64;
        state.faults.insert(at, error);
    }

    /// Sets whether the disk is full: only batches that may use the reserve are written then.
    pub fn set_full(&self, is_full: bool) {
        self.state.lock().is_full = is_full;
    }

    /// Makes the next persist fail. The table stops, and loses what is not safe when it is opened
    /// again.
    pub fn fail_sync(&self) {
        self.state.lock().fails_sync = true;
    }

    /// Sets what [`Table::pressure`] returns from now on.
    pub fn set_pressure(&self, high: bool) {
        self.state.lock().is_under_pressure = high;
    }
}

impl TableRead for FakeTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.state.lock().check_running()?.rows.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.snapshot()?.scan(from, to, visit)
    }
}

impl Table for FakeTable {
    fn snapshot(&self) -> Result<Snapshot, Error> {
        let rows = Arc::clone(&self.state.lock().check_running()?.rows);
        Ok(Box::new(FakeSnapshot { rows }))
    }

    fn write(&self, batch: &Batch) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.check_running()?;
        if batch.is_empty() {
            return Ok(());
        }
        state.count_call()?;
        if state.is_full && !batch.may_use_reserve() {
            return Err(Error::NoSpace);
        }
        apply(Arc::make_mut(&mut state.rows), batch);
        state.unsafe_batches.push_back(batch.clone());
        Ok(())
    }

    fn persist(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.check_running()?;
        let counted = state.count_call();
        if std::mem::take(&mut state.fails_sync) {
            state.stopped = true;
            state.sync_failed = true;
            return Err(Error::Stopped);
        }
        if let Err(error) = counted {
            state.sync_failed = !matches!(error, Error::NoSpace);
            return Err(error);
        }
        state.make_safe();
        Ok(())
    }

    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        let rows: Vec<_> = rows.collect();
        let mut state = self.state.lock();
        state.check_running()?;
        let sorted = rows.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && rows.iter().all(|(key, _)| (1..=MAX_KEY_BYTES).contains(&key.len()));
        if !sorted || rows.iter().any(|(key, _)| state.rows.contains_key(key)) {
            return Err(Error::Unsorted);
        }
        state.count_call()?;
        state.make_safe();
        state.safe.extend(rows.iter().cloned());
        Arc::make_mut(&mut state.rows).extend(rows);
        Ok(())
    }

    fn pressure(&self) -> Pressure {
        if self.state.lock().is_under_pressure { Pressure::High } else { Pressure::None }
    }

    fn reopen(&self) -> Result<bool, Error> {
        let mut state = self.state.lock();
        let drops = std::mem::take(&mut state.sync_failed);
        if drops {
            let calls = state.calls;
            let faults = std::mem::take(&mut state.faults);
            *state = State { calls, faults, ..state.crashed(0) };
        }
        state.stopped = false;
        Ok(drops)
    }

    fn has_failed_sync(&self) -> bool {
        self.state.lock().sync_failed
    }

    fn usage(&self) -> Usage {
        let state = self.state.lock();
        let bytes = state.rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
        Usage { disk_bytes: 0, journal_bytes: 0, memory_bytes: bytes }
    }
}

struct FakeSnapshot {
    rows: Arc<Rows>,
}

impl TableRead for FakeSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.rows.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        let Some(bounds) = bounds(from, to) else { return Ok(()) };
        for (key, value) in self.rows.range::<[u8], _>(bounds) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct State {
    /// All rows. Snapshots share them until the next write.
    rows: Arc<Rows>,
    /// The rows at the last persist.
    safe: Rows,
    /// The batches since then.
    unsafe_batches: VecDeque<Batch>,
    /// The number of writes, persists and ingests so far, failed ones included.
    calls: u64,
    /// The errors to come, by the number of the call.
    faults: BTreeMap<u64, Error>,
    stopped: bool,
    /// The next persist fails.
    fails_sync: bool,
    /// A persist failed: the next reopen drops the batches that are not safe.
    sync_failed: bool,
    is_under_pressure: bool,
    is_full: bool,
}

impl State {
    fn check_running(&self) -> Result<&Self, Error> {
        if self.stopped { Err(Error::Stopped) } else { Ok(self) }
    }

    fn count_call(&mut self) -> Result<(), Error> {
        let call = self.calls;
        self.calls += 1;
        match self.faults.remove(&call) {
            None => Ok(()),
            Some(error) => {
                self.stopped = !matches!(error, Error::NoSpace);
                Err(error)
            }
        }
    }

    fn make_safe(&mut self) {
        for batch in self.unsafe_batches.drain(..) {
            apply(&mut self.safe, &batch);
        }
    }

    fn crashed(&self, keep_unsafe: usize) -> Self {
        let mut rows = self.safe.clone();
        for batch in self.unsafe_batches.iter().take(keep_unsafe) {
            apply(&mut rows, batch);
        }
        Self { safe: rows.clone(), rows: Arc::new(rows), ..Self::default() }
    }
}

fn apply(rows: &mut Rows, batch: &Batch) {
    for change in batch.changes() {
        match change {
            Change::Put(key, value) => {
                rows.insert(key.clone(), value.clone());
            }
            Change::Delete(key) => {
                rows.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &[u8]) -> Batch {
        let mut batch = Batch::new();
        batch.put(key.to_vec(), b"v".to_vec());
        batch
    }

    #[test]
    fn a_crash_keeps_what_is_safe_and_the_prefix_asked_for() {
        let table = FakeTable::new();
        table.write(&put(b"a")).unwrap();
        table.persist().unwrap();
        table.write(&put(b"b")).unwrap();
        table.write(&put(b"c")).unwrap();
        assert_eq!(table.unsafe_batches(), 2);
        for (keep, last) in [(0, b"a"), (1, b"b"), (2, b"c"), (9, b"c")] {
            let fork = table.fork_crashed(keep);
            for key in [b"a", b"b", b"c"] {
                assert_eq!(fork.get(key).unwrap().is_some(), key <= last, "keep {keep}");
            }
            assert_eq!(fork.unsafe_batches(), 0);
        }
        table.crash(1);
        assert_eq!(table.get(b"c").unwrap(), None);
        assert!(table.get(b"b").unwrap().is_some());
    }

    #[test]
    fn full_leaves_it_usable_and_another_error_stops_it_until_reopen() {
        let table = FakeTable::new();
        let broken = || Error::from_io("testing", std::io::Error::other("broken"));
        table.fail_at(1, Error::NoSpace);
        table.write(&put(b"a")).unwrap();
        assert!(matches!(table.write(&put(b"b")), Err(Error::NoSpace)));
        table.write(&put(b"c")).unwrap();
        assert_eq!(table.get(b"b").unwrap(), None);
        table.persist().unwrap();
        table.write(&put(b"d")).unwrap();
        table.fail_at(0, broken());
        assert!(matches!(table.persist(), Err(Error::Io { .. })));
        assert!(matches!(table.get(b"a"), Err(Error::Stopped)));
        table.reopen().unwrap();
        assert!(table.get(b"c").unwrap().is_some());
        assert_eq!(table.get(b"d").unwrap(), None, "its persist failed");
    }
}
