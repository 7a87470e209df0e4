use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};

use pelago_wire::frame::{FrameKind, Header};

use super::*;
use crate::key::{KEY_BYTES, PrivateKey};
use crate::link::Bytes;
use crate::tls;

/// Bytes of a request for attributes, and of its answer.
const REQUEST: usize = 46;
const ANSWER: usize = 110;
/// Round trips of one kind before the next kind has its turn.
const BLOCK: usize = 100;
/// How much longer a round trip over TLS may take than one over TCP. The goal on a quiet machine is
/// a third of it.
const MORE: Duration = Duration::from_micros(300);

/// Answers each frame.
struct Echo;

/// Tells that a frame has arrived.
struct Told(Sender<()>);

const LIMITS: FrameLimits = FrameLimits { body: 1 << 16, bulk: 0 };

impl Handler for Echo {
    fn limits(&self) -> FrameLimits {
        LIMITS
    }

    fn frame(&mut self, link: &Arc<Link>, _frame: Frame) -> ControlFlow<()> {
        send(link, FrameKind::Reply, ANSWER);
        ControlFlow::Continue(())
    }

    fn tick(&mut self, _link: &Arc<Link>, _now: Instant) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn closed(&mut self, _link: &Arc<Link>, _why: Option<&ReadError>) {}
}

impl Handler for Told {
    fn limits(&self) -> FrameLimits {
        LIMITS
    }

    fn frame(&mut self, _link: &Arc<Link>, frame: Frame) -> ControlFlow<()> {
        assert_eq!(frame.body.len(), ANSWER);
        self.0.send(()).unwrap();
        ControlFlow::Continue(())
    }

    fn tick(&mut self, _link: &Arc<Link>, _now: Instant) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn closed(&mut self, _link: &Arc<Link>, _why: Option<&ReadError>) {}
}

fn send(link: &Link, kind: FrameKind, bytes: usize) {
    let length = u32::try_from(bytes).unwrap();
    let head = Header { number: 1, ..Header::new(kind, length, 0) }.encode();
    link.send([Bytes::Header(head), Bytes::Owned(vec![7; bytes])]);
}

/// A connection of two reactors, and the times of its round trips.
struct Wire {
    name: &'static str,
    link: Arc<Link>,
    answers: Receiver<()>,
    nanos: Vec<u128>,
}

impl Wire {
    fn new(
        name: &'static str,
        [client, server]: [Stream; 2],
        tls: Option<[rustls::Connection; 2]>,
        [own, other]: [&Reactor; 2],
    ) -> Self {
        let [of_client, of_server] = match tls {
            Some(both) => both.map(|one| Some(Box::new(one))),
            None => [None, None],
        };
        let (told, answers) = channel();
        other.mailbox.add(server, of_server, |_| Box::new(Echo));
        let link = own.mailbox.add(client, of_client, |_| Box::new(Told(told)));
        Self { name, link, answers, nanos: Vec::new() }
    }

    fn round_trip(&mut self) {
        let start = Instant::now();
        send(&self.link, FrameKind::Request, REQUEST);
        self.answers.recv_timeout(Duration::from_secs(60)).unwrap();
        self.nanos.push(start.elapsed().as_nanos());
    }

    fn median(&mut self) -> Duration {
        self.nanos.sort_unstable();
        Duration::from_nanos(u64::try_from(self.nanos[self.nanos.len() / 2]).unwrap())
    }
}

fn tcp() -> [Stream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    [client, server].map(|stream| {
        stream.set_nonblocking(true).unwrap();
        Stream::tcp(mio::net::TcpStream::from_std(stream))
    })
}

fn both_ends_of_tls() -> [rustls::Connection; 2] {
    let [client, server] = [1, 2].map(|seed| PrivateKey::from_seed([seed; KEY_BYTES]));
    let config = tls::client_config(&client, server.public()).unwrap();
    let client = rustls::Connection::Client(tls::client_connection(config).unwrap());
    let config = tls::server_config(&server).unwrap();
    [client, rustls::Connection::Server(tls::server_connection(config).unwrap())]
}

/// `PELAGO_ROUND_TRIPS` says how many of each kind are measured.
#[test]
fn a_round_trip_over_tls_takes_little_longer_than_over_tcp() {
    let wanted = std::env::var("PELAGO_ROUND_TRIPS").ok().and_then(|count| count.parse().ok());
    let blocks = wanted.unwrap_or(1000_usize).div_ceil(BLOCK);
    let reactors = ["client", "server"].map(|name| Reactor::start(name).unwrap());
    let both = reactors.each_ref();
    let (one, other) = mio::net::UnixStream::pair().unwrap();
    let mut wires = [
        Wire::new("Unix", [one, other].map(Stream::Unix), None, both),
        Wire::new("TCP", tcp(), None, both),
        Wire::new("TLS", tcp(), Some(both_ends_of_tls()), both),
    ];
    wires.iter_mut().for_each(Wire::round_trip);
    wires.iter_mut().for_each(|wire| wire.nanos.clear());
    for _ in 0..blocks {
        for wire in &mut wires {
            (0..BLOCK).for_each(|_| wire.round_trip());
        }
    }
    let medians = wires.each_mut().map(|wire| (wire.name, wire.median()));
    println!("medians of {} round trips each: {medians:?}", blocks * BLOCK);
    let [_, (_, tcp), (_, tls)] = medians;
    assert!(tls < tcp + MORE, "TLS takes {tls:?}, TCP {tcp:?}");
}
