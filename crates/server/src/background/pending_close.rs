//! The release of closed files, when no process can write them any more. Until then a descriptor
//! that is just being closed, or a mapping that outlives it, may still write them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_data::OpenFiles;
use pelago_wire::Error;

use super::{NextRun, WorkDone, Worker};

/// The time before a file that was just closed is checked: the kernel is about to drop its last
/// descriptor.
const SOON: Duration = Duration::from_millis(1);
/// At most one part in `SHARE` of the worker's time goes into checks, for any number of files.
const SHARE: u32 = 10;

/// The worker `pending_close`.
pub(crate) struct ClosePending {
    opens: Arc<OpenFiles>,
    /// The time between two checks of files that are still written.
    interval: Duration,
    /// The time of the next check; `None`: when the worker is notified.
    due: Option<Instant>,
    /// No check begins earlier, even if the worker is notified.
    not_before: Instant,
}

impl ClosePending {
    /// Returns a worker over the closed files among these.
    #[must_use]
    pub(crate) fn new(opens: Arc<OpenFiles>, interval: Duration) -> Self {
        let now = Instant::now();
        Self { opens, interval, due: Some(now), not_before: now }
    }
}

impl Worker for ClosePending {
    fn notified(&mut self) {
        let soon = (Instant::now() + SOON).max(self.not_before);
        // Repeated notifications must not postpone a deadline already set.
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    fn work(&mut self) -> Result<WorkDone, Error> {
        let Some(due) = self.due else {
            return Ok(WorkDone { items: 0, next: NextRun::OnNotify });
        };
        let now = Instant::now();
        if now < due {
            return Ok(WorkDone::nothing(due - now));
        }
        let items = self.opens.release_closed();
        let end = Instant::now();
        let took = now.elapsed();
        self.not_before = end + took * (SHARE - 1);
        let wait = self.interval.max(self.not_before - end);
        self.due = (self.opens.pending_closes() > 0).then(|| end + wait);
        let next = self.due.map_or(NextRun::OnNotify, |_| NextRun::After(wait));
        Ok(WorkDone { items: items? as u64, next })
    }
}
