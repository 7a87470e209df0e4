//! Watches the space of the medium.

use std::sync::Arc;
use std::time::Duration;

use pelago_store::table::{self, SharedTable};
use pelago_wire::Error;

use super::{Next, Piece, Worker};
use pelago_data::Space;
use pelago_store::report::table_failed;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);

/// The worker `space`.
pub(crate) struct WatchSpace {
    space: Arc<Space>,
    table: SharedTable,
}

impl WatchSpace {
    /// A worker that watches this space, and tells this table that there is room again.
    #[must_use]
    pub(crate) fn new(space: Arc<Space>, table: SharedTable) -> Self {
        Self { space, table }
    }
}

impl Worker for WatchSpace {
    fn work(&mut self) -> Result<Piece, Error> {
        self.space.refresh()?;
        if !self.space.is_short() {
            match self.table.resume_flushes() {
                // The group commit opens it again.
                Ok(()) | Err(table::Error::Stopped) => {}
                Err(error) => return Err(table_failed("using the room there is again", &error)),
            }
        }
        Ok(Piece { items: 0, next: Next::After(INTERVAL) })
    }
}
