//! A relay of TCP between a download and its server: it counts, holds, and changes bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A relay. Its threads end with their connections, and with the test's process.
pub(crate) struct Relay {
    pub(crate) address: String,
    state: Arc<State>,
}

struct State {
    server: String,
    /// Bytes that have gone to clients, all connections together.
    passed: AtomicU64,
    /// No more of them pass.
    most: AtomicU64,
    /// One byte in so many is changed; 0 for none.
    flip_each: AtomicU64,
    /// The byte of this number is changed.
    flip_at: AtomicU64,
}

impl Relay {
    pub(crate) fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(State {
            server: server.to_owned(),
            passed: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
            flip_each: AtomicU64::new(0),
            flip_at: AtomicU64::new(u64::MAX),
        });
        let of_thread = Arc::clone(&state);
        let accept = move || {
            for client in listener.incoming() {
                let state = Arc::clone(&of_thread);
                named(move || serve(client.unwrap(), &state));
            }
        };
        named(accept);
        Self { address, state }
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// Holds what comes behind so many bytes, all connections together.
    pub(crate) fn hold_at(&self, bytes: u64) {
        self.state.most.store(bytes, Ordering::SeqCst);
    }

    pub(crate) fn let_pass(&self) {
        self.hold_at(u64::MAX);
    }

    pub(crate) fn passed(&self) -> u64 {
        self.state.passed.load(Ordering::SeqCst)
    }

    pub(crate) fn flip_at(&self, byte: u64) {
        self.state.flip_at.store(byte, Ordering::SeqCst);
    }

    pub(crate) fn flip_each(&self, bytes: u64) {
        self.state.flip_each.store(bytes, Ordering::SeqCst);
    }
}

fn named(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name("relay".to_owned()).spawn(work).unwrap();
}

fn serve(client: TcpStream, state: &Arc<State>) {
    // Without a server the client's connection just ends.
    let Ok(server) = TcpStream::connect(&state.server) else { return };
    let mut from_client = client.try_clone().unwrap();
    let mut to_server = server.try_clone().unwrap();
    named(move || {
        let _ended = std::io::copy(&mut from_client, &mut to_server);
    });
    let _ended = down(server.try_clone().unwrap(), client.try_clone().unwrap(), state);
    let _closed = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
}

fn down(mut server: TcpStream, mut client: TcpStream, state: &State) -> std::io::Result<()> {
    let mut buffer = [0; 16 << 10];
    loop {
        let count = server.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        let mut left = &mut buffer[..count];
        while !left.is_empty() {
            let passed = state.passed.load(Ordering::SeqCst);
            let most = state.most.load(Ordering::SeqCst).saturating_sub(passed);
            let may = usize::try_from(most).unwrap().min(left.len());
            if may == 0 {
                // The pause between two looks at the limit, which a test raises.
                thread::sleep(Duration::from_millis(2));
                continue;
            }
            let (now, later) = left.split_at_mut(may);
            let each = state.flip_each.load(Ordering::SeqCst);
            for (byte, at) in now.iter_mut().zip(passed..) {
                let is_meant = each != 0 && at % each == each - 1;
                if is_meant || at == state.flip_at.load(Ordering::SeqCst) {
                    *byte ^= 0x20;
                }
            }
            client.write_all(now)?;
            state.passed.fetch_add(may as u64, Ordering::SeqCst);
            left = later;
        }
    }
}
