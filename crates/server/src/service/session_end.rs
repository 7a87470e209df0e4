//! The end of a session.

use std::mem;
use std::sync::Arc;

use pelago_wire::{Context, Error, SessionId};

use super::Dispatcher;
use crate::pool::{Caller, Invocation};

impl Dispatcher {
    /// Ends a session, and releases all that it has open. Blocks on the disk.
    ///
    /// Others get its locks, and files that it has written under leases, only once the next run of
    /// the server will not know the session, even after a loss of power: else its client could come
    /// back and set them again, or write what it has kept back, although others were there in
    /// between.
    pub(super) fn end_session(self: &Arc<Self>, session: SessionId) {
        self.end_again();
        let invalidations = self.parts.durability.invalidations();
        let written = self.others.end(session);
        // From here on requests of the session get nowhere, also if they are not looked at as a
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
        // The server's own mount is told before others can have the locks.
        self.others.ended(&written);
        match deleted {
            Ok(()) => self.free_locks_when_safe(session, invalidations),
            Err(error) => self.end_later(session, error),
        }
    }

    /// Ends all leases of a session: its client's own clock has ended them.
    ///
    /// The client may have bytes that it kept back under one, and will send them. This run refuses
    /// them, because their era has ended. So must the next one: others go on only once it will know
    /// the new era, even after a loss of power.
    pub(super) fn lose_leases(self: &Arc<Self>, session: SessionId) {
        if !self.leases.has_writes(session) {
            return self.leases.expire(session);
        }
        let era = self.others.begin_era(session);
        let this = Arc::clone(self);
        let job = move |invocation| match invocation {
            Invocation::Run => {
                this.keep_write_eras(&[(session, era)]);
                this.leases.expire(session);
            }
            // Nothing waits any more.
            Invocation::Cancelled => {}
        };
        let context = Context { session, ..Context::direct(0, 0) };
        self.parts.pool.submit(Caller::from(&context), Box::new(job));
    }

    /// Ends the wait for a session that will not come back, although some of its requests wait with
    /// all others: they go on with them. The next run must not know it then, as others may get its
    /// locks.
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
            // The table was opened again meanwhile, and may have lost that.
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

    /// Gives the locks of a session to others once the deletion of its row is safe.
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

    /// A session has ended, and the next run might know it nevertheless.
    fn end_later(&self, session: SessionId, error: Error) {
        tracing::warn!(?session, %error, "the row of a session that ended is not deleted yet");
        self.undeleted.lock().push(session);
    }

    /// Deletes the rows of sessions that have ended, and whose deletion has failed. Called when the
    /// table was opened again, and when another session begins or ends.
    pub(super) fn end_again(self: &Arc<Self>) {
        let sessions = mem::take(&mut *self.undeleted.lock());
        for session in sessions {
            let invalidations = self.parts.durability.invalidations();
            let shard = &self.parts.shard;
            // The first does nothing if it was done, and was not made safe.
            match shard.end_session(session).and_then(|()| shard.forget_session(session)) {
                Ok(()) => self.free_locks_when_safe(session, invalidations),
                Err(error) => self.end_later(session, error),
            }
        }
    }
}
