//! The table against a naive reference, and what the reference cannot show.

use std::ops::RangeInclusive;

use super::*;

mod reference;

const INO: InodeId = InodeId::from_raw(5);
const OTHER: InodeId = InodeId::from_raw(6);

fn holder(session: u64, owner: u64) -> Holder {
    Holder { session: SessionId(session), owner: LockOwner(owner) }
}

fn lock(kind: LockKind, mode: LockMode, range: RangeInclusive<u64>) -> FileLock {
    let (start, end) = range.into_inner();
    FileLock { kind, mode, start, end, pid: 100 }
}

/// A request of owner `owner` of session 1, through the open with the owner's number.
fn posix(ino: InodeId, owner: u64, mode: LockMode, range: RangeInclusive<u64>) -> LockRequest {
    let lock = lock(LockKind::Posix, mode, range);
    LockRequest { ino, open: OpenId(owner), holder: holder(1, owner), lock }
}

fn flock(owner: u64, mode: LockMode) -> LockRequest {
    let lock = lock(LockKind::Flock, mode, 0..=FileLock::TO_END);
    LockRequest { ino: INO, open: OpenId(owner), holder: holder(1, owner), lock }
}

impl LockTable {
    /// Sets a lock that is free; no waiter is granted by it.
    #[track_caller]
    fn must_set(&mut self, request: &LockRequest) {
        assert_eq!(self.set(request), (Ok(()), vec![]));
    }

    /// Lets a request wait; no other waiter is granted by it.
    #[track_caller]
    fn must_wait(&mut self, request: &LockRequest, number: u64) -> WaiterId {
        match self.set_or_wait(request, RequestId(number)) {
            (Ok(SetLock::Waiting(id)), granted) if granted.is_empty() => id,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn flock_and_fcntl_do_not_conflict() {
    let mut table = LockTable::default();
    table.must_set(&flock(1, LockMode::Write));
    table.must_set(&posix(INO, 2, LockMode::Write, 0..=FileLock::TO_END));
    assert_eq!(table.counts(), LockCounts { locks: 2, waiters: 0 });
    let ofd = lock(LockKind::OpenFile, LockMode::Read, 9..=9);
    let found = table.test(INO, holder(1, 3), &ofd).unwrap();
    assert_eq!((found.kind, found.mode), (LockKind::Posix, LockMode::Write));
}

#[test]
fn a_test_tells_the_process_to_its_own_session_only() {
    let mut table = LockTable::default();
    table.must_set(&posix(INO, 1, LockMode::Write, 10..=19));
    let wanted = lock(LockKind::Posix, LockMode::Read, 15..=30);
    let held = lock(LockKind::Posix, LockMode::Write, 10..=19);
    assert_eq!(table.test(INO, holder(1, 2), &wanted), Some(held));
    assert_eq!(table.test(INO, holder(2, 1), &wanted), Some(FileLock { pid: 0, ..held }));
    assert_eq!(table.test(INO, holder(1, 1), &wanted), None);
    assert_eq!(table.test(INO, holder(1, 2), &FileLock { start: 20, ..wanted }), None);
}

/// Both have the lock shared; the first to ask for it exclusively waits without its own.
#[test]
fn a_conversion_of_flock_gives_the_old_lock_up_first() {
    let mut table = LockTable::default();
    table.must_set(&flock(1, LockMode::Read));
    table.must_set(&flock(2, LockMode::Read));
    let first = table.must_wait(&flock(1, LockMode::Write), 7);
    assert_eq!(table.set(&flock(2, LockMode::Write)), (Ok(()), vec![]), "1 has no lock any more");
    assert_eq!(table.set(&flock(2, LockMode::Unlock)), (Ok(()), vec![first]));
    assert_eq!(table.set(&flock(3, LockMode::Read)), (Err(Code::LockHeld), vec![]));
}

#[test]
fn a_refused_conversion_of_flock_lets_others_through() {
    let mut table = LockTable::default();
    table.must_set(&flock(1, LockMode::Read));
    table.must_set(&flock(2, LockMode::Read));
    let writer = table.must_wait(&flock(3, LockMode::Write), 1);
    assert_eq!(table.set(&flock(1, LockMode::Write)), (Err(Code::LockHeld), vec![]));
    assert_eq!(table.set(&flock(2, LockMode::Unlock)), (Ok(()), vec![writer]));
}

#[test]
fn waiters_get_a_lock_in_the_order_of_their_arrival() {
    let mut table = LockTable::default();
    table.must_set(&posix(INO, 1, LockMode::Write, 0..=9));
    let waiters =
        (2..202).map(|owner| table.must_wait(&posix(INO, owner, LockMode::Write, 5..=9), owner));
    let waiters: Vec<_> = waiters.collect();
    assert_eq!(table.counts(), LockCounts { locks: 1, waiters: 200 });
    for (owner, waiter) in (1..).zip(waiters) {
        let unlock = posix(INO, owner, LockMode::Unlock, 0..=FileLock::TO_END);
        assert_eq!(table.set(&unlock), (Ok(()), vec![waiter]));
    }
}

/// A chain of three processes over two files and two sessions.
#[test]
fn a_circle_of_processes_is_a_deadlock() {
    let mut table = LockTable::default();
    let elsewhere = LockRequest {
        holder: holder(2, 9),
        open: OpenId(9),
        ..posix(OTHER, 9, LockMode::Write, 0..=0)
    };
    table.must_set(&posix(INO, 1, LockMode::Write, 0..=0));
    table.must_set(&posix(INO, 2, LockMode::Write, 1..=1));
    table.must_set(&elsewhere);
    table.must_wait(&posix(INO, 1, LockMode::Write, 1..=1), 1);
    let second = table.must_wait(&posix(OTHER, 2, LockMode::Write, 0..=0), 2);
    let closing = LockRequest { ino: INO, ..elsewhere };
    let (result, granted) = table.set_or_wait(&closing, RequestId(3));
    assert_eq!((result, granted), (Err(Code::Deadlock), vec![]));
    assert_eq!(table.cancel(SessionId(1), RequestId(2)), Some(second));
    assert!(matches!(table.set_or_wait(&closing, RequestId(3)).0, Ok(SetLock::Waiting(_))));
}

#[test]
fn locks_of_open_files_are_never_a_deadlock() {
    let mut table = LockTable::default();
    let ofd = |owner, byte| {
        let lock = lock(LockKind::OpenFile, LockMode::Write, byte..=byte);
        LockRequest { lock, ..posix(INO, owner, LockMode::Write, byte..=byte) }
    };
    table.must_set(&ofd(1, 1));
    table.must_set(&ofd(2, 2));
    table.must_wait(&ofd(1, 2), 1);
    table.must_wait(&ofd(2, 1), 2);
}

#[test]
fn a_cancelled_request_is_not_granted_later() {
    let mut table = LockTable::default();
    table.must_set(&flock(1, LockMode::Write));
    let waiter = table.must_wait(&flock(2, LockMode::Write), 7);
    assert_eq!(table.cancel(SessionId(2), RequestId(7)), None, "of another session");
    assert_eq!(table.cancel(SessionId(1), RequestId(7)), Some(waiter));
    assert_eq!(table.cancel(SessionId(1), RequestId(7)), None);
    assert_eq!(table.drop_owner(INO, holder(1, 1), LockKind::Flock), []);
    assert_eq!(table.counts(), LockCounts::default());
}

#[test]
fn a_request_that_was_granted_cannot_be_cancelled() {
    let mut table = LockTable::default();
    table.must_set(&flock(1, LockMode::Write));
    let waiter = table.must_wait(&flock(2, LockMode::Write), 7);
    assert_eq!(table.drop_owner(INO, holder(1, 1), LockKind::Flock), [waiter]);
    assert_eq!(table.cancel(SessionId(1), RequestId(7)), None);
}

#[test]
fn a_number_waits_once() {
    let mut table = LockTable::default();
    table.must_set(&flock(1, LockMode::Write));
    table.must_wait(&flock(2, LockMode::Write), 7);
    let again = table.set_or_wait(&flock(3, LockMode::Write), RequestId(7));
    assert_eq!(again, (Err(Code::Invalid), vec![]));
    table.must_wait(&flock(3, LockMode::Write), 0);
    table.must_wait(&flock(4, LockMode::Write), 0);
}

#[test]
fn a_session_ends_with_its_locks_and_waiters() {
    let mut table = LockTable::default();
    let of = |session, request: LockRequest| LockRequest {
        holder: Holder { session: SessionId(session), ..request.holder },
        open: OpenId(session * 100 + request.open.0),
        ..request
    };
    table.must_set(&of(1, posix(INO, 1, LockMode::Write, 0..=9)));
    table.must_set(&of(1, posix(OTHER, 2, LockMode::Read, 0..=9)));
    table.must_set(&of(2, posix(INO, 1, LockMode::Write, 20..=29)));
    let survivor = table.must_wait(&of(2, posix(INO, 2, LockMode::Write, 0..=9)), 1);
    let own = table.must_wait(&of(1, posix(INO, 3, LockMode::Write, 20..=29)), 1);
    let ended = table.drop_session(SessionId(1));
    assert_eq!(ended, Ended { granted: vec![survivor], cancelled: vec![own] });
    assert_eq!(table.counts(), LockCounts { locks: 2, waiters: 0 });
}

#[test]
fn a_session_has_no_more_locks_than_its_limit() {
    let mut table = LockTable::new(LockLimits { locks: 3, waiters: 1 });
    table.must_set(&posix(INO, 1, LockMode::Write, 0..=99));
    table.must_set(&posix(INO, 1, LockMode::Unlock, 10..=19));
    table.must_set(&posix(INO, 1, LockMode::Unlock, 30..=39));
    let divide = posix(INO, 1, LockMode::Unlock, 50..=59);
    assert_eq!(table.set(&divide), (Err(Code::NoLocks), vec![]));
    let convert = posix(INO, 1, LockMode::Read, 50..=59);
    assert_eq!(table.set(&convert), (Err(Code::NoLocks), vec![]));
    assert_eq!(table.set(&posix(OTHER, 2, LockMode::Read, 0..=0)).0, Err(Code::NoLocks));
    table.must_set(&posix(INO, 1, LockMode::Read, 0..=9));
    table.must_set(&LockRequest { holder: holder(2, 1), ..posix(OTHER, 1, LockMode::Read, 0..=0) });
    table.must_set(&posix(INO, 1, LockMode::Write, 0..=99));
    assert_eq!(table.counts().locks, 2);
    table.must_wait(&posix(INO, 2, LockMode::Write, 0..=0), 1);
    let second = table.set_or_wait(&posix(INO, 3, LockMode::Write, 0..=0), RequestId(2));
    assert_eq!(second.0, Err(Code::NoLocks));
}

#[test]
fn a_range_that_is_none_is_refused() {
    let mut table = LockTable::default();
    let beyond = FileLock::TO_END + 1;
    for range in [RangeInclusive::new(5, 4), 0..=u64::MAX, beyond..=beyond] {
        let request = posix(INO, 1, LockMode::Write, range);
        assert_eq!(table.set(&request), (Err(Code::Invalid), vec![]));
    }
    table.must_set(&posix(INO, 1, LockMode::Write, FileLock::TO_END..=FileLock::TO_END));
}

/// Thousands of ranges of one file, each of another owner, and thousands of readers of all of one:
/// each request looks at its neighbours only.
#[test]
fn thousands_of_locks_of_one_file_are_quick() {
    const COUNT: u64 = 30_000;
    let mut table = LockTable::new(LockLimits { locks: usize::MAX, waiters: 1 });
    for owner in 0..COUNT {
        let mode = if owner % 2 == 0 { LockMode::Read } else { LockMode::Write };
        table.must_set(&posix(INO, owner, mode, 10 * owner..=10 * owner + owner % 9));
    }
    for owner in (1..COUNT).step_by(2) {
        let next = posix(INO, owner, LockMode::Write, 10 * owner..=10 * owner + 10);
        assert_eq!(table.set(&next).0.is_ok(), owner + 1 == COUNT);
    }
    for owner in 0..COUNT {
        table.must_set(&posix(OTHER, owner, LockMode::Read, 0..=FileLock::TO_END));
    }
    assert_eq!(table.counts().locks as u64, 2 * COUNT);
}
