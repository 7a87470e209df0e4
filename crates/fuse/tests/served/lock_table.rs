//! The locks of the test's file system: a lock is set and ended as a whole.

use parking_lot::{Condvar, Mutex};
use pelago_fuse::ids::{LockOwner, NodeId};
use pelago_fuse::operation::{FileLock, FileLockKind, Flush, Getlk, Release, Setlk};
use pelago_fuse::{Errno, Reply};

use crate::DEADLINE;

#[derive(Default)]
pub(crate) struct LockTable {
    state: Mutex<Locks>,
    came: Condvar,
}

#[derive(Default)]
pub(crate) struct Locks {
    held: Vec<(NodeId, Setlk)>,
    waiting: Vec<Waiter>,
    /// Each request, with the process that made it.
    pub(crate) set: Vec<(u32, Setlk)>,
    pub(crate) flushed: Vec<LockOwner>,
    pub(crate) released: Vec<Release>,
    /// Waiting requests that were interrupted.
    pub(crate) interrupted: u64,
}

struct Waiter {
    unique: u64,
    node: NodeId,
    wanted: Setlk,
    reply: Reply<()>,
}

impl LockTable {
    pub(crate) fn get(&self, node: NodeId, request: Getlk) -> FileLock {
        let Getlk { file, owner, lock } = request;
        let wanted = Setlk { file, owner, lock, is_flock: false, wait: false };
        let unlocked = FileLock { kind: FileLockKind::Unlock, ..lock };
        self.state.lock().conflict(node, &wanted).map_or(unlocked, |held| held.lock)
    }

    /// `by` is the process that asks.
    pub(crate) fn set(&self, by: u32, unique: u64, node: NodeId, wanted: Setlk, reply: Reply<()>) {
        let mut state = self.state.lock();
        state.set.push((by, wanted));
        if wanted.lock.kind == FileLockKind::Unlock {
            state.unlock(|held| held == (node, wanted.owner, wanted.is_flock));
            reply.ok(&());
        } else if state.conflict(node, &wanted).is_none() {
            state.held.push((node, wanted));
            reply.ok(&());
        } else if wanted.wait {
            state.waiting.push(Waiter { unique, node, wanted, reply });
        } else {
            reply.error(Errno::AGAIN);
        }
        self.came.notify_all();
    }

    pub(crate) fn flush(&self, node: NodeId, request: Flush) {
        let mut state = self.state.lock();
        state.flushed.push(request.owner);
        state.unlock(|held| held == (node, request.owner, false));
    }

    pub(crate) fn release(&self, node: NodeId, request: Release) {
        let mut state = self.state.lock();
        state.released.push(request);
        if let Some(owner) = request.flock_owner {
            state.unlock(|held| held == (node, owner, true));
        }
        self.came.notify_all();
    }

    /// Ends the wait of a request, and returns whether it waited.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        let mut state = self.state.lock();
        let Some(place) = state.waiting.iter().position(|waiter| waiter.unique == unique) else {
            return false;
        };
        state.waiting.remove(place).reply.error(Errno::INTR);
        state.interrupted += 1;
        self.came.notify_all();
        true
    }

    /// Returns how many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Waits until `is_so`, and returns what it found.
    pub(crate) fn when<T>(&self, mut is_so: impl FnMut(&mut Locks) -> Option<T>) -> T {
        let mut state = self.state.lock();
        loop {
            match is_so(&mut state) {
                Some(found) => return found,
                None => assert!(!self.came.wait_for(&mut state, DEADLINE).timed_out(), "in time"),
            }
        }
    }
}

impl Locks {
    pub(crate) fn count_waiting(&self) -> usize {
        self.waiting.len()
    }

    fn conflict(&self, node: NodeId, wanted: &Setlk) -> Option<Setlk> {
        let both_read = |held: &Setlk| {
            held.lock.kind == FileLockKind::Read && wanted.lock.kind == FileLockKind::Read
        };
        let of_node = self.held.iter().filter(|(of, _)| *of == node).map(|(_, held)| *held);
        of_node
            .filter(|held| held.owner != wanted.owner && held.is_flock == wanted.is_flock)
            .filter(|held| held.lock.start <= wanted.lock.end && wanted.lock.start <= held.lock.end)
            .find(|held| !both_read(held))
    }

    /// Ends locks, and grants what waited for them.
    fn unlock(&mut self, ends: impl Fn((NodeId, LockOwner, bool)) -> bool) {
        self.held.retain(|(node, held)| !ends((*node, held.owner, held.is_flock)));
        for waiter in std::mem::take(&mut self.waiting) {
            if self.conflict(waiter.node, &waiter.wanted).is_some() {
                self.waiting.push(waiter);
            } else {
                self.held.push((waiter.node, waiter.wanted));
                waiter.reply.ok(&());
            }
        }
    }
}
