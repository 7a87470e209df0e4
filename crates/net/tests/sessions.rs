//! Sessions over real sockets, with a service that needs no server: large payloads both ways, over
//! a Unix socket and over TLS.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_net::clients::ClientName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_wire::{
    Buffer, Bulk, Context, Done, Error, OpenId, Reply, Request, Served, Service, SessionId,
    SessionRecord, SessionService,
};

const PATIENCE: Duration = Duration::from_secs(30);

/// Answers a read with bytes that follow from offset and size, and a write with a sum of its bytes.
#[derive(Default)]
struct Echo {
    sessions: Mutex<HashSet<SessionId>>,
}

fn pattern(offset: u64, size: u32) -> Vec<u8> {
    (offset..offset + u64::from(size)).map(|at| ((at * 31) >> 3) as u8).collect()
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(*byte)))
}

impl Service for Echo {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        _later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        assert!(self.sessions.lock().contains(&context.session), "its session has begun");
        Some(Ok(match request {
            Request::Read { offset, size, .. } => Reply::Data(Buffer::new(pattern(offset, size))),
            Request::Write { .. } => {
                Reply::Written { bytes: bulk.bytes().len() as u64, size: sum(bulk.bytes()) }
            }
            _ => Reply::Done,
        }))
    }
}

impl SessionService for Echo {
    fn served(&self) -> Served {
        Served { volume: [7; 16], epoch: 3, read_only: false }
    }

    fn earlier_sessions(&self) -> Vec<(SessionId, SessionRecord)> {
        Vec::new()
    }

    fn is_starting(&self) -> bool {
        false
    }

    fn begin_session(&self, session: SessionId, _: SessionRecord) -> Result<(), Error> {
        self.sessions.lock().insert(session);
        Ok(())
    }

    fn reclaimed(&self, session: SessionId) {
        assert!(self.sessions.lock().contains(&session), "its session has begun");
    }

    fn end_session(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }

    fn progress(&self) -> (u64, u64) {
        (1, 1)
    }

    fn sequence_of(&self, _: SessionId, _: u64) -> u64 {
        0
    }

    fn when_safe(&self, then: Box<dyn FnOnce() + Send>) {
        then();
    }

    fn dir_attr(&self, _: pelago_wire::Handle) -> Option<pelago_wire::Attr> {
        None
    }
}

/// Sends many requests of all sizes at once, and checks every answer.
fn exchange(remote: &Remote) {
    const SIZES: [u32; 8] = [0, 1, 4096, 65_535, 65_536, 65_537, 300_001, 1 << 20];
    let (send, receive) = channel();
    let requests = 64;
    for number in 0..requests {
        let (size, offset) = (SIZES[number % SIZES.len()], number as u64 * 977);
        let open = OpenId(1);
        let (sent, wanted) = (pattern(offset, size), pattern(offset, size));
        let writes = number % 3 == 0;
        let (request, bulk) = match writes {
            true => (
                Request::Write { open, offset, append: false, kill_privileges: false },
                Bulk::Borrowed(&sent),
            ),
            false => (Request::Read { open, offset, size }, Bulk::None),
        };
        let send = send.clone();
        let mut later = || -> Done {
            let (send, wanted) = (send.clone(), wanted.clone());
            Box::new(move |result| {
                let is_right = match result {
                    Ok(Reply::Data(buffer)) => !writes && buffer.as_bytes() == wanted,
                    Ok(Reply::Written { bytes, size }) => {
                        writes && (bytes, size) == (wanted.len() as u64, sum(&wanted))
                    }
                    _ => false,
                };
                send.send(is_right).unwrap();
            })
        };
        assert!(remote.ask(&Context::direct(1, 2), request, bulk, &mut later).is_none());
    }
    for _ in 0..requests {
        assert_eq!(receive.recv_timeout(PATIENCE), Ok(true));
    }
    assert_eq!(remote.status().connections, 1, "no connection was lost");
}

fn own(folder: &Path, name: &str) -> OwnFile {
    OwnFile::of(&folder.join(name)).unwrap()
}

#[test]
fn payloads_of_all_sizes_cross_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let service = Arc::new(Echo::default());
    let server = SessionServer::start(Arc::clone(&service) as Arc<dyn SessionService>).unwrap();
    let socket = folder.path().join("socket");
    server.listen_unix(&socket).unwrap();
    let (target, give_up) = (ServerTarget::Unix(socket), None);
    let remote =
        Remote::connect(RemoteOptions { target, read_only: false, give_up }, PATIENCE).unwrap();
    exchange(&remote);
    drop(remote);
    let deadline = Instant::now() + PATIENCE;
    while !service.sessions.lock().is_empty() {
        assert!(Instant::now() < deadline, "a goodbye ends the session");
        std::thread::yield_now();
    }
    drop(server);
}

#[test]
fn payloads_of_all_sizes_cross_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (server_key, key) = (PrivateKey::generate().unwrap(), PrivateKey::generate().unwrap());
    edit(&own(folder.path(), "clients"), |clients| {
        clients.allow(key.public(), None::<ClientName>, Date::today())
    })
    .unwrap();
    let clients = Arc::new(ClientList::open(own(folder.path(), "clients")).unwrap());
    let server = SessionServer::start(Arc::new(Echo::default())).unwrap();
    let local = server.listen_tcp("127.0.0.1:0".parse().unwrap(), &server_key, clients).unwrap();
    let address = ServerAddress::new(server_key.public(), "127.0.0.1", local.port()).unwrap();
    let target = ServerTarget::Tcp { address, key: Arc::new(key) };
    let options = RemoteOptions { target, read_only: false, give_up: None };
    exchange(&Remote::connect(options, PATIENCE).unwrap());
}
