//! Requests whose replies the test holds back, and interrupted requests.

use parking_lot::{Condvar, Mutex, MutexGuard};
use pelago_fuse::Reply;
use pelago_fuse::reply::Entry;

use crate::DEADLINE;

/// Lookups and syncs that wait for the test, and interrupted requests.
#[derive(Default)]
pub(crate) struct Held {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

#[derive(Default)]
struct Waiting {
    lookups: Vec<(u64, Reply<Entry>)>,
    /// Requests of all lookups so far, which are known from then on.
    known: Vec<u64>,
    interrupted: Vec<u64>,
    /// Whether no request is known, as if all interrupts came too early.
    is_deaf: bool,
    /// Interrupts that came while none was known.
    unheard: Vec<u64>,
    /// Whether syncs wait.
    holds_syncs: bool,
    syncs: Vec<Reply<()>>,
    /// Calls that hang, and whether they return.
    hanging: usize,
    are_free: bool,
}

impl Held {
    /// Holds the reply to a lookup back.
    pub(crate) fn hold(&self, unique: u64, reply: Reply<Entry>) {
        let mut waiting = self.waiting.lock();
        waiting.known.push(unique);
        waiting.lookups.push((unique, reply));
        self.came.notify_all();
    }

    /// Does not return before [`Held::free`].
    pub(crate) fn hang(&self) {
        let mut waiting = self.waiting.lock();
        waiting.hanging += 1;
        self.came.notify_all();
        while !waiting.are_free {
            self.wait(&mut waiting);
        }
        waiting.hanging -= 1;
        self.came.notify_all();
    }

    /// Waits until so many calls hang.
    pub(crate) fn wait_for_hanging(&self, count: usize) {
        let mut waiting = self.waiting.lock();
        while waiting.hanging != count {
            self.wait(&mut waiting);
        }
    }

    /// Has no call hang any more. Returns how many did.
    pub(crate) fn free(&self) -> usize {
        let mut waiting = self.waiting.lock();
        waiting.are_free = true;
        self.came.notify_all();
        waiting.hanging
    }

    /// Waits for the next held lookup.
    pub(crate) fn take(&self) -> (u64, Reply<Entry>) {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.lookups.pop() {
                Some(lookup) => return lookup,
                None => self.wait(&mut waiting),
            }
        }
    }

    /// Replies to a sync, or holds the reply back.
    pub(crate) fn sync(&self, reply: Reply<()>) {
        let mut waiting = self.waiting.lock();
        if waiting.holds_syncs {
            waiting.syncs.push(reply);
            self.came.notify_all();
        } else {
            drop(waiting);
            reply.ok(&());
        }
    }

    /// Holds the replies to all syncs back from now on.
    pub(crate) fn hold_syncs(&self) {
        self.waiting.lock().holds_syncs = true;
    }

    /// Waits until so many syncs are held back.
    pub(crate) fn wait_for_syncs(&self, count: usize) {
        let mut waiting = self.waiting.lock();
        while waiting.syncs.len() < count {
            self.wait(&mut waiting);
        }
    }

    /// Holds no more syncs back, and returns those that wait.
    pub(crate) fn take_syncs(&self) -> Vec<Reply<()>> {
        let mut waiting = self.waiting.lock();
        waiting.holds_syncs = false;
        std::mem::take(&mut waiting.syncs)
    }

    /// Waits until the kernel has interrupted this request.
    pub(crate) fn wait_for_interrupt(&self, unique: u64) {
        let mut waiting = self.waiting.lock();
        while !waiting.interrupted.contains(&unique) {
            self.wait(&mut waiting);
        }
    }

    /// Makes all requests unknown, or known again.
    pub(crate) fn set_deaf(&self, is_deaf: bool) {
        self.waiting.lock().is_deaf = is_deaf;
    }

    /// Returns how often an interrupt of this request came while none was known.
    pub(crate) fn unheard(&self, unique: u64) -> usize {
        self.waiting.lock().unheard.iter().filter(|unheard| **unheard == unique).count()
    }

    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let mut waiting = self.waiting.lock();
        let is_known = waiting.known.contains(&unique) && !waiting.is_deaf;
        if is_known {
            waiting.interrupted.push(unique);
        } else {
            waiting.unheard.push(unique);
        }
        self.came.notify_all();
        is_known
    }

    fn wait(&self, waiting: &mut MutexGuard<'_, Waiting>) {
        assert!(!self.came.wait_for(waiting, DEADLINE).timed_out(), "no request came in time");
    }
}
