//! Sessions over sockets that are slow or full.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_net::{Remote, SessionServer};
use pelago_wire::codec::encode_call;
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::Hello;
use pelago_wire::{
    Buffer, Bulk, Code, Context, Done, Error, FileLock, LockKind, LockMode, LockOwner, OpenId,
    Reply, Request, RequestId, Service, SessionId, SessionService, WriteFlags, limits,
};
use tempfile::TempDir;

use crate::harness::{PATIENCE, WithSessions, connect, until};

#[path = "harness/all.rs"]
mod harness;

const TERM: Duration = Duration::from_secs(2);
/// The open whose reads the service does not answer at once.
const KEPT: OpenId = OpenId(99);

/// The open whose writes block the thread that has read them.
const STUCK: OpenId = OpenId(98);

/// Holds requests that wait for locks, and reads of [`KEPT`], until the test has them answered.
#[derive(Default)]
struct Keeping {
    kept: Mutex<HashMap<(SessionId, RequestId), Done>>,
    /// Locked while writes of [`STUCK`] block.
    disk: Mutex<()>,
}

impl Keeping {
    fn count(&self) -> usize {
        self.kept.lock().len()
    }

    fn answer_all(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        kept.into_values().for_each(|done| done(Ok(Reply::Done)));
    }
}

impl Service for Keeping {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let result = match request {
            Request::SetLock { wait: true, .. } | Request::Read { open: KEPT, .. } => {
                self.kept.lock().insert((context.session, context.request), later());
                return None;
            }
            Request::Read { size, .. } => Reply::Data(Buffer::new(vec![7; size as usize])),
            Request::Write { open, .. } => {
                if open == STUCK {
                    drop(self.disk.lock());
                }
                Reply::Written { bytes: bulk.bytes().len() as u64, size: bulk.bytes().len() as u64 }
            }
            _ => Reply::Done,
        };
        Some(Ok(result))
    }

    fn cancel(&self, context: &Context) {
        let done = self.kept.lock().remove(&(context.session, context.request));
        if let Some(done) = done {
            done(Err(Code::Interrupted.into()));
        }
    }
}

/// A server on a Unix socket.
struct World {
    service: Arc<WithSessions<Keeping>>,
    socket: PathBuf,
    server: SessionServer,
    folder: TempDir,
}

impl World {
    fn new(term: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let service = WithSessions::new(Keeping::default());
        let sessions = Arc::clone(&service) as Arc<dyn SessionService>;
        let server = SessionServer::start_with(sessions, term).unwrap();
        let socket = folder.path().join("socket");
        server.listen_unix(&socket).unwrap();
        Self { service, socket, server, folder }
    }
}

type Answers = Receiver<Result<Reply, Error>>;

fn begin(remote: &Remote, caller: u64, request: Request, bytes: &[u8]) -> Answers {
    let (send, answers) = channel();
    let mut later = || -> Done {
        let send = send.clone();
        Box::new(move |result| {
            // The test may have ended.
            let _gone = send.send(result);
        })
    };
    let context = Context { request: RequestId(caller), ..Context::direct(0, 0) };
    let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Borrowed(bytes) };
    assert!(remote.ask(&context, request, bulk, &mut later).is_none());
    answers
}

fn answer(answers: &Answers) -> Result<Reply, Error> {
    answers.recv_timeout(PATIENCE).unwrap()
}

fn read(open: OpenId, size: u32) -> Request {
    Request::Read { open, offset: 0, size }
}

fn write(offset: u64) -> Request {
    Request::Write { open: OpenId(1), offset, flags: WriteFlags::NONE }
}

fn lock(number: u64, mode: LockMode, wait: bool) -> Request {
    let lock = FileLock { kind: LockKind::Posix, mode, start: 0, end: 9, pid: 1 };
    Request::SetLock { open: OpenId(1), owner: LockOwner(number), lock, wait }
}

/// A client that reads nothing.
struct Peer(UnixStream);

impl Peer {
    fn join(socket: &Path) -> Self {
        let peer = Self(UnixStream::connect(socket).unwrap());
        let hello = Hello::new([7; 16]);
        peer.send(&Self::frame(FrameKind::Hello, 0, &hello.encode()));
        peer
    }

    fn frame(kind: FrameKind, number: u64, body: &[u8]) -> Vec<u8> {
        let header = Header { number, ..Header::new(kind, body.len() as u32, 0) }.encode();
        [&header[..], body].concat()
    }

    fn request(number: u64, request: Request) -> Vec<u8> {
        let mut body = Vec::new();
        encode_call(0, 0, 0, &request, &mut body).unwrap();
        Self::frame(FrameKind::Request, number, &body)
    }

    fn send(&self, bytes: &[u8]) {
        (&self.0).write_all(bytes).unwrap();
    }
}

/// Forwards both directions of one connection in small pieces with pauses.
fn slow_line(listener: &UnixListener, server: &Path) {
    let (client, _) = listener.accept().unwrap();
    let server = UnixStream::connect(server).unwrap();
    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
    for (mut from, mut to) in [(client, server), back] {
        let forward = move || {
            let mut buffer = [0; 16 << 10];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                if to.write_all(&buffer[..count]).is_err() {
                    return;
                }
                // The sleep is the pace of the line, and waits for no event.
                thread::sleep(Duration::from_millis(if count < 1000 { 1 } else { 90 }));
            }
        };
        thread::Builder::new().spawn(forward).unwrap();
    }
}

/// The connections of a server are on two threads, and one thread checks the time of all. It must
/// do so also if the only session has begun on the other thread.
#[test]
fn a_silent_session_ends_whichever_thread_has_it() {
    let world = World::new(TERM);
    for _ in 0..3 {
        let _peer = Peer::join(&world.socket);
        until("it begins", || world.server.status().len() == 1);
        until("it ends", || world.server.status().is_empty());
    }
}

/// A megabyte takes three terms on this line, and a ping waits after it: neither end may give up
/// the other one.
#[test]
fn a_frame_that_takes_longer_than_a_term_is_no_silence() {
    let world = World::new(TERM);
    let slow = world.folder.path().join("slow");
    let server = world.socket.clone();
    let listener = UnixListener::bind(&slow).unwrap();
    thread::Builder::new()
        .spawn(move || {
            loop {
                slow_line(&listener, &server);
            }
        })
        .unwrap();
    for writes in [true, false] {
        let remote = connect(&slow);
        let session = remote.status().session;
        let start = Instant::now();
        if writes {
            let written = begin(&remote, 1, write(0), &vec![7; limits::IO_BYTES]);
            assert!(answer(&written).is_ok());
        } else {
            let data = begin(&remote, 1, read(OpenId(1), limits::IO_BYTES as u32), &[]);
            assert!(answer(&data).is_ok());
        }
        assert!(start.elapsed() > 2 * TERM, "the line is too fast for this test");
        assert_eq!((remote.status().session, remote.status().connections), (session, 1));
        assert_eq!(world.service.sessions(), session.into_iter().collect::<Vec<_>>());
        drop(remote);
        until("a goodbye", || world.service.sessions().is_empty());
    }
}

/// A disk that stands still for terms blocks one of the threads that read connections. The sessions
/// outlive that, whether their clients connect again in that time or not.
#[test]
fn a_disk_that_stands_still_for_terms_ends_no_session() {
    let world = World::new(TERM);
    let remotes: Vec<Remote> = (0..4).map(|_| connect(&world.socket)).collect();
    let sessions = || remotes.iter().map(|remote| remote.status().session).collect::<Vec<_>>();
    let before = sessions();
    for stuck in &remotes[1..3] {
        let disk = world.service.service.disk.lock();
        let request = Request::Write { open: STUCK, offset: 0, flags: WriteFlags::NONE };
        let written = begin(stuck, 1, request, &[7; 100]);
        assert!(written.recv_timeout(3 * TERM).is_err(), "the disk stands still");
        drop(disk);
        assert!(answer(&written).is_ok());
        for remote in &remotes {
            assert!(answer(&begin(remote, 0, read(OpenId(1), 10), &[])).is_ok());
        }
        assert_eq!(sessions(), before);
        assert_eq!(world.service.sessions().len(), remotes.len());
    }
}

/// More programs wait for locks than a session may have other requests. Requests to unlock get past
/// them, and so do cancels.
#[test]
fn programs_that_wait_for_locks_leave_room_for_others() {
    const WAITERS: u64 = limits::SESSION_REQUESTS as u64 * 2;
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let remote = connect(&world.socket);
    let wait = |number| begin(&remote, number, lock(number, LockMode::Write, true), &[]);
    let waiting: Vec<Answers> = (1..=WAITERS).map(wait).collect();
    until("all wait", || world.service.service.count() as u64 == WAITERS);
    assert!(answer(&begin(&remote, 0, read(OpenId(1), 10), &[])).is_ok());
    assert!(answer(&begin(&remote, 0, lock(0, LockMode::Unlock, false), &[])).is_ok());
    let given_up = Context { request: RequestId(7), ..Context::direct(0, 0) };
    remote.cancel(&given_up);
    assert_eq!(answer(&waiting[6]).unwrap_err().code, Code::Interrupted);
    world.service.service.answer_all();
    for (number, answers) in waiting.iter().enumerate().filter(|(number, _)| *number != 6) {
        assert!(answer(answers).is_ok(), "{number}");
    }
    assert_eq!(remote.status().connections, 1);
}

#[test]
fn a_program_too_many_that_waits_for_a_lock_is_told() {
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let remote = connect(&world.socket);
    let waiting: Vec<Answers> = (0..limits::LOCK_WAITERS as u64)
        .map(|number| begin(&remote, number + 1, lock(number, LockMode::Write, true), &[]))
        .collect();
    let one_more = begin(&remote, 0, lock(0, LockMode::Write, true), &[]);
    assert_eq!(answer(&one_more).unwrap_err().code, Code::NoLocks);
    until("all wait", || world.service.service.count() == limits::LOCK_WAITERS);
    world.service.service.answer_all();
    assert!(waiting.iter().all(|answers| answer(answers).is_ok()));
}

/// The window is full, and no request is answered: a cancel gets past them.
#[test]
fn a_full_window_does_not_hold_back_a_cancel() {
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let remote = connect(&world.socket);
    let many = 3 * limits::SESSION_REQUESTS as u64;
    let under_way: Vec<Answers> =
        (1..=many).map(|number| begin(&remote, number, read(KEPT, 1), &[])).collect();
    until("the window is full", || world.service.service.count() >= limits::SESSION_REQUESTS / 2);
    for number in [1, many] {
        remote.cancel(&Context { request: RequestId(number), ..Context::direct(0, 0) });
        let answer = answer(&under_way[number as usize - 1]);
        assert_eq!(answer.unwrap_err().code, Code::Interrupted);
    }
    drop(remote);
}

/// Requests of a killed program that were not sent are dropped; those that were sent continue.
#[test]
fn what_was_not_sent_for_a_killed_program_never_is() {
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let remote = connect(&world.socket);
    let many = 2 * limits::SESSION_REQUESTS as u64;
    let asked: Vec<Answers> =
        (1..=many).map(|number| begin(&remote, number, read(KEPT, 1), &[])).collect();
    until("the window is full", || world.service.service.count() >= limits::SESSION_REQUESTS / 2);
    for number in [1, many] {
        remote.forsake(&Context { request: RequestId(number), ..Context::direct(0, 0) });
    }
    assert_eq!(answer(&asked[many as usize - 1]).unwrap_err().code, Code::Interrupted);
    until("all others are answered", || {
        let kept = std::mem::take(&mut *world.service.service.kept.lock());
        kept.into_values().for_each(|done| done(Ok(Reply::Data(Buffer::new(vec![7])))));
        remote.status().waiting == 0
    });
    assert!(asked[..many as usize - 1].iter().all(|answers| answer(answers).is_ok()));
    assert_eq!(remote.status().requests, many - 1);
}

/// The ninth mount of a machine has a share of less than the largest read. It may have one such
/// read under way all the same, and can cancel it at once.
#[test]
fn a_read_beyond_the_share_of_its_session_holds_back_no_cancel() {
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let remotes: Vec<Remote> = (0..9).map(|_| connect(&world.socket)).collect();
    let read_all = |remote| begin(remote, 1, read(KEPT, limits::IO_BYTES as u32), &[]);
    let answers: Vec<Answers> = remotes.iter().map(read_all).collect();
    until("all are under way", || world.service.service.count() == remotes.len());
    for (remote, answers) in remotes.iter().zip(&answers) {
        remote.cancel(&Context { request: RequestId(1), ..Context::direct(0, 0) });
        assert_eq!(answer(answers).unwrap_err().code, Code::Interrupted);
    }
}

/// Each mount of one machine has as many bytes under way as its share allows. It counts as the
/// server does: the server reads a cancel at once.
#[test]
fn full_windows_of_many_mounts_of_one_peer_hold_back_no_cancel() {
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let remotes: Vec<Remote> = (0..16).map(|_| connect(&world.socket)).collect();
    let size = 64 << 10;
    let under_way: Vec<Vec<Answers>> = remotes
        .iter()
        .map(|remote| {
            (1..=200).map(|number| begin(remote, number, read(KEPT, size), &[])).collect()
        })
        .collect();
    let bytes = limits::PEER_BYTES + remotes.len() * limits::SESSION_LEAST_BYTES;
    until("the windows are full", || {
        let count = world.service.service.count();
        assert!(count <= bytes / size as usize, "{count} reads");
        count > bytes / size as usize / 3
    });
    for (remote, answers) in remotes.iter().zip(&under_way) {
        remote.cancel(&Context { request: RequestId(1), ..Context::direct(0, 0) });
        assert_eq!(answer(&answers[0]).unwrap_err().code, Code::Interrupted);
        assert_eq!(remote.status().connections, 1);
    }
    drop(remotes);
}

/// Sixty-four clients of one peer send far more than they may, and their answers are long.
#[test]
fn the_sessions_of_a_peer_hold_no_more_than_its_share() {
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let peers: Vec<Peer> = (0..limits::PEER_SESSIONS).map(|_| Peer::join(&world.socket)).collect();
    // Small requests whose answers may have 64 KiB: a socket takes them all.
    let size = 64 << 10;
    let requests: Vec<u8> =
        (1..=300).flat_map(|number| Peer::request(number, read(KEPT, size))).collect();
    peers.iter().for_each(|peer| peer.send(&requests));
    let sessions = limits::PEER_SESSIONS;
    let bytes = limits::PEER_BYTES + sessions * limits::SESSION_LEAST_BYTES;
    // One of each session may go beyond its share.
    let most = bytes / size as usize + sessions;
    until("they have what they may", || {
        let count = world.service.service.count();
        assert!(count <= most, "{count} requests");
        count >= sessions * (limits::SESSION_LEAST_BYTES / size as usize)
    });
    until("all have begun", || world.server.status().len() == sessions);
    for peer in &peers {
        peer.send(&Peer::request(301, read(KEPT, 1)));
    }
    assert!(world.service.service.count() <= most);
    world.service.service.answer_all();
    until("more is read", || world.service.service.count() > 0);
    assert!(world.service.service.count() <= most);
}

/// A paused client counts as silent only if it takes none of the answers that fill its share.
#[test]
fn a_session_that_is_not_read_is_not_silent_while_its_requests_wait() {
    let world = World::new(TERM);
    let peer = Peer::join(&world.socket);
    let requests: Vec<u8> =
        (1..=20).flat_map(|number| Peer::request(number, read(KEPT, 1 << 20))).collect();
    peer.send(&requests);
    until("its share is full", || world.service.service.count() >= 8);
    let since = Instant::now();
    until("two terms are over", || since.elapsed() > 2 * TERM);
    assert_eq!(world.server.status().len(), 1, "the server owes the answers");
    let kept = std::mem::take(&mut *world.service.service.kept.lock());
    for done in kept.into_values() {
        done(Ok(Reply::Data(Buffer::new(vec![7; 1 << 20]))));
    }
    until("it has taken nothing for a term", || world.server.status().is_empty());
}

/// The connection of a session with a full share is paused. Frames that its peer has sent are read
/// once there is room, although nothing else arrives.
#[test]
fn what_arrives_while_a_session_has_no_room_is_read_afterwards() {
    // Each has a head too.
    const FULL: u64 = (limits::SESSION_BYTES / limits::IO_BYTES) as u64;
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let peer = Peer::join(&world.socket);
    let requests = |count| (1..=count).map(|number| Peer::request(number, read(KEPT, 1 << 20)));
    // One read of the socket brings them all, and one too many.
    peer.send(&requests(FULL + 1).collect::<Vec<_>>().concat());
    until("the session has no room", || world.service.service.count() as u64 == FULL);
    peer.send(&Peer::request(FULL + 2, read(KEPT, 1)));
    // Both threads of the server have seen that.
    for other in [connect(&world.socket), connect(&world.socket)] {
        assert!(answer(&begin(&other, 0, read(OpenId(1), 10), &[])).is_ok());
    }
    world.service.service.answer_all();
    until("the rest is read", || world.service.service.count() == 2);
}

/// A peer reads none of its answers. They are sent by a thread that must not wait for it, as that
/// of the group commit, and other sessions are answered in that time.
#[test]
fn a_peer_that_reads_nothing_holds_no_thread_and_no_other_session() {
    const KEPT_READS: u64 = 50;
    let world = World::new(Duration::from_secs(limits::TERM_SECONDS));
    let peer = Peer::join(&world.socket);
    let send = |number, request| peer.send(&Peer::request(number, request));
    for number in 1..=KEPT_READS {
        send(number, read(KEPT, 1));
    }
    until("the service has them", || world.service.service.count() as u64 == KEPT_READS);
    for number in 1..=20 {
        send(KEPT_READS + number, read(OpenId(1), limits::IO_BYTES as u32));
    }
    let (tell, told) = channel();
    let service = Arc::clone(&world.service);
    let commit = move || {
        service.service.answer_all();
        tell.send(()).unwrap();
    };
    let committer = thread::Builder::new().spawn(commit).unwrap();
    told.recv_timeout(PATIENCE).expect("the thread that answers does not wait");
    committer.join().unwrap();
    // Both threads of the server go on.
    let others = [connect(&world.socket), connect(&world.socket)];
    for other in &others {
        for round in 0..20 {
            let bytes = vec![7; limits::IO_BYTES];
            assert!(answer(&begin(other, 0, write(round), &bytes)).is_ok());
            assert!(answer(&begin(other, 0, read(OpenId(1), 1 << 20), &[])).is_ok());
        }
        assert_eq!(other.status().connections, 1);
    }
}
