//! Locks on files whose home is the other site.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use pelago_server::Server;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, FileLock, Handle, LockKind, LockMode, LockOwner, NewMode,
    OpenFlags, OpenId, Reply, Request, RequestId, SessionId,
};

use super::world::{Offices, ask, client, next_number, wait_for};
use crate::harness::rig::{DEADLINE, entry, name};

const ROOT: Handle = Handle::ROOT;
const DIRECT: SessionId = SessionId::DIRECT;
const OPEN: OpenId = OpenId(1);

/// A session at a server, with the file open.
#[derive(Clone, Copy)]
struct At<'a> {
    server: &'a Server,
    session: SessionId,
}

/// Makes a file whose home is the first site.
fn file(offices: &Offices) -> Handle {
    let kind = pelago_wire::FileKind::Regular;
    let mode = NewMode::exactly(0o644);
    let make = Request::MakeNode { dir: ROOT, name: name("file"), mode, kind, rdev: 0 };
    entry(ask(&offices.first, DIRECT, make).unwrap()).unwrap().handle
}

fn lock(mode: LockMode, kind: LockKind) -> FileLock {
    FileLock { kind, mode, start: 0, end: i64::MAX as u64, pid: 1 }
}

fn set(open: OpenId, owner: u64, mode: LockMode, kind: LockKind, wait: bool) -> Request {
    Request::SetLock { open, owner: LockOwner(owner), lock: lock(mode, kind), wait }
}

impl<'a> At<'a> {
    fn new(server: &'a Server, session: SessionId, node: Handle) -> Self {
        let at = Self { server, session };
        at.open(node, OPEN);
        at
    }

    fn open(self, node: Handle, open: OpenId) {
        let flags = OpenFlags::READ_WRITE;
        self.ask(Request::Open { node, flags, open }).unwrap();
    }

    fn ask(self, request: Request) -> Result<Reply, Code> {
        ask(self.server, self.session, request)
    }

    fn try_lock(self, owner: u64, kind: LockKind) -> Result<(), Code> {
        self.ask(set(OPEN, owner, LockMode::Write, kind, false)).map(drop)
    }

    fn unlock(self, owner: u64, kind: LockKind) {
        self.ask(set(OPEN, owner, LockMode::Unlock, kind, false)).unwrap();
    }

    /// Waits for the lock. Returns the number of the request, and its answer.
    fn wait(self, owner: u64) -> (RequestId, Receiver<Result<Reply, Error>>) {
        let (sender, answer) = mpsc::channel();
        let number = RequestId(next_number());
        let context = Context { session: self.session, request: number, ..Context::direct(0, 0) };
        let mut later = || -> Done {
            let sender = sender.clone();
            Box::new(move |result| sender.send(result).unwrap())
        };
        let request = set(OPEN, owner, LockMode::Write, LockKind::Posix, true);
        let service = self.server.session_service();
        assert!(service.ask(&context, request, Bulk::None, &mut later).is_none());
        (number, answer)
    }
}

#[test]
fn a_lock_excludes_the_programs_of_both_offices() {
    let offices = Offices::new();
    let node = file(&offices);
    let Offices { first, berlin, .. } = &offices;
    for kind in [LockKind::Posix, LockKind::Flock] {
        let all = [
            At::new(first, DIRECT, node),
            At::new(berlin, DIRECT, node),
            At::new(first, client(first), node),
            At::new(berlin, client(berlin), node),
            At::new(berlin, client(berlin), node),
        ];
        for holder in 0..all.len() {
            // The numbers of owners are those of a session.
            all[holder].try_lock(7, kind).unwrap();
            all[holder].try_lock(7, kind).unwrap();
            for (other, at) in all.iter().enumerate().filter(|(other, _)| *other != holder) {
                assert_eq!(at.try_lock(7, kind), Err(Code::LockHeld), "{kind:?} {holder} {other}");
                let test = Request::GetLock {
                    open: OPEN,
                    owner: LockOwner(7),
                    lock: lock(LockMode::Read, kind),
                };
                assert!(matches!(at.ask(test), Ok(Reply::Lock(Some(_)))));
            }
            all[holder].unlock(7, kind);
        }
        for at in all {
            at.ask(Request::Release { open: OPEN }).unwrap();
        }
    }
}

#[test]
fn a_lock_ends_with_its_process_its_open_and_its_session() {
    let offices = Offices::new();
    let node = file(&offices);
    let here = At::new(&offices.first, DIRECT, node);
    let session = client(&offices.berlin);
    let there = At::new(&offices.berlin, session, node);
    let is_free = || {
        let got = here.try_lock(1, LockKind::Posix).is_ok();
        if got {
            here.unlock(1, LockKind::Posix);
        }
        got
    };
    there.try_lock(7, LockKind::Posix).unwrap();
    // Another process closes the file, and then this one, by another descriptor.
    there.open(node, OpenId(2));
    for (owner, frees) in [(8, false), (7, true)] {
        there.ask(Request::Flush { open: OpenId(2), owner: Some(LockOwner(owner)) }).unwrap();
        assert_eq!(is_free(), frees, "{owner}");
    }
    there.try_lock(7, LockKind::Posix).unwrap();
    there.ask(Request::Release { open: OPEN }).unwrap();
    assert!(is_free());
    there.open(node, OPEN);
    there.try_lock(7, LockKind::Posix).unwrap();
    assert!(!is_free());
    offices.berlin.session_service().end_session(session);
    wait_for("its locks have ended", is_free);
}

#[test]
fn a_wait_ends_with_the_lock_or_by_a_signal() {
    let offices = Offices::new();
    let node = file(&offices);
    let here = At::new(&offices.first, DIRECT, node);
    let there = At::new(&offices.berlin, client(&offices.berlin), node);
    here.try_lock(1, LockKind::Posix).unwrap();
    let (_, granted) = there.wait(7);
    let (cancelled, interrupted) = there.wait(8);
    wait_for("both wait there", || offices.first.status().lock_waiters == 2);
    let context = Context { session: there.session, request: cancelled, ..Context::direct(0, 0) };
    offices.berlin.session_service().cancel(&context);
    let answer = interrupted.recv_timeout(DEADLINE).unwrap();
    assert_eq!(answer.err().map(|error| error.code), Some(Code::Interrupted));
    assert!(granted.recv_timeout(Duration::from_millis(50)).is_err());
    here.unlock(1, LockKind::Posix);
    granted.recv_timeout(DEADLINE).unwrap().unwrap();
    assert_eq!(here.try_lock(1, LockKind::Posix), Err(Code::LockHeld));
    // And the other way round.
    let (_, granted) = here.wait(2);
    there.unlock(7, LockKind::Posix);
    granted.recv_timeout(DEADLINE).unwrap().unwrap();
}

/// It would be that of another process here.
#[test]
fn the_process_of_another_machine_is_not_named() {
    let offices = Offices::new();
    let node = file(&offices);
    let Offices { berlin, .. } = &offices;
    let own = At::new(berlin, DIRECT, node);
    let far = [client(berlin), client(berlin)].map(|session| At::new(berlin, session, node));
    let pid_for = |at: At<'_>, owner| {
        let lock = lock(LockMode::Read, LockKind::Posix);
        match at.ask(Request::GetLock { open: OPEN, owner: LockOwner(owner), lock }) {
            Ok(Reply::Lock(Some(lock))) => lock.pid,
            other => panic!("{other:?}"),
        }
    };
    far[0].try_lock(7, LockKind::Posix).unwrap();
    assert_eq!([pid_for(far[1], 8), pid_for(own, 8)], [0, 0]);
    far[0].unlock(7, LockKind::Posix);
    own.try_lock(7, LockKind::Posix).unwrap();
    assert_eq!([pid_for(far[1], 8), pid_for(own, 8)], [0, 1]);
}

/// The home has ended it with the session of the last run.
#[test]
fn a_lock_of_an_earlier_run_is_not_set_again() {
    let offices = Offices::new();
    let node = file(&offices);
    let there = At::new(&offices.berlin, client(&offices.berlin), node);
    let lock = lock(LockMode::Write, LockKind::Flock);
    let reclaim = Request::ReclaimLock { open: OPEN, owner: LockOwner(7), lock };
    assert_eq!(there.ask(reclaim).err(), Some(Code::NoLocks));
}
