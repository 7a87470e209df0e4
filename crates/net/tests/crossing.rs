//! Requests under way that cross a cancel, or the loss of their connection.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{fs, io, thread};

use parking_lot::Mutex;
use pelago_net::{Remote, ServerTarget, SessionServer};
use pelago_wire::{
    Attr, Bulk, Code, Context, DataPath, Done, Entry, Error, FileKind, FileLock, Handle, InodeId,
    LeasedService as _, LockKind, LockMode, LockOwner, Name, NewMode, OpenFlags, OpenId, Reply,
    Request, RequestId, Service,
};

use crate::harness::{PATIENCE, WithSessions, connect_to, until};

#[path = "harness/all.rs"]
mod harness;

const INO: InodeId = InodeId::from_raw(7);

/// Holds a request that makes a directory or waits for a lock. Carries it out when it is cancelled:
/// the answer and the cancel have crossed.
struct Crossing {
    kept: Mutex<Option<Done>>,
    asked: Sender<Request>,
    /// It goes on with what is cancelled.
    ignores_cancels: AtomicBool,
    /// Number of cancels that have come.
    cancels: AtomicUsize,
}

impl Crossing {
    fn finish(&self, reply: Reply) {
        if let Some(done) = self.kept.lock().take() {
            done(Ok(reply));
        }
    }
}

impl Service for Crossing {
    fn ask(
        &self,
        _: &Context,
        request: Request,
        _: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let attr = Attr::empty(INO, FileKind::Regular);
        let reply = match &request {
            Request::Open { .. } => Some(Reply::Opened { attr, path: DataPath::Cached }),
            Request::SetLock { wait: true, .. }
            | Request::MakeDir { .. }
            | Request::Flush { owner: Some(_), .. } => {
                *self.kept.lock() = Some(later());
                None
            }
            Request::GetAttr { .. } => Some(Reply::Attr(attr)),
            _ => Some(Reply::Done),
        };
        self.asked.send(request).unwrap();
        reply.map(Ok)
    }

    fn cancel(&self, _: &Context) {
        self.cancels.fetch_add(1, Ordering::SeqCst);
        if !self.ignores_cancels.load(Ordering::SeqCst) {
            self.finish(Reply::Done);
        }
    }
}

/// A server of this service, and a socket to it whose connections can be cut.
struct World {
    service: Arc<WithSessions<Crossing>>,
    asked: Receiver<Request>,
    _server: SessionServer,
    socket: PathBuf,
    /// Both ends of all connections.
    streams: Arc<Mutex<Vec<UnixStream>>>,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (sender, asked) = channel();
        let service = WithSessions::new(Crossing {
            kept: Mutex::default(),
            asked: sender,
            ignores_cancels: AtomicBool::new(false),
            cancels: AtomicUsize::new(0),
        });
        let [behind, socket] = ["server", "socket"].map(|name| folder.path().join(name));
        let server = service.serve(&behind);
        let streams = Arc::default();
        forward(&socket, behind, Arc::clone(&streams));
        Self { service, asked, _server: server, socket, streams, _folder: folder }
    }

    fn connect(&self, give_up: Option<Duration>) -> Remote {
        connect_to(ServerTarget::Unix(self.socket.clone()), give_up)
    }

    fn cut(&self) {
        for stream in self.streams.lock().drain(..) {
            // It may have ended already.
            let _closed = stream.shutdown(Shutdown::Both);
        }
    }

    /// Returns the next request of the service.
    fn next(&self) -> Request {
        self.asked.recv_timeout(PATIENCE).unwrap()
    }
}

/// Forwards the connections of a socket to another one, by threads that end with the test.
fn forward(from: &Path, to: PathBuf, streams: Arc<Mutex<Vec<UnixStream>>>) {
    let listener = UnixListener::bind(from).unwrap();
    let accept = move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&to) else { return };
            for (from, to) in [(&client, &server), (&server, &client)] {
                let [mut from, mut to] = [from, to].map(|end| end.try_clone().unwrap());
                let copy = move || io::copy(&mut from, &mut to).map(drop);
                thread::Builder::new().spawn(copy).unwrap();
            }
            streams.lock().extend([client, server]);
        }
    };
    thread::Builder::new().spawn(accept).unwrap();
}

fn ask(remote: &Remote, number: u64, request: Request) -> Receiver<Result<Reply, Error>> {
    let (sender, answer) = channel();
    let context = Context { request: RequestId(number), ..Context::direct(1, 2) };
    let now = remote.ask(&context, request, Bulk::None, &mut || -> Done {
        let sender = sender.clone();
        Box::new(move |result| sender.send(result).unwrap())
    });
    assert!(now.is_none());
    answer
}

/// The cancel of a program that waits for a lock crosses the grant: the server has set the lock,
/// and the program does not have it. It is unlocked.
#[test]
fn a_lock_that_is_granted_after_it_was_given_up_is_unlocked() {
    let world = World::new();
    let remote = world.connect(None);
    let open = OpenId(1);
    let owner = LockOwner(5);
    let opens = Request::Open { node: Handle::own(INO), flags: OpenFlags::READ_WRITE, open };
    ask(&remote, 0, opens).recv_timeout(PATIENCE).unwrap().unwrap();
    let lock = FileLock { kind: LockKind::Posix, mode: LockMode::Write, start: 3, end: 9, pid: 1 };
    let waits = Request::SetLock { open, owner, lock, wait: true };
    let waiting = ask(&remote, 1, waits.clone());
    assert!(matches!(world.next(), Request::Open { .. }));
    assert_eq!(world.next(), waits);
    // No server can be reached for a while.
    let moved = world.socket.with_extension("moved");
    fs::rename(&world.socket, &moved).unwrap();
    world.cut();
    until("the connection is lost", || !remote.status().connected);
    remote.cancel(&Context { request: RequestId(1), ..Context::direct(1, 2) });
    let answer = waiting.recv_timeout(PATIENCE).unwrap();
    assert_eq!(answer.err().map(|error| error.code), Some(Code::Interrupted));
    fs::rename(&moved, &world.socket).unwrap();
    let unlock = FileLock { mode: LockMode::Unlock, ..lock };
    let unlocks = Request::SetLock { open, owner, lock: unlock, wait: false };
    assert_eq!(world.next(), unlocks);
}

/// Another program may have the lock for as long as it likes.
#[test]
fn a_deadline_ends_no_wait_for_a_lock_while_the_server_is_there() {
    let world = World::new();
    let remote = world.connect(Some(Duration::from_secs(1)));
    let open = OpenId(1);
    let opens = Request::Open { node: Handle::own(INO), flags: OpenFlags::READ_WRITE, open };
    ask(&remote, 0, opens).recv_timeout(PATIENCE).unwrap().unwrap();
    let lock = FileLock { kind: LockKind::Posix, mode: LockMode::Write, start: 3, end: 9, pid: 1 };
    let owner = LockOwner(5);
    let waiting = ask(&remote, 1, Request::SetLock { open, owner, lock, wait: true });
    assert_eq!(waiting.recv_timeout(Duration::from_secs(3)).err(), Some(RecvTimeoutError::Timeout));
    world.service.service.finish(Reply::Done);
    waiting.recv_timeout(PATIENCE).unwrap().unwrap();
}

/// The things that it changes may be cached again, also if the line was cut meanwhile.
#[test]
fn a_mutation_that_was_given_up_is_settled_when_it_is_over() {
    let world = World::new();
    world.service.service.ignores_cancels.store(true, Ordering::SeqCst);
    let remote = world.connect(Some(Duration::from_secs(1)));
    let settled = Arc::new(AtomicUsize::new(0));
    let settle = || {
        let settled = Arc::clone(&settled);
        remote.when_settled(Box::new(move || {
            settled.fetch_add(1, Ordering::SeqCst);
        }));
    };
    settle();
    assert_eq!(settled.load(Ordering::SeqCst), 1, "nothing was given up");
    let make = Request::MakeDir {
        dir: Handle::ROOT,
        name: Name::new(b"dir").unwrap(),
        mode: NewMode::exactly(0o755),
    };
    let answer = ask(&remote, 1, make).recv_timeout(PATIENCE).unwrap();
    assert_eq!(answer.err().map(|error| error.code), Some(Code::TimedOut));
    settle();
    world.cut();
    until("it connects again", || remote.status().connections >= 2);
    let asked = Request::GetAttr { node: Handle::ROOT };
    ask(&remote, 2, asked).recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(settled.load(Ordering::SeqCst), 1, "it still runs");
    world.service.service.finish(Reply::Done);
    until("it is over", || settled.load(Ordering::SeqCst) == 2);
    settle();
    assert_eq!(settled.load(Ordering::SeqCst), 3);
}

/// The first one may have been lost with the connection.
#[test]
fn a_cancel_is_repeated_with_its_request() {
    let world = World::new();
    let Crossing { ignores_cancels, cancels, .. } = &world.service.service;
    let remote = world.connect(None);
    let open = OpenId(1);
    let opens = Request::Open { node: Handle::own(INO), flags: OpenFlags::READ_WRITE, open };
    ask(&remote, 0, opens).recv_timeout(PATIENCE).unwrap().unwrap();
    let lock = FileLock { kind: LockKind::Posix, mode: LockMode::Write, start: 3, end: 9, pid: 1 };
    let waiting = ask(&remote, 1, Request::SetLock { open, owner: LockOwner(5), lock, wait: true });
    assert!(matches!(
        [world.next(), world.next()],
        [Request::Open { .. }, Request::SetLock { .. }]
    ));
    ignores_cancels.store(true, Ordering::SeqCst);
    remote.cancel(&Context { request: RequestId(1), ..Context::direct(1, 2) });
    until("the cancel has come", || cancels.load(Ordering::SeqCst) == 1);
    ignores_cancels.store(false, Ordering::SeqCst);
    world.cut();
    // The cancel has crossed the grant.
    waiting.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!(cancels.load(Ordering::SeqCst), 2);
}

/// Its process has closed the file, and nothing else would end the locks.
#[test]
fn the_end_of_locks_is_carried_out_although_its_caller_has_given_up() {
    let world = World::new();
    let remote = world.connect(Some(Duration::from_secs(1)));
    let open = OpenId(1);
    let opens = Request::Open { node: Handle::own(INO), flags: OpenFlags::READ_WRITE, open };
    ask(&remote, 0, opens).recv_timeout(PATIENCE).unwrap().unwrap();
    let flush = Request::Flush { open, owner: Some(LockOwner(5)) };
    let answer = ask(&remote, 1, flush).recv_timeout(PATIENCE).unwrap();
    assert_eq!(answer.err().map(|error| error.code), Some(Code::TimedOut));
    world.cut();
    until("it connects again", || remote.status().connections >= 2);
    ask(&remote, 2, Request::GetAttr { node: Handle::ROOT })
        .recv_timeout(PATIENCE)
        .unwrap()
        .unwrap();
    assert_eq!(world.service.service.cancels.load(Ordering::SeqCst), 0);
    assert_eq!(remote.status().waiting, 1, "it is still under way");
    world.service.service.finish(Reply::Done);
    until("it is over", || remote.status().waiting == 0);
}

/// A thread waits for a lock and gets it, while another thread unlocks it. The server may have
/// carried out either first. The lock is requested again, so that both ends agree.
#[test]
fn a_lock_that_is_granted_after_it_was_unlocked_is_made_sure_of() {
    let world = World::new();
    let remote = world.connect(None);
    let open = OpenId(1);
    let owner = LockOwner(5);
    let opens = Request::Open { node: Handle::own(INO), flags: OpenFlags::READ_WRITE, open };
    ask(&remote, 0, opens).recv_timeout(PATIENCE).unwrap().unwrap();
    let lock = FileLock { kind: LockKind::Posix, mode: LockMode::Write, start: 3, end: 9, pid: 1 };
    let waits = Request::SetLock { open, owner, lock, wait: true };
    let granted = ask(&remote, 1, waits.clone());
    let unlock = FileLock { mode: LockMode::Unlock, start: 5, ..lock };
    let unlocks = Request::SetLock { open, owner, lock: unlock, wait: false };
    ask(&remote, 2, unlocks.clone()).recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(matches!(world.next(), Request::Open { .. }));
    assert_eq!([world.next(), world.next()], [waits, unlocks]);
    world.service.service.finish(Reply::Done);
    granted.recv_timeout(PATIENCE).unwrap().unwrap();
    let lock = FileLock { start: 5, ..lock };
    assert_eq!(world.next(), Request::SetLock { open, owner, lock, wait: false });
}

/// The connection is lost while a request runs. The request is repeated over the next one under the
/// same number: it is carried out once, and its caller gets one answer.
#[test]
fn a_repetition_joins_the_request_that_runs() {
    let world = World::new();
    let remote = world.connect(None);
    let make = Request::MakeDir {
        dir: Handle::ROOT,
        name: Name::new(b"dir").unwrap(),
        mode: NewMode::exactly(0o755),
    };
    let made = ask(&remote, 1, make.clone());
    assert_eq!(world.next(), make);
    for connections in 2..5 {
        world.cut();
        until("it connects again", || remote.status().connections >= connections);
        // Sent after the repetition, and answered.
        let asked = Request::GetAttr { node: Handle::ROOT };
        ask(&remote, connections, asked.clone()).recv_timeout(PATIENCE).unwrap().unwrap();
        assert_eq!(world.next(), asked);
    }
    assert!(made.try_recv().is_err(), "it runs");
    let attr = Attr::empty(INO, FileKind::Directory);
    world.service.service.finish(Reply::Entry(Entry { handle: Handle::own(INO), attr }));
    assert!(matches!(made.recv_timeout(PATIENCE), Ok(Ok(Reply::Entry(_)))));
    let again = ask(&remote, 9, Request::GetAttr { node: Handle::ROOT });
    again.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(made.try_recv().is_err(), "one answer");
}
