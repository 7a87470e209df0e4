//! A cable to a server: a port that forwards connections, and that can be cut, stopped for a while,
//! and led to another server.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The time between two checks whether a cable that was stopped carries bytes again.
const POLL: Duration = Duration::from_millis(5);

/// A port of this machine from which connections are forwarded to another one. Its threads end with
/// their connections, and the one that takes them with the process.
pub(super) struct Cable {
    pub(super) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    to: Arc<AtomicU16>,
    is_stopped: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Cable {
    /// Lays a cable to the port that `to` has when a connection is made.
    pub(super) fn lay(to: &Arc<AtomicU16>) -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|why| format!("no port: {why}"))?;
        let port = listener.local_addr().map_err(|why| format!("no port: {why}"))?.port();
        let is_stopped = AtomicBool::new(false);
        let shared = Arc::new(Shared { to: Arc::clone(to), is_stopped, streams: Mutex::default() });
        let own = Arc::clone(&shared);
        let accept = move || {
            for client in listener.incoming().flatten() {
                own.forward(client);
            }
        };
        let spawned = thread::Builder::new().name("cable".to_owned()).spawn(accept);
        spawned.map_err(|why| format!("no thread: {why}"))?;
        Ok(Self { port, shared })
    }

    /// Ends all connections.
    pub(super) fn cut(&self) {
        let mut streams = self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.drain(..) {
            // It may have ended already.
            let _ended = stream.shutdown(Shutdown::Both);
        }
    }

    /// Carries nothing from now on, or goes on.
    pub(super) fn set_stopped(&self, is_stopped: bool) {
        self.shared.is_stopped.store(is_stopped, Ordering::Relaxed);
    }
}

impl Shared {
    /// Forwards a connection, by threads of its own. A failure ends the connection.
    fn forward(self: &Arc<Self>, client: TcpStream) {
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.to.load(Ordering::Relaxed))) else {
            return;
        };
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { return };
            let shared = Arc::clone(self);
            let copy = move || shared.copy(from, to);
            let _is_started = thread::Builder::new().name("carry".to_owned()).spawn(copy);
        }
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.extend([client, server]);
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            while self.is_stopped.load(Ordering::Relaxed) {
                thread::sleep(POLL);
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The other end learns of it; it may be gone.
        let _ended = to.shutdown(Shutdown::Both);
    }
}
