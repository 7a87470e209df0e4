//! A new epoch in a run: the table has failed and is opened again, and changes that the clients of
//! other sessions were answered may be lost. It is as if the server had been started again: the
//! clients connect anew, say what they have open and locked, and repeat what may be lost.
//!
//! What the server knows of their open files and locks stays: it was not in the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pelago_wire::{Code, Connections};

use super::{Dispatcher, LocalService};

/// How long the next epoch waits for a request that runs of the last one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends an epoch, and begins the next one.
pub(crate) struct EpochChange {
    dispatcher: Arc<Dispatcher>,
    /// How long clients have to come back.
    limit: Duration,
    /// An epoch has ended, and the next one has not begun.
    is_between: AtomicBool,
}

impl LocalService {
    /// Returns what begins the epochs of this service. Clients have this long to come back.
    pub(crate) fn epoch_change(&self, limit: Duration) -> EpochChange {
        let dispatcher = Arc::clone(&self.dispatcher);
        EpochChange { dispatcher, limit, is_between: AtomicBool::new(false) }
    }
}

impl EpochChange {
    /// Ends the epoch before the table is opened again: the clients of other sessions hear nothing
    /// more of it, above all not that a change is safe. Requests of all wait.
    pub(crate) fn end(&self) {
        let sessions = self.dispatcher.others.all();
        let Some(connections) = self.dispatcher.connections().filter(|_| !sessions.is_empty())
        else {
            return;
        };
        self.is_between.store(true, Ordering::Relaxed);
        connections.suspend();
        for session in &sessions {
            // Their clients ask for these locks again.
            self.dispatcher.locks.cancel_session(*session);
        }
        // A guest that is silent must not delay the others.
        let policy = &self.dispatcher.parts.policy;
        let awaited = sessions.into_iter().filter(|session| policy.guest(*session).is_none());
        for parked in self.dispatcher.parts.grace.begin_again(awaited.collect()) {
            (parked.done)(Err(Code::Unavailable.into()));
        }
    }

    /// Begins the next epoch: the table is open.
    pub(crate) fn begin(&self) {
        self.dispatcher.end_again();
        if !self.is_between.swap(false, Ordering::Relaxed) {
            return;
        }
        // Their clients ask for these again, and must not meet those of before.
        self.dispatcher.parts.grace.wait_for_replays(PATIENCE);
        if let Some(connections) = self.dispatcher.connections() {
            connections.resume();
        }
        if let Err(error) = self.dispatcher.wait_for_sessions(self.limit) {
            tracing::error!(%error, "no thread: clients are not waited for");
            super::starting::stop(&self.dispatcher.parts.grace, Code::Io);
        }
    }

    /// The table could not be opened: requests that wait fail. Clients of other sessions stay away
    /// until it can be.
    pub(crate) fn fail(&self) {
        if self.is_between.load(Ordering::Relaxed) {
            super::starting::stop(&self.dispatcher.parts.grace, Code::Io);
        }
    }
}

impl Dispatcher {
    /// Returns the connections of the other sessions.
    pub(super) fn connections(&self) -> Option<Arc<dyn Connections>> {
        self.connections.get()?.upgrade()
    }
}
