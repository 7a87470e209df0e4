//! A new epoch in a run: the table has failed and is opened again, and changes that were answered
//! to clients of other sessions may be lost. It is as if the server had been started again: the
//! clients connect again, reclaim their opens and locks, and repeat changes that may be lost.
//!
//! The server's own record of their opens and locks stays, because it is not in the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pelago_wire::{Code, Connections};

use super::{Dispatcher, LocalService};
use crate::unfinished::changes_of_sites;

/// The longest wait of a new epoch for a request that still runs from the last one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends an epoch, and begins the next one.
pub(crate) struct EpochChange {
    dispatcher: Arc<Dispatcher>,
    /// The time in which clients must come back.
    limit: Duration,
    /// True if an epoch has ended, and the next one has not begun.
    is_between: AtomicBool,
}

impl LocalService {
    /// Returns the epoch change of this service. Clients must come back within `limit`.
    pub(crate) fn epoch_change(&self, limit: Duration) -> EpochChange {
        let dispatcher = Arc::clone(&self.dispatcher);
        EpochChange { dispatcher, limit, is_between: AtomicBool::new(false) }
    }
}

impl EpochChange {
    /// Ends the epoch before the table is opened again: clients of other sessions get no more
    /// replies from it, and above all no notice that a change is safe. Requests of all sessions
    /// wait.
    pub(crate) fn end(&self) {
        let sessions = self.dispatcher.others.all();
        let Some(connections) = self.dispatcher.connections().filter(|_| !sessions.is_empty())
        else {
            return;
        };
        self.is_between.store(true, Ordering::Relaxed);
        connections.suspend();
        for session in &sessions {
            // Their clients request these locks again.
            self.dispatcher.locks.cancel_session(*session);
        }
        // A guest that is silent must not delay the others.
        let policy = &self.dispatcher.parts.policy;
        let awaited = sessions.into_iter().filter(|session| policy.guest(*session).is_none());
        for parked in self.dispatcher.parts.grace.begin_again(awaited.collect()) {
            (parked.done)(Err(Code::Unavailable.into()));
        }
    }

    /// Begins the next epoch, after the table was opened.
    pub(crate) fn begin(&self) {
        self.dispatcher.retry_deletions();
        self.dispatcher.parts.sites.origins.begin_epoch();
        match self.dispatcher.parts.shard.stays() {
            Ok(rows) => self.dispatcher.parts.sites.stays.begin_epoch(rows),
            Err(error) => tracing::error!(%error, "bytes of files of other sites are not known"),
        }
        // The records of some changes may be back, and those of others lost.
        match changes_of_sites(&self.dispatcher.parts.shard) {
            Ok(unfinished) => self.dispatcher.finish_all(unfinished),
            Err(error) => tracing::error!(%error, "changes of two sites are not taken up"),
        }
        if !self.is_between.swap(false, Ordering::Relaxed) {
            return;
        }
        // The clients send these requests again, and the new ones must not meet the old ones.
        self.dispatcher.parts.grace.wait_for_replays(PATIENCE);
        if let Some(connections) = self.dispatcher.connections() {
            connections.resume();
        }
        if let Err(error) = self.dispatcher.wait_for_sessions(self.limit) {
            tracing::error!(%error, "no thread: clients are not waited for");
            super::starting::stop(&self.dispatcher.parts.grace, Code::Io);
        }
    }

    /// Fails the requests that wait, because the table could not be opened. Clients of other
    /// sessions stay suspended until it can be.
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
