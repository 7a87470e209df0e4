//! The link between a worker and the code that makes work for it.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use pelago_wire::Error;

use super::{WorkDone, WorkerState, WorkerStatus};

/// The link to a worker: notifies it of work, and shows its state.
pub(crate) struct Notify {
    name: &'static str,
    /// A leaf lock.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    notified: bool,
    stopped: bool,
    ended: bool,
    works: bool,
    items: u64,
    last_error: Option<Error>,
}

impl Notify {
    /// Returns the link to the worker of this name, which may start later.
    #[must_use]
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Notifies the worker that there is work.
    pub(crate) fn notify(&self) {
        let mut state = self.state.lock();
        if !state.notified {
            state.notified = true;
            self.changed.notify_all();
        }
    }

    /// Returns the status of the worker.
    #[must_use]
    pub(crate) fn status(&self) -> WorkerStatus {
        let state = self.state.lock();
        let doing = match *state {
            State { ended: true, .. } => WorkerState::Ended,
            State { last_error: Some(_), .. } => WorkerState::Failed,
            State { works: true, .. } => WorkerState::Works,
            _ => WorkerState::Waits,
        };
        WorkerStatus { name: self.name, doing, items: state.items, last_error: state.last_error }
    }

    /// Returns the name of the worker.
    #[must_use]
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// Takes the notification, if there is one.
    pub(super) fn take(&self) -> bool {
        std::mem::take(&mut self.state.lock().notified)
    }

    /// Waits until `until`, without limit for `None`. A notification ends the wait unless
    /// `ignore_notify`.
    pub(super) fn wait(&self, until: Option<Instant>, ignore_notify: bool) -> Wakeup {
        let mut state = self.state.lock();
        state.works = false;
        while !state.stopped && (ignore_notify || !state.notified) {
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    if self.changed.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
            }
        }
        state.works = !state.stopped;
        Wakeup { notified: std::mem::take(&mut state.notified), stopped: state.stopped }
    }

    /// Records the result of a piece of work for `status`.
    pub(super) fn record(&self, result: Result<WorkDone, Error>) {
        let mut state = self.state.lock();
        match result {
            Ok(done) => {
                state.items += done.items;
                state.last_error = None;
            }
            Err(error) => state.last_error = Some(error),
        }
    }

    /// Records that the worker has ended.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.works = false;
        state.ended = true;
        self.changed.notify_all();
    }

    /// Asks the worker to stop.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits until the worker has ended, at most until `deadline`. Returns whether it has.
    pub(super) fn wait_for_end(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.ended {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.ended;
            }
        }
        true
    }
}

/// The reason for the end of a worker's wait.
pub(super) struct Wakeup {
    pub(super) notified: bool,
    pub(super) stopped: bool,
}
