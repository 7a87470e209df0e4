//! The locks that the programs of a client hold. The client sets them again after the server has
//! started anew. A program whose lock cannot be set again gets errors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pelago_wire::{
    Code, FileLock, InodeId, LockKind, LockMode, LockOwner, LockRange, OpenId, Request, SessionId,
};

use super::pending::{GivenUp, Key, Pending, PendingLocks, Unlocking};
use super::ranges::RangeLocks;
use super::{FileKey, Holder};

/// Requests to set locks again that are under way at a time.
const AT_ONCE: usize = 128;

/// The locks that the programs of a client hold.
///
/// A lock counts as held once the server has granted it, and as given up from the moment at which
/// its owner requests that: another client may have it before the answer is here. So a client never
/// requests more locks again than its programs may rely on.
#[derive(Debug, Default)]
pub struct ClientLocks {
    held: BTreeMap<Key, OwnerLocks>,
    /// The same by the opens through which they were set.
    by_open: BTreeSet<(OpenId, Key)>,
    /// Requests for locks that are not answered.
    under_way: PendingLocks,
    /// Opens through which a lock was set that is lost.
    lost_opens: BTreeSet<OpenId>,
    /// Owners that have lost their locks of a file, with those opens.
    lost_owners: BTreeMap<Key, BTreeSet<OpenId>>,
    /// The number of locks that were lost.
    lost: u64,
    /// The number of lost locks that [`ClientLocks::newly_lost`] has returned.
    reported: u64,
    /// Locks that are still to be set again.
    unsent: VecDeque<(Key, FileLock)>,
    /// The number of requests to set locks again that are under way.
    reclaiming: usize,
}

/// Returns the key of a lock of this file.
const fn key_of(ino: InodeId, lock: &OwnedLock) -> Key {
    (FileKey::of(ino, lock.lock.kind), lock.owner)
}

#[derive(Debug)]
struct OwnerLocks {
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

impl ClientLocks {
    /// Records that an owner requests a lock: what it gives up by that counts as given up.
    pub fn asks(&mut self, ino: InodeId, asked: &OwnedLock) {
        let OwnedLock { owner, lock, .. } = *asked;
        let key = key_of(ino, asked);
        self.under_way.gives_up(key, &lock);
        let Some(held) = self.held.get_mut(&key) else { return };
        let range = lock.range();
        if range.start > range.end {
            return;
        }
        for old in held.ranges.of(holder(owner), range) {
            let mode = match (lock.kind, old.mode, lock.mode) {
                (_, _, LockMode::Unlock) => LockMode::Unlock,
                // A conversion that is refused, or waits, has given up the old lock.
                (LockKind::Flock, LockMode::Read, LockMode::Write) => LockMode::Unlock,
                (_, LockMode::Write, LockMode::Read) => LockMode::Read,
                _ => continue,
            };
            let start = old.start.max(range.start);
            let end = old.end.min(range.end);
            held.ranges.set(holder(owner), &FileLock { mode, start, end, ..old });
        }
        if held.ranges.is_empty() {
            self.forget(key);
        }
    }

    /// Records that a request for a lock is sent under this number. `waits`: it waits until the
    /// lock is free. [`ClientLocks::asks`] is called next: what the owner gives up still counts as
    /// held here.
    pub fn sent(&mut self, number: u64, ino: InodeId, asked: &OwnedLock, waits: bool) {
        let key = key_of(ino, asked);
        let OwnedLock { open, lock, .. } = *asked;
        if let (LockMode::Unlock, Some(held)) = (lock.mode, self.held.get(&key)) {
            let mut opens = held.opens.clone();
            opens.insert(open);
            self.under_way.unlocks(number, Unlocking { key, opens });
        }
        self.under_way.add(number, Pending { key, open, lock, waits, given_up: Vec::new() });
    }

    /// Records that a request for a lock is sent once more.
    pub fn asked_again(&mut self, number: u64) {
        self.under_way.asked_again(number);
    }

    /// Records that a request for a lock is over. Returns what its owner has requested to give up
    /// since: it is subtracted from the lock, once that counts as held.
    pub fn over(&mut self, number: u64) -> GivenUp {
        self.under_way.over(number)
    }

    /// Records that an owner has got the lock that it has requested.
    pub fn granted(&mut self, ino: InodeId, asked: &OwnedLock) {
        let OwnedLock { open, owner, lock } = *asked;
        if lock.mode == LockMode::Unlock {
            return;
        }
        let key = key_of(ino, asked);
        let none = || OwnerLocks { open, opens: BTreeSet::new(), ranges: RangeLocks::default() };
        let held = self.held.entry(key).or_insert_with(none);
        held.open = open;
        held.opens.insert(open);
        held.ranges.set(holder(owner), &lock);
        self.by_open.insert((open, key));
    }

    /// Returns the locks to set so that an owner has what it had before a grant of which it does
    /// not know.
    #[must_use]
    pub fn undoes(&self, ino: InodeId, asked: &OwnedLock) -> Vec<FileLock> {
        let OwnedLock { owner, lock, .. } = *asked;
        let range = lock.range();
        let held = self.held.get(&(FileKey::of(ino, lock.kind), owner));
        let had = held.map(|held| held.ranges.of(holder(owner), range));
        let none = FileLock { mode: LockMode::Unlock, ..lock };
        let mut undone = Vec::new();
        let mut next = range.start;
        for old in had.unwrap_or_default() {
            let from = old.start.max(range.start);
            let to = old.end.min(range.end);
            if from > next {
                undone.push(FileLock { start: next, end: from - 1, ..none });
            }
            if old.mode != lock.mode {
                undone.push(FileLock { start: from, end: to, ..old });
            }
            next = to + 1;
        }
        if lock.mode != LockMode::Unlock && next <= range.end {
            undone.push(FileLock { start: next, end: range.end, ..none });
        }
        undone
    }

    /// Records that a process closes a descriptor of a file, which ends its `fcntl` locks of the
    /// file. Returns whether they were lost before: the process can learn that only by the error of
    /// this close.
    pub fn closes(&mut self, ino: InodeId, owner: LockOwner) -> bool {
        let key = (FileKey::of(ino, LockKind::Posix), owner);
        let kind = LockKind::Posix;
        let mode = LockMode::Unlock;
        let LockRange { start, end } = LockRange::ALL;
        self.under_way.gives_up(key, &FileLock { kind, mode, start, end, pid: 0 });
        self.forget(key);
        self.lost_owners.remove(&key).is_some()
    }

    /// Records that an open ends, and with it the locks of each owner that has set its last one
    /// through it.
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
        self.under_way.releases(open);
        if self.lost_opens.remove(&open) {
            self.lost_owners.retain(|_, opens| {
                opens.remove(&open);
                !opens.is_empty()
            });
        }
    }

    /// Begins to set all locks again; requests of an earlier attempt are forgotten.
    pub fn begin_reclaim(&mut self) {
        let all = self.held.iter().flat_map(|(key, held)| {
            held.ranges.of(holder(key.1), LockRange::ALL).into_iter().map(|lock| (*key, lock))
        });
        self.unsent = all.collect();
        self.reclaiming = 0;
    }

    /// Returns the next request to send, with its file and lock; `None` if all were sent, or many
    /// are under way.
    pub fn next_request(&mut self) -> Option<(InodeId, OwnedLock, Request)> {
        if self.reclaiming >= AT_ONCE {
            return None;
        }
        while let Some((key, lock)) = self.unsent.pop_front() {
            let (FileKey { ino, .. }, owner) = key;
            if let Some(OwnerLocks { open, .. }) = self.held.get(&key) {
                self.reclaiming += 1;
                let open = *open;
                let request = Request::ReclaimLock { open, owner, lock };
                return Some((ino, OwnedLock { open, owner, lock }, request));
            }
        }
        None
    }

    /// Records the answer to a request to set a lock again. If it was refused, the owner has lost
    /// all its locks of the file that end together. `Unavailable` is no refusal: the server stops,
    /// and the lock is requested from its next run.
    pub fn reclaimed(&mut self, ino: InodeId, asked: &OwnedLock, result: Result<(), Code>) {
        self.reclaiming = self.reclaiming.saturating_sub(1);
        if result.is_err_and(|code| code != Code::Unavailable) {
            self.lose((FileKey::of(ino, asked.lock.kind), asked.owner));
        }
    }

    /// Returns whether locks are still to be set again.
    #[must_use]
    pub fn is_reclaiming(&self) -> bool {
        self.reclaiming > 0 || !self.unsent.is_empty()
    }

    /// Records that all locks are lost, because the server has ended the session. Locks whose owner
    /// has requested to give them up, without an answer yet, are lost, too: other sessions may have
    /// had them before that request.
    pub fn lose_all(&mut self) {
        let keys: Vec<Key> = self.held.keys().copied().collect();
        keys.into_iter().for_each(|key| self.lose(key));
        let open = self.under_way.clear().filter(|unlocking| !unlocking.opens.is_empty());
        for Unlocking { key, opens } in open {
            if !self.lost_owners.contains_key(&key) {
                self.lost += 1;
            }
            self.note_lost(key, &opens);
        }
        self.unsent = VecDeque::new();
        self.reclaiming = 0;
    }

    /// Returns whether a lock was lost that was set through this open.
    #[must_use]
    pub fn is_lost(&self, open: OpenId) -> bool {
        !self.lost_opens.is_empty() && self.lost_opens.contains(&open)
    }

    /// Returns whether an owner has lost its locks of a file, and has not closed it since: its
    /// requests fail through other opens, too.
    #[must_use]
    pub fn has_lost(&self, ino: InodeId, asked: &OwnedLock) -> bool {
        !self.lost_owners.is_empty() && self.lost_owners.contains_key(&key_of(ino, asked))
    }

    /// Returns how many locks were lost.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of locks that were lost since the last call.
    pub const fn newly_lost(&mut self) -> u64 {
        self.lost - std::mem::replace(&mut self.reported, self.lost)
    }

    fn lose(&mut self, key: Key) {
        let Some(held) = self.held.get(&key) else { return };
        self.lost += held.ranges.of(holder(key.1), LockRange::ALL).len() as u64;
        let opens = held.opens.clone();
        self.note_lost(key, &opens);
        self.forget(key);
    }

    fn note_lost(&mut self, key: Key, opens: &BTreeSet<OpenId>) {
        self.lost_opens.extend(opens);
        self.lost_owners.entry(key).or_default().extend(opens);
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

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    const INO: InodeId = InodeId::from_raw(7);

    fn asked(open: u64, owner: u64, mode: LockMode, range: RangeInclusive<u64>) -> OwnedLock {
        let (start, end) = range.into_inner();
        let lock = FileLock { kind: LockKind::Posix, mode, start, end, pid: 1 };
        OwnedLock { open: OpenId(open), owner: LockOwner(owner), lock }
    }

    fn flock(open: u64, mode: LockMode) -> OwnedLock {
        let lock = FileLock { kind: LockKind::Flock, ..asked(0, 0, mode, 0..=9).lock };
        OwnedLock { open: OpenId(open), owner: LockOwner(open), lock }
    }

    fn set(held: &mut ClientLocks, lock: &OwnedLock) {
        held.asks(INO, lock);
        held.granted(INO, lock);
    }

    /// Returns what is asked for again: open, owner, mode and range.
    fn asks_again(held: &mut ClientLocks) -> Vec<(u64, u64, LockMode, RangeInclusive<u64>)> {
        held.begin_reclaim();
        let mut all = Vec::new();
        while let Some((ino, OwnedLock { open, owner, lock }, request)) = held.next_request() {
            assert_eq!((ino, request), (INO, Request::ReclaimLock { open, owner, lock }));
            all.push((open.0, owner.0, lock.mode, lock.start..=lock.end));
            held.reclaimed(ino, &OwnedLock { open, owner, lock }, Ok(()));
        }
        assert!(!held.is_reclaiming());
        all
    }

    #[test]
    fn what_was_granted_is_asked_for_again_through_the_last_open() {
        let mut held = ClientLocks::default();
        set(&mut held, &asked(1, 5, LockMode::Write, 0..=9));
        set(&mut held, &asked(2, 5, LockMode::Read, 20..=29));
        set(&mut held, &asked(1, 6, LockMode::Read, 20..=29));
        held.asks(INO, &asked(1, 6, LockMode::Write, 50..=59));
        let expected = [
            (2, 5, LockMode::Write, 0..=9),
            (2, 5, LockMode::Read, 20..=29),
            (1, 6, LockMode::Read, 20..=29),
        ];
        assert_eq!(asks_again(&mut held), expected, "what was not granted is not held");
        held.releases(OpenId(1));
        assert_eq!(asks_again(&mut held), expected[..2]);
        held.closes(INO, LockOwner(5));
        assert_eq!(asks_again(&mut held), []);
        assert!(held.by_open.is_empty());
    }

    /// The server may have done it, and given the lock to others, before it died.
    #[test]
    fn what_may_have_been_given_up_is_not_asked_for() {
        let mut held = ClientLocks::default();
        set(&mut held, &asked(1, 5, LockMode::Write, 0..=99));
        held.asks(INO, &asked(1, 5, LockMode::Unlock, 10..=19));
        held.asks(INO, &asked(1, 5, LockMode::Read, 50..=200));
        // To strengthen a lock gives nothing up.
        held.asks(INO, &asked(1, 5, LockMode::Write, 60..=60));
        let expected = [
            (1, 5, LockMode::Write, 0..=9),
            (1, 5, LockMode::Write, 20..=49),
            (1, 5, LockMode::Read, 50..=99),
        ];
        assert_eq!(asks_again(&mut held), expected);
    }

    /// Two threads of an owner ask at one time: the server has done it in the order in which it was
    /// sent, and another client may have the lock.
    #[test]
    fn what_was_given_up_before_the_grant_is_here_is_not_asked_for() {
        let mut held = ClientLocks::default();
        let lock = asked(1, 5, LockMode::Write, 0..=99);
        held.asks(INO, &lock);
        held.sent(8, INO, &lock, false);
        held.asks(INO, &asked(2, 5, LockMode::Unlock, 90..=199));
        held.asks(INO, &asked(1, 5, LockMode::Read, 0..=9));
        // Nothing of it is given up by these.
        held.asks(INO, &asked(1, 5, LockMode::Write, 20..=29));
        held.asks(INO, &asked(1, 6, LockMode::Unlock, 0..=99));
        let since = [asked(1, 5, LockMode::Unlock, 90..=99), asked(1, 5, LockMode::Read, 0..=9)];
        assert_eq!(held.over(8), GivenUp::Since(since.map(|it| it.lock).into()));
        assert_eq!(held.over(8), GivenUp::Nothing);
        held.sent(9, INO, &lock, false);
        held.closes(INO, LockOwner(5));
        assert_eq!(
            held.over(9),
            GivenUp::Since(vec![FileLock { mode: LockMode::Unlock, ..lock.lock }])
        );
    }

    /// The lock may have been granted before that or after it.
    #[test]
    fn what_was_given_up_while_a_lock_was_waited_for_is_perhaps_held() {
        let mut held = ClientLocks::default();
        let lock = asked(1, 5, LockMode::Write, 0..=99);
        held.sent(8, INO, &lock, true);
        held.asks(INO, &asked(1, 5, LockMode::Read, 80..=199));
        held.asks(INO, &asked(1, 5, LockMode::Unlock, 10..=19));
        let hull = asked(1, 5, LockMode::Unlock, 10..=99).lock;
        assert_eq!(held.over(8), GivenUp::Perhaps(hull));
        held.sent(9, INO, &lock, true);
        held.releases(OpenId(1));
        assert_eq!(held.over(9), GivenUp::Nothing);
    }

    /// The server carries out one of the two requests before the unlock, and perhaps the other one
    /// after it.
    #[test]
    fn what_was_given_up_of_a_lock_that_is_asked_for_twice_is_perhaps_held() {
        let mut held = ClientLocks::default();
        let lock = asked(1, 5, LockMode::Write, 0..=99);
        held.sent(8, INO, &lock, false);
        held.asks(INO, &asked(1, 5, LockMode::Read, 80..=199));
        held.asks(INO, &asked(1, 5, LockMode::Unlock, 10..=19));
        held.asked_again(8);
        held.asks(INO, &asked(1, 5, LockMode::Read, 5..=6));
        let hull = asked(1, 5, LockMode::Unlock, 5..=99).lock;
        assert_eq!(held.over(8), GivenUp::Perhaps(hull));
        held.sent(9, INO, &lock, false);
        held.asked_again(9);
        assert_eq!(held.over(9), GivenUp::Nothing);
    }

    /// The program has got an error for the lock.
    #[test]
    fn a_lock_that_is_not_wanted_is_undone_to_what_was_held() {
        let mut held = ClientLocks::default();
        let wanted = asked(1, 5, LockMode::Write, 0..=99);
        let undone = |held: &ClientLocks| {
            let undone = held.undoes(INO, &wanted).into_iter();
            undone.map(|lock| (lock.mode, lock.start, lock.end)).collect::<Vec<_>>()
        };
        assert_eq!(undone(&held), [(LockMode::Unlock, 0, 99)]);
        set(&mut held, &asked(1, 5, LockMode::Read, 10..=19));
        set(&mut held, &asked(1, 5, LockMode::Write, 30..=200));
        let expected =
            [(LockMode::Unlock, 0, 9), (LockMode::Read, 10, 19), (LockMode::Unlock, 20, 29)];
        assert_eq!(undone(&held), expected);
    }

    /// `flock` gives the old lock up first; not to become weaker, which cannot be refused.
    #[test]
    fn a_conversion_that_may_have_been_refused_leaves_no_lock() {
        let mut held = ClientLocks::default();
        set(&mut held, &flock(1, LockMode::Read));
        set(&mut held, &flock(2, LockMode::Write));
        held.asks(INO, &flock(1, LockMode::Write));
        held.asks(INO, &flock(2, LockMode::Read));
        let again = asks_again(&mut held);
        assert_eq!(again, [(2, 2, LockMode::Read, 0..=FileLock::TO_END)]);
    }

    /// The owner has all of its locks of the file or none, and others keep theirs.
    #[test]
    fn a_refused_lock_is_lost_with_its_opens_until_they_end() {
        let mut held = ClientLocks::default();
        let lost = asked(2, 5, LockMode::Read, 20..=29);
        set(&mut held, &asked(1, 5, LockMode::Write, 0..=9));
        set(&mut held, &lost);
        set(&mut held, &asked(3, 6, LockMode::Read, 0..=9));
        held.begin_reclaim();
        held.reclaimed(INO, &lost, Err(Code::LockHeld));
        assert_eq!([1, 2, 3].map(|open| held.is_lost(OpenId(open))), [true, true, false]);
        assert_eq!((held.lost(), held.newly_lost(), held.newly_lost()), (2, 2, 0));
        assert_eq!(asks_again(&mut held).len(), 1, "what is lost is not asked for again");
        held.releases(OpenId(1));
        assert_eq!([1, 2].map(|open| held.is_lost(OpenId(open))), [false, true]);
        held.lose_all();
        assert!(held.is_lost(OpenId(3)) && asks_again(&mut held).is_empty());
    }

    /// Others may have had it before its owner asked: the answer must not say that it was held.
    #[test]
    fn a_lock_that_is_given_up_while_the_session_is_lost_is_lost() {
        let mut held = ClientLocks::default();
        let unlocks = |held: &mut ClientLocks, number, (open, owner)| {
            let unlock = asked(open, owner, LockMode::Unlock, 0..=99);
            held.sent(number, INO, &unlock, false);
            held.asks(INO, &unlock);
        };
        for owner in [5, 6, 7] {
            set(&mut held, &asked(owner, owner, LockMode::Write, 10 * owner..=10 * owner + 9));
        }
        unlocks(&mut held, 20, (5, 5));
        // By another descriptor than that of the lock.
        unlocks(&mut held, 21, (16, 6));
        // This one is answered.
        unlocks(&mut held, 22, (7, 7));
        held.over(22);
        // This one had no lock.
        unlocks(&mut held, 23, (8, 8));
        held.lose_all();
        let lost = [5, 6, 16, 7, 8].map(|open| held.is_lost(OpenId(open)));
        assert_eq!(lost, [true, true, true, false, false]);
        assert_eq!((held.newly_lost(), held.newly_lost()), (2, 0));
        held.releases(OpenId(6));
        held.releases(OpenId(16));
        held.lose_all();
        assert_eq!(held.newly_lost(), 0, "it is told once");
        assert_eq!([5, 6, 16].map(|open| held.is_lost(OpenId(open))), [true, false, false]);
    }

    /// A process can unlock through any descriptor of the file, and a close of any ends its locks.
    #[test]
    fn an_owner_that_has_lost_its_locks_is_told_until_it_closes_the_file() {
        let mut held = ClientLocks::default();
        let lock = asked(1, 5, LockMode::Write, 0..=9);
        set(&mut held, &lock);
        held.lose_all();
        let through_another = asked(2, 5, LockMode::Unlock, 0..=9);
        assert!(held.has_lost(INO, &through_another) && held.has_lost(INO, &lock));
        assert!(!held.has_lost(INO, &asked(2, 6, LockMode::Write, 0..=9)), "another owner");
        assert!(!held.has_lost(InodeId::from_raw(8), &lock), "another file");
        assert!(!held.closes(INO, LockOwner(6)));
        assert!(held.closes(INO, LockOwner(5)) && !held.closes(INO, LockOwner(5)));
        assert!(!held.has_lost(INO, &through_another) && held.is_lost(OpenId(1)));
        set(&mut held, &asked(3, 5, LockMode::Write, 0..=9));
        held.lose_all();
        held.releases(OpenId(3));
        assert!(!held.has_lost(INO, &lock), "its open has ended");
    }

    /// Its next run is asked.
    #[test]
    fn a_server_that_stops_refuses_nothing() {
        let mut held = ClientLocks::default();
        let lock = asked(1, 5, LockMode::Write, 0..=9);
        set(&mut held, &lock);
        held.begin_reclaim();
        assert!(held.next_request().is_some());
        held.reclaimed(INO, &lock, Err(Code::Unavailable));
        assert!(!held.is_reclaiming() && !held.is_lost(OpenId(1)));
        assert_eq!(asks_again(&mut held).len(), 1);
    }

    #[test]
    fn few_are_asked_for_at_once_and_all_in_the_end() {
        let mut held = ClientLocks::default();
        for at in 0..300 {
            set(&mut held, &asked(1, 5, LockMode::Write, 2 * at..=2 * at));
        }
        held.begin_reclaim();
        let mut sent = Vec::new();
        while let Some((_, lock, _)) = held.next_request() {
            sent.push(lock);
        }
        assert_eq!(sent.len(), AT_ONCE);
        held.reclaimed(INO, &sent[0], Ok(()));
        assert!(held.next_request().is_some() && held.next_request().is_none());
        // The connection is lost meanwhile: all are asked for again.
        assert_eq!(asks_again(&mut held).len(), 300);
    }
}
