//! Requests that wait, and callers that are killed meanwhile.
//!
//! Once a request was read, the kernel lets its caller go only with a reply: it sleeps in state D,
//! and no signal wakes it. What answers the requests may be a server that is lost, stopped or cut
//! off, or a disk that hangs. So the signals of callers that wait for long are looked at in
//! `/proc`. A caller that was killed gets `EINTR`, which it never sees: it is gone.
//!
//! FUSE_INTERRUPT does not serve. The kernel sends one for each request at most, for the first
//! signal, which the caller may have a handler for; for a request of a ring it may be lost; and for
//! the closes of a program that exits there is none.
//!
//! One thread looks, and rests while nothing is asked. Time passes in rounds, so that a request
//! that is answered soon costs no look at a clock. A call that hangs is seen by what the thread
//! that carries it out has in its [`Hand`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::Errno;
use crate::filesystem::Filesystem;
use crate::hand::{Hand, InHand};
use crate::operation::Wait;
use crate::reply_to::ReplyTo;
use crate::request::Header;

use thread::Thread;

mod thread;

/// The time of a round. A caller is looked at first after one to two of them.
const ROUND: Duration = Duration::from_millis(250);
/// The most rounds between two looks at a caller.
const LONGEST_PAUSE: u64 = 4;
/// After so many rounds a call hangs. No caller of another request is delayed by it.
const HANGS: u32 = 4;
/// After so long a silence a caller is given up whose death cannot be seen.
const LONG_SILENCE: Duration = Duration::from_secs(10);
/// Requests that are noted before those are dropped that were answered.
const LEAST_NOTED: usize = 64;
/// Limit of the interrupts that are kept of callers whose signals cannot be seen.
const INTERRUPTS: usize = 4096;

/// The requests that wait for a reply.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    changed: Condvar,
    /// The thread waits for a request, or is about to.
    rests: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Those that wait, and some that were answered since.
    waiting: Vec<Waiting>,
    /// So many are noted before answered ones are dropped.
    room: usize,
    /// The threads that read requests from descriptors.
    readers: Vec<Reader>,
    round: u64,
    has_ended: bool,
    /// The newest interrupts, by the number of the request.
    interrupted: Vec<u64>,
}

/// A thread that reads requests, as it was seen last.
#[derive(Debug)]
struct Reader {
    hand: Arc<Hand>,
    /// The request that it had, or zero, and for how many rounds.
    request: u64,
    rounds: u32,
}

/// A request that waits, and its caller.
#[derive(Debug)]
struct Waiting {
    in_hand: InHand,
    /// The rounds in which the caller is looked at first and next, and rounds since the last look.
    since: u64,
    next: u64,
    pause: u64,
}

/// What is known in a round, besides its callers.
struct Round {
    number: u64,
    interrupted: Vec<u64>,
    /// How long the server has been silent, or else all calls have hung.
    silence: Duration,
    is_remote: bool,
}

impl Waiters {
    /// Looks at what a thread that reads requests has in its hand from now on.
    pub(crate) fn add_reader(&self, hand: &Arc<Hand>) {
        let reader = Reader { hand: Arc::clone(hand), request: 0, rounds: 0 };
        self.state.lock().readers.push(reader);
    }

    /// A thread has a request in its hand.
    pub(crate) fn begins(&self) {
        if self.rests.load(Ordering::Relaxed) {
            self.wake(&self.state.lock());
        }
    }

    /// Notes a request that was not answered at once, until it is.
    pub(crate) fn add(&self, to: &ReplyTo, header: &Header, wait: Wait) {
        let mut state = self.state.lock();
        let due = state.round + 2;
        let request = header.unique;
        let thread = header.pid;
        state.note(Waiting::new(InHand { request, thread, wait, to: to.clone() }, due));
        self.wake(&state);
    }

    /// Notes that the caller of a request got a signal, for the case that it cannot be seen.
    pub(crate) fn interrupted(&self, request: u64) {
        let mut state = self.state.lock();
        if !state.interrupted.contains(&request) {
            if state.interrupted.len() >= INTERRUPTS {
                state.interrupted.remove(0);
            }
            state.interrupted.push(request);
        }
    }

    /// Gives killed callers up until [`Waiters::end`]. `all_hang` is called in each round in which
    /// no thread is left that reads requests.
    pub(crate) fn run(&self, filesystem: &dyn Filesystem, mut all_hang: impl FnMut()) {
        let mut state = self.state.lock();
        loop {
            if state.is_quiet() {
                self.rest(&mut state);
            }
            if state.has_ended {
                return;
            }
            self.changed.wait_for(&mut state, ROUND);
            drop(state);
            self.round(filesystem, &mut all_hang);
            state = self.state.lock();
        }
    }

    /// Waits for a request.
    fn rest(&self, state: &mut MutexGuard<'_, State>) {
        self.rests.store(true, Ordering::SeqCst);
        // A thread that has looked just before may have a request that is not seen yet: its stores
        // are not ordered with its look, which so costs no fence. A round later they are seen.
        self.changed.wait_for(state, ROUND);
        if self.rests.load(Ordering::Relaxed) && state.is_quiet() {
            state.interrupted.clear();
            self.changed.wait(state);
        }
        self.rests.store(false, Ordering::Relaxed);
    }

    /// Ends a rest. The guard is of the state, so that no wake is lost.
    fn wake(&self, _state: &MutexGuard<'_, State>) {
        if self.rests.swap(false, Ordering::Relaxed) {
            self.changed.notify_all();
        }
    }

    /// Looks at the callers whose turn it is.
    fn round(&self, filesystem: &dyn Filesystem, all_hang: &mut dyn FnMut()) {
        let mut state = self.state.lock();
        let mut due = state.take_due();
        let hang = state.all_hang();
        let number = state.round;
        let interrupted = state.interrupted.clone();
        drop(state);
        if hang >= HANGS {
            all_hang();
        }
        if due.is_empty() {
            return;
        }
        let server = filesystem.silence();
        let silence = server.unwrap_or(ROUND * hang);
        let round = Round { number, interrupted, silence, is_remote: server.is_some() };
        due.retain_mut(|waiting| {
            waiting.looked_at();
            !waiting.give_up(filesystem, &round)
        });
        self.state.lock().waiting.append(&mut due);
    }

    /// Ends [`Waiters::run`].
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.waiting.clear();
        drop(state);
        self.changed.notify_all();
    }
}

impl State {
    fn note(&mut self, waiting: Waiting) {
        if self.waiting.len() >= self.room {
            self.waiting.retain(Waiting::waits);
            self.room = LEAST_NOTED.max(2 * self.waiting.len());
        }
        self.waiting.push(waiting);
    }

    /// Returns whether no request is known.
    fn is_quiet(&self) -> bool {
        !self.has_ended
            && self.waiting.is_empty()
            && self.readers.iter().all(|reader| reader.hand.request() == 0)
    }

    /// Begins a round. Returns the requests whose callers are looked at in it.
    fn take_due(&mut self) -> Vec<Waiting> {
        self.round += 1;
        let round = self.round;
        self.look_at_readers();
        self.waiting.retain(Waiting::waits);
        let is_due = |waiting: &mut Waiting| waiting.next <= round;
        self.waiting.extract_if(.., is_due).collect()
    }

    /// Notes the requests that threads have had in their hands since the last round.
    fn look_at_readers(&mut self) {
        let round = self.round;
        let mut found = Vec::new();
        for reader in &mut self.readers {
            let request = reader.hand.request();
            let stays = request != 0 && request == reader.request;
            reader.rounds = if stays { reader.rounds.saturating_add(1) } else { 0 };
            reader.request = request;
            // Later rounds find it noted.
            if reader.rounds == 1
                && let Some(in_hand) = reader.hand.in_hand(request)
                && in_hand.wait != Wait::WriteBack
            {
                found.push(Waiting::new(in_hand, round));
            }
        }
        found.into_iter().for_each(|waiting| self.note(waiting));
    }

    /// Returns for how many rounds each thread that reads has had the same request.
    fn all_hang(&self) -> u32 {
        self.readers.iter().map(|reader| reader.rounds).min().unwrap_or(0)
    }
}

impl Waiting {
    /// Returns a request and its caller, who is looked at in round `next`.
    const fn new(in_hand: InHand, next: u64) -> Self {
        Self { in_hand, since: next, next, pause: 1 }
    }

    fn waits(&self) -> bool {
        self.in_hand.to.has(self.in_hand.request)
    }

    fn looked_at(&mut self) {
        self.next += self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Answers the request if its caller is gone. Returns whether it has an answer.
    fn give_up(&self, filesystem: &dyn Filesystem, round: &Round) -> bool {
        let InHand { request, thread, wait, to } = &self.in_hand;
        let is_gone = match Thread::look(*thread, *wait) {
            Thread::Lives => false,
            Thread::Killed => true,
            // No signal tells when its closes may end. Those by this process may hang alone.
            Thread::Exits if round.is_remote => round.silence > LONG_SILENCE,
            Thread::Exits => self.age(round) > LONG_SILENCE,
            Thread::Unseen => round.interrupted.contains(request) && round.silence > LONG_SILENCE,
        };
        if !is_gone {
            return !self.waits();
        }
        if to.claim(*request) {
            tracing::debug!(request, thread, "a caller was killed");
            to.send(*request, Some(Errno::INTR), &[]);
            filesystem.given_up(*request);
        }
        true
    }

    /// Returns how long ago its caller was looked at first.
    fn age(&self, round: &Round) -> Duration {
        let rounds = round.number.saturating_sub(self.since);
        ROUND * u32::try_from(rounds).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests;
