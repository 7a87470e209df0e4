//! Background work, each kind on a thread of its own: visible in [`crate::Status`], throttled, and
//! stopped with a deadline.
//!
//! A [`Worker`] does one short piece of work at a time and is never interrupted in it. Before the
//! next piece it sleeps for as long as the last one took, so that it uses at most half of one
//! processor. Code that makes work for a worker calls its [`Notify`]. Work that fails is tried
//! again later, and `status` shows the error.

use std::time::Duration;

use pelago_wire::Error;

pub(crate) use notify::Notify;
pub(crate) use orphans::RemoveOrphans;
pub(crate) use pending_close::ClosePending;
pub(crate) use recount::Recount;
pub(crate) use replaced::ReleaseReplaced;
pub(crate) use space::WatchSpace;
pub(crate) use tags::CompleteTags;
pub(crate) use workers::{STOP_TIMEOUT, Workers};
pub(crate) use writeback::Writeback;

mod index;
mod notify;
mod orphans;
mod pending_close;
mod recount;
mod replaced;
mod space;
mod tags;
mod workers;
mod writeback;

/// A kind of background work.
pub(crate) trait Worker: Send {
    /// Called before [`Worker::work`] if the worker was notified since the last call: there may be
    /// new work.
    fn notified(&mut self) {}

    /// Does one piece of work, of about ten milliseconds if it can be divided so.
    ///
    /// # Errors
    /// The error that prevented the work. It is tried again later, and `status` shows the error.
    fn work(&mut self) -> Result<WorkDone, Error>;
}

/// One piece of work that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkDone {
    /// Number of files, directories or the like that were finished.
    pub items: u64,
    /// The time of the next run.
    pub next: NextRun,
}

/// The time of a worker's next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextRun {
    /// After its sleep, because there is more work.
    Soon,
    /// After this time, or when it is notified.
    After(Duration),
    /// At the next notification.
    OnNotify,
}

impl WorkDone {
    /// Returns the result of a run without work, after which the worker runs again in this time.
    #[must_use]
    pub(crate) const fn nothing(after: Duration) -> Self {
        Self { items: 0, next: NextRun::After(after) }
    }
}

/// The state of a worker. `status --json` shows the names in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// It is working.
    Works,
    /// It has nothing to do now.
    Waits,
    /// Its last piece of work failed; it will try again.
    Failed,
    /// It has ended.
    Ended,
}

/// A worker as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The name of the worker, a promise of `status --json`.
    pub name: &'static str,
    /// The present state of the worker.
    pub doing: WorkerState,
    /// Number of files, directories or the like that it has finished in this run of the server.
    pub items: u64,
    /// The error of its last piece of work, if that failed.
    pub last_error: Option<Error>,
}
