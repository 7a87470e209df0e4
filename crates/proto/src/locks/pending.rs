//! Requests for locks that are under way, and the ranges that their owners have requested to give
//! up since.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use pelago_wire::{FileLock, LockMode, LockOwner, OpenId};

use super::FileKey;

/// The locks of an owner that end together: those of a file, of one system call.
pub(super) type Key = (FileKey, LockOwner);

/// The requests for locks that are under way, by their numbers.
#[derive(Debug, Default)]
pub(super) struct PendingLocks {
    /// The requests that set a lock.
    locking: BTreeMap<u64, Pending>,
    /// The requests that give up locks which their owner had.
    unlocking: BTreeMap<u64, Unlocking>,
}

/// A request under way that gives up locks.
#[derive(Debug)]
pub(super) struct Unlocking {
    pub(super) key: Key,
    /// The opens through which these locks were set, and the open of the request.
    pub(super) opens: BTreeSet<OpenId>,
}

/// A request for a lock that is under way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) key: Key,
    pub(super) open: OpenId,
    pub(super) lock: FileLock,
    /// It waits until the lock is free.
    pub(super) waits: bool,
    /// The locks that its owner has requested to give up since.
    pub(super) given_up: Vec<FileLock>,
}

/// The parts of a lock that its owner has requested to give up while the request for it was under
/// way.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum GivenUp {
    /// No part of the lock.
    #[default]
    Nothing,
    /// These, in this order, after the lock: the server carries out requests that do not wait in
    /// the order in which they were sent.
    Since(Vec<FileLock>),
    /// This one at most. It is unknown whether the server has carried that out before or after the
    /// grant.
    Perhaps(FileLock),
}

impl PendingLocks {
    /// Records that a request for a lock is sent.
    pub(super) fn add(&mut self, number: u64, pending: Pending) {
        if pending.lock.mode != LockMode::Unlock {
            self.locking.insert(number, pending);
        }
    }

    /// Records that a request is sent that gives up locks.
    pub(super) fn unlocks(&mut self, number: u64, unlocking: Unlocking) {
        self.unlocking.insert(number, unlocking);
    }

    /// Records that an owner requests to unlock, or a weaker lock.
    pub(super) fn gives_up(&mut self, key: Key, lock: &FileLock) {
        for pending in self.locking.values_mut().filter(|pending| pending.key == key) {
            let wanted = pending.lock;
            let start = lock.range().start.max(wanted.range().start);
            let end = lock.range().end.min(wanted.range().end);
            let is_weaker = match lock.mode {
                LockMode::Unlock => true,
                LockMode::Read => wanted.mode == LockMode::Write,
                LockMode::Write => false,
            };
            if start > end || !is_weaker {
                continue;
            }
            let given_up = FileLock { mode: lock.mode, start, end, ..wanted };
            match pending.given_up.last_mut() {
                // It may wait for long: only the hull is kept.
                Some(old) if pending.waits => {
                    old.start = old.start.min(start);
                    old.end = old.end.max(end);
                    if lock.mode == LockMode::Unlock {
                        old.mode = LockMode::Unlock;
                    }
                }
                _ => pending.given_up.push(given_up),
            }
        }
    }

    /// Records that a request is sent once more: what was given up since may be carried out before
    /// it or after it.
    pub(super) fn asked_again(&mut self, number: u64) {
        let Some(pending) = self.locking.get_mut(&number) else { return };
        pending.waits = true;
        let hull = mem::take(&mut pending.given_up).into_iter().reduce(|old, new| FileLock {
            mode: if new.mode == LockMode::Unlock { new.mode } else { old.mode },
            start: old.start.min(new.start),
            end: old.end.max(new.end),
            ..old
        });
        pending.given_up.extend(hull);
    }

    /// Records that an open ends: no lock is held through it.
    pub(super) fn releases(&mut self, open: OpenId) {
        self.locking.retain(|_, pending| pending.open != open);
        for unlocking in self.unlocking.values_mut() {
            unlocking.opens.remove(&open);
        }
    }

    /// Records that a request is over. Returns what was given up since it was sent.
    pub(super) fn over(&mut self, number: u64) -> GivenUp {
        self.unlocking.remove(&number);
        let Some(Pending { waits, given_up, .. }) = self.locking.remove(&number) else {
            return GivenUp::Nothing;
        };
        match (given_up.first(), waits) {
            (None, _) => GivenUp::Nothing,
            (Some(hull), true) => GivenUp::Perhaps(*hull),
            (Some(_), false) => GivenUp::Since(given_up),
        }
    }

    /// Forgets all requests. Returns those that give up locks.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Unlocking> + use<> {
        self.locking.clear();
        mem::take(&mut self.unlocking).into_values()
    }
}
