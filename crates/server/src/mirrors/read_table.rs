//! The table of a mirror as its readers see it. Nothing is written into the mirror's.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use pelago_store::key::{Key, VolumeRow};
use pelago_store::table::fjall::FjallTable;
use pelago_store::table::{Batch, Error, Pressure, Snapshot, Table, TableRead, Usage, Visitor};

/// The rows of a mirror, and of the removed files that its readers have open.
pub(super) struct ReadTable {
    mirror: Arc<FjallTable>,
    /// Rows that a group has removed. Only [`TableRead::get`] finds them. A leaf lock.
    kept: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl ReadTable {
    /// Returns the table of the readers of a mirror with these rows.
    pub(super) fn over(mirror: Arc<FjallTable>) -> Self {
        Self { mirror, kept: RwLock::default() }
    }

    /// Keeps a row that the mirror does not have any more.
    pub(super) fn keep(&self, key: Vec<u8>, value: Vec<u8>) {
        self.kept.write().insert(key, value);
    }

    /// Forgets a row that was kept.
    pub(super) fn forget(&self, key: &[u8]) {
        self.kept.write().remove(key);
    }
}

impl TableRead for ReadTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let found = self.mirror.get(key)?;
        Ok(found.or_else(|| self.kept.read().get(key).cloned()))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.mirror.scan(from, to, visit)
    }
}

impl Table for ReadTable {
    fn snapshot(&self) -> Result<Snapshot, Error> {
        self.mirror.snapshot()
    }

    /// Drops rows that a server writes for itself: they are of no use after its end. All others are
    /// refused.
    fn write(&self, batch: &Batch) -> Result<(), Error> {
        let is_own = |row: &[u8]| {
            matches!(
                Key::parse(row),
                Some(
                    Key::Volume { row: VolumeRow::HighWater(_) }
                        | Key::Session { .. }
                        | Key::CachedReply { .. }
                        // The count of a directory.
                        | Key::Partition { .. }
                )
            )
        };
        match batch.changes().iter().all(|change| is_own(change.key())) {
            true => Ok(()),
            false => Err(refused()),
        }
    }

    fn persist(&self) -> Result<(), Error> {
        Ok(())
    }

    fn ingest(&self, _rows: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Result<(), Error> {
        Err(refused())
    }

    fn pressure(&self) -> Pressure {
        Pressure::None
    }

    fn has_failed_sync(&self) -> bool {
        false
    }

    fn reopen(&self) -> Result<bool, Error> {
        // The next offer of the primary opens the mirror again.
        Err(Error::Stopped)
    }

    fn usage(&self) -> Usage {
        self.mirror.usage()
    }
}

fn refused() -> Error {
    let source = std::io::ErrorKind::ReadOnlyFilesystem.into();
    Error::from_io("writing into a mirror", source)
}
