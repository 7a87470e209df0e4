use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicUsize;

use pelago_wire::frame::{FrameKind, Header};

use super::cipher::MOST_BYTES;
use super::*;
use crate::key::{KEY_BYTES, PrivateKey};
use crate::tls;

/// Bytes of the body of a request for attributes.
const REQUEST: usize = 46;
/// Bytes of the head of a record of TLS: its kind, its version, and the length of the rest.
const RECORD_HEAD: usize = 5;

/// Bytes that a connection may have in memory for what arrives, if that is little.
const LITTLE: usize = 4 << 10;

/// Counts how often a connection is to be read again.
#[derive(Default)]
struct Resumed(AtomicUsize);

impl Resume for Resumed {
    fn resume(&self, _: Token) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection of a client and a server over TLS, of which each byte passes through the test.
struct Tapped {
    links: [Link; 2],
    /// The other ends of their sockets.
    ends: [UnixStream; 2],
}

impl Tapped {
    fn new() -> Self {
        let [client, server] = [1, 2].map(|seed| PrivateKey::from_seed([seed; KEY_BYTES]));
        let config = tls::client_config(&client, server.public()).unwrap();
        let client = rustls::Connection::Client(tls::client_connection(config).unwrap());
        let config = tls::server_config(&server).unwrap();
        let server = rustls::Connection::Server(tls::server_connection(config).unwrap());
        let [(client, end), (server, other_end)] = [client, server].map(|tls| {
            let (socket, end) = UnixStream::pair().unwrap();
            for socket in [&socket, &end] {
                socket.set_nonblocking(true).unwrap();
            }
            let stream = Stream::Unix(mio::net::UnixStream::from_std(socket));
            (Link::new(stream, Some(Box::new(tls)), Arc::new(Resumed::default()), Token(1)), end)
        });
        Self { links: [client, server], ends: [end, other_end] }
    }

    /// Returns a connection whose handshake is over.
    fn joined() -> Self {
        let mut tapped = Self::new();
        for link in &tapped.links {
            link.flush();
        }
        for _ in 0..3 {
            for to in [1, 0] {
                tapped.carry(to);
                assert_eq!(tapped.read(to), 0);
            }
        }
        let is_handshaking = |link: &Link| link.with_tls(|tls| tls.is_handshaking());
        assert_eq!(tapped.links.each_ref().map(is_handshaking), [Some(false); 2]);
        tapped
    }

    /// Carries what was sent to one end. Returns the lengths of the records.
    fn carry(&mut self, to: usize) -> Vec<usize> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = self.ends[1 - to].read(&mut buffer) {
            bytes.extend(&buffer[..count]);
        }
        self.ends[to].write_all(&bytes).unwrap();
        let mut left = &bytes[..];
        let mut lengths = Vec::new();
        while let [_, _, _, high, low, ..] = left {
            let length = RECORD_HEAD + usize::from(*high) * 256 + usize::from(*low);
            lengths.push(length);
            left = &left[length..];
        }
        lengths
    }

    /// Reads what has arrived at one end. Returns the count of bytes.
    fn read(&self, at: usize) -> usize {
        let mut total = 0;
        let mut into = vec![0; 64 << 10];
        while let Ok(count @ 1..) = self.links[at].read(&mut into) {
            total += count;
        }
        total
    }

    fn capacities(&self) -> [usize; 2] {
        self.links.each_ref().map(|link| link.out.lock().cipher.capacity())
    }
}

fn send(link: &Link, bytes: usize) {
    let length = u32::try_from(bytes).unwrap();
    let head = Header { number: 1, ..Header::new(FrameKind::Request, length, 0) }.encode();
    link.send([Bytes::Header(head), Bytes::Owned(vec![7; bytes])]);
}

/// A stranger connects and sends nothing. The first event at its socket is that it is writable.
#[test]
fn a_silent_connection_has_no_memory_for_what_arrives() {
    let tapped = Tapped::new();
    for at in [0, 1] {
        assert_eq!(tapped.read(at), 0);
    }
    assert_eq!(tapped.capacities(), [0, 0]);
}

#[test]
fn a_connection_that_is_silent_after_its_handshake_has_little_memory() {
    let tapped = Tapped::joined();
    for capacity in tapped.capacities() {
        assert!(capacity <= LITTLE, "{capacity} bytes");
    }
}

#[test]
fn small_requests_are_read_with_little_memory_and_large_ones_with_much() {
    let mut tapped = Tapped::joined();
    let mut into = vec![0; 64 << 10];
    for _ in 0..100 {
        send(&tapped.links[0], REQUEST);
        tapped.carry(1);
        assert_eq!(tapped.links[1].read(&mut into).unwrap(), HEADER_BYTES + REQUEST);
        assert!(tapped.capacities()[1] <= LITTLE);
    }
    send(&tapped.links[0], into.len() - HEADER_BYTES);
    tapped.carry(1);
    assert_eq!(tapped.links[1].read(&mut into).unwrap(), into.len());
    assert_eq!(tapped.capacities()[1], MOST_BYTES);
}

/// Each record costs its head, its tag and a call of the cipher.
#[test]
fn a_round_trip_over_tls_is_one_record_each_way() {
    let mut tapped = Tapped::joined();
    for _ in 0..10 {
        for to in [1, 0] {
            send(&tapped.links[1 - to], REQUEST);
            let records = tapped.carry(to);
            assert!(matches!(records[..], [length] if length < 128), "{records:?}");
            assert_eq!(tapped.read(to), HEADER_BYTES + REQUEST);
        }
    }
}

/// Its peer takes nothing of what it asked for, and goes away: that must be noticed.
#[test]
fn a_connection_that_has_ended_is_read_whatever_it_was_to_send() {
    let (socket, _peer) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let stream = Stream::Unix(mio::net::UnixStream::from_std(socket));
    let resumed = Arc::new(Resumed::default());
    let link = Link::new(stream, None, Arc::clone(&resumed) as Arc<dyn Resume>, Token(1));
    send(&link, 2 * limits::SESSION_BYTES);
    assert!(link.must_pause());
    link.close();
    assert_eq!(resumed.0.load(Ordering::Relaxed), 1);
    assert!(!link.must_pause());
    assert!(matches!(link.read(&mut [0]), Ok(0)));
}
