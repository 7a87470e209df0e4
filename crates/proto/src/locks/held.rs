//! The locks that the programs of a client hold: what it asks for again after the server has
//! started anew, and what its programs must be told if it cannot have them back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pelago_wire::{
    Code, FileLock, InodeId, LockKind, LockMode, LockOwner, OpenId, Request, SessionId,
};

use super::ranges::{Range, RangeLocks};
use super::{FileKey, Holder};

/// Requests to set locks again that are under way at a time.
const AT_ONCE: usize = 128;
/// All bytes of a file.
const ALL: Range = (0, FileLock::TO_END);

/// The locks that the programs of a client hold.
///
/// A lock counts as held once the server has said so, and as given up from the moment at which its
/// owner asks for that: another client may have it before the answer is here. So a client never
/// asks again for more than its programs may rely on.
#[derive(Debug, Default)]
pub struct HeldLocks {
    held: BTreeMap<Key, Held>,
    /// The same by the opens through which they were set.
    by_open: BTreeSet<(OpenId, Key)>,
    /// Opens through which a lock was set that is lost.
    lost_opens: BTreeSet<OpenId>,
    /// Locks that were lost.
    lost: u64,
    /// Locks that are still to be asked for.
    to_ask: VecDeque<(Key, FileLock)>,
    /// Requests to set locks again that are under way.
    asked: usize,
}

/// The locks of an owner that end together: those of a file, of one system call.
type Key = (FileKey, LockOwner);

#[derive(Debug)]
struct Held {
    /// The open through which the last of them was set, with which they end.
    open: OpenId,
    /// All opens through which they were set.
    opens: BTreeSet<OpenId>,
    ranges: RangeLocks,
}

/// A lock of an open file, and its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnedLock {
    /// The open through which the lock is set.
    pub open: OpenId,
    /// Its owner.
    pub owner: LockOwner,
    /// The lock.
    pub lock: FileLock,
}

/// An owner is a holder of its own here: others cannot have the same locks.
const fn holder(owner: LockOwner) -> Holder {
    Holder { session: SessionId(0), owner }
}

impl HeldLocks {
    /// An owner asks for a lock: what it gives up by that counts as given up.
    pub fn asks(&mut self, ino: InodeId, asked: &OwnedLock) {
        let OwnedLock { owner, lock, .. } = *asked;
        let key = (FileKey::of(ino, lock.kind), owner);
        let Some(held) = self.held.get_mut(&key) else { return };
        let (start, end) = lock.range();
        if start > end {
            return;
        }
        for old in held.ranges.of(holder(owner), (start, end)) {
            let mode = match (lock.kind, old.mode, lock.mode) {
                (_, _, LockMode::Unlock) => LockMode::Unlock,
                // A conversion that is refused, or waits, has given up the old lock.
                (LockKind::Flock, LockMode::Read, LockMode::Write) => LockMode::Unlock,
                (_, LockMode::Write, LockMode::Read) => LockMode::Read,
                _ => continue,
            };
            let (start, end) = (old.start.max(start), old.end.min(end));
            held.ranges.set(holder(owner), &FileLock { mode, start, end, ..old });
        }
        if held.ranges.is_empty() {
            self.forget(key);
        }
    }

    /// An owner has got the lock that it has asked for.
    pub fn granted(&mut self, ino: InodeId, asked: &OwnedLock) {
        let OwnedLock { open, owner, lock } = *asked;
        if lock.mode == LockMode::Unlock {
            return;
        }
        let key = (FileKey::of(ino, lock.kind), owner);
        let none = || Held { open, opens: BTreeSet::new(), ranges: RangeLocks::default() };
        let held = self.held.entry(key).or_insert_with(none);
        held.open = open;
        held.opens.insert(open);
        held.ranges.set(holder(owner), &lock);
        self.by_open.insert((open, key));
    }

    /// A process closes a descriptor of a file: its `fcntl` locks of it end.
    pub fn closes(&mut self, ino: InodeId, owner: LockOwner) {
        self.forget((FileKey::of(ino, LockKind::Posix), owner));
    }

    /// An open ends, and with it the locks of each owner that has set its last one through it.
    pub fn releases(&mut self, open: OpenId) {
        for key in self.keys_of(open) {
            match self.held.get_mut(&key) {
                Some(held) if held.open != open => {
                    held.opens.remove(&open);
                    self.by_open.remove(&(open, key));
                }
                _ => self.forget(key),
            }
        }
        self.lost_opens.remove(&open);
    }

    /// Begins to ask for all locks again; requests of an earlier attempt are forgotten.
    pub fn begin_reclaim(&mut self) {
        let all = self.held.iter().flat_map(|(key, held)| {
            held.ranges.of(holder(key.1), ALL).into_iter().map(|lock| (*key, lock))
        });
        self.to_ask = all.collect();
        self.asked = 0;
    }

    /// Returns the next request to send, and what it asks for; `None` if all were sent, or many are
    /// under way.
    pub fn next_request(&mut self) -> Option<(InodeId, OwnedLock, Request)> {
        if self.asked >= AT_ONCE {
            return None;
        }
        while let Some((key, lock)) = self.to_ask.pop_front() {
            let (FileKey { ino, .. }, owner) = key;
            if let Some(Held { open, .. }) = self.held.get(&key) {
                self.asked += 1;
                let open = *open;
                let request = Request::ReclaimLock { open, owner, lock };
                return Some((ino, OwnedLock { open, owner, lock }, request));
            }
        }
        None
    }

    /// Records the answer to a request to set a lock again. If it was refused, the owner has lost
    /// all its locks of the file that would have ended together. A server that stops has not
    /// refused: its next run is asked.
    pub fn reclaimed(&mut self, ino: InodeId, asked: &OwnedLock, result: Result<(), Code>) {
        self.asked = self.asked.saturating_sub(1);
        if result.is_err_and(|code| code != Code::Unavailable) {
            self.lose((FileKey::of(ino, asked.lock.kind), asked.owner));
        }
    }

    /// Returns whether locks are still to be set again.
    #[must_use]
    pub fn is_reclaiming(&self) -> bool {
        self.asked > 0 || !self.to_ask.is_empty()
    }

    /// All locks are lost: the server has ended the session.
    pub fn lose_all(&mut self) {
        let keys: Vec<Key> = self.held.keys().copied().collect();
        keys.into_iter().for_each(|key| self.lose(key));
        (self.to_ask, self.asked) = (VecDeque::new(), 0);
    }

    /// Returns whether a lock was lost that was set through this open.
    #[must_use]
    pub fn is_lost(&self, open: OpenId) -> bool {
        !self.lost_opens.is_empty() && self.lost_opens.contains(&open)
    }

    /// Returns how many locks were lost.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    fn lose(&mut self, key: Key) {
        let Some(held) = self.held.get(&key) else { return };
        self.lost += held.ranges.of(holder(key.1), ALL).len() as u64;
        self.lost_opens.extend(&held.opens);
        self.forget(key);
    }

    fn forget(&mut self, key: Key) {
        for open in self.held.remove(&key).into_iter().flat_map(|held| held.opens) {
            self.by_open.remove(&(open, key));
        }
    }

    fn keys_of(&self, open: OpenId) -> Vec<Key> {
        let first = FileKey { ino: InodeId::from_raw(0), is_flock: false };
        let from = self.by_open.range((open, (first, LockOwner(0)))..);
        from.take_while(|(other, _)| *other == open).map(|(_, key)| *key).collect()
    }
}
