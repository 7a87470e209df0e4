//! The thread that reads requests while all others hang; see [`crate::parked`].

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use rustix::io::Errno;

use crate::device::Device;
use crate::interrupts::Interrupts;
use crate::parked;
use crate::server::Server;

/// A thread in reserve, which runs only while it is needed.
pub(crate) struct Reserve {
    first: Arc<Device>,
    interrupts: Arc<Interrupts>,
    server: Arc<Server>,
    /// Limit of the bytes of a request.
    bytes: usize,
    thread: Option<JoinHandle<()>>,
    /// The thread could not read: one line in the log is enough.
    has_failed: Arc<AtomicBool>,
}

impl Reserve {
    pub(crate) fn new(
        first: Arc<Device>,
        interrupts: Arc<Interrupts>,
        server: Arc<Server>,
        bytes: usize,
    ) -> Self {
        Self { first, interrupts, server, bytes, thread: None, has_failed: Arc::default() }
    }

    /// Starts the thread if it does not run.
    pub(crate) fn start(&mut self) {
        let runs = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        if runs || self.has_failed.load(Ordering::Relaxed) {
            return;
        }
        self.join();
        match self.spawn() {
            Ok(thread) => self.thread = Some(thread),
            // The next round tries again. The log may be on the disk that hangs.
            Err(error) => tracing::debug!(%error, "the thread in reserve does not start"),
        }
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(&mut self) {
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that parks requests panicked");
        }
    }

    fn spawn(&self) -> io::Result<JoinHandle<()>> {
        let first = Arc::clone(&self.first);
        let interrupts = Arc::clone(&self.interrupts);
        let server = Arc::clone(&self.server);
        let has_failed = Arc::clone(&self.has_failed);
        let bytes = self.bytes;
        Builder::new().name("fuse-reserve".to_owned()).spawn(move || {
            let read = parked::descriptor(&first).and_then(|device| {
                let device = Arc::new(device);
                interrupts.add_device(&device);
                server.park(&device, bytes)
            });
            match read {
                // `ECONNABORTED` is the end too.
                Ok(()) | Err(Errno::NODEV | Errno::CONNABORTED) => {}
                Err(error) => {
                    has_failed.store(true, Ordering::Relaxed);
                    tracing::warn!(%error, "programs that close files may wait for a hung disk");
                }
            }
        })
    }
}
