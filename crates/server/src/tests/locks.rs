//! File locks through the service: waits, cancels, and the closes that end them.

use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use pelago_wire::{
    Bulk, Code, Context, Error, FileLock, Handle, LockKind, LockMode, LockOwner, OpenId,
    RecordedPeer, Reply, Request, RequestId, Service, SessionId, SessionRecord, SessionService,
};

use crate::testing::{BOTH, CALLER, READ, Rig, answer};

type Replies = Receiver<Result<Reply, Error>>;

const POSIX: FileLock =
    FileLock { kind: LockKind::Posix, mode: LockMode::Write, start: 0, end: 9, pid: 50 };
const FLOCK: FileLock = FileLock { kind: LockKind::Flock, ..POSIX };

fn set(open: OpenId, owner: u64, lock: FileLock, wait: bool) -> Request {
    Request::SetLock { open, owner: LockOwner(owner), lock, wait }
}

/// Sends a request of a session under a number.
fn begin(rig: &Rig, session: SessionId, number: u64, request: Request) -> Replies {
    let (sender, replies) = channel();
    let context = Context { session, request: RequestId(number), ..CALLER };
    let later = sender.clone();
    let now = rig.router.ask(&context, request, Bulk::None, &mut || {
        let later = later.clone();
        Box::new(move |reply| drop(later.send(reply)))
    });
    if let Some(now) = now {
        sender.send(now).unwrap();
    }
    replies
}

fn until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

fn cancel(rig: &Rig, number: u64) {
    rig.router.cancel(&Context { request: RequestId(number), ..CALLER });
}

/// Sends a request that has to wait.
fn wait(rig: &Rig, number: u64, request: Request) -> Replies {
    let replies = begin(rig, SessionId::DIRECT, number, request);
    assert!(replies.try_recv().is_err(), "it waits");
    replies
}

/// Returns two opens of one file.
fn two_opens(rig: &Rig) -> (OpenId, OpenId, Handle) {
    let (entry, one) = rig.create("f", BOTH);
    (one, rig.open(entry.handle, BOTH).unwrap(), entry.handle)
}

#[test]
fn a_release_of_a_lock_answers_the_request_that_waits() {
    let rig = Rig::new();
    let (one, other, _) = two_opens(&rig);
    rig.call(set(one, 1, POSIX, false)).unwrap();
    assert_eq!(rig.call(set(other, 2, POSIX, false)).err(), Some(Code::LockHeld));
    let waiting = wait(&rig, 7, set(other, 2, POSIX, true));
    assert_eq!(rig.router.locks().counts().waiters, 1);
    rig.call(set(one, 1, FileLock { mode: LockMode::Unlock, ..POSIX }, false)).unwrap();
    assert!(matches!(waiting.try_recv(), Ok(Ok(Reply::Done))));
    let lock = FileLock { kind: LockKind::Posix, mode: LockMode::Read, start: 5, end: 5, pid: 0 };
    match rig.call(Request::GetLock { open: one, owner: LockOwner(1), lock }).unwrap() {
        Reply::Lock(Some(held)) => assert_eq!((held.start, held.end, held.pid), (0, 9, 50)),
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn a_cancelled_request_has_changed_nothing() {
    let rig = Rig::new();
    let (one, other, _) = two_opens(&rig);
    rig.call(set(one, 1, FLOCK, false)).unwrap();
    let waiting = wait(&rig, 7, set(other, 2, FLOCK, true));
    cancel(&rig, 8);
    assert!(waiting.try_recv().is_err(), "another number");
    cancel(&rig, 7);
    assert_eq!(answer(&waiting).err(), Some(Code::Interrupted));
    rig.call(Request::Release { open: one }).unwrap();
    assert_eq!(rig.router.locks().counts().locks, 0);
    // A request that was granted is over.
    rig.call(set(other, 2, FLOCK, true)).unwrap();
    cancel(&rig, 7);
    assert_eq!(rig.router.locks().counts().locks, 1);
}

#[test]
fn a_flush_ends_the_locks_of_its_process_and_a_release_those_of_its_open() {
    let rig = Rig::new();
    let (one, other, handle) = two_opens(&rig);
    let third = rig.open(handle, BOTH).unwrap();
    rig.call(set(one, 1, POSIX, false)).unwrap();
    rig.call(set(one, 9, FLOCK, false)).unwrap();
    rig.call(Request::Flush { open: other, owner: Some(LockOwner(2)) }).unwrap();
    rig.call(Request::Flush { open: other, owner: None }).unwrap();
    assert_eq!(rig.router.locks().counts().locks, 2);
    let posix = wait(&rig, 1, set(third, 3, POSIX, true));
    let flock = wait(&rig, 2, set(third, 4, FLOCK, true));
    rig.call(Request::Flush { open: other, owner: Some(LockOwner(1)) }).unwrap();
    assert!(matches!(posix.try_recv(), Ok(Ok(Reply::Done))));
    rig.call(Request::Release { open: one }).unwrap();
    assert!(matches!(flock.try_recv(), Ok(Ok(Reply::Done))));
    rig.call(Request::Release { open: third }).unwrap();
    assert_eq!(rig.router.locks().counts().locks, 0);
}

#[test]
fn a_request_ends_with_the_open_by_which_it_waits() {
    let rig = Rig::new();
    let (one, other, _) = two_opens(&rig);
    rig.call(set(one, 1, POSIX, false)).unwrap();
    let waiting = wait(&rig, 0, set(other, 2, POSIX, true));
    rig.call(Request::Release { open: other }).unwrap();
    assert_eq!(answer(&waiting).err(), Some(Code::Interrupted));
    assert_eq!(rig.call(set(other, 2, POSIX, false)).err(), Some(Code::BadOpen));
}

#[test]
fn an_open_permits_its_modes_only() {
    let rig = Rig::new();
    let (_, _, handle) = two_opens(&rig);
    let reader = rig.open(handle, READ).unwrap();
    assert_eq!(rig.call(set(reader, 1, POSIX, false)).err(), Some(Code::BadOpen));
    rig.call(set(reader, 1, FileLock { mode: LockMode::Read, ..POSIX }, false)).unwrap();
    rig.call(set(reader, 1, FLOCK, false)).unwrap();
}

/// Two sessions number their opens, owners and requests alike. The lock of one is free for the
/// other once its end is safe: the next run of the server gives it back to no client.
#[test]
fn a_session_ends_with_its_locks() {
    let rig = Rig::new();
    let (one, _, handle) = two_opens(&rig);
    let session = SessionId(5);
    let record = SessionRecord::new([5; 16], RecordedPeer::User(0));
    rig.router.begin_session(session, record).unwrap();
    // No thread does that, and a file that another session has made is opened once it is safe.
    rig.commit.run().unwrap();
    let open = Request::Open { node: handle, flags: BOTH, open: one };
    answer(&begin(&rig, session, 1, open)).unwrap();
    answer(&begin(&rig, session, 2, set(one, 1, POSIX, false))).unwrap();
    let waiting = wait(&rig, 2, set(one, 1, POSIX, true));
    rig.commit.run().unwrap();
    let ended = rig.durability.done() + 1;
    let safe = rig.durability.safe();
    rig.router.end_session(session);
    until(|| rig.durability.done() >= ended);
    assert_eq!((waiting.try_recv().is_err(), rig.durability.safe()), (true, safe));
    until(|| {
        rig.commit.run().unwrap();
        rig.router.locks().counts().waiters == 0
    });
    assert!(matches!(answer(&waiting), Ok(Reply::Done)));
    assert_eq!(rig.router.locks().counts().locks, 1);
}

#[test]
fn a_stop_answers_the_requests_that_wait() {
    let rig = Rig::new();
    let (one, other, _) = two_opens(&rig);
    rig.call(set(one, 1, FLOCK, false)).unwrap();
    let waiting = wait(&rig, 7, set(other, 2, FLOCK, true));
    rig.router.stop();
    assert_eq!(answer(&waiting).err(), Some(Code::Unavailable));
}
