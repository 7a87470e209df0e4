//! The sync of content files after they were written and closed, and the removal of their `writing`
//! rows.

use std::sync::Arc;
use std::time::Duration;

use pelago_data::OpenFiles;
use pelago_wire::Error;

use super::{NextRun, WorkDone, Worker};

/// The longest time that the bytes of a closed file stay unsafe without an `fsync`. One sync per
/// interval serves many files.
const INTERVAL: Duration = Duration::from_secs(5);

/// The worker `writeback`.
pub(crate) struct Writeback {
    opens: Arc<OpenFiles>,
}

impl Writeback {
    /// Returns a worker over the `writing` rows of these files.
    #[must_use]
    pub(crate) fn new(opens: Arc<OpenFiles>) -> Self {
        Self { opens }
    }
}

impl Worker for Writeback {
    fn work(&mut self) -> Result<WorkDone, Error> {
        let items = self.opens.write_back()? as u64;
        Ok(WorkDone { items, next: NextRun::After(INTERVAL) })
    }
}
