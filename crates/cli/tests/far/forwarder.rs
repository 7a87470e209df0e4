//! A network between a client and a server that is slow and ends connections at random.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use pelago_random::Random;

/// Forwards connections from a port of its own. Its threads end with their connections, and that of
/// the port with the test.
pub(crate) struct Forwarder {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Connections are cut.
    is_rough: AtomicBool,
    cuts: AtomicUsize,
    /// What clients have sent, over all connections.
    recorded: Mutex<Vec<u8>>,
}

/// The most bytes that one direction of a connection carries before it is cut.
const MOST_BYTES: u64 = 60_000;

impl Forwarder {
    /// Returns one to this `HOST:PORT`.
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let (shared, server) = (Arc::clone(&state), server.to_owned());
        let accept = move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                // The server is gone at the end of a test.
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let ends = [client, server].map(Arc::new);
                for (direction, [from, to]) in
                    [[&ends[0], &ends[1]], [&ends[1], &ends[0]]].into_iter().enumerate()
                {
                    let (from, to, state) = (Arc::clone(from), Arc::clone(to), Arc::clone(&shared));
                    let rng = Random::new((2 * number + direction) as u64);
                    let record = direction == 0;
                    let forward = move || forward((&from, &to), record, rng, &state);
                    thread::Builder::new().spawn(forward).unwrap();
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

    /// Returns what clients have sent.
    pub(crate) fn recorded(&self) -> Vec<u8> {
        self.state.recorded.lock().unwrap().clone()
    }

    /// Returns how many connections were cut.
    pub(crate) fn cuts(&self) -> usize {
        self.state.cuts.load(Ordering::Relaxed)
    }
}

/// Forwards one direction, in pieces of random size and after random delays, until the connection
/// ends or is cut.
fn forward(
    (mut from, mut to): (&TcpStream, &TcpStream),
    record: bool,
    mut rng: Random,
    state: &State,
) {
    let mut left = rng.below(MOST_BYTES);
    let mut buffer = vec![0; 16 << 10];
    loop {
        let limit = 1 + rng.below(buffer.len() as u64 - 1) as usize;
        let Ok(count @ 1..) = from.read(&mut buffer[..limit]) else { break };
        if rng.below(8) == 0 {
            thread::sleep(Duration::from_micros(rng.below(3000)));
        }
        let is_cut = state.is_rough.load(Ordering::Relaxed) && left <= count as u64;
        let count = if is_cut { left as usize } else { count };
        left = left.saturating_sub(count as u64);
        if record {
            state.recorded.lock().unwrap().extend(&buffer[..count]);
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
        if is_cut {
            state.cuts.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    for end in [from, to] {
        let _closed = end.shutdown(Shutdown::Both);
    }
}
