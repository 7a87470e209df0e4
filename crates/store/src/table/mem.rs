//! The twin of the engine: an ordered map in memory that can crash and fail on command.
//!
//! It keeps what is safe and the batches since then, so a test can look at every table a crash
//! might leave ([`MemTable::fork_crashed`]), and it fails the write a test names
//! ([`MemTable::fail_at`]).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Batch, Change, Error, MAX_KEY_BYTES, Pressure, Snapshot, Table, Usage, Visit};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A table in memory. A clone is another handle of the same table.
#[derive(Debug, Clone, Default)]
pub struct MemTable {
    state: Arc<Mutex<State>>,
}

impl MemTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many batches a crash now may lose.
    #[must_use]
    pub fn unsafe_batches(&self) -> usize {
        self.state.lock().since.len()
    }

    /// Another table: what a crash now would leave if the first `keep_unsafe` of the batches that
    /// are not safe survived it. More than there are means all.
    #[must_use]
    pub fn fork_crashed(&self, keep_unsafe: usize) -> Self {
        let state = self.state.lock().crashed(keep_unsafe);
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The crash itself, for every handle of this table; as [`MemTable::fork_crashed`].
    pub fn crash_after(&self, keep_unsafe: usize) {
        let mut state = self.state.lock();
        *state = state.crashed(keep_unsafe);
    }

    /// The `n`-th coming write, persist or ingest fails with `error`; 0 is the next. After
    /// [`Error::Full`] the table goes on; after any other error it is stopped.
    pub fn fail_at(&self, n: usize, error: Error) {
        let mut state = self.state.lock();
        let at = state.calls + n as u64;
        state.faults.insert(at, error);
    }

    /// What [`Table::pressure`] answers from now on.
    pub fn set_pressure(&self, high: bool) {
        self.state.lock().pressed = high;
    }
}

impl Table for MemTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.state.lock().going()?.rows.get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), Error> {
        self.snapshot()?.scan(from, to, visit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>, Error> {
        let rows = Arc::clone(&self.state.lock().going()?.rows);
        Ok(Box::new(MemSnapshot { rows }))
    }

    fn write(&self, batch: &Batch) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.going()?;
        if batch.is_empty() {
            return Ok(());
        }
        state.count_call()?;
        apply(Arc::make_mut(&mut state.rows), batch);
        state.since.push_back(batch.clone());
        Ok(())
    }

    fn persist(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        state.going()?;
        if let Err(error) = state.count_call() {
            state.doubtful = !matches!(error, Error::Full);
            return Err(error);
        }
        state.settle();
        Ok(())
    }

    fn ingest(&self, rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        let rows: Vec<_> = rows.collect();
        let mut state = self.state.lock();
        state.going()?;
        let sorted = rows.windows(2).all(|pair| pair[0].0 < pair[1].0)
            && rows.iter().all(|(key, _)| (1..=MAX_KEY_BYTES).contains(&key.len()));
        if !sorted || rows.iter().any(|(key, _)| state.rows.contains_key(key)) {
            return Err(Error::Unsorted);
        }
        state.count_call()?;
        state.settle();
        state.safe.extend(rows.iter().cloned());
        Arc::make_mut(&mut state.rows).extend(rows);
        Ok(())
    }

    fn pressure(&self) -> Pressure {
        if self.state.lock().pressed { Pressure::High } else { Pressure::None }
    }

    fn reopen(&self) -> Result<bool, Error> {
        let mut state = self.state.lock();
        let loses = std::mem::take(&mut state.doubtful);
        if loses {
            *state = state.crashed(0);
        }
        state.stopped = false;
        Ok(loses)
    }

    fn loses_unsafe(&self) -> bool {
        self.state.lock().doubtful
    }

    fn usage(&self) -> Usage {
        let state = self.state.lock();
        let bytes = state.rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum();
        Usage { disk_bytes: 0, journal_bytes: 0, memory_bytes: bytes }
    }
}

struct MemSnapshot {
    rows: Arc<Rows>,
}

impl Snapshot for MemSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.rows.get(key).cloned())
    }

    fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(), Error> {
        if !to.is_empty() && from >= to {
            return Ok(());
        }
        let end = if to.is_empty() { Bound::Unbounded } else { Bound::Excluded(to) };
        for (key, value) in self.rows.range::<[u8], _>((Bound::Included(from), end)) {
            if visit(key, value).is_break() {
                break;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Default)]
struct State {
    /// All rows; a snapshot shares them until the next write.
    rows: Arc<Rows>,
    /// The rows at the last persist.
    safe: Rows,
    /// What was written since.
    since: VecDeque<Batch>,
    /// Writes, persists and ingests so far, failed ones included.
    calls: u64,
    faults: BTreeMap<u64, Error>,
    stopped: bool,
    /// A persist failed: what was not safe is lost at the next reopen.
    doubtful: bool,
    pressed: bool,
}

impl State {
    fn going(&self) -> Result<&Self, Error> {
        if self.stopped { Err(Error::Stopped) } else { Ok(self) }
    }

    fn count_call(&mut self) -> Result<(), Error> {
        let call = self.calls;
        self.calls += 1;
        match self.faults.remove(&call) {
            None => Ok(()),
            Some(error) => {
                self.stopped = !matches!(error, Error::Full);
                Err(error)
            }
        }
    }

    fn settle(&mut self) {
        for batch in self.since.drain(..) {
            apply(&mut self.safe, &batch);
        }
    }

    fn crashed(&self, keep_unsafe: usize) -> Self {
        let mut rows = self.safe.clone();
        for batch in self.since.iter().take(keep_unsafe) {
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
        let table = MemTable::new();
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
        table.crash_after(1);
        assert_eq!(table.get(b"c").unwrap(), None);
        assert!(table.get(b"b").unwrap().is_some());
    }

    #[test]
    fn full_leaves_it_usable_and_another_error_stops_it_until_reopen() {
        let table = MemTable::new();
        let broken = || Error::from_io("testing", std::io::Error::other("broken"));
        table.fail_at(1, Error::Full);
        table.write(&put(b"a")).unwrap();
        assert!(matches!(table.write(&put(b"b")), Err(Error::Full)));
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
