//! The pool of threads for requests that may block.
//!
//! The number of jobs that wait has no limit: each caller of the kernel has at most a few requests
//! under way, and a request without bytes costs less here than in the kernel. The bytes of their
//! payloads have a limit: a [`PayloadPermit`] counts them, and a caller gets at most as many as it
//! leaves free for others.
//!
//! The pool is fair between callers, the users of each session. A caller runs at most
//! [`limits::POOL_SHARE`] jobs at a time, so that jobs that wait for a slow disk leave threads for
//! others. The pool starts with as many threads as one caller may use, and grows to
//! [`limits::POOL_THREADS`] while more callers have jobs.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use pelago_trace::RequestSpan;
use pelago_wire::{Context, SessionId, limits};

/// The time without a job after which a thread beyond the first few ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason for the call of a job; each job is called exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// It is to run, on a thread that it may block.
    Run,
    /// It is to fail, because the pool has stopped.
    Cancelled,
}

/// The rest of a request that may block.
pub(crate) type Job = Box<dyn FnOnce(Invocation) + Send>;

/// A user of a session: the unit of fairness.
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

/// The right to hold the bytes of a payload in memory, until it is dropped.
pub(crate) struct PayloadPermit {
    shared: Arc<Shared>,
    caller: Caller,
    bytes: usize,
}

struct Shared {
    /// The limit of jobs of one caller that run at a time; also the number of threads that never
    /// end.
    per_caller: usize,
    threads_max: usize,
    /// True if jobs run on the thread that submits them.
    inline: bool,
    /// A leaf lock.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queues: HashMap<Caller, CallerQueue>,
    /// Callers in the order of their next jobs, with one entry for each job that may run now.
    ready: VecDeque<Caller>,
    /// Bytes of the payloads whose jobs wait or run.
    bytes: usize,
    /// Number of threads that wait for a job.
    idle: usize,
    /// Number of threads that have not ended.
    alive: usize,
    threads: Vec<JoinHandle<()>>,
    stopped: bool,
}

/// A job, and the span of the request for which it was submitted.
struct Submitted {
    job: Job,
    span: RequestSpan,
}

/// The jobs of one caller.
#[derive(Default)]
struct CallerQueue {
    waiting: VecDeque<Submitted>,
    /// Number of entries of this caller in [`State::ready`].
    ready: usize,
    running: usize,
    /// Bytes of its payloads.
    bytes: usize,
}

impl Pool {
    /// Starts a pool in which each caller may use `per_caller` threads.
    ///
    /// # Errors
    /// The system's error if a thread cannot be started.
    pub(crate) fn start(per_caller: usize) -> io::Result<Self> {
        let threads_max = limits::POOL_THREADS.max(per_caller);
        let state = Mutex::default();
        let changed = Condvar::new();
        let shared = Shared { per_caller, threads_max, inline: false, state, changed };
        let pool = Self(Arc::new(shared));
        let mut state = pool.0.state.lock();
        for _ in 0..per_caller {
            pool.0.spawn(&mut state)?;
        }
        drop(state);
        Ok(pool)
    }

    /// Returns a pool without threads: each job runs on the thread that submits it.
    pub(crate) fn inline() -> Self {
        let state = Mutex::default();
        let changed = Condvar::new();
        Self(Arc::new(Shared { per_caller: 0, threads_max: 0, inline: true, state, changed }))
    }

    /// Reserves memory for a payload. Returns `None` if the caller would then have more than is
    /// left for others; the payload must not be held in memory then.
    #[must_use]
    pub(crate) fn permit_payload(&self, caller: Caller, bytes: usize) -> Option<PayloadPermit> {
        let mut state = self.0.state.lock();
        let free = limits::POOL_BYTES - state.bytes;
        let own = state.queues.get(&caller).map_or(0, |queue| queue.bytes);
        if bytes > 0 {
            if own + bytes > free {
                return None;
            }
            state.bytes += bytes;
            state.queues.entry(caller).or_default().bytes += bytes;
        }
        drop(state);
        Some(PayloadPermit { shared: Arc::clone(&self.0), caller, bytes })
    }

    /// Queues a job, which a thread runs in the caller's turn, in the span of the request for which
    /// it is submitted.
    pub(crate) fn submit(&self, caller: Caller, job: Job) {
        let mut state = self.0.state.lock();
        if state.stopped {
            drop(state);
            return job(Invocation::Cancelled);
        }
        if self.0.inline {
            drop(state);
            return job(Invocation::Run);
        }
        let span = RequestSpan::current();
        state.queues.entry(caller).or_default().waiting.push_back(Submitted { job, span });
        if !state.make_ready(caller, self.0.per_caller) {
            return;
        }
        // A thread that was notified and has not run yet counts as idle, and its job as ready.
        if state.ready.len() <= state.idle {
            drop(state);
            self.0.changed.notify_one();
        } else if state.alive < self.0.threads_max
            && let Err(error) = self.0.spawn(&mut state)
        {
            tracing::debug!(%error, "cannot start one more thread; the job waits for another one");
        }
    }

    /// Stops the pool: cancels the jobs that wait, and returns when the running ones have ended.
    pub(crate) fn stop(&self) {
        let (queues, threads) = {
            let mut state = self.0.state.lock();
            state.stopped = true;
            state.ready.clear();
            (std::mem::take(&mut state.queues), std::mem::take(&mut state.threads))
        };
        self.0.changed.notify_all();
        for Submitted { job, span } in queues.into_values().flat_map(|queue| queue.waiting) {
            span.in_scope(|| job(Invocation::Cancelled));
        }
        let here = std::thread::current().id();
        for thread in threads {
            // A job may drop the last handle of its own pool.
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

impl Drop for PayloadPermit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut state = self.shared.state.lock();
            state.bytes = count_down(state.bytes, self.bytes, "bytes of payloads");
            // The stop has removed the queue; a queue of this caller now is newer than this permit.
            if state.stopped {
                return;
            }
            if let Some(queue) = state.queues.get_mut(&self.caller) {
                queue.bytes = count_down(queue.bytes, self.bytes, "payload bytes of a caller");
            }
            state.remove_if_empty(self.caller);
        }
    }
}

impl Shared {
    fn spawn(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        state.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(self);
        let thread = pelago_threads::spawn("pelago-pool", move || shared.work())?;
        state.alive += 1;
        state.threads.push(thread);
        Ok(())
    }

    fn work(&self) {
        let mut state = self.state.lock();
        while let Some((caller, Submitted { job, span })) = self.next(&mut state) {
            drop(state);
            span.in_scope(|| job(Invocation::Run));
            drop(span);
            state = self.state.lock();
            state.finished(caller, self.per_caller);
        }
    }

    /// Waits for the next job; `None` ends this thread.
    fn next(&self, state: &mut MutexGuard<'_, State>) -> Option<(Caller, Submitted)> {
        loop {
            if state.stopped {
                return None;
            }
            if let Some(next) = state.take_ready() {
                return Some(next);
            }
            state.idle += 1;
            let timed_out = self.changed.wait_for(state, IDLE_TIMEOUT).timed_out();
            state.idle = count_down(state.idle, 1, "idle threads");
            if timed_out && state.ready.is_empty() && state.alive > self.per_caller {
                state.alive = count_down(state.alive, 1, "threads");
                return None;
            }
        }
    }
}

impl State {
    /// Adds a caller to the ready queue if it has one more job that may run. Called when a job of
    /// the caller was queued, or has finished. Returns whether it was added.
    fn make_ready(&mut self, caller: Caller, per_caller: usize) -> bool {
        let Some(queue) = self.queues.get_mut(&caller) else { return false };
        let may_run = queue.ready < queue.waiting.len() && queue.ready + queue.running < per_caller;
        if may_run {
            queue.ready += 1;
            self.ready.push_back(caller);
        }
        may_run
    }

    fn take_ready(&mut self) -> Option<(Caller, Submitted)> {
        let caller = self.ready.pop_front()?;
        let queue = self.queues.get_mut(&caller);
        let queue = queue.expect("a caller in the ready queue has a queue of jobs");
        queue.ready = count_down(queue.ready, 1, "ready jobs of a caller");
        let job = queue.waiting.pop_front().expect("an entry of the ready queue is a waiting job");
        queue.running += 1;
        Some((caller, job))
    }

    fn finished(&mut self, caller: Caller, per_caller: usize) {
        // The stop has removed the queue; a queue of this caller now is newer than this job.
        if self.stopped {
            return;
        }
        if let Some(queue) = self.queues.get_mut(&caller) {
            queue.running = count_down(queue.running, 1, "running jobs of a caller");
        }
        self.make_ready(caller, per_caller);
        self.remove_if_empty(caller);
    }

    /// Removes the queue of a caller without jobs and payloads.
    fn remove_if_empty(&mut self, caller: Caller) {
        let is_empty = |queue: &CallerQueue| {
            queue.waiting.is_empty() && queue.running == 0 && queue.bytes == 0
        };
        if self.queues.get(&caller).is_some_and(is_empty) {
            self.queues.remove(&caller);
        }
    }
}

/// Returns `count - by`.
///
/// # Panics
/// If the pool has counted wrong, so that the count of `what` would be below zero.
fn count_down(count: usize, by: usize, what: &str) -> usize {
    let left = count.checked_sub(by);
    left.unwrap_or_else(|| panic!("the pool counts right: {count} {what}, less {by}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const HOG: Caller = Caller { session: SessionId::DIRECT, uid: 1 };
    const OTHER: Caller = Caller { session: SessionId::DIRECT, uid: 2 };

    /// Returns a job that reports that it began, and runs until the sender is dropped.
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
    fn jobs_of_a_caller_run_once_and_in_order() {
        let pool = Pool::start(1).unwrap();
        let (began, begins) = channel();
        let (job, go) = stalled(&began);
        pool.submit(HOG, job);
        begins.recv().unwrap();
        let (called, calls) = channel();
        for number in 0..5000 {
            let called = called.clone();
            pool.submit(HOG, Box::new(move |call| called.send((call, number)).unwrap()));
        }
        assert!(calls.try_recv().is_err());
        drop(go);
        for number in 0..5000 {
            assert_eq!(calls.recv().unwrap(), (Invocation::Run, number));
        }
        assert!(calls.try_recv().is_err());
    }

    #[test]
    fn a_job_that_waits_during_a_stop_is_called_once() {
        let pool = Pool::start(1).unwrap();
        let (began, begins) = channel();
        let (job, go) = stalled(&began);
        pool.submit(HOG, job);
        begins.recv().unwrap();
        let (called, calls) = channel();
        pool.submit(HOG, Box::new(move |call| called.send(call).unwrap()));
        drop(go);
        pool.stop();
        assert!(matches!(calls.recv().unwrap(), Invocation::Run | Invocation::Cancelled));
        assert!(calls.try_recv().is_err());
    }

    #[test]
    fn after_a_stop_jobs_are_cancelled() {
        let pool = Pool::start(1).unwrap();
        pool.stop();
        let (called, calls) = channel();
        pool.submit(HOG, Box::new(move |call| called.send(call).unwrap()));
        assert_eq!(calls.recv().unwrap(), Invocation::Cancelled);
    }

    /// One user's jobs block all threads that it may have, and more jobs of it wait.
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
        let (called, calls) = channel();
        for number in 0..3 {
            let called = called.clone();
            pool.submit(OTHER, Box::new(move |call| called.send((call, number)).unwrap()));
        }
        let mut ran: Vec<_> = (0..3).map(|_| calls.recv().unwrap()).collect();
        ran.sort_by_key(|(_, number)| *number);
        assert_eq!(ran, [(Invocation::Run, 0), (Invocation::Run, 1), (Invocation::Run, 2)]);
        assert!(begins.try_recv().is_err(), "a user has no more threads than its share");
        drop(gates);
        (0..3).for_each(|_| begins.recv().unwrap());
    }

    /// With one thread left, users take turns, however many jobs one of them has.
    #[test]
    fn users_take_turns() {
        let pool = Pool::start(1).unwrap();
        let (began, begins) = channel();
        // Other users occupy every thread.
        let gates: Vec<_> = (0..limits::POOL_THREADS as u32)
            .map(|number| {
                let (job, go) = stalled(&began);
                pool.submit(Caller { uid: 100 + number, ..HOG }, job);
                begins.recv().unwrap();
                go
            })
            .collect();
        let (called, calls) = channel();
        let give = |caller, name| {
            let called: Sender<&str> = called.clone();
            pool.submit(caller, Box::new(move |_| called.send(name).unwrap()));
        };
        (0..100).for_each(|_| give(HOG, "hog"));
        give(OTHER, "other");
        drop(gates.into_iter().next());
        let first: Vec<_> = (0..101).map(|_| calls.recv().unwrap()).collect();
        let place = first.iter().position(|name| *name == "other").unwrap();
        assert!(place <= 1, "it waited for {place} jobs of the other");
    }

    #[test]
    fn a_caller_gets_no_more_payload_bytes_than_it_leaves_for_others() {
        let pool = Pool::start(1).unwrap();
        let half = limits::POOL_BYTES / 2;
        let first = pool.permit_payload(HOG, half).unwrap();
        assert!(pool.permit_payload(HOG, 1).is_none(), "half is taken, half is for others");
        let other = pool.permit_payload(OTHER, half / 2).unwrap();
        assert!(pool.permit_payload(OTHER, half / 4).is_none());
        assert!(pool.permit_payload(HOG, 0).is_some(), "an empty payload needs no permit");
        drop(first);
        drop(pool.permit_payload(HOG, half).unwrap());
        drop(other);
        let state = pool.0.state.lock();
        assert_eq!((state.bytes, state.queues.len()), (0, 0));
    }
}
