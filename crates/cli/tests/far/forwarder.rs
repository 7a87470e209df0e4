//! A network between a client and a server that is slow and ends connections at random.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pelago_random::Random;
use rustix::net::sockopt::set_socket_linger;

/// Forwards connections from a port of its own. Its threads end with their connections, and that of
/// the port with the test.
pub(crate) struct Forwarder {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    /// Connections are cut.
    is_rough: AtomicBool,
    /// Bytes that a client has sent before a cut arrive after its next connection was made.
    is_late: AtomicBool,
    /// The most bytes that one direction of a connection carries before it is cut.
    most_bytes: AtomicU64,
    /// There is no network.
    is_cut: AtomicBool,
    cuts: AtomicUsize,
    /// Connections whose client had another one when the server got the rest of what it said.
    late: AtomicUsize,
    /// Connections that were accepted, and what the newest has carried.
    accepted: AtomicUsize,
    carried: AtomicU64,
    /// The number of bytes that clients have sent, over all connections.
    recorded: Mutex<Vec<u8>>,
}

/// One direction of a connection.
struct Way {
    from: Arc<TcpStream>,
    to: Arc<TcpStream>,
    /// The number of the connection, from 1.
    number: usize,
    is_to_server: bool,
    /// The client's end is closed, and what it said is on its way.
    is_half: Arc<AtomicBool>,
}

impl Forwarder {
    /// Returns one to this `HOST:PORT`.
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            is_rough: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            most_bytes: AtomicU64::new(60_000),
            cuts: AtomicUsize::new(0),
            late: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            carried: AtomicU64::new(0),
            recorded: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let server = server.to_owned();
        let accept = move || {
            for client in listener.incoming().flatten() {
                // The server is gone at the end of a test.
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let number = shared.accepted.fetch_add(1, Ordering::Relaxed) + 1;
                shared.carried.store(0, Ordering::Relaxed);
                let client = Arc::new(client);
                let server = Arc::new(server);
                let is_half = Arc::default();
                for is_to_server in [true, false] {
                    let (from, to) = match is_to_server {
                        true => (Arc::clone(&client), Arc::clone(&server)),
                        false => (Arc::clone(&server), Arc::clone(&client)),
                    };
                    let way = Way { from, to, number, is_to_server, is_half: Arc::clone(&is_half) };
                    let state = Arc::clone(&shared);
                    thread::Builder::new().spawn(move || way.forward(&state)).unwrap();
                }
            }
        };
        thread::Builder::new().spawn(accept).unwrap();
        Self { port, state }
    }

    /// Cuts connections from now on, or not any more.
    pub(crate) fn be_rough(&self, is_rough: bool) {
        self.state.is_rough.store(is_rough, Ordering::Relaxed);
    }

    /// Delivers what a client said before a cut after it has connected again.
    pub(crate) fn be_late(&self) {
        self.state.is_late.store(true, Ordering::Relaxed);
    }

    /// Cuts a connection within so many bytes of one direction.
    pub(crate) fn cut_within(&self, bytes: u64) {
        self.state.most_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Swallows all bytes and cuts their connections from now on, or not any more.
    pub(crate) fn cut(&self, is_cut: bool) {
        self.state.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Returns what clients have sent.
    pub(crate) fn recorded(&self) -> Vec<u8> {
        self.state.recorded.lock().unwrap().clone()
    }

    /// Returns how many connections were cut.
    pub(crate) fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::Relaxed)
    }

    /// Returns how many connections said something after their client had another one.
    pub(crate) fn late(&self) -> usize {
        self.state.late.load(Ordering::Relaxed)
    }
}

impl Way {
    /// Forwards in pieces of random size and after random delays, until the connection ends or is
    /// cut.
    fn forward(self, state: &State) {
        let mut rng = Random::new((2 * self.number + usize::from(self.is_to_server)) as u64);
        let mut left = rng.below(state.most_bytes.load(Ordering::Relaxed));
        let mut buffer = vec![0; 16 << 10];
        loop {
            let limit = 1 + rng.below(buffer.len() as u64 - 1) as usize;
            let Ok(count @ 1..) = (&*self.from).read(&mut buffer[..limit]) else { break };
            if self.is_half.load(Ordering::Relaxed) {
                // Nothing goes to the client any more.
                continue;
            }
            if rng.below(8) == 0 {
                // The delay of a slow network, not a wait for a condition.
                thread::sleep(Duration::from_micros(rng.below(3000)));
            }
            if state.is_cut.load(Ordering::Relaxed) {
                break;
            }
            let is_cut = state.is_rough.load(Ordering::Relaxed) && left <= count as u64;
            let sent = if is_cut { left as usize } else { count };
            left = left.saturating_sub(count as u64);
            if self.is_to_server {
                state.recorded.lock().unwrap().extend(&buffer[..sent]);
            }
            if (&*self.to).write_all(&buffer[..sent]).is_err() {
                if self.is_half.load(Ordering::Relaxed) {
                    continue;
                }
                break;
            }
            state.carried.fetch_add(sent as u64, Ordering::Relaxed);
            if is_cut {
                state.cuts.fetch_add(1, Ordering::Relaxed);
                if self.is_to_server && state.is_late.load(Ordering::Relaxed) {
                    self.deliver_late(&buffer[sent..count], &mut rng, state);
                } else if rng.below(2) == 0 {
                    return self.reset();
                }
                break;
            }
        }
        for end in [&self.from, &self.to] {
            let _closed = end.shutdown(Shutdown::Both);
        }
    }

    /// Ends the connection of the client, and gives the server the rest of what it said once the
    /// client has another connection, which may have carried something already.
    fn deliver_late(&self, rest: &[u8], rng: &mut Random, state: &State) {
        self.is_half.store(true, Ordering::Relaxed);
        let _closed = self.from.shutdown(Shutdown::Write);
        let mut rest = rest.to_vec();
        let mut more = [0; 16 << 10];
        let _waits = self.from.set_read_timeout(Some(Duration::from_millis(5)));
        while let Ok(count @ 1..) = (&*self.from).read(&mut more) {
            rest.extend(&more[..count]);
        }
        let _closed = self.from.shutdown(Shutdown::Both);
        // Of the handshakes about 2000 bytes.
        let carried = rng.below(6000);
        let has_another = || state.accepted.load(Ordering::Relaxed) > self.number;
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline
            && (!has_another() || state.carried.load(Ordering::Relaxed) < carried)
        {
            thread::sleep(Duration::from_micros(200));
        }
        let is_late = !rest.is_empty() && has_another();
        if (&*self.to).write_all(&rest).is_ok() && is_late {
            state.late.fetch_add(1, Ordering::Relaxed);
        }
        // Only the clock: nothing reports that the server has read the bytes before the end of the
        // connection, which comes next.
        thread::sleep(Duration::from_millis(2));
    }

    /// Ends the connection at both ends at once, with what is on its way: once neither direction
    /// has a reference any more, the sockets are closed without lingering.
    fn reset(self) {
        for end in [&self.from, &self.to] {
            let _set = set_socket_linger(&**end, Some(Duration::ZERO));
            let _woken = end.shutdown(Shutdown::Read);
        }
    }
}
