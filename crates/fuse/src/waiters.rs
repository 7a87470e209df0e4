//! Requests that wait, and callers that are killed meanwhile.
//!
//! Once a request was read, Linux lets its caller go only with a reply: the caller sleeps in state
//! D, and no signal wakes it, not even SIGKILL. The reply may never come: the server may be lost,
//! stopped or cut off, or a disk may hang. So the signals of callers that wait for long are looked
//! at in `/proc`. The request of a killed caller is answered `EINTR`, which no program sees.
//!
//! FUSE_INTERRUPT does not suffice. Linux sends at most one for a request, for the first signal,
//! for which the caller may have a handler; for a request of a ring it may be lost; and for the
//! FLUSH of a program that exits there is none.
//!
//! One thread looks, and rests while no request waits. It counts time in rounds, so that a request
//! with an early reply costs no look at a clock. It finds a call that hangs by the [`Hand`] of the
//! thread that carries it out.

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

/// The time of a round. A caller is looked at first after one to two rounds.
const ROUND: Duration = Duration::from_millis(250);
/// The most rounds between two looks at a caller.
const LONGEST_PAUSE: u64 = 4;
/// Count of rounds after which a call counts as one that hangs.
const HANGS: u32 = 4;
/// Silence after which a caller is given up whose death cannot be seen.
const LONG_SILENCE: Duration = Duration::from_secs(10);
/// Least count of recorded requests at which those with a reply are dropped.
const LEAST_NOTED: usize = 64;
/// Limit of recorded interrupts, which count for callers whose signals cannot be seen.
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
    /// The requests that wait, and some that have a reply since.
    waiting: Vec<Waiting>,
    /// Count of recorded requests at which those with a reply are dropped.
    room: usize,
    /// The threads that read requests from descriptors.
    readers: Vec<Reader>,
    round: u64,
    has_ended: bool,
    /// The newest interrupts, by the number of the request.
    interrupted: Vec<u64>,
}

/// A thread that reads requests, as of the last round.
#[derive(Debug)]
struct Reader {
    hand: Arc<Hand>,
    /// The request that it had, or zero.
    request: u64,
    /// Rounds in which it has had this request.
    rounds: u32,
}

/// A request that waits, and its caller.
#[derive(Debug)]
struct Waiting {
    in_hand: InHand,
    /// The round of the first look at the caller.
    since: u64,
    /// The round of the next look.
    next: u64,
    /// Rounds from the next look to the one after it.
    pause: u64,
}

/// The state of a round.
struct Round {
    number: u64,
    interrupted: Vec<u64>,
    /// Time for which the server has been silent, or, without a server, all calls have hung.
    silence: Duration,
    /// The file system has a server outside this process.
    is_remote: bool,
}

impl Waiters {
    /// Adds a thread that reads requests, whose hand is looked at from now on.
    pub(crate) fn add_reader(&self, hand: &Arc<Hand>) {
        let reader = Reader { hand: Arc::clone(hand), request: 0, rounds: 0 };
        self.state.lock().readers.push(reader);
    }

    /// Records that a thread has a request in its hand.
    pub(crate) fn begins(&self) {
        if self.rests.load(Ordering::Relaxed) {
            self.wake(&self.state.lock());
        }
    }

    /// Records a request that has no reply yet.
    pub(crate) fn add(&self, to: &ReplyTo, header: &Header, wait: Wait) {
        let mut state = self.state.lock();
        let due = state.round + 2;
        let request = header.unique;
        let thread = header.pid;
        state.note(Waiting::new(InHand { request, thread, wait, to: to.clone() }, due));
        self.wake(&state);
    }

    /// Records that the caller of a request got a signal, in case its signals cannot be seen.
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
        // A thread that has read `rests` just before may have a request that is not visible yet:
        // its stores are not ordered with that read, which saves a fence. A round later they are
        // visible.
        self.changed.wait_for(state, ROUND);
        if self.rests.load(Ordering::Relaxed) && state.is_quiet() {
            state.interrupted.clear();
            self.changed.wait(state);
        }
        self.rests.store(false, Ordering::Relaxed);
    }

    /// Ends a rest. The guard must be that of the state, so that no wake is lost.
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

    /// Records the requests that threads have had in their hands since the last round.
    fn look_at_readers(&mut self) {
        let round = self.round;
        let mut found = Vec::new();
        for reader in &mut self.readers {
            let request = reader.hand.request();
            let stays = request != 0 && request == reader.request;
            reader.rounds = if stays { reader.rounds.saturating_add(1) } else { 0 };
            reader.request = request;
            // Later rounds find it recorded.
            if reader.rounds == 1
                && let Some(in_hand) = reader.hand.in_hand(request)
                && in_hand.wait != Wait::WriteBack
            {
                found.push(Waiting::new(in_hand, round));
            }
        }
        found.into_iter().for_each(|waiting| self.note(waiting));
    }

    /// Returns for how many rounds at least every thread that reads has had the same request.
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

    /// Answers the request if its caller was killed. Returns whether the request has a reply.
    fn give_up(&self, filesystem: &dyn Filesystem, round: &Round) -> bool {
        let InHand { request, thread, wait, to } = &self.in_hand;
        let is_gone = match Thread::look(*thread, *wait) {
            Thread::Lives => false,
            Thread::Killed => true,
            // The kernel drops signals to a program that exits, so only time decides. Without a
            // server one close may hang alone, with its disk: then its own age counts.
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
