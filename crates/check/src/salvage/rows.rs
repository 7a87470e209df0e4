//! The rows that were read, in a table of the salvage: the newest version of each.

use std::ops::ControlFlow;
use std::path::Path;

use pelago_store::key::{self, KeyRange};
use pelago_store::table::fjall::salvage::{FoundRow, LostRows};
use pelago_store::table::fjall::{FjallTable, Options};
use pelago_store::table::{Batch, Error, Table as _, TableRead as _, Visitor};
use pelago_wire::InodeId;

/// The newest version of each row.
pub(super) struct FoundRows {
    table: FjallTable,
    /// Ranges of keys with lost rows, sorted and apart.
    lost: Vec<LostRows>,
    /// True if changes of any rows may be lost.
    lost_changes: bool,
}

/// Bytes before a value: the number of the version, and whether it is a value.
const HEAD_BYTES: usize = 9;
const VALUE: u8 = 1;
/// The first byte of a mark's key. No row has it.
const MARK: u8 = 0xff;

impl FoundRows {
    /// Creates the table in a new folder.
    pub(super) fn create(folder: &Path) -> Result<Self, Error> {
        let table = FjallTable::open(folder, Options::default())?;
        Ok(Self { table, lost: Vec::new(), lost_changes: false })
    }

    /// Adds a version of a row, unless a newer one is there.
    pub(super) fn add(&self, row: FoundRow<'_>) -> Result<(), Error> {
        let known = self.table.get(row.key)?;
        let known = known.as_deref().and_then(<[u8]>::first_chunk::<8>);
        if known.is_some_and(|known| u64::from_le_bytes(*known) >= row.number) {
            return Ok(());
        }
        let mut value = row.number.to_le_bytes().to_vec();
        value.push(if row.value.is_some() { VALUE } else { 0 });
        value.extend(row.value.unwrap_or_default());
        self.put(row.key.to_vec(), value)
    }

    /// Records that rows in these ranges are lost.
    pub(super) fn lose(&mut self, ranges: &[LostRows]) {
        self.lost.extend_from_slice(ranges);
        self.lost.sort_by(|a, b| a.after.cmp(&b.after));
        let mut apart: Vec<LostRows> = Vec::new();
        for range in self.lost.drain(..) {
            match apart.last_mut() {
                Some(last) if last.before.as_ref().is_none_or(|end| range.after <= *end) => {
                    let is_longer = last.before.is_some()
                        && range.before.as_ref().is_none_or(|end| last.before.as_ref() < Some(end));
                    if is_longer {
                        last.before = range.before;
                    }
                }
                _ => apart.push(range),
            }
        }
        self.lost = apart;
    }

    /// Records that all rows are lost.
    pub(super) fn lose_all(&mut self) {
        self.lost = vec![LostRows::ALL];
    }

    /// Records that changes of any rows may be lost.
    pub(super) fn lose_changes(&mut self) {
        self.lost_changes = true;
    }

    /// Returns whether any row may be lost.
    pub(super) fn any_lost(&self) -> bool {
        self.lost_changes || !self.lost.is_empty()
    }

    /// Returns whether a newer version of this row, or its deletion, may be lost.
    pub(super) fn is_in_doubt(&self, key: &[u8]) -> bool {
        self.overlaps(&KeyRange { from: key.to_vec(), to: [key, &[0]].concat() })
    }

    /// Returns whether rows of this range may be lost.
    pub(super) fn overlaps(&self, range: &KeyRange) -> bool {
        let first = self.lost.partition_point(|lost| {
            lost.before.as_ref().is_some_and(|end| end.as_slice() <= range.from.as_slice())
        });
        self.lost.get(first).is_some_and(|lost| {
            // The first key after `after` is the same with a zero at its end.
            range.to.is_empty() || [lost.after.as_slice(), &[0]].concat() < range.to
        })
    }

    /// Returns the value of a row.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let stored = self.table.get(key)?;
        Ok(stored.filter(|stored| stored.get(HEAD_BYTES - 1) == Some(&VALUE)).map(|mut stored| {
            stored.drain(..HEAD_BYTES);
            stored
        }))
    }

    /// Calls `visit` with each row of a range, until it breaks.
    pub(super) fn scan(&self, range: &KeyRange, visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.table.scan(&range.from, &range.to, &mut |key, stored| {
            let is_value = stored.get(HEAD_BYTES - 1) == Some(&VALUE);
            if is_value { visit(key, &stored[HEAD_BYTES..]) } else { ControlFlow::Continue(()) }
        })
    }

    /// Marks an inode: it is in the target, or it was removed.
    pub(super) fn mark(&self, ino: InodeId) -> Result<(), Error> {
        self.put(mark(ino), Vec::new())
    }

    /// Returns whether an inode is marked.
    pub(super) fn is_marked(&self, ino: InodeId) -> Result<bool, Error> {
        Ok(self.table.get(&mark(ino))?.is_some())
    }

    /// Returns whether a file without a name waits to be removed.
    pub(super) fn is_orphan(&self, ino: InodeId) -> Result<bool, Error> {
        Ok(self.get(&key::orphan(ino))?.is_some())
    }

    /// Ends the table.
    pub(super) fn close(self) {
        // The caller removes its folder.
        let _closed = self.table.close();
    }

    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), Error> {
        let mut batch = Batch::new();
        batch.put(key, value);
        self.table.write(&batch)
    }
}

fn mark(ino: InodeId) -> Vec<u8> {
    [&[MARK][..], &ino.raw().to_le_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(after: u8, before: u8) -> LostRows {
        LostRows { after: vec![after], before: (before > 0).then(|| vec![before]) }
    }

    /// A lost range lies between two keys that were read, so these are not in doubt.
    #[test]
    fn what_is_in_doubt_is_between_what_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut rows = FoundRows::create(&folder.path().join("rows")).unwrap();
        assert!(!rows.any_lost());
        rows.lose(&[range(40, 50), range(10, 20), range(15, 30), range(90, 0)]);
        assert_eq!(rows.lost, [range(10, 30), range(40, 50), range(90, 0)]);
        let doubtful: Vec<u8> = (1..=99).filter(|key| rows.is_in_doubt(&[*key])).collect();
        let wanted: Vec<u8> = (11..30).chain(41..50).chain(91..=99).collect();
        assert_eq!(doubtful, wanted);
        rows.close();
    }

    #[test]
    fn the_newest_version_counts_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let rows = FoundRows::create(&folder.path().join("rows")).unwrap();
        let add = |key: &[u8], value: Option<Vec<u8>>, number| {
            rows.add(FoundRow { key, value: value.as_deref(), number }).unwrap();
        };
        for numbers in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
            for number in numbers {
                add(b"kept", Some(vec![b'0' + number as u8]), number);
                add(b"gone", (number < 3).then(|| b"old".to_vec()), number);
            }
        }
        assert_eq!(rows.get(b"kept").unwrap().as_deref(), Some(&b"3"[..]));
        assert_eq!(rows.get(b"gone").unwrap(), None);
        let mut seen = Vec::new();
        let all = KeyRange { from: Vec::new(), to: Vec::new() };
        rows.scan(&all, &mut |key, _| {
            seen.push(key.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(seen, [b"kept"]);
        rows.close();
    }
}
