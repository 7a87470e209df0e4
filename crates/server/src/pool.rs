//! Threads for requests that may block.
//!
//! The queue has no limit of requests: each caller of the kernel has at most a few under way, and a
//! request without bytes costs less here than in the kernel. What is limited is what they bring:
//! [`Room`] counts the bytes of payloads that wait, and a caller gets at most as many as are left
//! for others.
//!
//! Callers take turns. A caller is a user of a session; each runs at most [`limits::POOL_SHARE`]
//! jobs at a time, so that jobs that wait for a slow medium leave threads for others. The pool
//! starts with as many threads as one caller may use and grows to [`limits::POOL_THREADS`] while
//! more callers have jobs.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use pelago_wire::{Context, SessionId, limits};

/// How long a thread beyond the first few waits for a job before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// How a job is called: each exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// On a thread of the pool: it may block.
    Run,
    /// The pool has stopped.
    Stopped,
}

/// A request that may block.
pub(crate) type Job = Box<dyn FnOnce(Turn) + Send>;

/// A user of a session: takes turns with all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    session: SessionId,
    uid: u32,
}

impl From<&Context> for Caller {
    fn from(context: &Context) -> Self {
        Self { session: context.session, uid: context.uid }
    }
}

/// Threads for requests that may block.
pub(crate) struct Pool(Arc<Shared>);

/// The right to keep the bytes of a payload until the job has run; given back when dropped.
pub(crate) struct Room {
    shared: Arc<Shared>,
    caller: Caller,
    bytes: usize,
}

struct Shared {
    /// Jobs that one caller runs at a time, and threads that stay.
    share: usize,
    /// Threads at the most.
    most: usize,
    /// There are no threads.
    inline: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: HashMap<Caller, Line>,
    /// One entry for each job that may run now: callers in the order of their turns.
    turns: VecDeque<Caller>,
    /// Bytes of the payloads that wait or run.
    bytes: usize,
    /// Threads that wait for a job.
    idle: usize,
    /// Threads that have not ended.
    alive: usize,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

/// The jobs of one caller.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Job>,
    /// Entries of it in [`State::turns`].
    turns: usize,
    running: usize,
    /// Bytes of its payloads.
    bytes: usize,
}

impl Pool {
    /// Starts a pool in which each caller may use this many threads.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn start(share: usize) -> io::Result<Self> {
        let most = limits::POOL_THREADS.max(share);
        let (state, changed) = (Mutex::default(), Condvar::new());
        let pool = Self(Arc::new(Shared { share, most, inline: false, state, changed }));
        let mut state = pool.0.state.lock();
        for _ in 0..share {
            pool.0.spawn(&mut state)?;
        }
        drop(state);
        Ok(pool)
    }

    /// Makes a pool without threads: each job runs on the thread of its giver.
    pub(crate) fn inline() -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Shared { share: 0, most: 0, inline: true, state, changed }))
    }

    /// Takes room for the payload of a job. Answers `None` where it would leave less for others
    /// than its caller has: the payload may not be kept then.
    #[must_use]
    pub(crate) fn room(&self, caller: Caller, bytes: usize) -> Option<Room> {
        let mut state = self.0.state.lock();
        let free = limits::POOL_BYTES - state.bytes;
        let own = state.lines.get(&caller).map_or(0, |line| line.bytes);
        if bytes > 0 {
            if own + bytes > free {
                return None;
            }
            state.bytes += bytes;
            state.lines.entry(caller).or_default().bytes += bytes;
        }
        drop(state);
        Some(Room { shared: Arc::clone(&self.0), caller, bytes })
    }

    /// Gives a job of a caller to a thread, when it is the caller's turn.
    pub(crate) fn submit(&self, caller: Caller, job: Job) {
        let mut state = self.0.state.lock();
        if state.stopped {
            drop(state);
            return job(Turn::Stopped);
        }
        if self.0.inline {
            drop(state);
            return job(Turn::Run);
        }
        state.lines.entry(caller).or_default().waiting.push_back(job);
        if !state.give_turn(caller, self.0.share) {
            return;
        }
        // A thread that was woken and has not come yet counts as idle, and its job as waiting.
        if state.turns.len() <= state.idle {
            drop(state);
            self.0.changed.notify_one();
        } else if state.alive < self.0.most
            && let Err(error) = self.0.spawn(&mut state)
        {
            tracing::debug!(%error, "no more threads; the job waits for one of those there are");
        }
    }

    /// Ends all threads behind the jobs that they are at; those that wait are told so.
    pub(crate) fn stop(&self) {
        let (lines, threads) = {
            let mut state = self.0.state.lock();
            state.stopped = true;
            state.turns.clear();
            (std::mem::take(&mut state.lines), std::mem::take(&mut state.threads))
        };
        self.0.changed.notify_all();
        for job in lines.into_values().flat_map(|line| line.waiting) {
            job(Turn::Stopped);
        }
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

impl Drop for Room {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.shared.state.lock();
            state.bytes -= self.bytes;
            if let Some(line) = state.lines.get_mut(&self.caller) {
                line.bytes -= self.bytes;
            }
            state.forget_if_gone(self.caller);
        }
    }
}

impl Shared {
    fn spawn(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        state.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(self);
        let thread = Builder::new().name("pelago-pool".into()).spawn(move || shared.work())?;
        state.alive += 1;
        state.threads.push(thread);
        Ok(())
    }

    fn work(&self) {
        let mut state = self.state.lock();
        while let Some((caller, job)) = self.next(&mut state) {
            drop(state);
            job(Turn::Run);
            state = self.state.lock();
            state.ran(caller, self.share);
        }
    }

    /// The job whose turn it is; `None` where this thread is to end.
    fn next(&self, state: &mut MutexGuard<'_, State>) -> Option<(Caller, Job)> {
        loop {
            if state.stopped {
                return None;
            }
            if let Some(next) = state.take_turn() {
                return Some(next);
            }
            state.idle += 1;
            let late = self.changed.wait_for(state, IDLE).timed_out();
            state.idle -= 1;
            if late && state.turns.is_empty() && state.alive > self.share {
                state.alive -= 1;
                return None;
            }
        }
    }
}

impl State {
    /// A caller has a job that waits, or one less that runs: it gets a turn if it may run one more.
    /// Answers whether it does.
    fn give_turn(&mut self, caller: Caller, share: usize) -> bool {
        let Some(line) = self.lines.get_mut(&caller) else { return false };
        let gets = line.turns < line.waiting.len() && line.turns + line.running < share;
        if gets {
            line.turns += 1;
            self.turns.push_back(caller);
        }
        gets
    }

    fn take_turn(&mut self) -> Option<(Caller, Job)> {
        let caller = self.turns.pop_front()?;
        let line = self.lines.get_mut(&caller)?;
        line.turns -= 1;
        let job = line.waiting.pop_front()?;
        line.running += 1;
        Some((caller, job))
    }

    fn ran(&mut self, caller: Caller, share: usize) {
        // Behind a stop there are no lines any more.
        if let Some(line) = self.lines.get_mut(&caller) {
            line.running -= 1;
        }
        self.give_turn(caller, share);
        self.forget_if_gone(caller);
    }

    /// Forgets a caller without jobs and payloads.
    fn forget_if_gone(&mut self, caller: Caller) {
        let gone = |line: &Line| line.waiting.is_empty() && line.running == 0 && line.bytes == 0;
        if self.lines.get(&caller).is_some_and(gone) {
            self.lines.remove(&caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const HOG: Caller = Caller { session: SessionId::DIRECT, uid: 1 };
    const OTHER: Caller = Caller { session: SessionId::DIRECT, uid: 2 };

    /// A job that says that it began, then waits until the other end is gone.
    fn stalled(began: &Sender<()>) -> (Job, Sender<()>) {
        let (go, gate): (_, Receiver<()>) = channel();
        let began = began.clone();
        let job = Box::new(move |_| {
            began.send(()).unwrap();
            let _gone = gate.recv();
        });
        (job, go)
    }

    #[test]
    fn each_job_is_called_once_however_many_there_are() {
        let pool = Pool::start(1).unwrap();
        let (began, begins) = channel();
        let (job, go) = stalled(&began);
        pool.submit(HOG, job);
        begins.recv().unwrap();
        let (told, tells) = channel();
        for number in 0..5000 {
            let told = told.clone();
            pool.submit(HOG, Box::new(move |turn| told.send((turn, number)).unwrap()));
        }
        assert!(tells.try_recv().is_err());
        drop(go);
        for number in 0..5000 {
            assert_eq!(tells.recv().unwrap(), (Turn::Run, number), "in the order they came");
        }
        let (job, go) = stalled(&began);
        pool.submit(HOG, job);
        begins.recv().unwrap();
        pool.submit(HOG, {
            let told = told.clone();
            Box::new(move |turn| told.send((turn, 1)).unwrap())
        });
        drop(go);
        pool.stop();
        let (turn, _) = tells.recv().unwrap();
        assert!(matches!(turn, Turn::Run | Turn::Stopped));
        pool.submit(HOG, Box::new(move |turn| told.send((turn, 2)).unwrap()));
        assert_eq!(tells.recv().unwrap(), (Turn::Stopped, 2));
        assert!(tells.try_recv().is_err());
    }

    /// All threads that one user may have stand still, with more jobs behind them: a job of
    /// another user runs all the same.
    #[test]
    fn jobs_of_one_user_that_stall_do_not_hold_up_those_of_another() {
        let pool = Pool::start(2).unwrap();
        let (began, begins) = channel();
        let gates: Vec<_> = (0..5)
            .map(|_| {
                let (job, go) = stalled(&began);
                pool.submit(HOG, job);
                go
            })
            .collect();
        begins.recv().unwrap();
        begins.recv().unwrap();
        let (told, tells) = channel();
        for number in 0..3 {
            let told = told.clone();
            pool.submit(OTHER, Box::new(move |turn| told.send((turn, number)).unwrap()));
        }
        let mut ran: Vec<_> = (0..3).map(|_| tells.recv().unwrap()).collect();
        ran.sort_by_key(|(_, number)| *number);
        assert_eq!(ran, [(Turn::Run, 0), (Turn::Run, 1), (Turn::Run, 2)]);
        assert!(begins.try_recv().is_err(), "a user has no more threads than its share");
        drop(gates);
        (0..3).for_each(|_| begins.recv().unwrap());
    }

    /// With one thread left, users take turns whatever one of them has waiting.
    #[test]
    fn users_take_turns() {
        let pool = Pool::start(1).unwrap();
        let (began, begins) = channel();
        // As many users as there are threads.
        let gates: Vec<_> = (0..limits::POOL_THREADS as u32)
            .map(|number| {
                let (job, go) = stalled(&began);
                pool.submit(Caller { uid: 100 + number, ..HOG }, job);
                begins.recv().unwrap();
                go
            })
            .collect();
        let (told, tells) = channel();
        let give = |caller, name| {
            let told: Sender<&str> = told.clone();
            pool.submit(caller, Box::new(move |_| told.send(name).unwrap()));
        };
        (0..100).for_each(|_| give(HOG, "hog"));
        give(OTHER, "other");
        drop(gates.into_iter().next());
        let first: Vec<_> = (0..101).map(|_| tells.recv().unwrap()).collect();
        let place = first.iter().position(|name| *name == "other").unwrap();
        assert!(place <= 1, "it waited for {place} jobs of the other");
    }

    #[test]
    fn payloads_have_a_limit_and_leave_room_for_others() {
        let pool = Pool::start(1).unwrap();
        let half = limits::POOL_BYTES / 2;
        let first = pool.room(HOG, half).unwrap();
        assert!(pool.room(HOG, 1).is_none(), "no more than it leaves");
        let other = pool.room(OTHER, half / 2).unwrap();
        assert!(pool.room(OTHER, half / 4).is_none());
        assert!(pool.room(HOG, 0).is_some(), "no bytes need no room");
        drop(first);
        drop(pool.room(HOG, half).unwrap());
        drop(other);
        let state = pool.0.state.lock();
        assert_eq!((state.bytes, state.lines.len()), (0, 0));
    }
}
