//! The time after a start in which the sessions of the last run come back; or after the table was
//! opened again and may have lost what they were answered: then another epoch begins in this run,
//! and what is said of runs holds for epochs.
//!
//! Their clients have files open that this run does not know, and requests that the last run may
//! have carried out and not answered. So until each of them has opened its files again, has
//! repeated its requests, or has ended, all other requests wait: they must not see, change or
//! remove what these rely on. Then what the last run has answered and may have lost is carried out
//! again, in the order in which it was done, then the repeated requests, and then all others.
//!
//! This is a state machine: it says which requests go on, and `service::starting` does that.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};
use pelago_wire::{Context, Done, Request, SessionId, limits};

/// What still waits for the sessions of the last run.
pub(crate) struct Grace {
    is_over: AtomicBool,
    /// A leaf lock.
    state: Mutex<State>,
    /// The phase has changed.
    changed: Condvar,
}

struct State {
    phase: Phase,
    /// Sessions that have not said that they are done, and have not ended.
    waits_for: HashSet<SessionId>,
    /// Their time is over.
    is_late: bool,
    /// Requests that the last run has answered, which go before all others.
    replays: Vec<Parked>,
    /// Repeated appends whose bytes have a place in their file. They go behind those, so that no
    /// other append takes it.
    placed: VecDeque<Parked>,
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
    /// Repeated requests run.
    Repeating,
    Over,
}

/// A request that waits.
pub(crate) struct Parked {
    pub(crate) context: Context,
    pub(crate) request: Request,
    pub(crate) bytes: Vec<u8>,
    pub(crate) done: Done,
}

/// What goes on now.
pub(crate) enum Step {
    /// Nothing.
    Wait,
    /// These, one after the other; [`Grace::replayed`] is called at the end of all.
    Replay(Vec<Parked>),
    /// These; [`Grace::repeated`] is called at the end of each.
    Repeat(VecDeque<Parked>),
    /// These, and all that come later.
    Over(VecDeque<Parked>),
}

impl Grace {
    /// Returns one that waits for these sessions; without any it is over.
    pub(crate) fn new(waits_for: HashSet<SessionId>) -> Self {
        let phase = if waits_for.is_empty() { Phase::Over } else { Phase::Waiting };
        let [placed, repeated, others] = Default::default();
        let state = State {
            phase,
            waits_for,
            is_late: false,
            replays: Vec::new(),
            placed,
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
        (state.phase, state.is_late, state.waits_for) = (Phase::Waiting, false, sessions);
        let is_own = |parked: &Parked| parked.context.session == SessionId::DIRECT;
        let (own, theirs) = std::mem::take(&mut state.others).into_iter().partition(is_own);
        state.others = own;
        let mut dropped = Vec::from(theirs);
        dropped.append(&mut state.replays);
        dropped.extend(std::mem::take(&mut state.placed));
        dropped.extend(std::mem::take(&mut state.repeated));
        dropped
    }

    /// Ends it before the sessions are back. Returns all that waits.
    pub(crate) fn give_up(&self) -> Step {
        let mut state = self.state.lock();
        state.waits_for.clear();
        Step::Over(self.end(&mut state))
    }

    /// Returns whether no request waits any more.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns whether it waits for this session. Then no request of another one was carried out
    /// in this run, apart from those that open files and set locks again.
    pub(crate) fn waits_for(&self, session: SessionId) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Waiting && !state.is_late && state.waits_for.contains(&session)
    }

    /// Returns the sessions that did not come back in their time. They get nothing back from now
    /// on; [`Grace::expire`] ends the wait for them.
    pub(crate) fn late(&self) -> Vec<SessionId> {
        let mut state = self.state.lock();
        state.is_late = true;
        state.waits_for.iter().copied().collect()
    }

    /// Returns for how many sessions it waits.
    pub(crate) fn sessions(&self) -> usize {
        self.state.lock().waits_for.len()
    }

    /// Keeps a request until its turn; returns it if that is now. Too many bytes of the server's
    /// own mount wait on the thread of their caller. `is_placed`: it is an append whose bytes have
    /// a place.
    pub(crate) fn park(&self, parked: Parked, is_placed: bool) -> Option<Parked> {
        let (bytes, session) = (parked.bytes.len(), parked.context.session);
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
            Phase::Waiting if state.waits_for.contains(&session) && goes_first(&parked.request) => {
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
            (known.session, known.request) == (context.session, context.request)
                && known.mutation == 0
        };
        let at = state.others.iter().position(is_it)?;
        let parked = state.others.remove(at)?;
        if context.session == SessionId::DIRECT {
            state.bytes -= parked.bytes.len();
        }
        Some(parked)
    }

    /// A session has opened its files again and repeated its requests, or it has ended.
    pub(crate) fn came_back(&self, session: SessionId) -> Step {
        let mut state = self.state.lock();
        state.waits_for.remove(&session);
        self.go_on(&mut state)
    }

    /// The sessions that did not come back have had their time. A second call does not wait for
    /// repeated requests either.
    pub(crate) fn expire(&self) -> Step {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Replaying | Phase::Repeating) {
            tracing::error!(requests = state.running, "repeated requests do not end");
            return Step::Over(self.end(&mut state));
        }
        if state.phase == Phase::Waiting && !state.waits_for.is_empty() {
            tracing::warn!(sessions = state.waits_for.len(), "clients did not come back in time");
            state.waits_for.clear();
        }
        self.go_on(&mut state)
    }

    /// The requests that the last run has answered were carried out.
    pub(crate) fn replayed(&self) -> Step {
        let mut state = self.state.lock();
        if state.phase != Phase::Replaying {
            return Step::Wait;
        }
        state.phase = Phase::Repeating;
        self.go_on(&mut state)
    }

    /// A repeated request was carried out.
    pub(crate) fn repeated(&self) -> Step {
        let mut state = self.state.lock();
        assert!(state.running > 0, "each repeated request ends once");
        state.running -= 1;
        self.go_on(&mut state)
    }

    /// Ends it for good: returns all that waits, which is not carried out.
    pub(crate) fn stop(&self) -> VecDeque<Parked> {
        let mut state = self.state.lock();
        let mut all = VecDeque::from(std::mem::take(&mut state.replays));
        all.extend(self.end(&mut state));
        all
    }

    /// Waits until it is over, for at most `limit`. Returns whether it is.
    pub(crate) fn wait(&self, limit: std::time::Duration) -> bool {
        let mut state = self.state.lock();
        let until = std::time::Instant::now() + limit;
        while state.phase != Phase::Over && !self.changed.wait_until(&mut state, until).timed_out()
        {
        }
        state.phase == Phase::Over
    }

    fn go_on(&self, state: &mut State) -> Step {
        if state.phase == Phase::Waiting && state.waits_for.is_empty() {
            let mut replays = std::mem::take(&mut state.replays);
            if !replays.is_empty() {
                state.phase = Phase::Replaying;
                // Stable: an open file of an inode comes behind what makes it.
                replays
                    .sort_by_key(|parked| parked.context.replayed.map(|replayed| replayed.stamp));
                return Step::Replay(replays);
            }
            state.phase = Phase::Repeating;
        }
        if state.phase != Phase::Repeating || state.running > 0 {
            return Step::Wait;
        }
        let next = if state.placed.is_empty() { &mut state.repeated } else { &mut state.placed };
        let next = std::mem::take(next);
        state.running = next.len();
        match next.is_empty() {
            true => Step::Over(self.end(state)),
            false => Step::Repeat(next),
        }
    }

    /// Ends it. Returns all that waits.
    fn end(&self, state: &mut State) -> VecDeque<Parked> {
        (state.phase, state.bytes) = (Phase::Over, 0);
        self.is_over.store(true, Ordering::Release);
        self.changed.notify_all();
        let mut all = std::mem::take(&mut state.placed);
        all.append(&mut state.repeated);
        all.append(&mut state.others);
        all
    }
}

/// Returns whether a repeated request goes before all that is new: it may write bytes or attributes
/// a second time, over what is new. Changes of names have stored replies, and are not carried out a
/// second time; and they may need the kernel, which answers once requests of the server's own mount
/// go on.
fn goes_first(request: &Request) -> bool {
    match request {
        Request::Write { .. }
        | Request::Allocate { .. }
        | Request::CopyRange { .. }
        | Request::SetAttr { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. }
        | Request::Open { .. }
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::Fsync { .. } => true,
        Request::Lookup { .. }
        | Request::Parent { .. }
        | Request::Find { .. }
        | Request::GetAttr { .. }
        | Request::Create { .. }
        | Request::CreateUnnamed { .. }
        | Request::MakeDir { .. }
        | Request::MakeNode { .. }
        | Request::Symlink { .. }
        | Request::ReadLink { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::RemoveDir { .. }
        | Request::Rename { .. }
        | Request::Reopen { .. }
        | Request::FsyncDir { .. }
        | Request::Read { .. }
        | Request::List { .. }
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::StatFs
        | Request::Seek { .. }
        | Request::GetLock { .. }
        | Request::SetLock { .. }
        | Request::ReclaimLock { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::codec::ReplyStamp;
    use pelago_wire::{Handle, OpenId, Replayed, RequestId};

    use super::*;

    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    fn parked(session: SessionId, number: u64, request: Request) -> Parked {
        let context = Context { session, request: RequestId(number), ..Context::direct(0, 0) };
        Parked { context, request, bytes: vec![0; 3], done: Box::new(|_| {}) }
    }

    fn write() -> Request {
        Request::Write { open: OpenId(1), offset: 0, append: false, kill_privileges: false }
    }

    fn read() -> Request {
        Request::GetAttr { node: Handle::ROOT }
    }

    fn numbers(parked: &VecDeque<Parked>) -> Vec<u64> {
        parked.iter().map(|parked| parked.context.request.0).collect()
    }

    #[test]
    fn without_earlier_sessions_it_is_over() {
        let grace = Grace::new(HashSet::new());
        assert!(
            grace.is_over() && grace.park(parked(SessionId::DIRECT, 1, read()), false).is_some()
        );
    }

    /// What sessions repeat goes first, once all are back; what is new goes after that.
    #[test]
    fn repeated_writes_go_before_all_others() {
        let grace = Grace::new(HashSet::from([ONE, TWO]));
        for (session, number, request) in
            [(SessionId::DIRECT, 1, write()), (ONE, 2, write()), (ONE, 3, read())]
        {
            assert!(grace.park(parked(session, number, request), false).is_none());
        }
        assert!(matches!(grace.came_back(ONE), Step::Wait));
        // New: the session has said that it has repeated all.
        assert!(grace.park(parked(ONE, 4, write()), false).is_none());
        assert_eq!(grace.sessions(), 1);
        let Step::Repeat(repeated) = grace.came_back(TWO) else { panic!("all are back") };
        assert_eq!(numbers(&repeated), [2]);
        assert!(grace.park(parked(TWO, 5, write()), false).is_none() && !grace.is_over());
        let Step::Over(others) = grace.repeated() else { panic!("nothing is repeated any more") };
        assert_eq!(numbers(&others), [1, 3, 4, 5]);
        assert!(grace.is_over() && matches!(grace.came_back(TWO), Step::Wait));
    }

    /// Else an append that was never carried out would take the place of one whose bytes are still
    /// to be written.
    #[test]
    fn appends_that_have_a_place_go_before_those_that_have_none() {
        let grace = Grace::new(HashSet::from([ONE, TWO]));
        assert!(grace.park(parked(ONE, 1, write()), false).is_none());
        assert!(grace.park(parked(TWO, 2, write()), true).is_none());
        assert!(matches!(grace.came_back(ONE), Step::Wait));
        let Step::Repeat(placed) = grace.came_back(TWO) else { panic!("all are back") };
        assert_eq!(numbers(&placed), [2]);
        let Step::Repeat(repeated) = grace.repeated() else { panic!("the placed are written") };
        assert_eq!(numbers(&repeated), [1]);
        assert!(matches!(grace.repeated(), Step::Over(_)) && grace.is_over());
    }

    /// A session that comes later than the others waited for it gets nothing back: they may have
    /// had what it held.
    #[test]
    fn only_a_session_that_is_waited_for_gets_its_locks_back() {
        let grace = Grace::new(HashSet::from([ONE, TWO]));
        assert!(grace.waits_for(ONE) && !grace.waits_for(SessionId(3)));
        assert!(matches!(grace.came_back(ONE), Step::Wait));
        assert!(!grace.waits_for(ONE) && grace.waits_for(TWO));
        assert_eq!(grace.late(), [TWO]);
        assert!(!grace.waits_for(TWO) && !grace.is_over());
        assert!(matches!(grace.expire(), Step::Over(_)));
        assert!(!grace.waits_for(TWO));
    }

    /// What sessions had been answered goes before what they had not, in the order in which it was
    /// done; two with one stamp in the order in which they came.
    #[test]
    fn replays_go_first_in_the_order_of_their_stamps() {
        let replay = |session, number, (epoch, sequence)| {
            let mut parked = parked(session, number, write());
            let stamp = ReplyStamp { epoch, sequence };
            parked.context.replayed = Some(Replayed { stamp, node: None, time: None });
            parked
        };
        let grace = Grace::new(HashSet::from([ONE, TWO]));
        assert!(grace.park(replay(ONE, 1, (3, 8)), false).is_none());
        assert!(grace.park(parked(ONE, 2, write()), false).is_none());
        assert!(grace.park(replay(ONE, 3, (3, 8)), false).is_none());
        assert!(grace.park(replay(TWO, 4, (3, 7)), false).is_none());
        assert!(grace.park(replay(TWO, 5, (2, 9)), false).is_none());
        assert!(matches!(grace.came_back(ONE), Step::Wait));
        let Step::Replay(replays) = grace.came_back(TWO) else { panic!("all are back") };
        assert_eq!(numbers(&VecDeque::from(replays)), [5, 4, 1, 3]);
        assert!(matches!(grace.came_back(TWO), Step::Wait) && !grace.is_over());
        let Step::Repeat(repeated) = grace.replayed() else { panic!("nothing is replayed") };
        assert_eq!(numbers(&repeated), [2]);
        assert!(matches!(grace.repeated(), Step::Over(_)) && grace.is_over());
    }

    /// Replays that do not end take nothing with them.
    #[test]
    fn it_ends_without_replays_that_hang() {
        let grace = Grace::new(HashSet::from([ONE]));
        let mut replay = parked(ONE, 1, write());
        replay.context.replayed =
            Some(Replayed { stamp: ReplyStamp::default(), node: None, time: None });
        assert!(
            grace.park(replay, false).is_none()
                && grace.park(parked(ONE, 2, write()), false).is_none()
        );
        assert!(matches!(grace.expire(), Step::Replay(_)));
        let Step::Over(others) = grace.expire() else { panic!("the time is over") };
        assert_eq!(numbers(&others), [2]);
        assert!(matches!(grace.replayed(), Step::Wait));
    }

    /// What its sessions have asked is dropped, as they repeat it; what the server's own mount has
    /// asked waits for them, or goes on if the table cannot be opened.
    #[test]
    fn it_begins_again_with_the_sessions_that_there_are() {
        let grace = Grace::new(HashSet::from([ONE]));
        assert!(grace.park(parked(ONE, 1, write()), false).is_none());
        assert!(grace.park(parked(ONE, 2, read()), false).is_none());
        assert!(grace.park(parked(SessionId::DIRECT, 3, write()), false).is_none());
        let dropped = grace.begin_again(HashSet::from([ONE, TWO]));
        assert_eq!(numbers(&VecDeque::from(dropped)), [2, 1]);
        assert!(matches!(grace.came_back(ONE), Step::Wait));
        let Step::Over(others) = grace.came_back(TWO) else { panic!("all are back") };
        assert_eq!(numbers(&others), [3]);
        assert!(grace.is_over());

        assert!(grace.begin_again(HashSet::from([TWO])).is_empty());
        assert!(!grace.is_over() && grace.waits_for(TWO));
        assert!(grace.park(parked(SessionId::DIRECT, 4, read()), false).is_none());
        let Step::Over(others) = grace.give_up() else { panic!("it is given up") };
        assert_eq!(numbers(&others), [4]);
        assert!(grace.is_over() && !grace.waits_for(TWO));
    }

    #[test]
    fn it_ends_without_those_that_do_not_come_back() {
        let grace = Grace::new(HashSet::from([ONE, TWO]));
        assert!(grace.park(parked(ONE, 1, write()), false).is_none());
        let Step::Repeat(repeated) = grace.expire() else { panic!("the time is over") };
        assert_eq!(numbers(&repeated), [1]);
        assert!(matches!(grace.came_back(ONE), Step::Wait), "a repeated request runs");
        assert!(matches!(grace.expire(), Step::Over(_)), "it does not end");
        assert!(matches!(grace.repeated(), Step::Wait));
    }

    /// A change that may have been carried out is not called interrupted.
    #[test]
    fn a_request_that_changes_nothing_can_be_cancelled() {
        let grace = Grace::new(HashSet::from([ONE]));
        let own = parked(SessionId::DIRECT, 1, write());
        let mut change = parked(ONE, 2, write());
        change.context.mutation = 1;
        let (of_own, of_change) = (own.context, change.context);
        assert!(grace.park(own, false).is_none() && grace.park(change, false).is_none());
        assert_eq!(grace.cancel(&of_own).map(|parked| parked.context), Some(of_own));
        assert!(grace.cancel(&of_own).is_none() && grace.cancel(&of_change).is_none());
        assert_eq!(numbers(&grace.stop()), [2]);
        assert!(grace.is_over());
    }
}
