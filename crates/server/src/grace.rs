//! The time after a start in which the sessions of the last run come back; or after the table was
//! opened again and may have lost what they were answered: then another epoch begins in this run,
//! and what is said of runs holds for epochs.
//!
//! Their clients have files open that this run does not know, and requests that the last run may
//! have carried out and not answered. So until each of them has opened its files again, has
//! repeated its requests, or has ended, all other requests wait: they must not see, change or
//! remove what these rely on. Then what the last run has answered and may have lost is carried out
//! again, in the order in which it was done, then what clients had kept back under leases, then the
//! repeated requests, and then all others.
//!
//! This is a state machine: it says which requests go on, and a thread of `service::starting` does
//! that.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_trace::RequestSpan;
use pelago_wire::{Context, Done, Request, SessionId, limits};

use crate::completion::CancelKey;

/// What still waits for the sessions of the last run.
pub(crate) struct Grace {
    is_over: AtomicBool,
    /// A leaf lock.
    state: Mutex<State>,
    /// The phase has changed, or may be about to.
    changed: Condvar,
}

struct State {
    phase: Phase,
    /// When the phase began, or a part of it ended.
    since: Instant,
    /// Counts the times that it began again.
    round: Round,
    /// A thread takes the steps.
    has_thread: bool,
    /// That thread carries out what the last run has answered, of this round or of an earlier one.
    is_replaying: bool,
    /// Sessions that have not said that they are done, and have not ended.
    waits_for: HashSet<SessionId>,
    /// Sessions that have not said that all is answered that their clients had kept back, and have
    /// not ended.
    keeps_back: HashSet<SessionId>,
    /// Their time is over.
    is_late: bool,
    /// Sessions that came back after that, and before they were given up.
    came_late: Vec<SessionId>,
    /// Requests that the last run has answered, which go before all others.
    replays: Vec<Parked>,
    /// Repeated appends whose bytes have a place in their file. They go behind those, so that no
    /// other append takes it.
    placed: VecDeque<Parked>,
    /// Writes that clients had kept back: what other sessions repeat on these files had waited for
    /// their recall, and comes after them.
    kept_back: VecDeque<Parked>,
    /// Repeated requests, which go behind those.
    repeated: VecDeque<Parked>,
    /// All other requests.
    others: VecDeque<Parked>,
    /// Payload bytes of those of the server's own mount.
    bytes: usize,
    /// Repeated requests that run.
    running: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Sessions are still to come back.
    Waiting,
    /// Requests run that the last run has answered.
    Replaying,
    /// Appends that have a place run, and writes that were kept back, as they come.
    Flushing,
    /// Repeated requests run.
    Repeating,
    Over,
}

/// Tells one wait from the next one in the same run: what still runs of an earlier one ends nothing
/// of a later one.
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

/// What goes on now.
pub(crate) enum Step {
    /// Nothing of these sessions is given back any more; [`Grace::give_up_late`] ends the wait.
    Late(Vec<SessionId>),
    /// These, one after the other; [`Grace::replayed`] is called at the end of all.
    Replay(Vec<Parked>),
    /// These; [`Grace::repeated`] is called at the end of each.
    Repeat(VecDeque<Parked>),
    /// Bytes that clients have kept back are written: from now on they are not, in this run and in
    /// later ones. All else goes on after that.
    EndEras,
    /// These, and all that come later. It is the last step.
    Over(VecDeque<Parked>),
}

impl Grace {
    /// Returns one that waits for these sessions; without any it is over.
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

    /// Begins again, and waits for these sessions. Returns what they have asked and is not carried
    /// out: they will repeat it.
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

    /// Returns whether no request waits any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns whether a thread is needed that takes the steps. There is one from now on, until
    /// the last step.
    pub(crate) fn needs_thread(&self) -> bool {
        let mut state = self.state.lock();
        state.phase != Phase::Over && !std::mem::replace(&mut state.has_thread, true)
    }

    /// There is no thread that takes the steps: none could be had.
    pub(crate) fn has_no_thread(&self) {
        self.state.lock().has_thread = false;
    }

    /// Waits for the next step. Sessions have `limit` to come back, and as long again to send what
    /// they had kept back. Repeated requests that run have it from the end of the last one on.
    pub(crate) fn next(&self, limit: Duration) -> (Round, Step) {
        let mut state = self.state.lock();
        loop {
            if state.phase == Phase::Flushing && state.since.elapsed() >= limit {
                // Also if writes come without end: others wait.
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

    /// Returns whether it waits for this session. Then no request of another one was carried out
    /// in this run, apart from those that open files and set locks again.
    pub(crate) fn waits_for(&self, session: SessionId) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Waiting && !state.is_late && state.waits_for.contains(&session)
    }

    /// Returns for how many sessions it waits.
    pub(crate) fn sessions(&self) -> usize {
        self.state.lock().waits_for.len()
    }

    /// Keeps a request until its turn; returns it if that is now. Too many bytes of the server's
    /// own mount wait on the thread of their caller. `is_placed`: it is an append whose bytes have
    /// a place.
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

    /// Takes back a request that waits, as its caller waits no longer. One that changes something
    /// stays: the last run may have carried it out, and only its repetition can tell.
    pub(crate) fn cancel(&self, context: &Context) -> Option<Parked> {
        let mut state = self.state.lock();
        let is_it = |parked: &Parked| {
            let known = &parked.context;
            CancelKey::from(known) == CancelKey::from(context) && known.mutation == 0
        };
        let at = state.others.iter().position(is_it)?;
        let parked = state.others.remove(at)?;
        if context.session == SessionId::DIRECT {
            state.bytes -= parked.bytes.len();
        }
        Some(parked)
    }

    /// A session has opened its files again and repeated its requests, or it has ended. Returns
    /// whether it was given up before: the next run does not know it.
    pub(crate) fn came_back(&self, session: SessionId) -> bool {
        let mut state = self.state.lock();
        let was_awaited = state.waits_for.remove(&session);
        if was_awaited && state.is_late {
            state.came_late.push(session);
        }
        self.changed.notify_all();
        !was_awaited
    }

    /// The client of a session has the answer to all that it had kept back, or it has ended.
    pub(crate) fn flushed(&self, session: SessionId) {
        if self.state.lock().keeps_back.remove(&session) {
            self.changed.notify_all();
        }
    }

    /// Ends the wait for the sessions that are late. Returns those that came back since
    /// [`Step::Late`].
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

    /// Returns whether what a step of this round has begun goes on.
    pub(crate) fn is_in(&self, round: Round) -> bool {
        self.state.lock().round == round
    }

    /// Waits until nothing is replayed any more of an earlier round, for at most `limit`.
    pub(crate) fn wait_for_replays(&self, limit: Duration) {
        let mut state = self.state.lock();
        let until = Instant::now() + limit;
        while state.is_replaying && !self.changed.wait_until(&mut state, until).timed_out() {}
    }

    /// The requests that the last run has answered were carried out.
    pub(crate) fn replayed(&self, round: Round) {
        let mut state = self.state.lock();
        state.is_replaying = false;
        self.changed.notify_all();
        if state.round == round && state.phase == Phase::Replaying {
            state.phase = Phase::Flushing;
            state.since = Instant::now();
        }
    }

    /// A repeated request was carried out.
    pub(crate) fn repeated(&self, round: Round) {
        let mut state = self.state.lock();
        // One that took too long is counted no more.
        if state.round == round && matches!(state.phase, Phase::Flushing | Phase::Repeating) {
            assert!(state.running > 0, "each repeated request ends once");
            state.running -= 1;
            if state.phase == Phase::Repeating {
                state.since = Instant::now();
            }
            self.changed.notify_all();
        }
    }

    /// Ends it before its time. Returns all that waits.
    pub(crate) fn stop(&self) -> VecDeque<Parked> {
        let mut state = self.state.lock();
        state.waits_for.clear();
        state.keeps_back.clear();
        let mut all = VecDeque::from(std::mem::take(&mut state.replays));
        all.extend(self.end(&mut state));
        all
    }

    /// Returns the step that can be taken.
    fn ready(&self, state: &mut State) -> Option<Step> {
        if state.phase == Phase::Waiting && state.waits_for.is_empty() {
            state.since = Instant::now();
            let mut replays = std::mem::take(&mut state.replays);
            if !replays.is_empty() {
                state.phase = Phase::Replaying;
                state.is_replaying = true;
                // Stable: an open file of an inode comes behind what makes it.
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
            // It was stopped.
            Phase::Over => {
                state.has_thread = false;
                Some(Step::Over(VecDeque::new()))
            }
            Phase::Waiting | Phase::Replaying => None,
        }
    }

    /// Returns the step after a phase has lasted too long.
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
            _ => self.over(state),
        }
    }

    fn over(&self, state: &mut State) -> Step {
        state.has_thread = false;
        Step::Over(self.end(state))
    }

    /// Ends it. Returns all that waits.
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

/// Ends the time of what was kept back; what still runs of it is counted no more.
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
    /// Takes no more of what clients had kept back.
    fn give_up_kept_back(&mut self) {
        if !self.keeps_back.is_empty() {
            let sessions = self.keeps_back.len();
            tracing::error!(sessions, "clients did not send in time what they had kept back");
            self.keeps_back.clear();
        }
    }

    /// Returns whether a request is a write that a client had kept back since before, and others
    /// have not gone on yet.
    fn takes_kept_back(&self, parked: &Parked) -> bool {
        let Parked { context, request, .. } = parked;
        request.kept_back().is_some()
            && context.replayed.is_none()
            && self.keeps_back.contains(&context.session)
    }
}

#[cfg(test)]
mod tests;
