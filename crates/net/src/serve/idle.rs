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
    socket: UnixListener,
    /// A leaf lock.
    state: Mutex<State>,
    /// Wakes the thread that pauses.
    has_ended: Condvar,
}

#[derive(Default)]
struct State {
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
        let socket = private_socket(path, SocketFlags::empty())?;
        let state = Mutex::default();
        let shared = Arc::new(Shared { socket, state, has_ended: Condvar::new() });
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
        while !self.state.lock().has_ended {
            let started = self.socket.accept().and_then(|_client| {
                let mut state = self.state.lock();
                if state.has_ended {
                    return Ok(());
                }
                drop(state);
                let sessions = SessionServer::start(start()?)?;
                state = self.state.lock();
                if !state.has_ended {
                    sessions.listen_unix(path)?;
                    state.sessions = Some(sessions);
                    state.has_ended = true;
                }
                Ok(())
            });
            if let Err(error) = started {
                let mut state = self.state.lock();
                if !state.has_ended {
                    tracing::warn!(%error, socket = %path.display(), "a client is not served");
                    self.has_ended.wait_for(&mut state, PAUSE);
                }
            }
        }
    }
}

impl Drop for IdleServer {
    fn drop(&mut self) {
        self.shared.state.lock().has_ended = true;
        self.shared.has_ended.notify_all();
        // Ends the wait for a client.
        if let Err(error) = shutdown(&self.shared.socket, Shutdown::Both) {
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
