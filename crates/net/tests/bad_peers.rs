//! Peers that take more than their share, or break the protocol: other clients keep their places,
//! and a client takes no wrong answer for a right one.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{Remote, ServerTarget, SessionServer};
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Hello, RefusalCode, Refused};
use pelago_wire::{
    Buffer, Bulk, Code, Context, Done, Error, OpenId, Reply, Request, Service, limits,
};

use crate::harness::{PATIENCE, WithSessions, connect, connect_to, until};
use crate::raw::RawClient;

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/raw.rs"]
mod raw;

/// Answers each read with one byte, or with a reply that does not fit it.
#[derive(Default)]
struct Reads {
    byte: u8,
    is_wrong: AtomicBool,
    asked: AtomicUsize,
}

impl Reads {
    /// Returns the service of a volume, which answers its number.
    fn of_volume(number: u8) -> Arc<WithSessions<Self>> {
        WithSessions::of_volume(number, Self { byte: number, ..Self::default() })
    }
}

impl Service for Reads {
    fn ask(
        &self,
        _: &Context,
        _: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Some(Ok(match self.is_wrong.load(Ordering::SeqCst) {
            true => Reply::Done,
            false => Reply::Data(Buffer::new(vec![self.byte])),
        }))
    }
}

const READ: Request = Request::Read { open: OpenId(1), offset: 0, size: 1 };

fn ask(remote: &Remote) -> Receiver<Result<Reply, Error>> {
    let (send, receive) = channel();
    let mut later = || -> Done {
        let send = send.clone();
        Box::new(move |result| send.send(result).unwrap())
    };
    assert!(remote.ask(&Context::direct(1, 2), READ, Bulk::None, &mut later).is_none());
    receive
}

/// Returns the byte that a read gets, or its error.
fn read(remote: &Remote) -> Result<u8, Code> {
    match ask(remote).recv_timeout(PATIENCE).unwrap() {
        Ok(Reply::Data(buffer)) => Ok(buffer.as_bytes()[0]),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.code),
    }
}

type UnixClient = RawClient<UnixStream>;

/// Connects, and sends a hello with a nonce that no other client has. Returns the code of a
/// refusal.
fn greet(socket: &Path) -> Result<UnixClient, RefusalCode> {
    static NONCES: AtomicUsize = AtomicUsize::new(1);
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&NONCES.fetch_add(1, Ordering::SeqCst).to_le_bytes());
    let hello = Hello::new(nonce);
    let mut raw = RawClient::connect(socket);
    raw.send(FrameKind::Hello, 0, &hello.encode());
    let (header, body) = raw.receive().unwrap();
    match header.kind {
        FrameKind::Welcome => Ok(raw),
        _ => Err(Refused::decode(&body).unwrap().code),
    }
}

/// A server with a socket, and the folder that has it.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn serve(&self, service: &Arc<WithSessions<Reads>>) -> SessionServer {
        service.serve(&self.socket())
    }

    fn connect(&self) -> Remote {
        connect(&self.socket())
    }

    /// Listens on a port for the machine with this key.
    fn listen(
        &self,
        server: &SessionServer,
        port: u16,
        key: &PrivateKey,
        machine: &PrivateKey,
    ) -> u16 {
        let file = || OwnFile::of(&self.folder.path().join("clients")).unwrap();
        edit(&file(), |clients| clients.allow(machine.public(), None::<KeyName>, Date::today()))
            .unwrap();
        let clients = Arc::new(ClientList::open(file()).unwrap());
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        server.listen_tcp(address, key, clients).unwrap().port()
    }
}

fn connect_tls(key: &PrivateKey, port: u16, machine: &Arc<PrivateKey>) -> Remote {
    let address = ServerAddress::new(key.public(), "127.0.0.1", port).unwrap();
    connect_to(ServerTarget::Tcp { address, key: Arc::clone(machine) }, None)
}

#[test]
fn a_peer_has_a_share_of_the_sessions_and_no_more() {
    let home = Home::new();
    let service = Reads::of_volume(1);
    let server = home.serve(&service);
    let mut sessions: Vec<UnixClient> =
        (0..limits::PEER_SESSIONS).map(|_| greet(&home.socket()).ok().unwrap()).collect();
    sessions.iter_mut().for_each(RawClient::read);
    let refusal = || greet(&home.socket()).err();
    assert_eq!(refusal(), Some(RefusalCode::TooManyOfPeer));
    // A session that was used outlives its connection: its client may rely on its locks.
    drop(sessions.pop());
    until("a session without a connection", || server.status().iter().any(|s| !s.connected));
    assert_eq!(refusal(), Some(RefusalCode::TooManyOfPeer));
    // Another peer has a share of its own.
    let key = PrivateKey::from_seed([1; 32]);
    let machine = PrivateKey::from_seed([2; 32]);
    let machine = Arc::new(machine);
    let port = home.listen(&server, 0, &key, &machine);
    assert_eq!(read(&connect_tls(&key, port, &machine)), Ok(1));
    // A session that ends makes room.
    sessions[0].send(FrameKind::Goodbye, 0, &[]);
    until("room for another", || greet(&home.socket()).is_ok());
}

#[test]
fn a_client_that_says_hello_and_leaves_takes_no_place() {
    let home = Home::new();
    let service = Reads::of_volume(1);
    let server = home.serve(&service);
    let good = home.connect();
    assert_eq!(read(&good), Ok(1));
    for _ in 0..5 * limits::PEER_SESSIONS {
        until("a session", || greet(&home.socket()).is_ok());
        assert!(server.status().len() <= limits::PEER_SESSIONS);
    }
    assert_eq!(service.sessions().len(), server.status().len(), "the service knows each end");
    assert_eq!(read(&good), Ok(1));
    assert_eq!(good.status().connections, 1);
    assert_eq!(read(&home.connect()), Ok(1), "the same user has a place for another mount");
}

#[test]
fn the_oldest_silent_connection_makes_room_for_a_new_one() {
    let home = Home::new();
    let service = Reads::of_volume(1);
    let _server = home.serve(&service);
    let mut silent: Vec<UnixClient> =
        (0..=limits::SOURCE_STRANGERS).map(|_| RawClient::connect(&home.socket())).collect();
    assert_eq!(silent[0].receive_refused().code, RefusalCode::TooManyStrangers);
    for number in 0..500 {
        silent.push(RawClient::connect(&home.socket()));
        if number % 50 == 0 {
            assert!(greet(&home.socket()).is_ok(), "a new client is served");
        }
    }
    assert_eq!(read(&home.connect()), Ok(1));
}

#[test]
fn another_volume_behind_the_address_gets_no_request() {
    let home = Home::new();
    let server = home.serve(&Reads::of_volume(1));
    let remote = home.connect();
    assert_eq!(read(&remote), Ok(1));
    drop(server);
    let waits = ask(&remote);
    let other = Reads::of_volume(2);
    let server = home.serve(&other);
    assert_eq!(waits.recv_timeout(PATIENCE).unwrap().unwrap_err().code, Code::AccessDenied);
    assert_eq!(read(&remote), Err(Code::AccessDenied));
    assert_eq!(other.service.asked.load(Ordering::SeqCst), 0);
    until("no session is left there", || other.sessions().is_empty());
    drop(server);
    let _server = home.serve(&Reads::of_volume(1));
    until("the volume is back", || read(&remote) == Ok(1));
}

#[test]
fn an_answer_that_fits_no_such_request_is_an_error_and_ends_the_connection() {
    let home = Home::new();
    let service = Reads::of_volume(1);
    let _server = home.serve(&service);
    let remote = home.connect();
    assert_eq!(read(&remote), Ok(1));
    service.service.is_wrong.store(true, Ordering::SeqCst);
    assert_eq!(read(&remote), Err(Code::Io));
    service.service.is_wrong.store(false, Ordering::SeqCst);
    assert_eq!(read(&remote), Ok(1));
    assert_eq!(remote.status().connections, 2);
}

#[test]
fn another_key_behind_the_address_fails_requests_until_the_right_one_is_back() {
    let home = Home::new();
    let [key, other, machine] = [1, 2, 3].map(|seed| Arc::new(PrivateKey::from_seed([seed; 32])));
    let server = home.serve(&Reads::of_volume(1));
    let port = home.listen(&server, 0, &key, &machine);
    let remote = connect_tls(&key, port, &machine);
    assert_eq!(read(&remote), Ok(1));
    drop(server);
    let waits = ask(&remote);
    let server = home.serve(&Reads::of_volume(1));
    home.listen(&server, port, &other, &machine);
    assert_eq!(waits.recv_timeout(PATIENCE).unwrap().unwrap_err().code, Code::AccessDenied);
    assert_eq!(read(&remote), Err(Code::AccessDenied));
    drop(server);
    let server = home.serve(&Reads::of_volume(1));
    home.listen(&server, port, &key, &machine);
    until("the right server is back", || read(&remote) == Ok(1));
}
