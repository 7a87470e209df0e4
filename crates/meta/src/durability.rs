//! Which batches are done and which are safe, and who waits for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pelago_wire::{Code, Error};

use crate::writeback_errors::WritebackErrors;

/// Called once: when the batch that was waited for is safe, or with the reason why it may never be.
pub(crate) type WhenSafe = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Sequence numbers of a shard's batches, counted from 1 in each life of the server.
#[derive(Default)]
pub struct Durability {
    done: AtomicU64,
    safe: AtomicU64,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// How often what was done and not safe may have been lost.
    invalidations: AtomicU64,
    /// What was done and then lost.
    pub writeback_errors: WritebackErrors,
}

/// Someone who waits.
struct Callback {
    /// The batch.
    sequence: u64,
    /// [`Durability::invalidations`] before it was written.
    invalidations: u64,
    tell: WhenSafe,
}

#[derive(Default)]
struct Waiting {
    callbacks: Vec<Callback>,
    /// Somebody wants a group commit before its time.
    wanted: bool,
    stopped: bool,
}

impl Durability {
    /// The batch `sequence` was applied; called in order.
    pub(crate) fn did(&self, sequence: u64) {
        self.done.store(sequence, Ordering::Release);
    }

    /// The newest batch that was applied.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// The newest batch that is on stable storage.
    #[must_use]
    pub fn safe(&self) -> u64 {
        self.safe.load(Ordering::Acquire)
    }

    /// Everything to `sequence` is safe: those who waited for it are told, on this thread.
    pub fn made_safe(&self, sequence: u64) {
        self.safe.fetch_max(sequence, Ordering::AcqRel);
        let ready = {
            let mut waiting = self.waiting.lock();
            waiting.take(|one| one.sequence <= sequence)
        };
        ready.into_iter().for_each(|one| (one.tell)(Ok(())));
    }

    /// As [`Durability::made_safe`], for callers who hold locks: those who wait are told by the
    /// group commit, which comes before its time.
    pub(crate) fn found_safe(&self, sequence: u64) {
        self.safe.fetch_max(sequence, Ordering::AcqRel);
        let mut waiting = self.waiting.lock();
        if !waiting.callbacks.is_empty() {
            waiting.wanted = true;
            self.changed.notify_all();
        }
    }

    /// What was done and is not safe may be lost from now on, though its numbers are passed.
    pub fn doubt(&self) {
        // Under the lock: a caller of `when_safe` either waits already, or finds the new count.
        let _waiting = self.waiting.lock();
        self.invalidations.fetch_add(1, Ordering::AcqRel);
    }

    /// How often that was so.
    #[must_use]
    pub fn invalidations(&self) -> u64 {
        self.invalidations.load(Ordering::Acquire)
    }

    /// A group commit failed: those who wait are told why, since what failed may never become safe.
    pub fn failed(&self, error: Error) {
        let waiting = std::mem::take(&mut self.waiting.lock().callbacks);
        waiting.into_iter().for_each(|one| (one.tell)(Err(error)));
    }

    /// What was done before the last doubt is lost: those who wait for it are told why.
    pub fn lost(&self, error: Error) {
        let invalidations = self.invalidations();
        let waiting = self.waiting.lock().take(|one| one.invalidations != invalidations);
        waiting.into_iter().for_each(|one| (one.tell)(Err(error)));
    }

    /// Calls `tell` when everything to `sequence` is safe, at once where it is, and asks for a
    /// group commit before its time where it is not. `invalidations` is the count from before the
    /// caller did what it waits for: with a newer one that may be lost, and is not safe.
    pub fn when_safe(&self, sequence: u64, invalidations: u64, tell: WhenSafe) {
        {
            let mut waiting = self.waiting.lock();
            if self.invalidations() != invalidations {
                drop(waiting);
                tell(Err(Code::Io.into()));
                return;
            }
            if self.safe() < sequence {
                if !waiting.stopped {
                    waiting.callbacks.push(Callback { sequence, invalidations, tell });
                    waiting.wanted = true;
                    self.changed.notify_all();
                    return;
                }
                drop(waiting);
                tell(Err(Code::Io.into()));
                return;
            }
        }
        tell(Ok(()));
    }

    /// Asks for a group commit before its time.
    pub fn hurry(&self) {
        self.waiting.lock().wanted = true;
        self.changed.notify_all();
    }

    /// For the group committer: waits until somebody hurries, at most `interval`. Answers `false`
    /// once [`Durability::stop`] was called.
    pub fn wait_for_work(&self, interval: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        if !waiting.wanted && !waiting.stopped {
            self.changed.wait_for(&mut waiting, interval);
        }
        waiting.wanted = false;
        !waiting.stopped
    }

    /// No group commit comes any more: those who wait, and those who will, are told that it is not
    /// safe.
    pub fn stop(&self) {
        self.waiting.lock().stopped = true;
        self.changed.notify_all();
        self.failed(Code::Io.into());
    }
}

impl Waiting {
    /// Takes out those of whom this is so.
    fn take(&mut self, is_so: impl Fn(&Callback) -> bool) -> Vec<Callback> {
        let (taken, left) = self.callbacks.drain(..).partition(is_so);
        self.callbacks = left;
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    fn tells(told: &Sender<bool>) -> WhenSafe {
        let told = told.clone();
        Box::new(move |safe| told.send(safe.is_ok()).unwrap())
    }

    /// Who finds a batch safe may hold a lock that those who wait for it want.
    #[test]
    fn those_who_wait_are_told_by_the_group_commit_alone() {
        let durability = Durability::default();
        let (told, answers) = channel();
        durability.when_safe(3, 0, tells(&told));
        assert!(durability.wait_for_work(Duration::from_secs(3600)), "somebody waits");
        durability.found_safe(4);
        assert!(answers.try_recv().is_err());
        assert!(durability.wait_for_work(Duration::from_secs(3600)), "somebody is to be told");
        durability.made_safe(3);
        assert_eq!(answers.try_recv(), Ok(true));
        durability.when_safe(4, 0, tells(&told));
        assert_eq!(answers.try_recv(), Ok(true));
    }

    /// The table was opened again between what was done and the wait for it: its number is passed,
    /// but it may be among what was lost.
    #[test]
    fn what_was_done_before_a_doubt_is_never_found_safe_behind_it() {
        let durability = Durability::default();
        let (told, answers) = channel();
        durability.did(1);
        let before = durability.invalidations();
        durability.doubt();
        durability.made_safe(1);
        durability.when_safe(1, before, tells(&told));
        assert_eq!(answers.try_recv(), Ok(false));
        durability.when_safe(1, durability.invalidations(), tells(&told));
        assert_eq!(answers.try_recv(), Ok(true));
    }

    #[test]
    fn a_stop_answers_all_who_wait_and_all_who_come_behind() {
        let durability = Durability::default();
        let (told, answers) = channel();
        durability.when_safe(1, 0, tells(&told));
        durability.stop();
        durability.when_safe(2, 0, tells(&told));
        assert_eq!(answers.try_iter().collect::<Vec<_>>(), [false, false]);
        assert!(!durability.wait_for_work(Duration::from_secs(3600)));
    }
}
