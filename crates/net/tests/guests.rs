//! Connections of guests: their credentials, refusals, and the limits of their sessions.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_net::SessionServer;
use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::own_file::OwnFile;
use pelago_net::tls;
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{ClosingCode, Hello, RefusalCode, Refused, Welcome};
use pelago_wire::present::Present;
use pelago_wire::{SessionId, SessionService, limits};
use rustls::{ClientConnection, StreamOwned};

use crate::harness::{PATIENCE, Reads, WithSessions, until};
use crate::raw::RawClient;

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/raw.rs"]
mod raw;

/// A server for guests, which knows one machine.
struct Home {
    service: Arc<WithSessions<Reads>>,
    server: SessionServer,
    port: u16,
    folder: tempfile::TempDir,
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

/// The number of the server's key.
const SERVER: u8 = 1;
/// The number of the key of the machine that the server knows.
const MACHINE: u8 = 2;
/// Longer than a test takes.
const TERM: Duration = Duration::from_secs(600);

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let service = WithSessions::new(Reads);
        let sessions = Arc::clone(&service) as Arc<dyn SessionService>;
        let server = SessionServer::start_with(sessions, TERM).unwrap();
        server.listen_unix(&folder.path().join("socket")).unwrap();
        let file = || OwnFile::of(&folder.path().join("clients")).unwrap();
        let name = None::<KeyName>;
        edit(&file(), |clients| clients.allow(key(MACHINE).public(), name, Date::today())).unwrap();
        let clients = Arc::new(ClientList::open(file()).unwrap());
        let address = "127.0.0.1:0".parse().unwrap();
        let port = server.listen_tcp(address, &key(SERVER), clients).unwrap().port();
        Self { service, server, port, folder }
    }

    /// Connects with this key.
    fn connect(&self, number: u8) -> TlsClient {
        let config = tls::client_config(&key(number), key(SERVER).public()).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        RawClient::new(StreamOwned::new(tls::client_connection(config).unwrap(), socket))
    }

    fn connect_unix(&self) -> RawClient<UnixStream> {
        RawClient::connect(&self.folder.path().join("socket"))
    }

    /// Begins or resumes a session of a guest.
    fn guest(&self, number: u8, hello: &Hello, credential: &[u8]) -> Result<Guest, RefusalCode> {
        let mut raw = self.connect(number);
        raw.send(FrameKind::Hello, 0, &hello.encode());
        raw.send(FrameKind::Present, 0, &present(&[credential]));
        let (header, body) = raw.receive().unwrap();
        match header.kind {
            FrameKind::Welcome => Ok(Guest { raw, welcome: Welcome::decode(&body).unwrap() }),
            FrameKind::Refused => Err(Refused::decode(&body).unwrap().code),
            kind => panic!("{kind:?}"),
        }
    }
}

type TlsClient = RawClient<StreamOwned<ClientConnection, TcpStream>>;

/// A guest with a session.
struct Guest {
    raw: TlsClient,
    welcome: Welcome,
}

fn present(texts: &[&[u8]]) -> Vec<u8> {
    let chain = texts.iter().map(|text| text.to_vec()).collect();
    Present { chain }.encode().unwrap()
}

fn hello(role: u16, nonce: u8) -> Hello {
    Hello { role, ..Hello::new([nonce; 16]) }
}

fn guest_hello(nonce: u8) -> Hello {
    hello(Hello::GUEST, nonce)
}

#[test]
fn a_guest_gets_a_session_with_short_leases_for_its_credential() {
    let home = Home::new();
    let mut guest = home.guest(3, &guest_hello(1), b"grant 1").unwrap();
    assert!((1..=3_000).contains(&guest.welcome.lease_ms), "{:?}", guest.welcome);
    assert!(!guest.welcome.resumed);
    guest.raw.read();
    // The key of a known machine is that of a guest if its hello says so.
    let known = home.guest(MACHINE, &guest_hello(2), b"grant 1").unwrap();
    assert_eq!(known.welcome.lease_ms, guest.welcome.lease_ms);
    let mut machine = home.connect(MACHINE);
    machine.send(FrameKind::Hello, 0, &hello(Hello::CLIENT, 3).encode());
    assert!(machine.receive_welcome().lease_ms > 0);
}

#[test]
fn a_chain_that_grants_nothing_is_refused() {
    let home = Home::new();
    let wrong: [&[&[u8]]; 3] = [&[b"nothing"], &[b"grant 1", b"grant 1"], &[b"grant "]];
    for chain in wrong {
        let mut raw = home.connect(3);
        raw.send(FrameKind::Hello, 0, &guest_hello(1).encode());
        raw.send(FrameKind::Present, 0, &present(chain));
        let refused = raw.receive_refused();
        assert_eq!(refused.code, RefusalCode::NoAccess);
        assert_eq!(refused.text, "it grants nothing");
    }
    let mut stranger = home.connect(3);
    stranger.send(FrameKind::Hello, 0, &hello(Hello::CLIENT, 1).encode());
    assert_eq!(stranger.receive_refused().code, RefusalCode::UnknownKey);
    assert!(home.service.sessions().is_empty());
}

#[test]
fn credentials_come_once_and_after_the_hello_of_a_guest() {
    let home = Home::new();
    let good = present(&[b"grant 1"]);
    let mut early = home.connect(3);
    early.send(FrameKind::Present, 0, &good);
    assert_eq!(early.receive_refused().code, RefusalCode::NotPelago);
    let mut twice = home.guest(3, &guest_hello(1), b"grant 1").unwrap().raw;
    twice.read();
    twice.send(FrameKind::Present, 0, &good);
    assert_eq!(twice.receive_closing().code, ClosingCode::Protocol);
    let mut client = home.connect(MACHINE);
    client.send(FrameKind::Hello, 0, &hello(Hello::CLIENT, 2).encode());
    client.receive_welcome();
    client.send(FrameKind::Present, 0, &good);
    assert_eq!(client.receive_closing().code, ClosingCode::Protocol);
    let mut again = home.connect(3);
    again.send(FrameKind::Hello, 0, &guest_hello(3).encode());
    again.send(FrameKind::Hello, 0, &hello(Hello::CLIENT, 3).encode());
    assert_eq!(again.receive_refused().code, RefusalCode::NotPelago);
    let mut request = home.connect(3);
    request.send(FrameKind::Hello, 0, &guest_hello(4).encode());
    request.send(FrameKind::Request, 1, &good);
    assert_eq!(request.receive_refused().code, RefusalCode::NotPelago);
    until("each session has ended", || home.service.sessions().is_empty());
}

#[test]
fn garbage_for_credentials_is_refused_and_too_much_of_it_not_read() {
    let home = Home::new();
    let most = vec![0xff; limits::CHAIN_BYTES];
    let half = present(&[b"grant 1"]);
    let garbage: [&[u8]; 5] = [b"", b"\0\0", b"garbage", &half[..half.len() - 1], &most];
    for garbage in garbage {
        let mut raw = home.connect(3);
        raw.send(FrameKind::Hello, 0, &guest_hello(1).encode());
        raw.send(FrameKind::Present, 0, garbage);
        assert_eq!(raw.receive_refused().code, RefusalCode::NotPelago, "{} bytes", garbage.len());
    }
    let mut raw = home.connect(3);
    raw.send(FrameKind::Hello, 0, &guest_hello(1).encode());
    // The connection may have ended before all of it is sent.
    let bytes = u32::try_from(limits::CHAIN_BYTES + 1).unwrap();
    raw.send_bytes(&Header::new(FrameKind::Present, bytes, 0).encode());
    assert!(raw.receive().is_none(), "the server does not wait for the body");
    assert!(home.service.sessions().is_empty());
}

#[test]
fn no_guest_comes_over_a_unix_socket() {
    let home = Home::new();
    let mut raw = home.connect_unix();
    raw.send(FrameKind::Hello, 0, &guest_hello(1).encode());
    assert_eq!(raw.receive_refused().code, RefusalCode::UnknownRole);
    let mut raw = home.connect_unix();
    raw.send(FrameKind::Hello, 0, &hello(3, 1).encode());
    assert_eq!(raw.receive_refused().code, RefusalCode::UnknownRole);
}

#[test]
fn a_guest_without_credentials_is_a_stranger_and_gone_in_time() {
    let home = Home::new();
    let began = Instant::now();
    let mut raw = home.connect(3);
    raw.send(FrameKind::Hello, 0, &guest_hello(1).encode());
    assert!(raw.receive().is_none());
    let limit = Duration::from_secs(limits::STRANGER_SECONDS);
    assert!(began.elapsed() >= limit, "it had its time");
    assert!(home.service.sessions().is_empty());
}

/// A guest that has sent a hello is still a stranger.
#[test]
fn the_oldest_guest_without_credentials_makes_room() {
    let home = Home::new();
    let mut silent = Vec::new();
    for _ in 0..=limits::SOURCE_STRANGERS {
        let mut raw = home.connect(3);
        raw.send(FrameKind::Hello, 0, &guest_hello(1).encode());
        silent.push(raw);
    }
    assert_eq!(silent[0].receive_refused().code, RefusalCode::TooManyStrangers);
    home.guest(3, &guest_hello(2), b"grant 1").unwrap().raw.read();
}

#[test]
fn a_session_is_resumed_by_the_same_key_with_the_same_credential_alone() {
    let home = Home::new();
    let resume = |session: SessionId| Hello { resume: Some(session), ..guest_hello(1) };
    let mut first = home.guest(3, &guest_hello(1), b"grant 1").unwrap();
    first.raw.read();
    let id = first.welcome.session;
    let mut same = home.guest(3, &resume(id), b"grant 1").unwrap();
    assert!(same.welcome.resumed);
    assert_eq!(same.welcome.session, id);
    same.raw.read();
    let others: [(u8, &[u8], u8); 3] = [(3, b"grant 2", 1), (4, b"grant 1", 1), (3, b"grant 1", 9)];
    for (number, credential, nonce) in others {
        let hello = Hello { nonce: [nonce; 16], ..resume(id) };
        let other = home.guest(number, &hello, credential).unwrap();
        assert!(!other.welcome.resumed);
        assert_ne!(other.welcome.session, id);
    }
    let mut machine = home.connect(MACHINE);
    machine.send(FrameKind::Hello, 0, &Hello { role: Hello::CLIENT, ..resume(id) }.encode());
    assert!(!machine.receive_welcome().resumed, "a machine is no guest");
    same.raw.read();
}

/// A server checks the rights of its guests several times a second.
#[test]
fn a_guest_whose_credential_was_taken_back_is_told_so() {
    let home = Home::new();
    let mut guest = home.guest(3, &guest_hello(1), b"grant 1").unwrap();
    let mut other = home.guest(3, &guest_hello(2), b"grant 2").unwrap();
    guest.raw.read();
    home.service.revoked.lock().push([b'1'; 32]);
    assert_eq!(guest.raw.receive_closing().code, ClosingCode::NoAccess);
    other.raw.read();
    until("its session has ended", || home.service.sessions().len() == 1);
}

#[test]
fn a_credential_has_a_share_of_the_sessions_and_guests_another() {
    let home = Home::new();
    // Each has a key of its own, and is used.
    let begin = |number: usize, credential: u8| {
        let seed = u8::try_from(number % 60 + 10).unwrap();
        let nonce = u8::try_from(number / 60).unwrap();
        let credential = [b"grant ".as_slice(), &[credential]].concat();
        let mut guest = home.guest(seed, &guest_hello(nonce), &credential)?;
        guest.raw.read();
        Ok(())
    };
    for number in 0..limits::CREDENTIAL_SESSIONS {
        assert_eq!(begin(number, b'a'), Ok(()), "{number}");
    }
    assert_eq!(begin(100, b'a'), Err(RefusalCode::TooManyOfPeer));
    for number in limits::CREDENTIAL_SESSIONS..limits::GUEST_SESSIONS {
        let credential = u8::try_from(number / limits::CREDENTIAL_SESSIONS).unwrap();
        assert_eq!(begin(number, b'a' + credential), Ok(()), "{number}");
    }
    assert_eq!(home.server.status().len(), limits::GUEST_SESSIONS);
    assert_eq!(begin(600, b'z'), Err(RefusalCode::TooManySessions));
    // A machine has a place.
    let mut machine = home.connect(MACHINE);
    machine.send(FrameKind::Hello, 0, &hello(Hello::CLIENT, 3).encode());
    machine.receive_welcome();
    home.service.revoked.lock().push([b'a'; 32]);
    until("room for another", || begin(601, b'z').is_ok());
}
