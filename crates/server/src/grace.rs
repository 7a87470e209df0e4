//! Grace: the time after a start in which the sessions of the last run reclaim, and other requests
//! wait. The same time follows when the table was opened again and may have lost changes that were
//! answered: then another epoch begins in this run, and "run" below means "epoch".
//!
//! The clients of these sessions have files open that this run does not know, and requests that the
//! last run may have carried out without an answer. So all other requests wait until each session
//! has opened its files again and repeated its requests, or has ended: they must not see, change or
//! remove anything on which those rely. Then requests go on in this order: those that the last run
//! has answered and may have lost, in the order in which they were done; writes that clients had
//! held back under leases; repeated requests; and all others.
//!
//! This is a state machine: it says which requests go on, and a thread of `service::starting`
//! carries them out. A session that does not come back in time is given up.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_trace::RequestSpan;
use pelago_wire::{Context, Done, Request, SessionId, limits};

use crate::completion::CancelKey;

/// The requests that wait for the sessions of the last run.
pub(crate) struct Grace {
    is_over: AtomicBool,
    /// A leaf lock.
    state: Mutex<State>,
    /// Signalled when the phase has changed, or the next step may be ready.
    changed: Condvar,
}

struct State {
    phase: Phase,
    /// The time from which the limit of the phase counts: its start, or the end of a part of it.
    since: Instant,
    /// Counts the restarts of the wait.
    round: Round,
    /// True if there is a thread that takes the steps.
    has_thread: bool,
    /// True if that thread carries out requests that the last run has answered, of this round or of
    /// an earlier one.
    is_replaying: bool,
    /// Sessions that have not reclaimed everything, and have not ended.
    waits_for: HashSet<SessionId>,
    /// Sessions whose clients may still send writes that they had held back, and which have not
    /// ended.
    keeps_back: HashSet<SessionId>,
    /// True if the time of the sessions in `waits_for` is over.
    is_late: bool,
    /// Sessions that came back after their time was over, and before they were given up.
    came_late: Vec<SessionId>,
    /// Requests that the last run has answered. They go first.
    replays: Vec<Parked>,
    /// Repeated appends whose offset is recorded. They go second, so that no other append takes the
    /// offset.
    placed: VecDeque<Parked>,
    /// Writes that clients had held back. They go third: repeated requests of other sessions on
    /// these files had waited for the recall of the leases.
    kept_back: VecDeque<Parked>,
    /// Repeated requests. They go fourth.
    repeated: VecDeque<Parked>,
    /// All other requests. They go last.
    others: VecDeque<Parked>,
    /// Payload bytes in `others` from the server's own mount.
    bytes: usize,
    /// Number of repeated requests that run.
    running: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Sessions have not come back yet.
    Waiting,
    /// Requests that the last run has answered are carried out.
    Replaying,
    /// Appends with a recorded offset, and writes that were held back, run as they come.
    Flushing,
    /// Repeated requests run.
    Repeating,
    Over,
}

/// The number of a wait in its run. Requests that still run from an earlier wait end nothing in a
/// later one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round(u32);

/// A request that waits.
pub(crate) struct Parked {
    pub(crate) context: Context,
    pub(crate) request: Request,
    pub(crate) bytes: Vec<u8>,
    pub(crate) done: Done,
    pub(crate) span: RequestSpan,
}

/// The next step of the thread that carries out requests.
pub(crate) enum Step {
    /// These sessions are late and can reclaim nothing more; [`Grace::give_up_late`] ends the wait
    /// for them.
    Late(Vec<SessionId>),
    /// Carry out these requests, one after the other, then call [`Grace::replayed`].
    Replay(Vec<Parked>),
    /// Carry out these requests; call [`Grace::repeated`] at the end of each.
    Repeat(VecDeque<Parked>),
    /// Begin new write eras, so that this run and later ones refuse writes that were held back
    /// before. All other requests go on after that.
    EndEras,
    /// Carry out these requests; later ones do not wait. It is the last step.
    Over(VecDeque<Parked>),
}

impl Grace {
    /// Returns a wait for these sessions, which is over if there are none.
    pub(crate) fn new(waits_for: HashSet<SessionId>) -> Self {
        let phase = if waits_for.is_empty() { Phase::Over } else { Phase::Waiting };
        let [placed, kept_back, repeated, others] = Default::default();
        let state = State {
            phase,
            since: Instant::now(),
            round: Round::default(),
            has_thread: false,
            is_replaying: false,
            keeps_back: waits_for.clone(),
            waits_for,
            is_late: false,
            came_late: Vec::new(),
            replays: Vec::new(),
            placed,
            kept_back,
            repeated,
            others,
            bytes: 0,
            running: 0,
        };
        let is_over = AtomicBool::new(phase == Phase::Over);
        Self { is_over, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Restarts the wait, for these sessions. Returns their requests that are not carried out: they
    /// will repeat them.
    pub(crate) fn begin_again(&self, sessions: HashSet<SessionId>) -> Vec<Parked> {
        let mut state = self.state.lock();
        self.is_over.store(false, Ordering::Release);
        state.phase = Phase::Waiting;
        state.since = Instant::now();
        state.round.0 += 1;
        state.keeps_back = sessions.clone();
        state.waits_for = sessions;
        state.is_late = false;
        state.running = 0;
        state.came_late.clear();
        let is_own = |parked: &Parked| parked.context.session == SessionId::DIRECT;
        let (own, theirs) = std::mem::take(&mut state.others).into_iter().partition(is_own);
        state.others = own;
        let mut dropped = Vec::from(theirs);
        dropped.append(&mut state.replays);
        dropped.extend(std::mem::take(&mut state.placed));
        dropped.extend(std::mem::take(&mut state.kept_back));
        dropped.extend(std::mem::take(&mut state.repeated));
        self.changed.notify_all();
        dropped
    }

    /// Returns whether the wait is over, so that no request is parked.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns whether the caller must start a thread that takes the steps. From then on there is
    /// one, until the last step.
    pub(crate) fn needs_thread(&self) -> bool {
        let mut state = self.state.lock();
        state.phase != Phase::Over && !std::mem::replace(&mut state.has_thread, true)
    }

    /// Records that no thread could be started to take the steps.
    pub(crate) fn has_no_thread(&self) {
        self.state.lock().has_thread = false;
    }

    /// Waits for the next step and returns it. Sessions have `limit` to come back, and the same
    /// time again to send writes that they had held back. Repeated requests have it from the end of
    /// the last one.
    pub(crate) fn next(&self, limit: Duration) -> (Round, Step) {
        let mut state = self.state.lock();
        loop {
            if state.phase == Phase::Flushing && state.since.elapsed() >= limit {
                // Even if writes keep coming: other requests wait.
                state.give_up_kept_back();
            }
            if let Some(step) = self.ready(&mut state) {
                return (state.round, step);
            }
            let until = state.since + limit;
            if self.changed.wait_until(&mut state, until).timed_out()
                && Instant::now() >= state.since + limit
            {
                let ready = self.ready(&mut state);
                let step = ready.unwrap_or_else(|| self.expired(&mut state));
                return (state.round, step);
            }
        }
    }

    /// Returns whether this session can still reclaim. Then this run has carried out no request of
    /// another session, apart from those that open files and set locks again.
    pub(crate) fn waits_for(&self, session: SessionId) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Waiting && !state.is_late && state.waits_for.contains(&session)
    }

    /// Counts the sessions that have not come back.
    pub(crate) fn sessions(&self) -> usize {
        self.state.lock().waits_for.len()
    }

    /// Queues a request until its turn; returns it if that is now. If the server's own mount has
    /// queued too many bytes, blocks its thread. `is_placed`: an append whose offset is recorded.
    pub(crate) fn park(&self, parked: Parked, is_placed: bool) -> Option<Parked> {
        let bytes = parked.bytes.len();
        let session = parked.context.session;
        let is_own = session == SessionId::DIRECT;
        let mut state = self.state.lock();
        while is_own && state.phase != Phase::Over && state.bytes + bytes > limits::POOL_BYTES {
            self.changed.wait(&mut state);
        }
        match state.phase {
            Phase::Over => return Some(parked),
            Phase::Waiting
                if parked.context.replayed.is_some() && state.waits_for.contains(&session) =>
            {
                state.replays.push(parked);
            }
            _ if state.takes_kept_back(&parked) => {
                state.kept_back.push_back(parked);
                self.changed.notify_all();
            }
            Phase::Waiting
                if state.waits_for.contains(&session)
                    && parked.request.at_start().goes_before_new() =>
            {
                let queue = if is_placed { &mut state.placed } else { &mut state.repeated };
                queue.push_back(parked);
            }
            _ => {
                state.bytes += if is_own { bytes } else { 0 };
                state.others.push_back(parked);
            }
        }
        None
    }

    /// Removes a request from its queue, because its caller waits no longer. A request that changes
    /// something stays: the last run may have carried it out, and only its repetition can tell.
    pub(crate) fn cancel(&self, context: &Context) -> Option<Parked> {
        let mut state = self.state.lock();
        let is_it = |parked: &Parked| {
            let other = &parked.context;
            CancelKey::from(other) == CancelKey::from(context) && other.mutation == 0
        };
        let at = state.others.iter().position(is_it)?;
        let parked = state.others.remove(at)?;
        if context.session == SessionId::DIRECT {
            state.bytes -= parked.bytes.len();
        }
        Some(parked)
    }

    /// Records that a session has opened its files again and repeated its requests, or has ended.
    /// Returns whether it was given up before: then the next run does not know it.
    pub(crate) fn came_back(&self, session: SessionId) -> bool {
        let mut state = self.state.lock();
        let was_awaited = state.waits_for.remove(&session);
        if was_awaited && state.is_late {
            state.came_late.push(session);
        }
        self.changed.notify_all();
        !was_awaited
    }

    /// Records that the client of a session has answers to all writes that it had held back, or
    /// that the session has ended.
    pub(crate) fn flushed(&self, session: SessionId) {
        if self.state.lock().keeps_back.remove(&session) {
            self.changed.notify_all();
        }
    }

    /// Gives up the sessions that are late. Returns those that came back since [`Step::Late`].
    pub(crate) fn give_up_late(&self, round: Round) -> Vec<SessionId> {
        let mut state = self.state.lock();
        if state.round != round {
            return Vec::new();
        }
        if !state.waits_for.is_empty() {
            tracing::warn!(sessions = state.waits_for.len(), "clients did not come back in time");
            let late = std::mem::take(&mut state.waits_for);
            state.keeps_back.retain(|session| !late.contains(session));
        }
        std::mem::take(&mut state.came_late)
    }

    /// Returns the present round.
    pub(crate) fn round(&self) -> Round {
        self.state.lock().round
    }

    /// Returns whether this round is the present one.
    pub(crate) fn is_in(&self, round: Round) -> bool {
        self.state.lock().round == round
    }

    /// Waits until no replay of an earlier round runs, for at most `limit`.
    pub(crate) fn wait_for_replays(&self, limit: Duration) {
        let mut state = self.state.lock();
        let until = Instant::now() + limit;
        while state.is_replaying && !self.changed.wait_until(&mut state, until).timed_out() {}
    }

    /// Records that the requests of [`Step::Replay`] were carried out.
    pub(crate) fn replayed(&self, round: Round) {
        let mut state = self.state.lock();
        state.is_replaying = false;
        self.changed.notify_all();
        if state.round == round && state.phase == Phase::Replaying {
            state.phase = Phase::Flushing;
            state.since = Instant::now();
        }
    }

    /// Records that a request of [`Step::Repeat`] was carried out.
    pub(crate) fn repeated(&self, round: Round) {
        let mut state = self.state.lock();
        // A request that took too long is not counted any more.
        if state.round == round && matches!(state.phase, Phase::Flushing | Phase::Repeating) {
            assert!(state.running > 0, "each repeated request ends once");
            state.running -= 1;
            if state.phase == Phase::Repeating {
                state.since = Instant::now();
            }
            self.changed.notify_all();
        }
    }

    /// Ends the wait before its time. Returns all requests that wait.
    pub(crate) fn stop(&self) -> VecDeque<Parked> {
        let mut state = self.state.lock();
        state.waits_for.clear();
        state.keeps_back.clear();
        let mut all = VecDeque::from(std::mem::take(&mut state.replays));
        all.extend(self.end(&mut state));
        all
    }

    /// Returns the next step, if it can be taken now.
    fn ready(&self, state: &mut State) -> Option<Step> {
        if state.phase == Phase::Waiting && state.waits_for.is_empty() {
            state.since = Instant::now();
            let mut replays = std::mem::take(&mut state.replays);
            if !replays.is_empty() {
                state.phase = Phase::Replaying;
                state.is_replaying = true;
                // Stable: a request that uses an inode stays after the one that makes it.
                replays
                    .sort_by_key(|parked| parked.context.replayed.map(|replayed| replayed.stamp));
                return Some(Step::Replay(replays));
            }
            state.phase = Phase::Flushing;
        }
        match state.phase {
            Phase::Flushing => {
                for next in [&mut state.placed, &mut state.kept_back] {
                    if !next.is_empty() {
                        let next = std::mem::take(next);
                        state.running += next.len();
                        return Some(Step::Repeat(next));
                    }
                }
                (state.running == 0 && state.keeps_back.is_empty()).then(|| end_flushing(state))
            }
            Phase::Repeating => {
                let next = std::mem::take(&mut state.repeated);
                if !next.is_empty() {
                    state.running = next.len();
                    state.since = Instant::now();
                    return Some(Step::Repeat(next));
                }
                (state.running == 0).then(|| self.over(state))
            }
            // The service was stopped.
            Phase::Over => {
                state.has_thread = false;
                Some(Step::Over(VecDeque::new()))
            }
            Phase::Waiting | Phase::Replaying => None,
        }
    }

    /// Returns the step to take when a phase has lasted too long.
    fn expired(&self, state: &mut State) -> Step {
        if state.phase == Phase::Waiting {
            state.is_late = true;
            return Step::Late(state.waits_for.iter().copied().collect());
        }
        if state.running > 0 {
            tracing::error!(requests = state.running, "repeated requests do not end");
        }
        match state.phase {
            Phase::Flushing => end_flushing(state),
            Phase::Waiting | Phase::Replaying | Phase::Repeating | Phase::Over => self.over(state),
        }
    }

    fn over(&self, state: &mut State) -> Step {
        state.has_thread = false;
        Step::Over(self.end(state))
    }

    /// Ends the wait. Returns all requests that wait.
    fn end(&self, state: &mut State) -> VecDeque<Parked> {
        state.phase = Phase::Over;
        state.bytes = 0;
        self.is_over.store(true, Ordering::Release);
        self.changed.notify_all();
        let mut all = std::mem::take(&mut state.placed);
        all.append(&mut state.kept_back);
        all.append(&mut state.repeated);
        all.append(&mut state.others);
        all
    }
}

/// Ends the phase of writes that were held back; those that still run are not counted any more.
fn end_flushing(state: &mut State) -> Step {
    state.give_up_kept_back();
    if state.running > 0 {
        state.round.0 += 1;
    }
    state.phase = Phase::Repeating;
    state.since = Instant::now();
    state.running = 0;
    Step::EndEras
}

impl State {
    /// Refuses further writes that clients had held back.
    fn give_up_kept_back(&mut self) {
        if !self.keeps_back.is_empty() {
            let sessions = self.keeps_back.len();
            tracing::error!(sessions, "clients did not send in time what they had kept back");
            self.keeps_back.clear();
        }
    }

    /// Returns whether a request is a write that a client had held back in the last run, or tells
    /// of bytes that another site has written under a lease, and may still be carried out before
    /// others.
    fn takes_kept_back(&self, parked: &Parked) -> bool {
        let Parked { context, request, .. } = parked;
        let is_told = matches!(request, Request::SetBytes { flags, .. } if !flags.asks);
        (is_told || request.kept_back().is_some())
            && context.replayed.is_none()
            && self.keeps_back.contains(&context.session)
    }
}

#[cfg(test)]
mod tests;
