//! Sessions over real sockets: large payloads both ways, over a Unix socket and over TLS.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{Remote, ServerTarget, SessionServer};
use pelago_wire::{
    Buffer, Bulk, Context, Done, Error, OpenId, Reply, Request, Service, WriteFlags,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::harness::{PATIENCE, WithSessions, connect, connect_to, until};

#[path = "harness/all.rs"]
mod harness;

/// Answers a read with bytes that depend on offset and size, and a write with a sum of its bytes.
struct Echo;

fn pattern(offset: u64, size: u32) -> Vec<u8> {
    (offset..offset + u64::from(size)).map(|at| ((at * 31) >> 3) as u8).collect()
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| sum.wrapping_mul(131).wrapping_add(u64::from(*byte)))
}

impl Service for Echo {
    fn ask(
        &self,
        _: &Context,
        request: Request,
        bulk: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(Ok(match request {
            Request::Read { offset, size, .. } => Reply::Data(Buffer::new(pattern(offset, size))),
            Request::Write { .. } => {
                Reply::Written { bytes: bulk.bytes().len() as u64, size: sum(bulk.bytes()) }
            }
            _ => Reply::Done,
        }))
    }
}

/// Sends many requests of all sizes at once, and checks every answer.
fn exchange(remote: &Remote) {
    const SIZES: [u32; 8] = [0, 1, 4096, 65_535, 65_536, 65_537, 300_001, 1 << 20];
    let (send, receive) = channel();
    let requests = 64;
    for number in 0..requests {
        let size = SIZES[number % SIZES.len()];
        let offset = number as u64 * 977;
        let open = OpenId(1);
        let sent = pattern(offset, size);
        let wanted = pattern(offset, size);
        let writes = number % 3 == 0;
        let (request, bulk) = match writes {
            true => {
                (Request::Write { open, offset, flags: WriteFlags::NONE }, Bulk::Borrowed(&sent))
            }
            false => (Request::Read { open, offset, size }, Bulk::None),
        };
        let send = send.clone();
        let mut later = || -> Done {
            let send = send.clone();
            let wanted = wanted.clone();
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
    let service = WithSessions::new(Echo);
    let socket = folder.path().join("socket");
    let _server = service.serve(&socket);
    let remote = connect(&socket);
    exchange(&remote);
    drop(remote);
    until("a goodbye ends the session", || service.sessions().is_empty());
}

/// A network may lose the last frame of a client whose socket is closed right after it.
#[test]
fn a_session_that_has_ended_is_known_to_have_ended() {
    let folder = tempfile::tempdir().unwrap();
    let service = WithSessions::new(Echo);
    let socket = folder.path().join("socket");
    let relayed = folder.path().join("relayed");
    let no_term = Duration::from_secs(100 * 60);
    let server = SessionServer::start_with(Arc::clone(&service) as _, no_term).unwrap();
    server.listen_unix(&socket).unwrap();
    relay_while_open(&relayed, &socket);
    let remote = connect(&relayed);
    assert_eq!(service.sessions().len(), 1);
    remote.end();
    until("a goodbye ends the session", || service.sessions().is_empty());
}

/// Forwards one connection to the server. Bytes of the client are forwarded slowly, and dropped
/// once its end is closed.
fn relay_while_open(relayed: &Path, socket: &Path) {
    let listener = UnixListener::bind(relayed).unwrap();
    let socket = socket.to_path_buf();
    let carry = move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = UnixStream::connect(socket).unwrap();
        let mut from = server.try_clone().unwrap();
        let mut to = client.try_clone().unwrap();
        let back = move || {
            let _ended = std::io::copy(&mut from, &mut to);
            let _closed = to.shutdown(Shutdown::Both);
        };
        thread::Builder::new().spawn(back).unwrap();
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            let mut ready = [PollFd::new(&client, PollFlags::RDHUP)];
            let a_moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            if poll(&mut ready, Some(&a_moment)).unwrap() > 0 {
                break;
            }
            server.write_all(&bytes[..count]).unwrap();
        }
        // The server's end stays open: the server does not see the loss.
        thread::park();
    };
    thread::Builder::new().spawn(carry).unwrap();
}

#[test]
fn payloads_of_all_sizes_cross_tls() {
    let folder = tempfile::tempdir().unwrap();
    let server_key = PrivateKey::generate().unwrap();
    let key = PrivateKey::generate().unwrap();
    edit(&own(folder.path(), "clients"), |clients| {
        clients.allow(key.public(), None::<KeyName>, Date::today())
    })
    .unwrap();
    let clients = Arc::new(ClientList::open(own(folder.path(), "clients")).unwrap());
    let server = SessionServer::start(WithSessions::new(Echo)).unwrap();
    let local = server.listen_tcp("127.0.0.1:0".parse().unwrap(), &server_key, clients).unwrap();
    let address = ServerAddress::new(server_key.public(), "127.0.0.1", local.port()).unwrap();
    let target = ServerTarget::Tcp { address, key: Arc::new(key) };
    exchange(&connect_to(target, None));
}
