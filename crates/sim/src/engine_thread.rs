//! A thread that takes no turns, for code whose threads spin while they wait for each other: the
//! engine of a table. All that takes turns stands still while it works.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use crate::turns;

type Job = Box<dyn FnOnce() + Send>;

/// A thread that takes no turns.
pub(crate) struct EngineThread {
    job: Arc<Mutex<Option<Job>>>,
    /// A byte says that there is a job, or that it is done: reads of sockets really wait.
    socket: UnixStream,
}

impl EngineThread {
    /// Starts the thread, before turns begin.
    pub(crate) fn start() -> Self {
        assert!(turns::current().is_none(), "its threads must not take turns");
        let (socket, mut other) = UnixStream::pair().expect("sockets");
        let job = Arc::<Mutex<Option<Job>>>::default();
        let jobs = Arc::clone(&job);
        let started = thread::Builder::new().name("engine".to_owned()).spawn(move || {
            let mut byte = [0];
            while other.read_exact(&mut byte).is_ok() {
                let job = jobs.lock().take();
                if let Some(job) = job {
                    job();
                }
                if other.write_all(&byte).is_err() {
                    return;
                }
            }
        });
        started.expect("a thread");
        Self { job, socket }
    }

    /// Returns what `act` returns on that thread.
    pub(crate) fn run<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let result = Arc::<Mutex<Option<T>>>::default();
        let into = Arc::clone(&result);
        *self.job.lock() = Some(Box::new(move || *into.lock() = Some(act())));
        let mut byte = [0];
        let mut socket = &self.socket;
        socket.write_all(&byte).and_then(|()| socket.read_exact(&mut byte)).expect("its thread");
        result.lock().take().expect("a job that does not panic")
    }
}
