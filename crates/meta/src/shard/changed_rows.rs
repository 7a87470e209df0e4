//! The rows that changed since the last cut, for the mirror of the volume.
//!
//! Nothing is collected for a volume without a mirror: a batch then pays for the check of an
//! option.

use std::collections::BTreeSet;
use std::time::Instant;

use pelago_store::key::{self, VolumeRow};
use pelago_store::report::{row_damaged, table_failed};
use pelago_store::rows::{MirrorRow, Row, Stamp};
use pelago_store::table::{Batch, Change, Snapshot};
use pelago_wire::{Error, limits};

use super::Shard;

/// Bytes of memory of a key, without its own bytes.
const KEY_MEMORY: usize = 48;

/// The changed rows that a mirror does not have.
#[derive(Debug, Default)]
pub struct ChangedRows {
    keys: BTreeSet<Vec<u8>>,
    /// Bytes of memory that the keys take.
    memory: usize,
    /// Bytes of all changes: a row that changed twice counts twice.
    bytes: u64,
    /// The time of the first change.
    since: Option<Instant>,
    /// True if there were more rows than the limit: then all rows are copied again.
    has_more: bool,
}

/// The amount of row changes that a mirror does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowRisk {
    /// Bytes of the changes.
    pub bytes: u64,
    /// Bytes of memory of the keys.
    pub memory: usize,
    /// The time of the first change.
    pub since: Option<Instant>,
    /// True if there were more rows than the limit.
    pub has_more: bool,
}

/// The state of a shard between two batches, and the rows that changed before.
pub struct RowCut {
    /// The rows at that moment.
    pub snapshot: Snapshot,
    /// The rows that changed since the previous cut.
    pub changed: ChangedRows,
    /// The sequence of the newest batch before the cut.
    pub sequence: u64,
    /// The stamp of that batch.
    pub stamp: Stamp,
    /// The value of [`crate::durability::Durability::invalidations`] at that moment.
    pub invalidations: u64,
}

impl ChangedRows {
    /// Adds the rows of a batch.
    pub(super) fn add(&mut self, batch: &Batch) {
        let mirrored = |change: &&Change| key::is_mirrored(change.key());
        for change in batch.changes().iter().filter(mirrored) {
            let value = match change {
                Change::Put(_, value) => value.len(),
                Change::Delete(_) => 0,
            };
            self.bytes += (change.key().len() + value) as u64;
            self.since.get_or_insert_with(Instant::now);
            self.insert(change.key());
        }
    }

    fn insert(&mut self, key: &[u8]) {
        if self.has_more || self.keys.contains(key) {
            return;
        }
        self.memory += key.len() + KEY_MEMORY;
        if self.memory > limits::MIRROR_CHANGES_BYTES {
            self.keys.clear();
            self.memory = 0;
            self.has_more = true;
            return;
        }
        self.keys.insert(key.to_vec());
    }

    /// Returns the keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// Returns the amount of changes.
    #[must_use]
    pub fn risk(&self) -> RowRisk {
        let Self { memory, bytes, since, has_more, .. } = *self;
        RowRisk { bytes, memory, since, has_more }
    }

    /// Returns whether nothing has changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.has_more
    }
}

impl Shard {
    /// Returns the role of the volume's folder beside a mirror.
    ///
    /// # Errors
    /// If the table fails, or the row is damaged.
    pub fn mirror_row(&self) -> Result<MirrorRow, Error> {
        let row_key = key::volume_row(VolumeRow::Mirror);
        let value = self.table.get(&row_key);
        let value = value.map_err(|error| table_failed("reading the mirror's row", &error))?;
        let Some(value) = value else { return Ok(MirrorRow::first()) };
        match MirrorRow::decode(&value) {
            Ok((_, row)) => Ok(row),
            Err(error) => Err(row_damaged(&row_key, error)),
        }
    }

    /// Writes the role of the volume's folder beside a mirror.
    ///
    /// # Errors
    /// If the table fails.
    pub fn put_mirror_row(&self, row: &MirrorRow) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        txn.put(key::volume_row(VolumeRow::Mirror), row);
        txn.commit().map(drop)
    }

    /// Begins to collect the rows that change, and forgets those that were collected.
    pub fn collect_changes(&self) {
        self.lock().state.changed_rows = Some(ChangedRows::default());
    }

    /// Ends the collection.
    pub fn end_collecting(&self) {
        self.lock().state.changed_rows = None;
    }

    /// Returns the amount of changes since the last cut; `None` if they are not collected.
    #[must_use]
    pub fn row_risk(&self) -> Option<RowRisk> {
        self.lock().state.changed_rows.as_ref().map(ChangedRows::risk)
    }

    /// Makes a cut: takes a snapshot between two batches, and the rows that changed before. `also`
    /// is called at that moment, when no batch can be written.
    ///
    /// # Errors
    /// If the table has stopped; nothing is cut then.
    pub fn cut(&self, also: impl FnOnce()) -> Result<RowCut, Error> {
        let mut locked = self.lock();
        let snapshot = self.table.snapshot().map_err(|error| table_failed("cutting", &error))?;
        also();
        let changed = locked.state.changed_rows.replace(ChangedRows::default());
        Ok(RowCut {
            snapshot,
            changed: changed.unwrap_or_default(),
            sequence: locked.state.sequence,
            stamp: Stamp { sequence: locked.state.sequence, ..locked.next_stamp() },
            invalidations: self.durability.invalidations(),
        })
    }

    /// Adds the changes of a cut to those of the next cut.
    pub fn take_back(&self, cut: ChangedRows) {
        let mut locked = self.lock();
        let Some(changed) = &mut locked.state.changed_rows else { return };
        changed.has_more |= cut.has_more;
        changed.bytes += cut.bytes;
        changed.since = cut.since.or(changed.since);
        cut.keys.iter().for_each(|key| changed.insert(key));
    }
}
