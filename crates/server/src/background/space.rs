//! The watch over the free space of the disk. While space is short, removed files are not kept for
//! kernels that may still refer to them.

use std::sync::Arc;
use std::time::Duration;

use pelago_data::{Space, WakeWorker};
use pelago_meta::shard::Shard;
use pelago_store::report::table_failed;
use pelago_store::table::{self, SharedTable};
use pelago_wire::Error;

use super::{WorkDone, Worker};

/// The time between two measurements.
const INTERVAL: Duration = Duration::from_secs(1);

/// The worker `space`.
pub(crate) struct WatchSpace {
    space: Arc<Space>,
    table: SharedTable,
    shard: Arc<Shard>,
    notify_orphans: WakeWorker,
    /// True if removed files are kept for a while. False in a test that counts each step, which
    /// would have to wait for their removal.
    keeps_removed: bool,
}

impl WatchSpace {
    /// Returns a worker that watches this space, and lets this table flush again once the disk has
    /// room.
    #[must_use]
    pub(crate) fn new(
        space: Arc<Space>,
        table: SharedTable,
        shard: Arc<Shard>,
        notify_orphans: WakeWorker,
        keeps_removed: bool,
    ) -> Self {
        Self { space, table, shard, notify_orphans, keeps_removed }
    }
}

impl Worker for WatchSpace {
    fn work(&mut self) -> Result<WorkDone, Error> {
        // Before the measurement: a request may have reported a full disk.
        let was_short = self.space.is_short();
        self.space.refresh()?;
        let is_short = was_short || self.space.is_short();
        if self.shard.remember_removed(self.keeps_removed && !is_short) {
            (self.notify_orphans)();
        }
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
