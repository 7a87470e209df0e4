//! Watches the free space of the disk.

use std::sync::Arc;
use std::time::Duration;

use pelago_data::Space;
use pelago_store::report::table_failed;
use pelago_store::table::{self, SharedTable};
use pelago_wire::Error;

use super::{WorkDone, Worker};

/// How often it measures.
const INTERVAL: Duration = Duration::from_secs(1);

/// The worker `space`.
pub(crate) struct WatchSpace {
    space: Arc<Space>,
    table: SharedTable,
}

impl WatchSpace {
    /// Returns a worker that watches this space, and lets this table flush again once the disk has
    /// room.
    #[must_use]
    pub(crate) fn new(space: Arc<Space>, table: SharedTable) -> Self {
        Self { space, table }
    }
}

impl Worker for WatchSpace {
    fn work(&mut self) -> Result<WorkDone, Error> {
        self.space.refresh()?;
        if !self.space.is_short() {
            match self.table.resume_flushes() {
                // The group commit reopens a stopped table.
                Ok(()) | Err(table::Error::Stopped) => {}
                Err(error) => {
                    return Err(table_failed(
                        "resuming flushes on a disk that has room again",
                        &error,
                    ));
                }
            }
        }
        Ok(WorkDone::nothing(INTERVAL))
    }
}
