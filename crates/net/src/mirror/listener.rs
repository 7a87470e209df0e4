//! A port to which primaries connect, with a thread for each connection: that of the mirrors, or of
//! a relay.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_wire::limits;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::frames::{Frames, Socket, Wait};
use crate::log_limit::LogLimit;
use crate::tls;

/// The pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A server whose connections have threads of their own.
pub(super) trait Serve: Send + Sync + 'static {
    /// Serves a connection until it ends.
    fn serve(&self, frames: Frames<ServerConnection>);
}

/// A port. It is stopped by [`Listener::stop`].
pub(super) struct Listener {
    socket: Arc<TcpListener>,
    address: SocketAddr,
    connections: Arc<Connections>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

struct Connections {
    config: Arc<ServerConfig>,
    /// The name of the threads.
    name: &'static str,
    /// A leaf lock.
    open: Mutex<Vec<OpenConnection>>,
    has_ended: AtomicBool,
    log: LogLimit,
}

/// A connection, and the thread that has it.
struct OpenConnection {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

impl Listener {
    /// Has the connections of a port served. `name` is that of their threads.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start(
        socket: TcpListener,
        config: Arc<ServerConfig>,
        name: &'static str,
        server: &Arc<impl Serve>,
    ) -> io::Result<Self> {
        let socket = Arc::new(socket);
        let address = socket.local_addr()?;
        let open = Mutex::default();
        let has_ended = AtomicBool::new(false);
        let log = LogLimit::new();
        let connections = Arc::new(Connections { config, name, open, has_ended, log });
        let accepting = Arc::clone(&socket);
        let with = Arc::clone(&connections);
        let server = Arc::clone(server);
        let accept = move || with.accept(&accepting, &server);
        let acceptor = thread::Builder::new().name(format!("{name}-accept")).spawn(accept)?;
        Ok(Self { socket, address, connections, acceptor: Mutex::new(Some(acceptor)) })
    }

    /// Returns the address, with the port that was chosen for port 0.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, calls `between`, and waits for their threads.
    pub(super) fn stop(&self, between: impl FnOnce()) {
        self.connections.has_ended.store(true, Ordering::Release);
        // The thread that waits for a connection gets an error.
        let woken = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
        if let Err(error) = woken {
            tracing::debug!(%error, "a port for primaries was closed before");
        }
        let acceptor = self.acceptor.lock().take();
        let open = std::mem::take(&mut *self.connections.open.lock());
        for connection in &open {
            // It may have ended.
            let _closed = connection.stream.shutdown(Shutdown::Both);
        }
        between();
        let threads = acceptor.into_iter().chain(open.into_iter().map(|open| open.thread));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!(name = self.connections.name, "a thread has panicked");
            }
        }
    }
}

impl Connections {
    fn accept(self: &Arc<Self>, socket: &TcpListener, server: &Arc<impl Serve>) {
        loop {
            let accepted = socket.accept();
            if self.has_ended.load(Ordering::Acquire) {
                return;
            }
            let begun = accepted.and_then(|(stream, _)| self.begin(stream, server));
            if let Err(error) = begun {
                if let Some(left_out) = self.log.admit() {
                    tracing::error!(%error, left_out, "a connection of a primary was not taken");
                }
                // No descriptor or thread is free, and no event says when one is.
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }

    /// Starts the thread of a connection, unless there are too many.
    fn begin(self: &Arc<Self>, stream: TcpStream, server: &Arc<impl Serve>) -> io::Result<()> {
        let mut open = self.open.lock();
        open.retain(|connection| !connection.thread.is_finished());
        if open.len() >= limits::MIRRORS {
            return Err(io::Error::other("there are too many connections"));
        }
        let with = Arc::clone(self);
        let server = Arc::clone(server);
        let own = stream.try_clone()?;
        let serve = move || match with.frames(own) {
            Ok(frames) => server.serve(frames),
            Err(error) => {
                if let Some(left_out) = with.log.admit() {
                    tracing::error!(%error, left_out, "a connection of a primary has no TLS");
                }
            }
        };
        let thread = thread::Builder::new().name(self.name.to_owned()).spawn(serve)?;
        if self.has_ended.load(Ordering::Acquire) {
            // `stop` has closed the connections that it has found, and this one is not among them.
            stream.shutdown(Shutdown::Both)?;
        }
        open.push(OpenConnection { stream, thread });
        Ok(())
    }

    /// Returns the frames of a connection, which a stranger must begin in time.
    fn frames(&self, stream: TcpStream) -> io::Result<Frames<ServerConnection>> {
        let deadline = Instant::now() + Duration::from_secs(limits::STRANGER_SECONDS);
        let tls = tls::server_connection(Arc::clone(&self.config)).map_err(io::Error::other)?;
        let socket = Socket::new(stream, Wait::Until(deadline))?;
        Ok(Frames::new(StreamOwned::new(tls, socket)))
    }
}
