//! The levels of a mirrored volume: syncs that wait for the mirror, and callers that are held back
//! while it is too far behind.

use std::time::{Duration, Instant};

use pelago_wire::mirror::{CloseLink, GroupState, LinkError, MirrorLink};
use pelago_wire::{Handle, InodeId, Level, xattr};

use super::waits::{CUT_OFF, WhenMirrored};
use super::{Mirror, MirrorPhase};

/// The limit of the backlog of a volume whose own level is *network* or *remote*, unless a user
/// says otherwise.
const LAG: Duration = Duration::from_secs(2);

impl Mirror {
    /// Calls back when the mirror has on stable storage everything that is done now; at once if the
    /// volume has no mirror, or goes on while it is cut off.
    pub(crate) fn when_mirrored(&self, answer: WhenMirrored) {
        let mut state = self.state.lock();
        let at_once = match state.next_commit() {
            Ok(commit) => state.waits.sync(commit, answer),
            Err(_) => Some(answer),
        };
        drop(state);
        match at_once {
            Some(answer) => answer(Ok(())),
            None => self.parts.durability.flush_soon(),
        }
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
            match state.sender.is_some() && !state.has_stopped {
                true => state.waits.hold_back(answer),
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
        let busy_since = *self.busy_since.lock();
        if self.state.lock().sender.is_none() {
            return;
        }
        let lag = self.lag();
        let (bytes, age) = self.risk();
        let mut state = self.state.lock();
        // A mirror that does not follow has no backlog that a pause would end.
        let lag = lag.filter(|_| state.phase == MirrorPhase::Follows && !state.waits.is_cut_off());
        let is_behind = self.backlog.count(bytes, age, lag);
        let was_cut_off = state.waits.is_cut_off();
        let answers = state.waits.tick(now, busy_since, is_behind);
        let is_cut_off = state.waits.is_cut_off();
        drop(state);
        match (was_cut_off, is_cut_off) {
            (false, true) => tracing::warn!(
                seconds = CUT_OFF.as_secs(),
                when_cut = ?self.parts.when_cut,
                "the mirror is cut off: what a sync of level remote promises has to wait for it"
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

    /// Records that a part is being sent, or an answer awaited.
    fn set_busy(&self, is_busy: bool) {
        *self.busy_since.lock() = is_busy.then(Instant::now);
    }
}

/// A connection to the mirror that records when it was silent for long.
pub(super) struct WatchedLink<'a> {
    mirror: &'a Mirror,
    link: Box<dyn MirrorLink>,
}

impl<'a> WatchedLink<'a> {
    pub(super) const fn new(mirror: &'a Mirror, link: Box<dyn MirrorLink>) -> Self {
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
