//! Durability of batches: the sequences up to which batches are done and safe, and the callers that
//! wait until a batch is safe.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pelago_store::sync::{Condvar, Mutex};
use pelago_wire::{Code, Error};

use crate::writeback_errors::WritebackErrors;

/// A callback, called once: when the batch is safe, or with an error if it may never be.
pub(crate) type WhenSafe = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Sequences of a shard's batches, counted from 1 in each run of the server.
#[derive(Default)]
pub struct Durability {
    done: AtomicU64,
    safe: AtomicU64,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// A moment up to which all that was done is safe; `None` before the first group commit. A leaf
    /// lock.
    safe_until: Mutex<Option<Instant>>,
    /// Counts the times at which batches that were done and not safe may have been lost.
    invalidations: AtomicU64,
    /// The inodes that lost changes that were done.
    pub writeback_errors: WritebackErrors,
}

/// A waiting caller.
struct Callback {
    /// The batch.
    sequence: u64,
    /// [`Durability::invalidations`] before it was written.
    invalidations: u64,
    when_safe: WhenSafe,
}

#[derive(Default)]
struct Waiting {
    callbacks: Vec<Callback>,
    /// True if a group commit is requested before its time.
    is_wanted: bool,
    has_stopped: bool,
}

impl Durability {
    /// Records that the batch `sequence` was applied. Called in order, under the lock of the shard.
    pub(crate) fn applied(&self, sequence: u64) {
        self.done.store(sequence, Ordering::Release);
    }

    /// Returns the sequence of the newest batch that was applied.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Returns the sequence of the newest batch on stable storage.
    #[must_use]
    pub fn safe(&self) -> u64 {
        self.safe.load(Ordering::Acquire)
    }

    /// Records that all batches up to `sequence` are safe. Calls back, on this thread, the callers
    /// that waited for them.
    pub fn persisted(&self, sequence: u64) {
        self.advance_safe(sequence);
        let ready = self.waiting.lock().take(|waiting| waiting.sequence <= sequence);
        ready.into_iter().for_each(|waiting| (waiting.when_safe)(Ok(())));
    }

    /// Does the same as [`Durability::persisted`] for callers that hold locks: it requests a
    /// group commit, which calls back.
    pub(crate) fn persisted_under_lock(&self, sequence: u64) {
        self.advance_safe(sequence);
        let mut waiting = self.waiting.lock();
        if !waiting.callbacks.is_empty() {
            waiting.is_wanted = true;
            self.changed.notify_all();
        }
    }

    /// Records that all that was done up to a moment is safe.
    pub fn record_safe_until(&self, moment: Instant) {
        *self.safe_until.lock() = Some(moment);
    }

    /// Returns the longest time for which a batch that is not safe can have waited; zero if all are
    /// safe, and at a start before the first group commit.
    #[must_use]
    pub fn unsafe_for(&self) -> Duration {
        match self.done() == self.safe() {
            true => Duration::ZERO,
            false => self.safe_until.lock().map_or(Duration::ZERO, |moment| moment.elapsed()),
        }
    }

    fn advance_safe(&self, sequence: u64) {
        assert!(sequence <= self.done(), "I-2: a batch is safe that was never applied");
        self.safe.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Records that batches which are done and not safe may be lost. A later safe sequence does not
    /// prove that such a batch is safe.
    pub fn invalidate(&self) {
        // Under the lock, so that a caller of `when_safe` either waits already, or finds the new
        // count.
        let _waiting = self.waiting.lock();
        self.invalidations.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns how often [`Durability::invalidate`] was called.
    #[must_use]
    pub fn invalidations(&self) -> u64 {
        self.invalidations.load(Ordering::Acquire)
    }

    /// Calls back every waiting caller with the error, after a group commit failed: their batches
    /// may never become safe.
    pub fn fail_all(&self, error: Error) {
        let waiting = std::mem::take(&mut self.waiting.lock().callbacks);
        waiting.into_iter().for_each(|waiting| (waiting.when_safe)(Err(error)));
    }

    /// Calls back with the error the callers that wait for batches from before the last
    /// [`Durability::invalidate`]: these are lost.
    pub fn fail_invalidated(&self, error: Error) {
        let invalidations = self.invalidations();
        let lost = self.waiting.lock().take(|waiting| waiting.invalidations != invalidations);
        lost.into_iter().for_each(|waiting| (waiting.when_safe)(Err(error)));
    }

    /// Calls `when_safe` once all batches up to `sequence` are safe: at once if they are, otherwise
    /// after a group commit, which is requested before its time. `invalidations` is the count from
    /// before the batch was written: if it has changed, the batch may be lost, and `when_safe` gets
    /// an error.
    pub fn when_safe(&self, sequence: u64, invalidations: u64, when_safe: WhenSafe) {
        {
            let mut waiting = self.waiting.lock();
            if self.invalidations() != invalidations {
                drop(waiting);
                when_safe(Err(Code::Io.into()));
                return;
            }
            if self.safe() < sequence {
                if !waiting.has_stopped {
                    waiting.callbacks.push(Callback { sequence, invalidations, when_safe });
                    waiting.is_wanted = true;
                    self.changed.notify_all();
                    return;
                }
                drop(waiting);
                when_safe(Err(Code::Io.into()));
                return;
            }
        }
        when_safe(Ok(()));
    }

    /// Requests a group commit before its time.
    pub fn flush_soon(&self) {
        self.waiting.lock().is_wanted = true;
        self.changed.notify_all();
    }

    /// Waits until a group commit is requested, at most `interval`. Called by the group committer.
    /// Returns false once [`Durability::stop`] was called.
    pub fn wait_for_work(&self, interval: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.is_wanted && !waiting.has_stopped {
            self.changed.wait_for(&mut waiting, interval);
        }
        waiting.is_wanted = false;
        !waiting.has_stopped
    }

    /// Ends all waits: no group commit follows, so present and later waiting callers get an error.
    pub fn stop(&self) {
        self.waiting.lock().has_stopped = true;
        self.changed.notify_all();
        self.fail_all(Code::Io.into());
    }
}

impl Waiting {
    /// Takes out the callbacks that meet a condition.
    fn take(&mut self, condition: impl Fn(&Callback) -> bool) -> Vec<Callback> {
        let (taken, left) = self.callbacks.drain(..).partition(condition);
        self.callbacks = left;
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Waits for a batch; the receiver gets whether it was safe.
    fn wait(durability: &Durability, sequence: u64, invalidations: u64) -> Receiver<bool> {
        let (send, receive) = channel();
        let send = move |safe: Result<(), Error>| send.send(safe.is_ok()).unwrap();
        durability.when_safe(sequence, invalidations, Box::new(send));
        receive
    }

    fn after(batches: u64) -> Durability {
        let durability = Durability::default();
        (1..=batches).for_each(|sequence| durability.applied(sequence));
        durability
    }

    /// A caller that persists may hold a lock that the callbacks need.
    #[test]
    fn a_persist_under_a_lock_calls_back_later() {
        let durability = after(4);
        let waits = wait(&durability, 3, 0);
        assert!(durability.wait_for_work(HOUR), "a caller waits");
        durability.persisted_under_lock(4);
        assert!(waits.try_recv().is_err());
        assert!(durability.wait_for_work(HOUR), "the group commit comes before its time");
        durability.persisted(3);
        assert_eq!(waits.try_recv(), Ok(true));
    }

    #[test]
    fn a_batch_that_is_safe_already_is_not_waited_for() {
        let durability = after(4);
        durability.persisted_under_lock(4);
        assert_eq!(wait(&durability, 4, 0).try_recv(), Ok(true));
    }

    /// The table was opened again between a batch and the wait for it: its sequence is behind, but
    /// it may be among the lost ones.
    #[test]
    fn a_batch_from_before_an_invalidation_is_never_called_safe_after_it() {
        let durability = after(1);
        let before = durability.invalidations();
        durability.invalidate();
        durability.persisted(1);
        assert_eq!(wait(&durability, 1, before).try_recv(), Ok(false));
        assert_eq!(wait(&durability, 1, durability.invalidations()).try_recv(), Ok(true));
    }

    #[test]
    fn a_stop_fails_callers_that_wait_and_callers_that_come_later() {
        let durability = after(2);
        let waits = wait(&durability, 1, 0);
        durability.stop();
        let later = wait(&durability, 2, 0);
        assert_eq!((waits.try_recv(), later.try_recv()), (Ok(false), Ok(false)));
        assert!(!durability.wait_for_work(HOUR));
    }

    #[test]
    #[should_panic = "I-2"]
    fn a_batch_that_was_never_applied_cannot_be_safe() {
        after(2).persisted(3);
    }

    #[test]
    fn a_batch_waits_at_most_since_the_last_group_commit() {
        let durability = Durability::default();
        let second = Duration::from_secs(1);
        durability.record_safe_until(Instant::now() - second);
        assert_eq!(durability.unsafe_for(), Duration::ZERO, "nothing is done");
        durability.applied(1);
        let waits = durability.unsafe_for();
        assert!(waits >= second, "{waits:?}");
        // A group commit of an idle server records its time too.
        durability.record_safe_until(Instant::now());
        assert!(durability.unsafe_for() < second);
        durability.persisted(1);
        assert_eq!(durability.unsafe_for(), Duration::ZERO);
    }
}
