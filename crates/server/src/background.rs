//! Work that can wait, each kind on a thread of its own: visible in [`crate::Status`], throttled,
//! and stopped with a deadline.
//!
//! A [`Worker`] does one short piece of work at a time and is never interrupted in it. Between two
//! pieces it rests as long as the last one took, so that it takes half of one processor at the
//! most. Whoever makes work for it rings its [`Notify`].

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

/// Something that is done in the background.
pub(crate) trait Worker: Send {
    /// Its notify has notified: there is work that it may not have seen.
    fn notified(&mut self) {}

    /// Does one piece of work, of some ten milliseconds where it can be cut so.
    ///
    /// # Errors
    /// What kept it from its work: it is tried again later, and `status` shows it.
    fn work(&mut self) -> Result<Piece, Error>;
}

/// One piece of work that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Things that were worked off.
    pub items: u64,
    /// When to go on.
    pub next: Next,
}

/// When a worker goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is more to do.
    Again,
    /// After this time, or when its notify rings.
    After(Duration),
    /// When its notify rings.
    Notified,
}

impl Piece {
    /// Nothing was to do; look again after this time.
    #[must_use]
    pub(crate) const fn nothing(after: Duration) -> Self {
        Self { items: 0, next: Next::After(after) }
    }
}

/// What a worker is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It works.
    Works,
    /// It has nothing to do now.
    Waits,
    /// It failed, and tries again.
    Failed,
    /// It has ended.
    Ended,
}

/// A worker as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Its name.
    pub name: &'static str,
    /// What it is doing.
    pub doing: Doing,
    /// Things that it worked off in this life of the server.
    pub items: u64,
    /// Why its last piece of work failed, where it did.
    pub last_error: Option<Error>,
}

/// How others reach a worker: to tell it that there is work, and to see what it does.
pub(crate) struct Notify {
    name: &'static str,
    /// A leaf: nothing else is locked while it is held.
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
    /// The notify of the worker with this name.
    #[must_use]
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, state: Mutex::default(), changed: Condvar::new() })
    }

    /// There is work.
    pub(crate) fn notify(&self) {
        let mut state = self.state.lock();
        if !state.notified {
            state.notified = true;
            self.changed.notify_all();
        }
    }

    /// What the worker does now.
    #[must_use]
    pub(crate) fn status(&self) -> WorkerStatus {
        let state = self.state.lock();
        let doing = match *state {
            State { ended: true, .. } => Doing::Ended,
            State { last_error: Some(_), .. } => Doing::Failed,
            State { works: true, .. } => Doing::Works,
            _ => Doing::Waits,
        };
        WorkerStatus { name: self.name, doing, items: state.items, last_error: state.last_error }
    }

    /// Waits until `until`, or for ever where there is none; the notify ends the wait unless
    /// `ignore_notify`.
    fn wait(&self, until: Option<Instant>, ignore_notify: bool) -> Heard {
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
        Heard { notified: std::mem::take(&mut state.notified), stopped: state.stopped }
    }

    fn did(&self, done: Result<Piece, Error>) {
        let mut state = self.state.lock();
        match done {
            Ok(piece) => {
                state.items += piece.items;
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

    /// Waits until the worker has ended, at most until `deadline`.
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
    /// A test takes the place of the threads: [`Workers::step`].
    stepped: Option<Vec<Stepped>>,
}

/// A worker without a thread.
type Stepped = (Arc<Notify>, Box<dyn Worker>);

impl Workers {
    /// None yet. `stepped`: they get no threads, and work when they are told to.
    #[must_use]
    pub(crate) fn new(stepped: bool) -> Self {
        Self { running: Vec::new(), stepped: stepped.then(Vec::new) }
    }

    /// Lets the worker of this name work until it has nothing more to do at once.
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
                let done = worker.work();
                notify.did(done);
                if done?.next != Next::Again {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Starts a worker on a thread of its own.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn start(
        &mut self,
        notify: &Arc<Notify>,
        worker: impl Worker + 'static,
    ) -> io::Result<()> {
        if let Some(stepped) = &mut self.stepped {
            stepped.push((Arc::clone(notify), Box::new(worker)));
            return Ok(());
        }
        let of_thread = Arc::clone(notify);
        let thread = Builder::new()
            .name(format!("pelago-{}", notify.name))
            .spawn(move || run(&of_thread, worker))?;
        self.running.push((Arc::clone(notify), thread));
        Ok(())
    }

    /// What all of them do.
    #[must_use]
    pub(crate) fn status(&self) -> Vec<WorkerStatus> {
        self.running.iter().map(|(notify, _)| notify.status()).collect()
    }

    /// Stops all of them behind the piece of work that each is at. Those that are not done by the
    /// deadline are named in the log, and waited for all the same: nobody may write any more when
    /// this returns.
    pub(crate) fn stop(&mut self, may_block: Duration) {
        let deadline = Instant::now() + may_block;
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

/// How long workers may take to stop before that is worth a line in the log.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// A failed piece of work is tried again after this, then after twice as long, and so on.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// What was heard while a worker waited.
struct Heard {
    notified: bool,
    stopped: bool,
}

fn run(notify: &Notify, mut worker: impl Worker) {
    let mut retry = FIRST_RETRY;
    let mut heard = notify.wait(Some(Instant::now()), true);
    while !heard.stopped {
        if heard.notified {
            worker.notified();
        }
        let began = Instant::now();
        let done = worker.work();
        let ended = Instant::now();
        notify.did(done);
        heard = match done {
            Ok(piece) => {
                retry = FIRST_RETRY;
                match piece.next {
                    Next::Again => notify.wait(Some(ended + (ended - began)), true),
                    Next::After(time) => notify.wait(Some(ended + time), false),
                    Next::Notified => notify.wait(None, false),
                }
            }
            Err(error) => {
                tracing::warn!(worker = notify.name, %error, "background work failed");
                let until = ended + retry;
                retry = (retry * 2).min(LAST_RETRY);
                notify.wait(Some(until), true)
            }
        };
    }
    notify.end();
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use pelago_wire::Code;

    use super::*;

    struct Tells(mpsc::Sender<()>, Vec<Result<Piece, Error>>);

    impl Worker for Tells {
        fn work(&mut self) -> Result<Piece, Error> {
            self.0.send(()).unwrap();
            self.1.pop().unwrap_or(Ok(Piece { items: 0, next: Next::Notified }))
        }
    }

    const DEADLINE: Duration = Duration::from_secs(60);

    #[test]
    fn a_worker_goes_on_when_it_is_rung_and_after_a_failure() {
        let (told, tells) = mpsc::channel();
        let notify = Notify::new("test");
        let mut workers = Workers::default();
        let pieces = vec![
            Err(Code::Io.into()),
            Ok(Piece { items: 2, next: Next::Again }),
            Ok(Piece { items: 1, next: Next::Again }),
        ];
        workers.start(&notify, Tells(told, pieces)).unwrap();
        for _ in 0..4 {
            tells.recv_timeout(DEADLINE).unwrap();
        }
        notify.notify();
        tells.recv_timeout(DEADLINE).unwrap();
        assert_eq!((notify.status().items, notify.status().last_error), (3, None));
        workers.stop(DEADLINE);
        assert_eq!(notify.status().doing, Doing::Ended);
    }
}
