//! The connection for bulk of a site's server: large replies and requests go over it, and a recall
//! does not wait for them.

#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_net::{ReverseConnections, ServerTarget};
use pelago_wire::codec::encode_call;
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{Hello, RefusalCode, Welcome};
use pelago_wire::{
    Buffer, Bulk, Context, Done, Error, InodeId, OpenId, Recalled, Reply, Request, Service,
    SessionId, Touched, WriteFlags, limits,
};

use crate::harness::{PATIENCE, until};
use crate::home::{Raw, ask, key, site_client};

#[path = "harness/all.rs"]
mod harness;
#[path = "harness/home.rs"]
mod home;
#[path = "harness/raw.rs"]
mod raw;

/// The numbers of the keys of a site's server, and of another one.
const SITE: u8 = 2;
const OTHER: u8 = 3;
const LARGE: usize = limits::BULK_CONNECTION_BYTES;

/// Answers each read with as many bytes as it wants, and counts bytes that are written.
#[derive(Default)]
struct Files {
    written: AtomicUsize,
}

impl Service for Files {
    fn ask(
        &self,
        _: &Context,
        request: Request,
        bulk: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        match request {
            Request::Read { size, .. } => {
                Some(Ok(Reply::Data(Buffer::new(vec![7; size as usize]))))
            }
            _ => {
                let bytes = bulk.bytes().len();
                self.written.fetch_add(bytes, Ordering::SeqCst);
                Some(Ok(Reply::Written { bytes: bytes as u64, size: bytes as u64 }))
            }
        }
    }
}

type Home = home::Home<Files>;

/// Begins the session of the site's server.
fn begin(home: &Home) -> (Raw, SessionId) {
    let (raw, welcome) = home.begin(SITE, &hello());
    (raw, welcome.session)
}

/// Connects for bulk beside this session.
fn begin_bulk(home: &Home, session: SessionId) -> (Raw, Welcome) {
    let mut raw = home.connect(SITE, &bulk_hello(session));
    let welcome = raw.receive_welcome();
    (raw, welcome)
}

fn hello() -> Hello {
    Hello { role: Hello::SITE, ..Hello::new([1; 16]) }
}

fn bulk_hello(session: SessionId) -> Hello {
    Hello { role: Hello::BULK, resume: Some(session), ..Hello::new([1; 16]) }
}

fn body(mutation: u64, request: &Request) -> Vec<u8> {
    let mut body = Vec::new();
    encode_call(0, 0, mutation, request, &mut body).unwrap();
    body
}

fn read(raw: &mut Raw, number: u64, size: usize) {
    let size = u32::try_from(size).unwrap();
    let read = Request::Read { open: OpenId(1), offset: 0, size };
    raw.send(FrameKind::Request, number, &body(0, &read));
}

/// Sends a write, whose number is that of its mutation, too.
fn write(raw: &mut Raw, number: u64, bytes: &[u8]) {
    let flags = WriteFlags::default();
    let write = Request::Write { open: OpenId(1), offset: 0, flags };
    let body = body(number, &write);
    let [body_bytes, bulk_bytes] = [body.len(), bytes.len()].map(|it| u32::try_from(it).unwrap());
    let header = Header::new(FrameKind::Request, body_bytes, 0);
    let header = Header { number, bulk: bulk_bytes, ..header };
    raw.send_bytes(&[&header.encode()[..], &body, bytes].concat());
}

/// Receives the reply to a request, and returns the bytes of its bulk.
fn reply(raw: &mut Raw, number: u64) -> usize {
    let (header, _) = raw.receive().unwrap();
    assert_eq!((header.kind, header.number), (FrameKind::Reply, number));
    header.bulk as usize
}

#[test]
fn large_replies_go_over_the_connection_for_bulk_and_all_others_do_not() {
    let home = Home::new(Files::default());
    let (mut main, session) = begin(&home);
    read(&mut main, 1, LARGE);
    assert_eq!(reply(&mut main, 1), LARGE, "there is no other connection yet");
    let (mut bulk, welcome) = begin_bulk(&home, session);
    assert_eq!((welcome.session, welcome.resumed), (session, true));
    read(&mut main, 2, LARGE);
    read(&mut main, 3, LARGE - 1);
    assert_eq!(reply(&mut bulk, 2), LARGE);
    assert_eq!(reply(&mut main, 3), LARGE - 1);
}

/// The connection for bulk is not read. Without it the recall would be the last of all.
#[test]
fn a_recall_does_not_wait_for_bulk() {
    let home = Home::new(Files::default());
    let (mut main, session) = begin(&home);
    let (mut bulk, _) = begin_bulk(&home, session);
    // More than both sockets hold.
    let many = 8;
    (1..=many).for_each(|number| read(&mut main, number, limits::IO_BYTES));
    read(&mut main, many + 1, 1);
    assert_eq!(reply(&mut main, many + 1), 1);
    let root = Touched::Node(InodeId::ROOT);
    let connections = home.service.store.connections();
    connections.recall(session, 5, &Recalled::Things(vec![root]));
    let (header, _) = main.receive().unwrap();
    assert_eq!((header.kind, header.number), (FrameKind::Recall, 5));
    main.send(FrameKind::Recalled, 5, &[]);
    (1..=many).for_each(|number| assert_eq!(reply(&mut bulk, number), limits::IO_BYTES));
}

#[test]
fn requests_may_come_over_both_connections_in_any_order() {
    let home = Home::new(Files::default());
    let (mut main, session) = begin(&home);
    let (mut bulk, _) = begin_bulk(&home, session);
    write(&mut main, 2, &[1]);
    assert_eq!(reply(&mut main, 2), 0);
    write(&mut bulk, 1, &[1; LARGE]);
    assert_eq!(reply(&mut main, 1), 0);
    assert_eq!(home.service.service.written.load(Ordering::SeqCst), LARGE + 1);
}

/// Replies may be lost with one of them: the client has to repeat its requests.
#[test]
fn both_connections_end_together() {
    let home = Home::new(Files::default());
    let (mut main, session) = begin(&home);
    let (bulk, _) = begin_bulk(&home, session);
    drop(bulk);
    assert!(main.receive().is_none());
    let again = Hello { resume: Some(session), ..hello() };
    let (main, welcome) = home.begin(SITE, &again);
    assert!(welcome.resumed);
    let (mut bulk, _) = begin_bulk(&home, session);
    drop(main);
    assert!(bulk.receive().is_none());
    // A session without its connection gets none for bulk.
    until("the loss is seen", || home.server.status().iter().all(|it| !it.connected));
    let refused = home.connect(SITE, &bulk_hello(session)).receive_refused();
    assert_eq!(refused.code, RefusalCode::UnknownSession);
}

/// The client has lost the first one, and replies with it.
#[test]
fn a_second_connection_for_bulk_ends_all() {
    let home = Home::new(Files::default());
    let (mut main, session) = begin(&home);
    let (mut bulk, _) = begin_bulk(&home, session);
    let refused = home.connect(SITE, &bulk_hello(session)).receive_refused();
    assert_eq!(refused.code, RefusalCode::UnknownSession);
    assert!(main.receive().is_none() && bulk.receive().is_none());
}

/// Its caller was killed while it was on its way: the cancel is faster, and its answer is
/// acknowledged before the write comes.
#[test]
fn a_write_that_comes_after_the_answer_to_its_cancel_is_dropped() {
    let home = Home::new(Files::default());
    let (mut main, session) = begin(&home);
    let (mut bulk, _) = begin_bulk(&home, session);
    main.send(FrameKind::Cancel, 1, &1_u64.to_le_bytes());
    assert_eq!(reply(&mut main, 1), 0);
    let acknowledged = Header { number: 2, ..Header::new(FrameKind::Ping, 0, 1) };
    main.send_bytes(&acknowledged.encode());
    assert_eq!(main.receive().unwrap().0.kind, FrameKind::Pong);
    write(&mut bulk, 1, &[1; LARGE]);
    bulk.send(FrameKind::Ping, 0, &[]);
    assert_eq!(bulk.receive().unwrap().0.kind, FrameKind::Pong);
    assert_eq!(home.service.service.written.load(Ordering::SeqCst), 0);
    read(&mut main, 3, 1);
    assert_eq!(reply(&mut main, 3), 1, "the session goes on");
}

#[test]
fn only_the_process_of_a_session_connects_for_its_bulk() {
    let home = Home::new(Files::default());
    let (mut main, session) = begin(&home);
    let good = bulk_hello(session);
    let unknown = SessionId(session.0 + 1);
    for (number, hello, code) in [
        (OTHER, good, RefusalCode::UnknownSession),
        (SITE, Hello { nonce: [2; 16], ..good }, RefusalCode::UnknownSession),
        (SITE, Hello { resume: Some(unknown), ..good }, RefusalCode::UnknownSession),
        (SITE, Hello { resume: None, ..good }, RefusalCode::UnknownSession),
        (SITE, Hello { site: 3, ..good }, RefusalCode::NotServed),
        (SITE, Hello { wire_min: 900, wire_max: 999, ..good }, RefusalCode::OtherVersion),
    ] {
        assert_eq!(home.connect(number, &hello).receive_refused().code, code, "{hello:?}");
    }
    read(&mut main, 1, LARGE);
    assert_eq!(reply(&mut main, 1), LARGE);
}

/// The bytes that a server has sent and received over each of its connections are not told, so that
/// the test counts the connections: a session alone has one.
fn connections_of(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let at = format!(":{port:04X}");
    let is_its = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        // 01 is ESTABLISHED.
        words.next().is_some_and(|local| local.ends_with(&at)) && words.nth(1) == Some("01")
    };
    table.lines().filter(is_its).count()
}

#[test]
fn a_client_connects_for_bulk_and_again_after_a_loss() {
    let home = Home::new(Files::default());
    let port = home.address.port();
    let target = ServerTarget::Tcp { address: home.address.clone(), key: Arc::new(key(SITE)) };
    let client = site_client(target, PATIENCE);
    for turn in 1..=3 {
        until("both connections", || connections_of(port) == 2);
        let size = u32::try_from(limits::IO_BYTES).unwrap();
        let read = Request::Read { open: OpenId(1), offset: 0, size };
        let answer = ask(&client, 2 * turn, read, Bulk::None);
        let Reply::Data(data) = answer.recv_timeout(PATIENCE).unwrap().unwrap() else { panic!() };
        assert_eq!(data.as_bytes().len(), limits::IO_BYTES);
        let flags = WriteFlags::default();
        let write = Request::Write { open: OpenId(1), offset: 0, flags };
        let answer = ask(&client, 2 * turn + 1, write, Bulk::Borrowed(&[1; LARGE]));
        assert!(matches!(answer.recv_timeout(PATIENCE).unwrap(), Ok(Reply::Written { .. })));
        home.service.store.connections().suspend();
        home.service.store.connections().resume();
    }
    assert_eq!(home.service.service.written.load(Ordering::SeqCst), 3 * LARGE);
    assert_eq!(home.server.status().len(), 1, "it is one session");
}

/// Otherwise its leases would hold others up for a term.
#[test]
fn a_session_with_both_connections_ends_with_its_client() {
    let home = Home::new(Files::default());
    for _ in 0..20 {
        let target = ServerTarget::Tcp { address: home.address.clone(), key: Arc::new(key(SITE)) };
        let client = site_client(target, PATIENCE);
        until("both connections", || {
            client.status().connected && connections_of(home.address.port()) == 2
        });
        client.end();
        until("the server knows", || home.server.status().is_empty());
        drop(client);
        until("none", || connections_of(home.address.port()) == 0);
    }
}

/// The server that cannot be reached connects twice, and is asked over both connections.
#[test]
fn a_server_behind_nat_makes_both_connections() {
    let first = Home::new(Files::default());
    let connections = Arc::new(ReverseConnections::new(Box::new(|_| ())));
    first.server.accept_reverse(Arc::clone(&connections));
    let client = site_client(ServerTarget::Reverse { site: 1, connections }, PATIENCE);
    let rome = Home::new(Files::default());
    let service = rome.server.serve_at(first.address.clone(), 0, key(SITE)).unwrap();
    until("a session", || rome.server.status().iter().any(|it| it.connected));
    let port = first.address.port();
    until("both connections", || connections_of(port) == 2);
    let size = u32::try_from(limits::IO_BYTES).unwrap();
    for number in 1..=20 {
        let read = Request::Read { open: OpenId(1), offset: 0, size };
        let answer = ask(&client, number, read, Bulk::None);
        assert!(matches!(answer.recv_timeout(PATIENCE).unwrap(), Ok(Reply::Data(_))));
    }
    assert_eq!(rome.server.status().len(), 1);
    drop(service);
}
