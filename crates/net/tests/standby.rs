//! Servers of a shared store: nothing of the volume is sent while a server may not be its owner,
//! and no client is welcomed before its session is recorded.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use pelago_net::{SessionServer, StandbyServer};
use pelago_wire::codec::encode_call;
use pelago_wire::frame::{CANCEL_BYTES, FrameKind};
use pelago_wire::handshake::{Closing, ClosingCode, Hello, RefusalCode, Refused};
use pelago_wire::{
    Buffer, Bulk, Code, Context, Done, Error, Handle, OpenId, Recalled, Reply, Request, Service,
    SessionId, SessionService, Touched, limits, version,
};

use crate::harness::{WithSessions, until};
use crate::raw::RawClient;

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/raw.rs"]
mod raw;

const OWNER: &str = "pelago1owner@host:7440";

/// Answers each read with one byte, and each other request as done.
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

    /// Connects, and sends this hello.
    fn greet(&self, hello: &Hello) -> RawClient<UnixStream> {
        let mut raw = RawClient::connect(&self.socket);
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

/// Each frame whose answer would show the state of the volume ends the connection. The session
/// waits, and gets its answers when the server may answer again.
#[test]
fn a_server_that_may_not_answer_sends_nothing_of_the_volume() {
    const READ: Request = Request::Read { open: OpenId(1), offset: 0, size: 1 };
    let home = Home::new();
    let mut raw = home.greet(&hello());
    let welcome = raw.receive_welcome();
    assert_eq!(welcome.features, version::SHARDS);
    raw.send(FrameKind::Request, 1, &call(1, &change()));
    assert_eq!(raw.receive().unwrap().0.kind, FrameKind::Reply);
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
        assert!(raw.receive_welcome().resumed, "{what}");
        home.set_mute(true);
        raw.send(kind, number, &body);
        let (header, body) = raw.receive().unwrap();
        assert_eq!((header.kind, header.progress), (FrameKind::Closing, 0), "{what}");
        assert_eq!(Closing::decode(&body).unwrap().code, ClosingCode::NotOwner, "{what}");
        assert!(raw.receive().is_none(), "{what}");
    }
    let refused = home.greet(&again).receive_refused();
    assert_eq!(refused.code, RefusalCode::NotOwner, "there is no welcome either");
    home.set_mute(false);
    let mut raw = home.greet(&again);
    assert!(raw.receive_welcome().resumed);
    raw.send(FrameKind::Request, 3, &call(2, &change()));
    assert_eq!(raw.receive().unwrap().0.kind, FrameKind::Reply, "it was carried out once");
}

/// A recall that is not sent is sent again over the next connection.
#[test]
fn a_recall_waits_until_the_server_may_answer() {
    let home = Home::new();
    let mut raw = home.greet(&hello());
    let welcome = raw.receive_welcome();
    home.set_mute(true);
    let touched = Recalled::Things(vec![Touched::Node(Handle::ROOT.ino)]);
    home.service.store.connections().recall(welcome.session, 5, &touched);
    assert!(raw.receive().is_none());
    home.set_mute(false);
    let mut raw = home.greet(&Hello { resume: Some(welcome.session), ..hello() });
    assert!(raw.receive_welcome().resumed);
    let (header, _) = raw.receive().unwrap();
    assert_eq!((header.kind, header.number), (FrameKind::Recall, 5));
}

/// The clients could not connect again in that time, so that their term begins anew.
#[test]
fn no_session_ends_while_the_server_may_not_answer() {
    let home = Home::with_term(Duration::from_secs(2));
    let mut raw = home.greet(&hello());
    let welcome = raw.receive_welcome();
    home.set_mute(true);
    // Longer than a term: a session that expired would have ended by then.
    thread::sleep(Duration::from_secs(3));
    home.set_mute(false);
    let mut raw = home.greet(&Hello { resume: Some(welcome.session), ..hello() });
    assert!(raw.receive_welcome().resumed);
    drop(raw);
    until("it ends once the server answers", || home.service.sessions().is_empty());
}

/// Another server has taken over the volume: connected clients and new ones get its address.
#[test]
fn a_server_that_lost_the_volume_leads_to_its_owner() {
    let home = Home::new();
    let mut raw = home.greet(&hello());
    raw.receive_welcome();
    *home.service.store.owner.lock() = Some(OWNER.to_owned());
    home.server.stop();
    let (header, body) = raw.receive().unwrap();
    assert_eq!(header.kind, FrameKind::Closing);
    let Closing { code, text } = Closing::decode(&body).unwrap();
    assert_eq!((code, text.as_str()), (ClosingCode::NotOwner, OWNER));
    let Refused { code, text, .. } = home.greet(&hello()).receive_refused();
    assert_eq!((code, text.as_str()), (RefusalCode::NotOwner, OWNER));
}

#[test]
fn a_server_that_stands_by_names_the_owner_if_it_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    for owner in [None, Some(OWNER)] {
        let standby = StandbyServer::start(Box::new(move || owner.map(str::to_owned))).unwrap();
        let socket = folder.path().join("socket");
        standby.listen_unix(&socket).unwrap();
        let mut raw = RawClient::connect(&socket);
        raw.send(FrameKind::Hello, 0, &hello().encode());
        let Refused { code, text, .. } = raw.receive_refused();
        assert_eq!((code, text.as_str()), (RefusalCode::NotOwner, owner.unwrap_or_default()));
    }
}

#[test]
fn a_client_is_welcomed_once_its_session_is_recorded() {
    let home = Home::new();
    home.hold();
    let mut raw = home.greet(&hello());
    until("the session is to be recorded", || home.held() == 1);
    raw.receive_nothing();
    assert_eq!(home.service.sessions().len(), 1);
    home.service.store.record(Ok(()));
    let welcome = raw.receive_welcome();
    raw.send(FrameKind::Ping, 1, &[]);
    assert_eq!(raw.receive().unwrap().0.kind, FrameKind::Pong);
    drop(raw);
    // The session is recorded: the welcome does not wait.
    let mut raw = home.greet(&Hello { resume: Some(welcome.session), ..hello() });
    assert!(raw.receive_welcome().resumed);
    assert_eq!(home.held(), 0);
}

/// The connection ends by its client, by a violation of the protocol, or because the record fails.
/// A late record has no effect.
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
    assert_eq!(
        raw.receive_refused().code,
        RefusalCode::NotPelago,
        "it sends a frame before its welcome"
    );
    until("the second is gone", || home.service.sessions().is_empty());

    let mut raw = home.greet(&hello());
    until("the third waits", || home.held() == 3);
    home.service.store.record(Err(Code::NoSpace.into()));
    assert_eq!(raw.receive_refused().code, RefusalCode::NotRecorded);
    assert!(home.service.sessions().is_empty());

    home.service.store.record(Ok(()));
    assert_eq!(home.server.status(), []);
}

/// The session does not end with the first connection, and only the second one is welcomed.
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
    assert!(first.receive().is_none());
    home.service.store.record(Ok(()));
    let welcome = second.receive_welcome();
    assert_eq!((welcome.session, welcome.resumed), (session, true));
    assert_eq!(home.service.sessions(), [session]);
}
