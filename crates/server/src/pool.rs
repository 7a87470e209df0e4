//! Threads for what may block: a few, with a bounded queue, joined at stop.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use parking_lot::{Condvar, Mutex};
use pelago_wire::limits;

/// Threads unless told otherwise.
pub(crate) const THREADS: usize = 4;

/// How a job is called: each exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// On a thread of the pool: it may block.
    Run,
    /// By its giver, who serves others: the queue is full.
    Full,
    /// The pool has stopped.
    Stopped,
}

/// Something that may block.
pub(crate) type Job = Box<dyn FnOnce(Turn) + Send>;

/// Threads for what may block.
pub(crate) struct Pool {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    stopped: bool,
}

impl Pool {
    /// A pool of so many threads.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let pool = Self { queue: Arc::default(), threads: Mutex::default() };
        for number in 0..threads {
            let queue = Arc::clone(&pool.queue);
            let thread =
                Builder::new().name(format!("pelago-pool-{number}")).spawn(move || queue.work())?;
            pool.threads.lock().push(thread);
        }
        Ok(pool)
    }

    /// Gives a job to the next free thread; the queue holds [`limits::POOL_QUEUE`].
    pub(crate) fn submit(&self, job: Job) {
        let refused = {
            let mut state = self.queue.state.lock();
            if state.stopped {
                Turn::Stopped
            } else if state.jobs.len() >= limits::POOL_QUEUE {
                Turn::Full
            } else {
                state.jobs.push_back(job);
                drop(state);
                self.queue.changed.notify_one();
                return;
            }
        };
        job(refused);
    }

    /// Ends all threads behind the jobs that they are at; those that wait are told so.
    pub(crate) fn stop(&self) {
        let jobs = {
            let mut state = self.queue.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.jobs)
        };
        self.queue.changed.notify_all();
        for job in jobs {
            job(Turn::Stopped);
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        let here = std::thread::current().id();
        for thread in threads {
            // A job may hold the last handle of its own pool.
            if thread.thread().id() != here && thread.join().is_err() {
                tracing::error!("a thread of the pool has panicked");
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Queue {
    fn work(&self) {
        while let Some(job) = self.next() {
            job(Turn::Run);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn each_job_is_called_once_whether_it_fits_or_not() {
        let pool = Pool::start(1).unwrap();
        let (told, tells) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let (began, begins) = mpsc::channel();
        pool.submit(Box::new(move |_| {
            began.send(()).unwrap();
            gate.recv().unwrap();
        }));
        begins.recv().unwrap();
        for _ in 0..limits::POOL_QUEUE + 2 {
            let told = told.clone();
            pool.submit(Box::new(move |turn| told.send(turn).unwrap()));
        }
        assert_eq!(tells.try_iter().collect::<Vec<_>>(), [Turn::Full; 2]);
        go.send(()).unwrap();
        for _ in 0..limits::POOL_QUEUE {
            assert_eq!(tells.recv().unwrap(), Turn::Run);
        }
        pool.stop();
        pool.submit(Box::new(move |turn| told.send(turn).unwrap()));
        assert_eq!(tells.recv().unwrap(), Turn::Stopped);
    }
}
