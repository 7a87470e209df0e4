//! A client that was stopped for longer than a term continues. The answers on its connection, and
//! the requests of its programs, belong to a session that the server has ended: another session may
//! have had the locks since.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_net::{Remote, ServerTarget, SessionServer};
use pelago_wire::{
    Attr, Bulk, Code, Context, DataPath, Done, Error, FileKind, FileLock, Handle, InodeId,
    LeasedService, LockKind, LockMode, LockOwner, OpenFlags, OpenId, Reply, Request, Service,
    SessionId, SessionService,
};

use crate::harness::{PATIENCE, WithSessions, connect_to, until};

#[path = "harness/all.rs"]
mod harness;

/// The server checks its sessions four times a second.
const TERM: Duration = Duration::from_secs(2);
const INO: InodeId = InodeId::from_raw(7);

/// Grants each lock at once, or when the test says so, and records the sessions that request one.
#[derive(Default)]
struct Locks {
    asked: Mutex<Vec<(SessionId, Request)>>,
    waiting: Mutex<Vec<Done>>,
}

impl Service for Locks {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        _: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let attr = Attr::empty(INO, FileKind::Regular);
        let reply = match &request {
            Request::Open { .. } | Request::Reopen { .. } => {
                Some(Reply::Opened { attr, path: DataPath::Cached })
            }
            Request::SetLock { wait: true, .. } => {
                self.waiting.lock().push(later());
                None
            }
            Request::GetAttr { .. } => Some(Reply::Attr(attr)),
            Request::Write { .. } => Some(Reply::Written { bytes: 0, size: 0 }),
            _ => Some(Reply::Done),
        };
        self.asked.lock().push((context.session, request));
        reply.map(Ok)
    }

    fn cancel(&self, _: &Context) {
        self.grant();
    }
}

impl Locks {
    fn grant(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        waiting.into_iter().for_each(|done| done(Ok(Reply::Done)));
    }

    /// Returns the sessions that have requested a lock.
    fn lockers(&self) -> Vec<SessionId> {
        let asked = self.asked.lock();
        let locks = asked.iter().filter(|(_, it)| matches!(it, Request::SetLock { .. }));
        locks.map(|(session, _)| *session).collect()
    }
}

/// A server with a short term, and a client.
struct World {
    service: Arc<WithSessions<Locks>>,
    remote: Remote,
    _server: SessionServer,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket: PathBuf = folder.path().join("socket");
        let service = WithSessions::new(Locks::default());
        let sessions = Arc::clone(&service) as Arc<dyn SessionService>;
        let server = SessionServer::start_with(sessions, TERM).unwrap();
        server.listen_unix(&socket).unwrap();
        let remote = connect_to(ServerTarget::Unix(socket), None);
        let world = Self { service, remote, _server: server, _folder: folder };
        for open in 1..=4 {
            let node = Handle::own(INO);
            let flags = OpenFlags::READ_WRITE;
            let open = OpenId(open);
            world.expect(Request::Open { node, flags, open }, None);
        }
        world
    }

    fn ask(&self, request: Request) -> Receiver<Result<Reply, Error>> {
        let (sender, answer) = channel();
        let now = self.remote.ask(&Context::direct(1, 2), request, Bulk::None, &mut || -> Done {
            let sender = sender.clone();
            // The test may have ended.
            Box::new(move |result| drop(sender.send(result)))
        });
        assert!(now.is_none());
        answer
    }

    fn expect(&self, request: Request, failed: Option<Code>) {
        let said = format!("{request:?}");
        let answer = self.ask(request).recv_timeout(PATIENCE).unwrap();
        assert_eq!(answer.err().map(|error| error.code), failed, "{said}");
    }

    /// Stops the thread that reads the client's connection, until the sender is dropped.
    fn stop_client(&self) -> Sender<()> {
        let (goes_on, stopped) = channel::<()>();
        let (sender, is_stopped) = channel();
        let mut stop = Some(move || {
            sender.send(()).unwrap();
            // The wait ends with an error when the sender is dropped.
            let _goes_on = stopped.recv();
        });
        let mut later = || -> Done {
            let stop = stop.take();
            Box::new(move |_| stop.into_iter().for_each(|stop| stop()))
        };
        let request = Request::GetAttr { node: Handle::ROOT };
        assert!(self.remote.ask(&Context::direct(1, 2), request, Bulk::None, &mut later).is_none());
        is_stopped.recv_timeout(PATIENCE).unwrap();
        goes_on
    }

    fn wait_for_end_of_session(&self) {
        until("the session ends", || self.service.sessions().is_empty());
    }
}

fn set_lock(open: u64, owner: u64, mode: LockMode, wait: bool) -> Request {
    let lock = FileLock { kind: LockKind::Posix, mode, start: 0, end: 9, pid: 1 };
    Request::SetLock { open: OpenId(open), owner: LockOwner(owner), lock, wait }
}

fn close(open: u64, owner: u64) -> Request {
    Request::Flush { open: OpenId(open), owner: Some(LockOwner(owner)) }
}

/// The grant was under way when the client was stopped. When the client reads it, another session
/// may have the lock. The program gets its answer only when it has the lock in the next session.
#[test]
fn a_grant_that_is_read_after_its_session_has_ended_is_no_grant() {
    let world = World::new();
    let locks = &world.service.service;
    let granted = world.ask(set_lock(1, 5, LockMode::Write, true));
    until("it waits", || locks.lockers().len() == 1);
    let stopped = world.stop_client();
    locks.grant();
    world.wait_for_end_of_session();
    drop(stopped);
    let mut answer = None;
    until("it asks again, or the program is told", || {
        answer = answer.take().or_else(|| granted.try_recv().ok());
        answer.is_some() || locks.lockers().len() == 2
    });
    assert!(answer.is_none(), "the program was told that it has the lock: {answer:?}");
    let lockers = locks.lockers();
    assert_ne!(lockers[0], lockers[1], "it is asked for in the next session");
    locks.grant();
    assert!(granted.recv_timeout(PATIENCE).unwrap().is_ok());
    world.expect(set_lock(1, 5, LockMode::Unlock, false), None);
}

/// The requests of a program in that time were made with a lock that is lost: they must fail,
/// because a success would say that the program had the lock until then.
#[test]
fn a_lock_that_is_given_up_after_its_session_has_ended_was_lost() {
    let world = World::new();
    // Owners 5, 6 and 7 have a lock each, and 5 has locked by two descriptors.
    for (open, owner) in [(1, 5), (2, 5), (2, 6), (3, 7)] {
        world.expect(set_lock(open, owner, LockMode::Write, false), None);
    }
    let stopped = world.stop_client();
    world.wait_for_end_of_session();
    let unlocked = world.ask(set_lock(1, 5, LockMode::Unlock, false));
    // By another descriptor than that of the lock.
    let unlocked_elsewhere = world.ask(set_lock(4, 6, LockMode::Unlock, false));
    let closed = world.ask(close(3, 7));
    drop(stopped);
    for answer in [unlocked, unlocked_elsewhere, closed] {
        let answer = answer.recv_timeout(PATIENCE).unwrap();
        assert_eq!(answer.err().map(|error| error.code), Some(Code::Io));
    }
    // The close frees its lock in any case.
    assert_eq!(world.remote.status().locks_lost, 2);
}

/// Later requests of the program fail, too, by any descriptor, until it has closed the file.
#[test]
fn a_program_that_has_lost_a_lock_is_told_until_it_closes_the_file() {
    let world = World::new();
    for owner in [5, 6] {
        world.expect(set_lock(owner - 4, owner, LockMode::Write, false), None);
    }
    assert!(!world.remote.has_lost_lock(OpenId(1)));
    let stopped = world.stop_client();
    world.wait_for_end_of_session();
    drop(stopped);
    until("the locks are lost", || world.remote.status().locks_lost == 2);
    let io = Some(Code::Io);
    assert!(world.remote.has_lost_lock(OpenId(1)) && !world.remote.has_lost_lock(OpenId(3)));
    let read = |open| Request::Read { open: OpenId(open), offset: 0, size: 1 };
    world.expect(read(1), io);
    world.expect(set_lock(1, 5, LockMode::Unlock, false), io);
    world.expect(set_lock(3, 5, LockMode::Unlock, false), io);
    world.expect(set_lock(3, 5, LockMode::Write, false), io);
    world.expect(set_lock(3, 7, LockMode::Write, false), None);
    world.expect(set_lock(3, 7, LockMode::Unlock, false), None);
    // The process has closed another descriptor: by POSIX its locks end.
    world.expect(close(3, 5), io);
    world.expect(close(3, 5), None);
    world.expect(set_lock(3, 5, LockMode::Write, false), None);
    world.expect(set_lock(1, 5, LockMode::Write, false), io);
    world.expect(Request::Release { open: OpenId(1) }, None);
    world.expect(Request::Release { open: OpenId(2) }, None);
    assert!(!world.remote.has_lost_lock(OpenId(1)));
    world.expect(set_lock(3, 6, LockMode::Write, false), None);
}
