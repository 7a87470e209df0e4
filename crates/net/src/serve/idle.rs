//! A Unix socket whose server is started by the first client: until then it costs a thread that
//! sleeps.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pelago_wire::SessionService;
use rustix::net::{Shutdown, SocketFlags, shutdown};

use super::{SessionServer, private_socket};

/// The pause after a failure to accept a client or to start the server.
const PAUSE: Duration = Duration::from_millis(250);

/// Starts the service, or returns the one that was started.
type StartService = Box<dyn Fn() -> io::Result<Arc<dyn SessionService>> + Send>;

/// A Unix socket whose server is started by the first client. Dropping it ends the connections.
pub struct IdleServer {
    shared: Arc<Shared>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// A leaf lock.
    state: Mutex<State>,
    /// Wakes the thread that pauses.
    has_ended: Condvar,
}

struct State {
    /// `None` once the server is started, which has a socket of its own: clients that wait to be
    /// accepted here are sent away.
    socket: Option<Arc<UnixListener>>,
    sessions: Option<SessionServer>,
    has_ended: bool,
}

impl IdleServer {
    /// Listens on a Unix socket, which root and the user of this process may connect to. A socket
    /// that is left over at this path is replaced. The first client is sent away, and served when
    /// it connects again at once.
    ///
    /// # Errors
    /// The system's, also if it gives no thread.
    pub fn listen(path: &Path, start: StartService) -> io::Result<Self> {
        let socket = Some(Arc::new(private_socket(path, SocketFlags::empty())?));
        let state = Mutex::new(State { socket, sessions: None, has_ended: false });
        let shared = Arc::new(Shared { state, has_ended: Condvar::new() });
        let path = path.to_path_buf();
        let of_thread = Arc::clone(&shared);
        let of_socket = path.clone();
        let thread = thread::Builder::new().name("idle".to_owned());
        let thread = thread.spawn(move || of_thread.run(&of_socket, &start))?;
        Ok(Self { shared, path, thread: Some(thread) })
    }

    /// Returns whether the server was started.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.shared.state.lock().sessions.is_some()
    }
}

impl Shared {
    /// Waits for the first client, and starts the server.
    fn run(&self, path: &Path, start: &StartService) {
        while let Some(socket) = self.socket() {
            let accepted = socket.accept();
            if self.socket().is_none() {
                return;
            }
            let started = accepted.and_then(|_client| SessionServer::start(start()?));
            let served = started.and_then(|sessions| self.serve(path, sessions));
            let Err(error) = served else { continue };
            let mut state = self.state.lock();
            if !state.has_ended {
                tracing::warn!(%error, socket = %path.display(), "a client is not served");
                self.has_ended.wait_for(&mut state, PAUSE);
            }
        }
    }

    /// Returns the socket; `None` if the server is started, or will not be.
    fn socket(&self) -> Option<Arc<UnixListener>> {
        let state = self.state.lock();
        state.socket.as_ref().filter(|_| !state.has_ended).map(Arc::clone)
    }

    fn serve(&self, path: &Path, sessions: SessionServer) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.has_ended {
            sessions.listen_unix(path)?;
            state.sessions = Some(sessions);
            state.socket = None;
        }
        Ok(())
    }
}

impl Drop for IdleServer {
    fn drop(&mut self) {
        let socket = {
            let mut state = self.shared.state.lock();
            state.has_ended = true;
            state.socket.take()
        };
        self.shared.has_ended.notify_all();
        // Ends the wait for a client.
        let woken = socket.map_or(Ok(()), |socket| shutdown(&*socket, Shutdown::Both));
        if let Err(error) = woken {
            tracing::debug!(%error, "a socket was shut down before");
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that waits for a client has panicked");
        }
        drop(self.shared.state.lock().sessions.take());
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "the socket stays; the next start replaces it");
        }
    }
}

impl fmt::Debug for IdleServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("IdleServer").field(&self.path).finish()
    }
}
