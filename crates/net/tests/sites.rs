//! Connections of servers of other sites.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use pelago_net::SessionServer;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::own_file::OwnFile;
use pelago_net::tls;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Hello, Welcome};
use pelago_wire::present::Present;
use pelago_wire::{SessionId, SessionService};
use rustls::{ClientConnection, StreamOwned};

use crate::harness::{PATIENCE, Reads, WithSessions};
use crate::raw::RawClient;

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/raw.rs"]
mod raw;

/// A server of the founding site.
struct Home {
    service: Arc<WithSessions<Reads>>,
    _server: SessionServer,
    port: u16,
    _folder: tempfile::TempDir,
}

/// A run of another site's server, with a session at home.
struct Run {
    raw: RawClient<StreamOwned<ClientConnection, TcpStream>>,
    welcome: Welcome,
}

/// The number of the key of the server at home.
const SERVER: u8 = 1;
/// Longer than a test takes.
const TERM: Duration = Duration::from_secs(600);

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

impl Home {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let service = WithSessions::new(Reads);
        let sessions = Arc::clone(&service) as Arc<dyn SessionService>;
        let server = SessionServer::start_with(sessions, TERM).unwrap();
        let file = OwnFile::of(&folder.path().join("clients")).unwrap();
        let clients = Arc::new(ClientList::open(file).unwrap());
        let address = "127.0.0.1:0".parse().unwrap();
        let port = server.listen_tcp(address, &key(SERVER), clients).unwrap().port();
        Self { service, _server: server, port, _folder: folder }
    }

    /// Begins a session of the site whose server has this key, or resumes one.
    fn run(&self, number: u8, hello: &Hello) -> Run {
        let config = tls::client_config(&key(number), key(SERVER).public()).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let stream = StreamOwned::new(tls::client_connection(config).unwrap(), socket);
        let mut raw = RawClient::new(stream);
        raw.send(FrameKind::Hello, 0, &hello.encode());
        raw.send(FrameKind::Present, 0, &Present::default().encode().unwrap());
        let welcome = raw.receive_welcome();
        Run { raw, welcome }
    }

    /// Returns the sessions, the oldest first.
    fn sessions(&self) -> Vec<SessionId> {
        let mut sessions = self.service.sessions();
        sessions.sort_unstable();
        sessions
    }
}

fn hello(nonce: u8) -> Hello {
    Hello { role: Hello::SITE, ..Hello::new([nonce; 16]) }
}

#[test]
fn a_site_that_starts_again_ends_its_earlier_session() {
    let home = Home::new();
    let mut first = home.run(2, &hello(1));
    first.raw.read();
    let mut other = home.run(3, &hello(2));
    other.raw.read();
    let mut second = home.run(2, &hello(3));
    second.raw.read();
    // By then the earlier one has ended: no request of the new one waits for its leases.
    assert_eq!(home.sessions(), [other.welcome.session, second.welcome.session]);
    assert!(first.raw.receive().is_none());
    other.raw.read();
    // A connection that was lost is no new start.
    let again = Hello { resume: Some(second.welcome.session), ..hello(3) };
    let mut again = home.run(2, &again);
    again.raw.read();
    assert!(again.welcome.resumed);
    assert_eq!(home.sessions(), [other.welcome.session, second.welcome.session]);
}

/// Its first bytes may be read late, when the next run works already.
#[test]
fn a_run_that_says_nothing_after_its_hello_ends_no_session() {
    let home = Home::new();
    let mut first = home.run(2, &hello(1));
    first.raw.read();
    let silent = home.run(2, &hello(2));
    first.raw.read();
    assert_eq!(home.sessions(), [first.welcome.session, silent.welcome.session]);
}

#[test]
fn a_late_frame_of_an_earlier_run_does_not_end_the_session_of_the_next_one() {
    let home = Home::new();
    let mut first = home.run(2, &hello(1));
    let mut second = home.run(2, &hello(2));
    first.raw.read();
    second.raw.read();
    assert_eq!(home.sessions(), [second.welcome.session]);
}
