//! A forwarder between a primary and its mirror: TCP as it is, and UDP with losses, delays, other
//! orders and duplicates by a seeded generator.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The treatment of datagrams by the forwarder. It may be changed at any time.
#[derive(Default)]
pub(crate) struct Path {
    /// Datagrams of a million that are lost, in both directions.
    pub(crate) lost: AtomicU32,
    /// Datagrams that a loss takes, of those of one direction.
    pub(crate) run: AtomicU32,
    /// The next datagrams to the mirror that are lost.
    pub(crate) burst: AtomicU32,
    /// Of a million, those that arrive twice.
    pub(crate) twice: AtomicU32,
    /// Of a million, those of which a copy with another bit comes first.
    pub(crate) forged: AtomicU32,
    /// The time of each datagram in one direction, in microseconds.
    pub(crate) delay: AtomicU64,
    /// The most time that a datagram is late besides that, so that others pass it.
    pub(crate) jitter: AtomicU64,
    /// The bytes of the longest datagram that is not lost; 0 without a limit.
    pub(crate) longest: AtomicU32,
    /// All datagrams are lost.
    pub(crate) is_blocked: AtomicBool,
    /// Datagrams to the mirror that came.
    pub(crate) came: AtomicU64,
}

/// A forwarder, which works until the process ends.
pub(crate) struct Forwarder {
    pub(crate) port: u16,
    pub(crate) path: Arc<Path>,
}

/// Datagrams under way, by the time at which they arrive.
#[derive(Default)]
struct Queue {
    datagrams: Mutex<BTreeMap<(Instant, u64), Held>>,
    changed: Condvar,
}

struct Held {
    bytes: Vec<u8>,
    socket: Arc<UdpSocket>,
    to: SocketAddr,
}

/// A seeded generator (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn is_one_of(&mut self, million: u32) -> bool {
        million > 0 && (self.next() >> 32) % 1_000_000 < million.into()
    }
}

/// One direction of the path.
struct Direction {
    path: Arc<Path>,
    queue: Arc<Queue>,
    random: Random,
    count: u64,
    run: u32,
}

impl Direction {
    fn new(path: &Arc<Path>, seed: u64) -> Self {
        let queue = Arc::new(Queue::default());
        let with = Arc::clone(&queue);
        start("forward-late", move || deliver(&with));
        Self { path: Arc::clone(path), queue, random: Random(seed | 1), count: 0, run: 0 }
    }

    /// Forwards a datagram, or does what the path says.
    fn forward(&mut self, bytes: &[u8], socket: &Arc<UdpSocket>, to: SocketAddr, is_there: bool) {
        let path = Arc::clone(&self.path);
        let load = |number: &AtomicU32| number.load(Ordering::Relaxed);
        if is_there {
            path.came.fetch_add(1, Ordering::Relaxed);
            let one_less = |left: u32| left.checked_sub(1);
            let order = Ordering::Relaxed;
            if path.burst.fetch_update(order, order, one_less).is_ok() {
                return;
            }
        }
        let longest = load(&path.longest) as usize;
        if longest > 0 && bytes.len() > longest {
            return;
        }
        if self.random.is_one_of(load(&path.lost)) {
            self.run = load(&path.run).max(1);
        }
        if path.is_blocked.load(Ordering::Relaxed) || self.run > 0 {
            self.run = self.run.saturating_sub(1);
            return;
        }
        if self.random.is_one_of(load(&path.forged)) {
            let mut forged = bytes.to_vec();
            let at = self.random.next() as usize % forged.len().max(1);
            if let Some(byte) = forged.get_mut(at) {
                *byte ^= 1 << (self.random.next() % 8);
            }
            self.send(forged, socket, to);
        }
        if self.random.is_one_of(load(&path.twice)) {
            self.send(bytes.to_vec(), socket, to);
        }
        self.send(bytes.to_vec(), socket, to);
    }

    fn send(&mut self, bytes: Vec<u8>, socket: &Arc<UdpSocket>, to: SocketAddr) {
        let delay = self.path.delay.load(Ordering::Relaxed);
        let jitter = self.path.jitter.load(Ordering::Relaxed);
        if delay + jitter == 0 {
            let _lost_if_it_fails = socket.send_to(&bytes, to);
            return;
        }
        let late = if jitter > 0 { self.random.next() % jitter } else { 0 };
        let at = Instant::now() + Duration::from_micros(delay + late);
        self.count += 1;
        let held = Held { bytes, socket: Arc::clone(socket), to };
        self.queue.datagrams.lock().insert((at, self.count), held);
        self.queue.changed.notify_one();
    }
}

impl Forwarder {
    /// Starts a forwarder to a port of this machine.
    pub(crate) fn start(target: u16, seed: u64) -> Self {
        let (tcp, udp) = sockets();
        let port = tcp.local_addr().unwrap().port();
        let path = Arc::new(Path::default());
        start("forward-tcp", move || {
            for stream in tcp.incoming() {
                forward_tcp(stream.unwrap(), target);
            }
        });
        let with = Arc::clone(&path);
        start("forward-udp", move || forward_udp(Arc::new(udp), target, &with, seed));
        Self { port, path }
    }
}

/// Returns two sockets of the same port.
fn sockets() -> (TcpListener, UdpSocket) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            return (tcp, udp);
        }
    }
}

fn forward_tcp(client: TcpStream, target: u16) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else { return };
    for (mut from, mut to) in [
        (client.try_clone().unwrap(), server.try_clone().unwrap()),
        (server.try_clone().unwrap(), client.try_clone().unwrap()),
    ] {
        to.set_nodelay(true).unwrap();
        start("forward-bytes", move || {
            let _until_the_end = io::copy(&mut from, &mut to);
            let _closed = to.shutdown(Shutdown::Both);
            let _closed = from.shutdown(Shutdown::Both);
        });
    }
}

fn forward_udp(here: Arc<UdpSocket>, target: u16, path: &Arc<Path>, seed: u64) {
    let mut there = Direction::new(path, seed);
    let back = Arc::new(Mutex::new(Direction::new(path, seed ^ 0xABCD_EF01)));
    let mut clients = HashMap::new();
    let mut buffer = [0; 2048];
    loop {
        let Ok((length, client)) = here.recv_from(&mut buffer) else { continue };
        let socket = clients.entry(client).or_insert_with(|| {
            let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
            let from = Arc::clone(&socket);
            let here = Arc::clone(&here);
            let back = Arc::clone(&back);
            start("forward-back", move || {
                let mut buffer = [0; 2048];
                loop {
                    let Ok((length, _)) = from.recv_from(&mut buffer) else { continue };
                    back.lock().forward(&buffer[..length], &here, client, false);
                }
            });
            socket
        });
        let to = SocketAddr::from(([127, 0, 0, 1], target));
        there.forward(&buffer[..length], socket, to, true);
    }
}

/// Sends what is late.
fn deliver(queue: &Queue) {
    let mut datagrams = queue.datagrams.lock();
    loop {
        let now = Instant::now();
        match datagrams.first_key_value().map(|(key, _)| key.0) {
            None => queue.changed.wait(&mut datagrams),
            Some(at) if at > now => {
                queue.changed.wait_until(&mut datagrams, at);
            }
            Some(_) => {
                let Some((_, held)) = datagrams.pop_first() else { continue };
                let _lost_if_it_fails = held.socket.send_to(&held.bytes, held.to);
            }
        }
    }
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.to_owned()).spawn(run).unwrap();
}
