//! The levels of a mirrored volume: syncs that wait for the mirror, and callers that are held back
//! while it is too far behind.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use pelago_wire::mirror::{CloseLink, GroupState, LinkError, MirrorLink, TakenCount};
use pelago_wire::{Code, Error, Handle, InodeId, Level, xattr};

use super::waits::{Awaited, CUT_OFF, MirrorSigns, WaitsEnd, WhenMirrored};
use super::{Commit, Mirror, MirrorPhase, State};

/// The limit of the backlog of a volume whose own level is *network* or *remote*, unless a user
/// says otherwise.
const LAG: Duration = Duration::from_secs(2);

impl Mirror {
    /// Calls back when everything that is done now has left the relay, or the mirror has it on
    /// stable storage: at once if the volume has no relay or mirror, or goes on while the mirror is
    /// cut off; with an error if the mirror gets nothing any more.
    pub(crate) fn when_mirrored(&self, awaited: Awaited, answer: WhenMirrored) {
        match self.wait_or_answer(awaited, answer) {
            None => self.parts.durability.flush_soon(),
            Some((answer, result)) => answer(result),
        }
    }

    /// Has a caller wait. Returns the callback and its argument if it needs not wait.
    fn wait_or_answer(
        &self,
        awaited: Awaited,
        answer: WhenMirrored,
    ) -> Option<(WhenMirrored, Result<(), Error>)> {
        let mut state = self.state.lock();
        let means_local = awaited == Awaited::Sent && state.row.relay.is_empty();
        if state.row.peer.is_empty() || means_local {
            return Some((answer, Ok(())));
        }
        if !state.gets_groups() {
            return Some((answer, Err(Code::Unavailable.into())));
        }
        let next = Commit(state.commits + 1);
        state.waits.sync(next, awaited, answer).map(|answer| (answer, Ok(())))
    }

    /// Counts a change of about so many bytes. Returns whether its caller must be held back.
    #[inline]
    pub(crate) fn must_hold_back(&self, bytes: usize) -> bool {
        self.backlog.is_exceeded_by(bytes as u64)
    }

    /// Calls back when the mirror has caught up, or is cut off.
    pub(crate) fn when_caught_up(&self, answer: WhenMirrored) {
        let at_once = {
            let mut state = self.state.lock();
            match state.gets_groups() {
                true => state.waits.hold_back(Instant::now(), answer),
                false => Some(answer),
            }
        };
        if let Some(answer) = at_once {
            answer(Ok(()));
        }
    }

    /// Answers the callers that wait no longer, and sets the limit of the backlog. Called by each
    /// group commit, several times in a second.
    pub(super) fn tick(&self) {
        let now = Instant::now();
        let busy_since = self.busy.lock().since(now);
        if !self.state.lock().gets_groups() {
            return;
        }
        let lag = self.lag();
        // To count goes through all that has changed: only if somebody asks.
        let is_counted = lag.is_some() || self.state.lock().waits.is_cut_off();
        let (bytes, age) = if is_counted { self.risk() } else { (0, Duration::ZERO) };
        let mut state = self.state.lock();
        if !state.gets_groups() {
            return;
        }
        let is_behind = self.backlog.exceeds(bytes, age, lag.unwrap_or(LAG));
        let was_cut_off = state.waits.is_cut_off();
        let answers = state.waits.tick(now, MirrorSigns { busy_since, is_behind });
        let is_cut_off = state.waits.is_cut_off();
        // A mirror that does not follow has no backlog that a pause would end.
        let follows = state.phase == MirrorPhase::Follows && !is_cut_off && !state.compares_rows;
        self.backlog.count(bytes, is_behind, lag.filter(|_| follows));
        drop(state);
        match (was_cut_off, is_cut_off) {
            (false, true) => tracing::warn!(
                seconds = CUT_OFF.as_secs(),
                when_cut = ?self.parts.when_cut,
                "the mirror is cut off: a sync of level network or remote goes on, or waits for it"
            ),
            (true, false) => {
                tracing::info!("the mirror is back: a sync of level remote means that")
            }
            (false, false) | (true, true) => {}
        }
        for answer in answers {
            answer(Ok(()));
        }
    }

    /// Returns the limit of the backlog; `None` if there is none.
    fn lag(&self) -> Option<Duration> {
        self.parts.lag.or_else(|| (self.volume_level() >= Level::Network).then_some(LAG))
    }

    /// Returns the level of the whole volume.
    pub(crate) fn volume_level(&self) -> Level {
        let root = Handle::own(InodeId::ROOT);
        let set = self.parts.shard.get_xattr(root, xattr::LEVEL).ok();
        set.and_then(|name| Level::named(&name)).unwrap_or(Level::Local)
    }

    /// Ends all waits for the mirror.
    pub(super) fn end_waits(&self, mut state: MutexGuard<'_, State>, why: WaitsEnd) {
        let ended = state.waits.end(why, Instant::now());
        state.wanted_verification = None;
        state.verified.take_if(|verified| verified.finished.is_none());
        if why == WaitsEnd::Removed {
            state.verified_whole = None;
        }
        self.backlog.set_lag(None);
        drop(state);
        for (answer, result) in ended {
            answer(result);
        }
    }

    /// Records that a part is being sent, or an answer awaited.
    pub(super) fn set_busy(&self, is_busy: bool) {
        self.busy.lock().since = is_busy.then(Instant::now);
    }
}

/// The work of the connection to the mirror.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// The time since which the mirror has taken nothing of what was sent, or has not answered the
    /// last part.
    since: Option<Instant>,
    /// The count of what the mirror takes, and its last value.
    taken: TakenCount,
    seen: u64,
}

impl Busy {
    /// Returns since when the mirror is silent. It is not while it takes what is under way: on a
    /// slow line that takes longer than a mirror may be silent.
    fn since(&mut self, now: Instant) -> Option<Instant> {
        let taken = self.taken.load(Ordering::Relaxed);
        if taken != self.seen {
            self.seen = taken;
            self.since = self.since.map(|_| now);
        }
        self.since
    }
}

/// A connection to the mirror that records when it was silent for long.
pub(super) struct WatchedLink<'a> {
    mirror: &'a Mirror,
    link: Box<dyn MirrorLink>,
}

impl<'a> WatchedLink<'a> {
    pub(super) fn new(mirror: &'a Mirror, link: Box<dyn MirrorLink>) -> Self {
        mirror.busy.lock().taken = link.taken();
        Self { mirror, link }
    }

    fn watch<T>(
        &mut self,
        call: impl FnOnce(&mut dyn MirrorLink) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        self.mirror.set_busy(true);
        let result = call(&mut *self.link);
        self.mirror.set_busy(false);
        result
    }
}

impl MirrorLink for WatchedLink<'_> {
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError> {
        self.watch(|link| link.send(body))
    }

    fn receive(&mut self) -> Result<GroupState, LinkError> {
        self.watch(|link| link.receive())
    }

    fn closer(&self) -> CloseLink {
        self.link.closer()
    }
}
