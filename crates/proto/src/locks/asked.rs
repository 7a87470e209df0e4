//! Requests for locks that are under way, and what their owners have asked to give up since.

use std::collections::BTreeMap;

use pelago_wire::{FileLock, InodeId, LockMode, OpenId};

use super::client::{Key, OwnedLock, key_of};

/// The requests for locks that are under way, by their numbers.
#[derive(Debug, Default)]
pub(super) struct AskedLocks(BTreeMap<u64, Asked>);

#[derive(Debug)]
struct Asked {
    key: Key,
    lock: OwnedLock,
    waits: bool,
    given_up: Vec<FileLock>,
}

/// What an owner has asked to give up while its request for a lock was under way.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum GivenUp {
    /// Nothing of the lock.
    #[default]
    Nothing,
    /// This, in this order, behind the lock: the server carries requests out that do not wait in
    /// the order in which they were sent.
    Since(Vec<FileLock>),
    /// This, at most. Whether the server has done that before or behind the grant is unknown.
    Perhaps(FileLock),
}

impl AskedLocks {
    /// An owner has asked for a lock.
    pub(super) fn add(&mut self, number: u64, ino: InodeId, lock: &OwnedLock, waits: bool) {
        if lock.lock.mode != LockMode::Unlock {
            let key = key_of(ino, lock);
            self.0.insert(number, Asked { key, lock: *lock, waits, given_up: Vec::new() });
        }
    }

    /// An owner asks for no lock, or for a weaker one.
    pub(super) fn gives_up(&mut self, key: Key, lock: &FileLock) {
        for asked in self.0.values_mut().filter(|asked| asked.key == key) {
            let of_asked = asked.lock.lock;
            let ((start, end), (from, to)) = (lock.range(), of_asked.range());
            let (start, end) = (start.max(from), end.min(to));
            let is_weaker = match lock.mode {
                LockMode::Unlock => true,
                LockMode::Read => of_asked.mode == LockMode::Write,
                LockMode::Write => false,
            };
            if start > end || !is_weaker {
                continue;
            }
            let given_up = FileLock { mode: lock.mode, start, end, ..of_asked };
            match asked.given_up.last_mut() {
                // It may wait for long: only the hull is kept.
                Some(old) if asked.waits => {
                    (old.start, old.end) = (old.start.min(start), old.end.max(end));
                    if lock.mode == LockMode::Unlock {
                        old.mode = LockMode::Unlock;
                    }
                }
                _ => asked.given_up.push(given_up),
            }
        }
    }

    /// An open ends: no lock is held through it.
    pub(super) fn releases(&mut self, open: OpenId) {
        self.0.retain(|_, asked| asked.lock.open != open);
    }

    /// A request is over. Returns what was given up since it was asked.
    pub(super) fn over(&mut self, number: u64) -> GivenUp {
        let Some(Asked { waits, given_up, .. }) = self.0.remove(&number) else {
            return GivenUp::Nothing;
        };
        match (given_up.first(), waits) {
            (None, _) => GivenUp::Nothing,
            (Some(hull), true) => GivenUp::Perhaps(*hull),
            (Some(_), false) => GivenUp::Since(given_up),
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
