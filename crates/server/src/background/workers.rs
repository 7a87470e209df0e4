//! The workers of a server, and the thread of each.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pelago_wire::{Code, Error};

use super::{NextRun, Notify, Worker, WorkerStatus};

/// All workers of a server.
#[derive(Default)]
pub(crate) struct Workers {
    running: Vec<(Arc<Notify>, JoinHandle<()>)>,
    /// Workers without threads, which a test runs by [`Workers::step`].
    stepped: Option<Vec<SteppedWorker>>,
}

type SteppedWorker = (Arc<Notify>, Box<dyn Worker>);

impl Workers {
    /// Returns a set without workers. If `stepped`, its workers get no threads, and run in
    /// [`Workers::step`] only.
    #[must_use]
    pub(crate) fn new(stepped: bool) -> Self {
        Self { running: Vec::new(), stepped: stepped.then(Vec::new) }
    }

    /// Runs the worker of this name until it has nothing more to do now.
    ///
    /// # Errors
    /// As [`Worker::work`].
    pub(crate) fn step(&mut self, name: &str) -> Result<(), Error> {
        for (notify, worker) in self.stepped.iter_mut().flatten() {
            if notify.name() != name {
                continue;
            }
            loop {
                if notify.take() {
                    worker.notified();
                }
                let result = worker.work();
                notify.record(result);
                if result?.next != NextRun::Soon {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Starts a worker on a thread of its own.
    ///
    /// # Errors
    /// The system's error if a thread cannot be started.
    pub(crate) fn start(
        &mut self,
        notify: &Arc<Notify>,
        worker: impl Worker + 'static,
    ) -> io::Result<()> {
        if let Some(stepped) = &mut self.stepped {
            stepped.push((Arc::clone(notify), Box::new(worker)));
            return Ok(());
        }
        let notify_of_thread = Arc::clone(notify);
        let name = format!("pelago-{}", notify.name());
        let thread = pelago_threads::spawn(&name, move || run(&notify_of_thread, worker))?;
        self.running.push((Arc::clone(notify), thread));
        Ok(())
    }

    /// Returns the state of each worker.
    #[must_use]
    pub(crate) fn status(&self) -> Vec<WorkerStatus> {
        self.running.iter().map(|(notify, _)| notify.status()).collect()
    }

    /// Stops each worker after its present piece of work. Waits for all of them, because none may
    /// write after this returns; the log names those that take longer than `time_limit`.
    pub(crate) fn stop(&mut self, time_limit: Duration) {
        let deadline = Instant::now() + time_limit;
        self.stepped = None;
        for (notify, _) in &self.running {
            notify.stop();
        }
        for (notify, thread) in self.running.drain(..) {
            if !notify.wait_for_end(deadline) {
                tracing::warn!(worker = notify.name(), "a worker takes long to stop");
            }
            if thread.join().is_err() {
                tracing::error!(worker = notify.name(), "a worker has panicked");
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop(STOP_TIMEOUT);
    }
}

/// The time to stop after which the log names a worker.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The time before failed work is tried again; it doubles with each failure.
const RETRY_MIN: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1000 });
const RETRY_MAX: Duration = Duration::from_secs(60);

fn run(notify: &Notify, mut worker: impl Worker) {
    // The last failure and the time of its retry, until all work is done, or work has succeeded for
    // a while.
    let mut failure: Option<(Code, Instant)> = None;
    let mut retry = RETRY_MIN;
    let mut wakeup = notify.wait(Some(Instant::now()), true);
    while !wakeup.stopped {
        if wakeup.notified {
            worker.notified();
        }
        let began = Instant::now();
        let result = worker.work();
        let ended = Instant::now();
        notify.record(result);
        wakeup = match result {
            Ok(done) => {
                // Steps before the one that fails again and again may succeed.
                let is_long_ago = |(_, again)| ended.duration_since(again) > RETRY_MAX;
                if done.next != NextRun::Soon || failure.is_some_and(is_long_ago) {
                    retry = RETRY_MIN;
                    failure = None;
                }
                match done.next {
                    NextRun::Soon => notify.wait(Some(ended + (ended - began)), true),
                    NextRun::After(time) => notify.wait(Some(ended + time), false),
                    NextRun::OnNotify => notify.wait(None, false),
                }
            }
            Err(error) => {
                let worker = notify.name();
                let until = ended + retry;
                let before = failure.replace((error.code, until));
                if before.is_some_and(|(code, _)| code == error.code) {
                    tracing::debug!(worker, %error, "background work failed again; will retry");
                } else {
                    tracing::warn!(worker, %error, "background work failed; will retry");
                }
                retry = (retry * 2).min(RETRY_MAX);
                notify.wait(Some(until), true)
            }
        };
    }
    notify.end();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};

    use super::super::{WorkDone, WorkerState};
    use super::*;
    use crate::testing::log::Log;

    /// A worker that reports each call, and returns these results, the last one first.
    struct Scripted {
        called: Sender<()>,
        results: Vec<Result<WorkDone, Error>>,
    }

    impl Worker for Scripted {
        fn work(&mut self) -> Result<WorkDone, Error> {
            self.called.send(()).unwrap();
            self.results.pop().unwrap_or(Ok(WorkDone { items: 0, next: NextRun::OnNotify }))
        }
    }

    const DEADLINE: Duration = Duration::from_secs(60);

    fn start(results: Vec<Result<WorkDone, Error>>) -> (Arc<Notify>, Workers, Receiver<()>) {
        let (called, calls) = mpsc::channel();
        let notify = Notify::new("test");
        let mut workers = Workers::default();
        workers.start(&notify, Scripted { called, results }).unwrap();
        (notify, workers, calls)
    }

    fn wait_for(calls: &Receiver<()>, count: usize) {
        (0..count).for_each(|_| calls.recv_timeout(DEADLINE).unwrap());
    }

    #[test]
    fn a_worker_runs_again_while_there_is_more_work() {
        let (notify, mut workers, calls) = start(vec![
            Ok(WorkDone { items: 2, next: NextRun::Soon }),
            Ok(WorkDone { items: 1, next: NextRun::Soon }),
        ]);
        wait_for(&calls, 3);
        workers.stop(DEADLINE);
        assert_eq!(notify.status().items, 3);
    }

    #[test]
    fn a_worker_runs_again_when_it_is_notified() {
        let (notify, _workers, calls) = start(Vec::new());
        wait_for(&calls, 1);
        notify.notify();
        wait_for(&calls, 1);
    }

    #[test]
    fn a_worker_runs_again_after_a_failure() {
        let (notify, mut workers, calls) = start(vec![Err(Code::Io.into())]);
        wait_for(&calls, 2);
        workers.stop(DEADLINE);
        assert_eq!(notify.status().last_error, None);
    }

    /// A worker that returns these results, the last one first, and ends.
    struct Ending(Arc<Notify>, Vec<Result<WorkDone, Error>>);

    impl Worker for Ending {
        fn work(&mut self) -> Result<WorkDone, Error> {
            let result = self.1.pop().unwrap();
            if self.1.is_empty() {
                self.0.stop();
            }
            result
        }
    }

    #[test]
    fn a_failure_is_logged_once_until_all_work_is_done() {
        let full = Err(Code::NoSpace.into());
        let io = Err(Code::Io.into());
        let soon = Ok(WorkDone { items: 1, next: NextRun::Soon });
        let done = Ok(WorkDone::nothing(Duration::ZERO));
        let count = |results: &[_]| {
            let notify = Notify::new("test");
            let log = Log::of_warnings();
            let results = results.iter().rev().copied().collect();
            log.during(|| run(&notify, Ending(Arc::clone(&notify), results)));
            log.count()
        };
        assert_eq!(count(&[full, soon, full, soon, full, full]), 1);
        assert_eq!(count(&[full, soon, io, soon, io]), 2, "another failure");
        assert_eq!(count(&[full, soon, full, soon, done, full]), 2, "the next time");
    }

    #[test]
    fn a_stopped_worker_has_ended() {
        let (notify, mut workers, calls) = start(Vec::new());
        wait_for(&calls, 1);
        workers.stop(DEADLINE);
        assert_eq!(notify.status().doing, WorkerState::Ended);
    }
}
