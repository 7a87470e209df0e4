//! Work that can wait, each kind on a thread of its own: visible in [`crate::Status`], throttled,
//! and stopped with a deadline.
//!
//! A [`Worker`] does one short piece of work at a time and is never interrupted in it. Before the
//! next piece it sleeps for as long as the last one took, so that it uses at most half of one
//! processor. Code that makes work for a worker calls its [`Notify`].

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use pelago_wire::Error;

pub(crate) use orphans::RemoveOrphans;
pub(crate) use pending_close::ClosePending;
pub(crate) use recount::Recount;
pub(crate) use space::WatchSpace;
pub(crate) use writeback::Writeback;

mod orphans;
mod pending_close;
mod recount;
mod space;
mod writeback;

/// A kind of background work.
pub(crate) trait Worker: Send {
    /// Called before [`Worker::work`] if the worker was notified since: there may be new work.
    fn notified(&mut self) {}

    /// Does one piece of work, of about ten milliseconds if it can be divided so.
    ///
    /// # Errors
    /// What prevented the work. It is tried again later, and `status` shows the error.
    fn work(&mut self) -> Result<WorkDone, Error>;
}

/// One piece of work that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkDone {
    /// Files, directories or the like that were finished.
    pub items: u64,
    /// When the worker runs again.
    pub next: NextRun,
}

/// When a worker runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextRun {
    /// After its sleep: there is more work.
    Soon,
    /// After this time, or when it is notified.
    After(Duration),
    /// When it is notified.
    OnNotify,
}

impl WorkDone {
    /// Returns that nothing was done, and that the worker runs again after this time.
    #[must_use]
    pub(crate) const fn nothing(after: Duration) -> Self {
        Self { items: 0, next: NextRun::After(after) }
    }
}

/// The state of a worker. `status --json` shows the names in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// It is working.
    Works,
    /// It has nothing to do now.
    Waits,
    /// Its last piece of work failed; it will try again.
    Failed,
    /// It has ended.
    Ended,
}

/// A worker as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The name of the worker, a promise of `status --json`.
    pub name: &'static str,
    /// What it does now.
    pub doing: WorkerState,
    /// Files, directories or the like that it has finished in this run of the server.
    pub items: u64,
    /// Why its last piece of work failed, if it did.
    pub last_error: Option<Error>,
}

/// The link to a worker: tells it that there is work, and shows what it does.
pub(crate) struct Notify {
    name: &'static str,
    /// A leaf lock.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    notified: bool,
    stopped: bool,
    ended: bool,
    works: bool,
    items: u64,
    last_error: Option<Error>,
}

impl Notify {
    /// Returns the link to the worker of this name, which may start later.
    #[must_use]
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Tells the worker that there is work.
    pub(crate) fn notify(&self) {
        let mut state = self.state.lock();
        if !state.notified {
            state.notified = true;
            self.changed.notify_all();
        }
    }

    /// Returns what the worker does now.
    #[must_use]
    pub(crate) fn status(&self) -> WorkerStatus {
        let state = self.state.lock();
        let doing = match *state {
            State { ended: true, .. } => WorkerState::Ended,
            State { last_error: Some(_), .. } => WorkerState::Failed,
            State { works: true, .. } => WorkerState::Works,
            _ => WorkerState::Waits,
        };
        WorkerStatus { name: self.name, doing, items: state.items, last_error: state.last_error }
    }

    /// Waits until `until`, without limit for `None`. A notification ends the wait unless
    /// `ignore_notify`.
    fn wait(&self, until: Option<Instant>, ignore_notify: bool) -> Wakeup {
        let mut state = self.state.lock();
        state.works = false;
        while !state.stopped && (ignore_notify || !state.notified) {
            match until {
                None => self.changed.wait(&mut state),
                Some(until) => {
                    if self.changed.wait_until(&mut state, until).timed_out() {
                        break;
                    }
                }
            }
        }
        state.works = !state.stopped;
        Wakeup { notified: std::mem::take(&mut state.notified), stopped: state.stopped }
    }

    /// Keeps the result of a piece of work for `status`.
    fn record(&self, result: Result<WorkDone, Error>) {
        let mut state = self.state.lock();
        match result {
            Ok(done) => {
                state.items += done.items;
                state.last_error = None;
            }
            Err(error) => state.last_error = Some(error),
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.works = false;
        state.ended = true;
        self.changed.notify_all();
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Waits until the worker has ended, at most until `deadline`. Returns whether it has.
    fn wait_for_end(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.ended {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.ended;
            }
        }
        true
    }
}

/// All workers of a server.
#[derive(Default)]
pub(crate) struct Workers {
    running: Vec<(Arc<Notify>, JoinHandle<()>)>,
    /// Workers without threads, which a test runs by [`Workers::step`].
    stepped: Option<Vec<SteppedWorker>>,
}

type SteppedWorker = (Arc<Notify>, Box<dyn Worker>);

impl Workers {
    /// Returns no workers yet. If `stepped`, they get no threads, and run in [`Workers::step`]
    /// only.
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
            if notify.name != name {
                continue;
            }
            loop {
                if std::mem::take(&mut notify.state.lock().notified) {
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
        let thread = Builder::new()
            .name(format!("pelago-{}", notify.name))
            .spawn(move || run(&notify_of_thread, worker))?;
        self.running.push((Arc::clone(notify), thread));
        Ok(())
    }

    /// Returns the state of each worker.
    #[must_use]
    pub(crate) fn status(&self) -> Vec<WorkerStatus> {
        self.running.iter().map(|(notify, _)| notify.status()).collect()
    }

    /// Stops each worker after its present piece of work. Waits for all of them, since none may
    /// write once this returns; the log names those that take longer than `time_limit`.
    pub(crate) fn stop(&mut self, time_limit: Duration) {
        let deadline = Instant::now() + time_limit;
        self.stepped = None;
        for (notify, _) in &self.running {
            notify.stop();
        }
        for (notify, thread) in self.running.drain(..) {
            if !notify.wait_for_end(deadline) {
                tracing::warn!(worker = notify.name, "a worker takes long to stop");
            }
            if thread.join().is_err() {
                tracing::error!(worker = notify.name, "a worker has panicked");
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop(STOP_TIMEOUT);
    }
}

/// How long workers may take to stop before the log says so.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The time before failed work is tried again; it doubles with each failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// What a worker learned while it waited.
struct Wakeup {
    notified: bool,
    stopped: bool,
}

fn run(notify: &Notify, mut worker: impl Worker) {
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
                retry = RETRY_MIN;
                match done.next {
                    NextRun::Soon => notify.wait(Some(ended + (ended - began)), true),
                    NextRun::After(time) => notify.wait(Some(ended + time), false),
                    NextRun::OnNotify => notify.wait(None, false),
                }
            }
            Err(error) => {
                tracing::warn!(worker = notify.name, %error, "background work failed; will retry");
                let until = ended + retry;
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

    use pelago_wire::Code;

    use super::*;

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

    #[test]
    fn a_stopped_worker_has_ended() {
        let (notify, mut workers, calls) = start(Vec::new());
        wait_for(&calls, 1);
        workers.stop(DEADLINE);
        assert_eq!(notify.status().doing, WorkerState::Ended);
    }
}
