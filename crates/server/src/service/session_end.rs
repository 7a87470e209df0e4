//! The end of a session: its opens, leases, locks and rows.
//!
//! The row of a session is deleted before others get its locks. If that fails, it is tried again
//! when the table was opened again, and when another session begins or ends.

use std::mem;
use std::sync::Arc;

use pelago_wire::{Context, Error, SessionId};

use super::Dispatcher;
use crate::pool::{Caller, Invocation};

impl Dispatcher {
    /// Ends a session, and releases its opens. Blocks on the disk.
    ///
    /// Other sessions get its locks, and files that it has written under leases, only after the
    /// deletion of its row is safe: else the next run would know the session after a loss of power,
    /// and its client could set the locks again, or write what it has held back, although others
    /// had the locks or files in between.
    pub(super) fn end_session(self: &Arc<Self>, session: SessionId) {
        self.retry_deletions();
        let invalidations = self.parts.durability.invalidations();
        let written = self.others.end(session);
        // From here on all requests of the session are refused, even if they do not count as a
        // guest's.
        self.parts.policy.end(session);
        self.parts.sites.end(session);
        if !self.leases.has_writes(session) {
            self.leases.forget(session);
        }
        let stopped = self.stopped.read_recursive();
        if *stopped {
            return self.others.ended(&written);
        }
        written.iter().for_each(|ino| self.leases.closing(*ino));
        self.parts.opens.end_session(session);
        let deleted = self.parts.shard.end_session(session);
        written.iter().for_each(|ino| self.leases.closed(*ino));
        drop(stopped);
        // The server's own mount is notified before others can have the locks.
        self.others.ended(&written);
        match deleted {
            Ok(()) => self.free_locks_when_safe(session, invalidations),
            Err(error) => self.end_later(session, error),
        }
    }

    /// Ends all leases of a session, which its client's own clock has ended.
    ///
    /// The client may have held back bytes under a lease, and will send them. This run refuses
    /// them, because their era has ended. The next run must refuse them too, so others go on only
    /// after the row with the new era is safe.
    pub(super) fn lose_leases(self: &Arc<Self>, session: SessionId) {
        if !self.leases.has_writes(session) {
            return self.leases.expire(session);
        }
        let era = self.others.begin_era(session);
        let this = Arc::clone(self);
        let job = move |invocation| match invocation {
            Invocation::Run => {
                this.record_write_eras(&[(session, era)]);
                this.leases.expire(session);
            }
            // The service has stopped: no change waits.
            Invocation::Cancelled => {}
        };
        let context = Context { session, ..Context::direct(0, 0) };
        self.parts.pool.submit(Caller::from(&context), Box::new(job));
    }

    /// Ends the wait for a session that will not come back. Its requests that are parked go on with
    /// all others. Its row is deleted first, because others may get its locks.
    pub(super) fn give_up_session(self: &Arc<Self>, session: SessionId) {
        if self.parts.grace.is_over() {
            return;
        }
        let this = Arc::clone(self);
        let job = move |invocation| {
            let Invocation::Run = invocation else { return };
            let grace = &this.parts.grace;
            let mut round = grace.round();
            this.forget_sessions(&[session]);
            // If the table was opened again meanwhile, it may have lost the deletion.
            while !grace.is_in(round) && !grace.is_over() {
                round = grace.round();
                this.forget_sessions(&[session]);
            }
            grace.came_back(session);
            grace.flushed(session);
        };
        let context = Context { session, ..Context::direct(0, 0) };
        self.parts.pool.submit(Caller::from(&context), Box::new(job));
    }

    /// Gives the locks of a session to others when the deletion of its row is safe.
    fn free_locks_when_safe(self: &Arc<Self>, session: SessionId, invalidations: u64) {
        let this = Arc::clone(self);
        let free = move |safe: Result<(), Error>| match safe {
            Ok(()) => {
                this.leases.forget(session);
                this.locks.drop_session(session);
                this.parts.grace.came_back(session);
                this.parts.grace.flushed(session);
            }
            Err(error) => this.end_later(session, error),
        };
        let durability = &self.parts.durability;
        durability.when_safe(durability.done(), invalidations, Box::new(free));
    }

    /// Records that the row of an ended session may still be there, so that the deletion is tried
    /// again.
    fn end_later(&self, session: SessionId, error: Error) {
        tracing::warn!(?session, %error, "the row of a session that ended is not deleted yet");
        self.undeleted.lock().push(session);
    }

    /// Deletes the rows of ended sessions whose deletion has failed before. Called when the table
    /// was opened again, and when another session begins or ends.
    pub(super) fn retry_deletions(self: &Arc<Self>) {
        let sessions = mem::take(&mut *self.undeleted.lock());
        for session in sessions {
            let invalidations = self.parts.durability.invalidations();
            let shard = &self.parts.shard;
            // `end_session` does nothing if it was done before, but was not made safe.
            match shard.end_session(session).and_then(|()| shard.forget_session(session)) {
                Ok(()) => self.free_locks_when_safe(session, invalidations),
                Err(error) => self.end_later(session, error),
            }
        }
    }
}
