//! Reverse connections: the server that connects is asked over its connection.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pelago_net::clients::list::ClientList;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{Remote, ReverseConnections, ServerTarget, SessionServer, tls};
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Hello, RefusalCode};
use pelago_wire::{Bulk, Code, Error, OpenId, Reply, Request, SessionService};
use rustls::StreamOwned;

use crate::harness::{PATIENCE, Reads, WithSessions, until};
use crate::home::{ask, key, site_client};
use crate::raw::RawClient;

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/home.rs"]
mod home;
#[path = "harness/raw.rs"]
mod raw;

/// The numbers of the keys of the server that can be reached, and of the one that cannot.
const FIRST: u8 = 1;
const ROME: u8 = 2;

/// The number that the harness gives each site.
const SITE: u16 = 1;

/// A server that can be reached, and the reverse connections that have come.
struct First {
    server: SessionServer,
    connections: Arc<ReverseConnections>,
    come: Arc<AtomicUsize>,
    address: ServerAddress,
    _folder: tempfile::TempDir,
}

impl First {
    fn new() -> Self {
        Self::at(0)
    }

    fn at(port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = start();
        let come = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&come);
        let connections = Arc::new(ReverseConnections::new(Box::new(move |site| {
            assert_eq!(site, SITE);
            counted.fetch_add(1, Ordering::SeqCst);
        })));
        server.accept_reverse(Arc::clone(&connections));
        let file = OwnFile::of(&folder.path().join("clients")).unwrap();
        let clients = Arc::new(ClientList::open(file).unwrap());
        let at = format!("127.0.0.1:{port}").parse().unwrap();
        let port = server.listen_tcp(at, &key(FIRST), clients).unwrap().port();
        let address = ServerAddress::new(key(FIRST).public(), "127.0.0.1", port).unwrap();
        Self { server, connections, come, address, _folder: folder }
    }

    /// Returns the client of the other server.
    fn client(&self) -> Remote {
        self.client_with(PATIENCE)
    }

    /// The same, with a deadline of its requests.
    fn client_with(&self, give_up: Duration) -> Remote {
        let connections = Arc::clone(&self.connections);
        site_client(ServerTarget::Reverse { site: SITE, connections }, give_up)
    }
}

fn start() -> SessionServer {
    SessionServer::start(WithSessions::new(Reads) as Arc<dyn SessionService>).unwrap()
}

fn volume() -> [u8; 16] {
    WithSessions::new(Reads).served().volume
}

/// Reads by a client, and returns the result.
fn read(client: &Remote, number: u64) -> Result<Reply, Error> {
    let request = Request::Read { open: OpenId(1), offset: 0, size: 1 };
    ask(client, number, request, Bulk::None).recv_timeout(2 * PATIENCE).unwrap()
}

#[test]
fn a_server_that_cannot_be_reached_is_asked_over_its_own_connection() {
    let first = First::new();
    // The client is there before the connection is.
    let client = first.client();
    let rome = start();
    let service = rome.serve_at(first.address.clone(), 0, key(ROME)).unwrap();
    for number in 1..100 {
        assert!(matches!(read(&client, number), Ok(Reply::Data(_))));
    }
    // One for the session, and one for its bulk.
    until("both have come", || first.come.load(Ordering::SeqCst) == 2);
    assert_eq!(rome.status().len(), 1);
    // It has begun no session at the other end.
    assert!(first.server.status().is_empty());
    drop(service);
}

#[test]
fn a_lost_connection_is_made_again_and_its_session_goes_on() {
    let first = First::new();
    let client = first.client();
    let rome = start();
    let _service = rome.serve_at(first.address.clone(), 0, key(ROME)).unwrap();
    assert!(read(&client, 1).is_ok());
    let session = rome.status()[0].id;
    let port = first.address.port();
    // The server at the other end starts again: its client asks by another one of its sessions.
    drop(client);
    drop(first);
    let again = First::at(port);
    let client = again.client();
    assert!(read(&client, 2).is_ok());
    until("the session of the earlier client has ended", || {
        rome.status().iter().all(|status| status.id != session)
    });
}

#[test]
fn a_service_that_ended_connects_no_more() {
    let first = First::new();
    let rome = start();
    let service = rome.serve_at(first.address.clone(), 0, key(ROME)).unwrap();
    until("it has connected", || first.come.load(Ordering::SeqCst) == 2);
    drop(service);
    drop(rome);
    // What waits was closed by the other end: a client that takes it finds no server, and waits for
    // another connection until its deadline.
    let client = first.client_with(Duration::from_secs(2));
    assert_eq!(read(&client, 1).unwrap_err().code, Code::TimedOut);
    assert_eq!(first.come.load(Ordering::SeqCst), 2, "none came in that time");
}

/// A stranger, a wrong volume, a wrong site: nothing waits for a client afterwards.
#[test]
fn only_a_site_of_the_volume_serves() {
    let first = First::new();
    let good = Hello { role: Hello::REVERSE, volume: Some(volume()), ..Hello::new([1; 16]) };
    for (hello, code) in [
        (Hello { volume: Some([9; 16]), ..good }, RefusalCode::NotServed),
        (Hello { site: 3, ..good }, RefusalCode::NotServed),
        (Hello { wire_min: 900, wire_max: 999, ..good }, RefusalCode::OtherVersion),
    ] {
        let config = tls::client_config(&key(ROME), key(FIRST).public()).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", first.address.port())).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let stream = StreamOwned::new(tls::client_connection(config).unwrap(), socket);
        let mut raw = RawClient::new(stream);
        raw.send(FrameKind::Hello, 0, &hello.encode());
        assert_eq!(raw.receive_refused().code, code);
    }
    assert_eq!(first.come.load(Ordering::SeqCst), 0);
}

/// A server that does not ask other sites refuses the role.
#[test]
fn a_server_without_sites_takes_none() {
    let folder = tempfile::tempdir().unwrap();
    let server = start();
    let file = OwnFile::of(&folder.path().join("clients")).unwrap();
    let clients = Arc::new(ClientList::open(file).unwrap());
    let at = "127.0.0.1:0".parse().unwrap();
    let port = server.listen_tcp(at, &key(FIRST), clients).unwrap().port();
    let config = tls::client_config(&key(ROME), key(FIRST).public()).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let stream = StreamOwned::new(tls::client_connection(config).unwrap(), socket);
    let mut raw = RawClient::new(stream);
    let hello = Hello { role: Hello::REVERSE, volume: Some(volume()), ..Hello::new([1; 16]) };
    raw.send(FrameKind::Hello, 0, &hello.encode());
    assert_eq!(raw.receive_refused().code, RefusalCode::UnknownRole);
}

/// The end that has connected is asked by sites alone, and hears no garbage.
#[test]
fn the_other_end_cannot_be_a_client() {
    let rome = start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = ServerAddress::new(key(FIRST).public(), "127.0.0.1", port).unwrap();
    let _service = rome.serve_at(address, 0, key(ROME)).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = tls::server_config(&key(FIRST)).unwrap();
    let stream = StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), socket);
    let mut raw = RawClient::new(stream);
    let (header, body) = raw.receive().unwrap();
    assert_eq!(header.kind, FrameKind::Hello);
    assert_eq!(Hello::decode(&body).unwrap().role, Hello::REVERSE);
    raw.send(FrameKind::Hello, 0, &Hello::new([3; 16]).encode());
    assert_eq!(raw.receive_refused().code, RefusalCode::UnknownRole);
    assert!(raw.receive().is_none());
    assert!(rome.status().is_empty());
}
