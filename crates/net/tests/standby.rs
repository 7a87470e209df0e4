//! Servers of a shared store, as a client meets them that says each frame by itself: what they
//! answer while they may not, and when they welcome it.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use pelago_net::{SessionServer, StandbyServer};
use pelago_wire::codec::encode_call;
use pelago_wire::frame::{CANCEL_BYTES, FrameKind, HEADER_BYTES, Header};
use pelago_wire::handshake::{Closing, ClosingCode, Hello, RefusalCode, Refused, Welcome};
use pelago_wire::{
    Buffer, Bulk, Code, Context, Done, Error, Handle, OpenId, Reply, Request, Service, SessionId,
    SessionService, Touched, limits, version,
};

use crate::harness::{PATIENCE, WithSessions, until};

#[path = "harness/all.rs"]
mod harness;

const OWNER: &str = "pelago1owner@host:7440";
/// A time in which what must not come would have come.
const A_WHILE: Duration = Duration::from_millis(200);

/// Answers each read with one byte, and is done with all else.
struct Reads;

impl Service for Reads {
    fn ask(
        &self,
        _: &Context,
        request: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(Ok(match request {
            Request::Read { .. } => Reply::Data(Buffer::new(vec![7])),
            _ => Reply::Done,
        }))
    }
}

struct Home {
    service: Arc<WithSessions<Reads>>,
    server: SessionServer,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self::with_term(Duration::from_secs(limits::TERM_SECONDS))
    }

    fn with_term(term: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let service = WithSessions::new(Reads);
        service.store.is_on_store.store(true, Ordering::SeqCst);
        let socket = folder.path().join("socket");
        let sessions = Arc::clone(&service) as Arc<dyn SessionService>;
        let server = SessionServer::start_with(sessions, term).unwrap();
        server.listen_unix(&socket).unwrap();
        Self { service, server, socket, _folder: folder }
    }

    fn connect(&self) -> Raw {
        Raw::to(&self.socket)
    }

    /// Connects, and says this hello.
    fn greet(&self, hello: &Hello) -> Raw {
        let mut raw = self.connect();
        raw.send(FrameKind::Hello, 0, &hello.encode());
        raw
    }

    fn set_mute(&self, is_mute: bool) {
        self.service.store.is_mute.store(is_mute, Ordering::SeqCst);
    }

    fn hold(&self) {
        self.service.store.holds.store(true, Ordering::SeqCst);
    }

    fn held(&self) -> usize {
        self.service.store.held.lock().len()
    }
}

/// A connection of a client.
struct Raw(UnixStream);

impl Raw {
    fn to(socket: &std::path::Path) -> Self {
        let socket = UnixStream::connect(socket).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn send(&mut self, kind: FrameKind, number: u64, body: &[u8]) {
        let bytes = u32::try_from(body.len()).unwrap();
        let header = Header { body: bytes, bulk: 0, kind, is_overdue: false, number, progress: 0 };
        self.0.write_all(&[&header.encode()[..], body].concat()).unwrap();
    }

    /// Returns the next frame; `None` at the end.
    fn hear(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        self.0.read_exact(&mut header).ok()?;
        let header = Header::decode(&header).unwrap();
        let mut body = vec![0; (header.body + header.bulk) as usize];
        self.0.read_exact(&mut body).unwrap();
        Some((header, body))
    }

    fn hear_welcome(&mut self) -> Welcome {
        let (header, body) = self.hear().unwrap();
        assert_eq!(header.kind, FrameKind::Welcome);
        Welcome::decode(&body).unwrap()
    }

    fn hear_refused(&mut self) -> Refused {
        let (header, body) = self.hear().unwrap();
        assert_eq!(header.kind, FrameKind::Refused);
        assert!(self.hear().is_none(), "the connection ends");
        Refused::decode(&body).unwrap()
    }

    /// Asserts that nothing comes for a while.
    fn hears_nothing(&mut self) {
        self.0.set_read_timeout(Some(A_WHILE)).unwrap();
        let error = self.0.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

fn hello() -> Hello {
    Hello { features: version::FEATURES, ..Hello::new([9; 16]) }
}

fn call(mutation: u64, request: &Request) -> Vec<u8> {
    let mut body = Vec::new();
    encode_call(1, 2, mutation, request, &mut body).unwrap();
    body
}

fn change() -> Request {
    Request::FsyncDir { dir: Handle::ROOT, since: None }
}

/// Each frame that would be answered with something of the volume is answered with the end of the
/// connection. The session waits, and gets its answers when the server may answer again.
#[test]
fn a_server_that_may_not_answer_tells_nothing() {
    const READ: Request = Request::Read { open: OpenId(1), offset: 0, size: 1 };
    let home = Home::new();
    let mut raw = home.greet(&hello());
    let welcome = raw.hear_welcome();
    assert_eq!(welcome.features, version::SHARDS);
    raw.send(FrameKind::Request, 1, &call(1, &change()));
    assert_eq!(raw.hear().unwrap().0.kind, FrameKind::Reply);
    let again = Hello { resume: Some(welcome.session), ..hello() };
    let cancelled = [1_u64.to_le_bytes()].concat();
    assert_eq!(cancelled.len(), CANCEL_BYTES);
    for (what, kind, number, body) in [
        ("a ping", FrameKind::Ping, 7, Vec::new()),
        ("a read", FrameKind::Request, 2, call(0, &READ)),
        ("a change", FrameKind::Request, 3, call(2, &change())),
        ("a stored answer", FrameKind::Request, 1, call(1, &change())),
        ("the answer to a cancel", FrameKind::Cancel, 1, cancelled),
    ] {
        home.set_mute(false);
        let mut raw = home.greet(&again);
        assert!(raw.hear_welcome().resumed, "{what}");
        home.set_mute(true);
        raw.send(kind, number, &body);
        let (header, body) = raw.hear().unwrap();
        assert_eq!((header.kind, header.progress), (FrameKind::Closing, 0), "{what}");
        assert_eq!(Closing::decode(&body).unwrap().code, ClosingCode::NotOwner, "{what}");
        assert!(raw.hear().is_none(), "{what}");
    }
    let refused = home.greet(&again).hear_refused();
    assert_eq!(refused.code, RefusalCode::NotOwner, "there is no welcome either");
    home.set_mute(false);
    let mut raw = home.greet(&again);
    assert!(raw.hear_welcome().resumed);
    raw.send(FrameKind::Request, 3, &call(2, &change()));
    assert_eq!(raw.hear().unwrap().0.kind, FrameKind::Reply, "it was carried out once");
}

/// A recall that is not sent is sent again over the next connection.
#[test]
fn a_recall_waits_until_the_server_may_answer() {
    let home = Home::new();
    let mut raw = home.greet(&hello());
    let welcome = raw.hear_welcome();
    home.set_mute(true);
    let touched = [Touched::Node(Handle::ROOT.ino)];
    home.service.store.connections().recall(welcome.session, 5, &touched);
    assert!(raw.hear().is_none());
    home.set_mute(false);
    let mut raw = home.greet(&Hello { resume: Some(welcome.session), ..hello() });
    assert!(raw.hear_welcome().resumed);
    let (header, _) = raw.hear().unwrap();
    assert_eq!((header.kind, header.number), (FrameKind::Recall, 5));
}

/// The clients could not come back meanwhile, so that their term begins anew.
#[test]
fn no_session_ends_while_the_server_may_not_answer() {
    let home = Home::with_term(Duration::from_secs(2));
    let mut raw = home.greet(&hello());
    let welcome = raw.hear_welcome();
    home.set_mute(true);
    // It would have ended by then.
    thread::sleep(Duration::from_secs(3));
    home.set_mute(false);
    let mut raw = home.greet(&Hello { resume: Some(welcome.session), ..hello() });
    assert!(raw.hear_welcome().resumed);
    drop(raw);
    until("it ends once the server answers", || home.service.sessions().is_empty());
}

/// The clients of a server whose volume another one has taken are told so, and those that come.
#[test]
fn a_server_that_lost_the_volume_leads_to_its_owner() {
    let home = Home::new();
    let mut raw = home.greet(&hello());
    raw.hear_welcome();
    *home.service.store.owner.lock() = Some(OWNER.to_owned());
    home.server.stop();
    let (header, body) = raw.hear().unwrap();
    assert_eq!(header.kind, FrameKind::Closing);
    let Closing { code, text } = Closing::decode(&body).unwrap();
    assert_eq!((code, text.as_str()), (ClosingCode::NotOwner, OWNER));
    let Refused { code, text, .. } = home.greet(&hello()).hear_refused();
    assert_eq!((code, text.as_str()), (RefusalCode::NotOwner, OWNER));
}

#[test]
fn a_server_that_stands_by_names_the_owner_if_it_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    for owner in [None, Some(OWNER)] {
        let standby = StandbyServer::start(Box::new(move || owner.map(str::to_owned))).unwrap();
        let socket = folder.path().join("socket");
        standby.listen_unix(&socket).unwrap();
        let mut raw = Raw::to(&socket);
        raw.send(FrameKind::Hello, 0, &hello().encode());
        let Refused { code, text, .. } = raw.hear_refused();
        assert_eq!((code, text.as_str()), (RefusalCode::NotOwner, owner.unwrap_or_default()));
    }
}

#[test]
fn a_client_is_welcomed_once_its_session_is_recorded() {
    let home = Home::new();
    home.hold();
    let mut raw = home.greet(&hello());
    until("the session is to be recorded", || home.held() == 1);
    raw.hears_nothing();
    assert_eq!(home.service.sessions().len(), 1);
    home.service.store.record(Ok(()));
    let welcome = raw.hear_welcome();
    raw.send(FrameKind::Ping, 1, &[]);
    assert_eq!(raw.hear().unwrap().0.kind, FrameKind::Pong);
    drop(raw);
    // It is recorded: nothing is waited for.
    let mut raw = home.greet(&Hello { resume: Some(welcome.session), ..hello() });
    assert!(raw.hear_welcome().resumed);
    assert_eq!(home.held(), 0);
}

/// However a connection ends before its welcome, its session ends, and a late record does nothing.
#[test]
fn a_connection_that_ends_before_its_welcome_leaves_nothing() {
    let home = Home::new();
    home.hold();
    let raw = home.greet(&hello());
    until("the first waits", || home.held() == 1);
    drop(raw);
    until("the first is gone", || home.service.sessions().is_empty());

    let mut raw = home.greet(&hello());
    until("the second waits", || home.held() == 2);
    raw.send(FrameKind::Ping, 1, &[]);
    assert_eq!(raw.hear_refused().code, RefusalCode::NotPelago, "it answers what it was not told");
    until("the second is gone", || home.service.sessions().is_empty());

    let mut raw = home.greet(&hello());
    until("the third waits", || home.held() == 3);
    home.service.store.record(Err(Code::NoSpace.into()));
    assert_eq!(raw.hear_refused().code, RefusalCode::NotRecorded);
    assert!(home.service.sessions().is_empty());

    home.service.store.record(Ok(()));
    assert_eq!(home.server.status(), []);
}

/// A session that goes on over another connection before its welcome does not end with the first
/// one, and only the second is welcomed.
#[test]
fn a_session_may_move_to_another_connection_before_its_welcome() {
    let home = Home::new();
    home.hold();
    let mut first = home.greet(&hello());
    until("the first waits", || home.held() == 1);
    let session = *home.service.sessions().first().unwrap();
    assert_eq!(session, SessionId::new(3, 1), "a client could guess it");
    let mut second = home.greet(&Hello { resume: Some(session), ..hello() });
    until("the second waits", || home.held() == 2);
    assert!(first.hear().is_none());
    home.service.store.record(Ok(()));
    let welcome = second.hear_welcome();
    assert_eq!((welcome.session, welcome.resumed), (session, true));
    assert_eq!(home.service.sessions(), [session]);
}
