//! The callers that wait for the mirror: a state machine without I/O.
//!
//! A caller of level *remote* waits until the mirror has everything that was done before a group
//! commit. If the mirror is cut off, it is answered when its change is safe here, unless the volume
//! is to wait all the same. A caller that was held back because the mirror is too far behind waits
//! until it has caught up, or is cut off.

use std::time::{Duration, Instant};

use pelago_wire::{Code, Error};

use super::Commit;

/// The time after which a mirror that does not follow, or does not take or answer what is sent,
/// counts as cut off.
pub(super) const CUT_OFF: Duration = Duration::from_secs(3);

/// A callback, called once.
pub(crate) type WhenMirrored = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The reaction of a sync of level *remote* to a mirror that is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenCut {
    /// It is answered when the change is safe at the server.
    #[default]
    GoOn,
    /// It waits until the mirror is back.
    Wait,
}

/// The callers that wait.
pub(super) struct Waits {
    when_cut: WhenCut,
    /// The time since which the mirror does not follow; `None` if it does.
    apart_since: Option<Instant>,
    is_cut_off: bool,
    /// Callers that wait until the mirror has everything that was done before a group commit.
    syncs: Vec<(Commit, WhenMirrored)>,
    /// Callers that are held back.
    held: Vec<WhenMirrored>,
}

impl Waits {
    /// Returns the waits of a volume whose mirror is not connected yet.
    pub(super) const fn new(when_cut: WhenCut, now: Instant) -> Self {
        Self {
            when_cut,
            apart_since: Some(now),
            is_cut_off: false,
            syncs: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Returns whether the mirror is cut off.
    pub(super) const fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Returns the number of callers that wait for a group commit.
    pub(super) const fn syncs(&self) -> usize {
        self.syncs.len()
    }

    /// Has a caller wait until the mirror has everything that was done before a group commit.
    /// Returns the callback if it needs not wait.
    pub(super) fn sync(&mut self, commit: Commit, answer: WhenMirrored) -> Option<WhenMirrored> {
        if self.is_cut_off && self.when_cut == WhenCut::GoOn {
            return Some(answer);
        }
        self.syncs.push((commit, answer));
        None
    }

    /// Holds a caller back. Returns the callback if the mirror is cut off.
    pub(super) fn hold_back(&mut self, answer: WhenMirrored) -> Option<WhenMirrored> {
        if self.is_cut_off {
            return Some(answer);
        }
        self.held.push(answer);
        None
    }

    /// Records whether the mirror follows.
    pub(super) fn follows(&mut self, follows: bool, now: Instant) {
        match follows {
            true => self.apart_since = None,
            false => drop(self.apart_since.get_or_insert(now)),
        }
    }

    /// Records that the mirror has everything that was done before a group commit. Returns the
    /// callers that waited for that.
    pub(super) fn mirrored(&mut self, commit: Commit) -> Vec<WhenMirrored> {
        self.syncs
            .extract_if(.., |(awaited, _)| *awaited <= commit)
            .map(|(_, answer)| answer)
            .collect()
    }

    /// Decides whether the mirror is cut off. `busy_since`: the time since which the mirror has not
    /// taken, or not answered, the last part that was sent. `is_behind`: it is too far behind.
    /// Returns the callers that wait no longer.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        busy_since: Option<Instant>,
        is_behind: bool,
    ) -> Vec<WhenMirrored> {
        let too_long = |since: Instant| now.saturating_duration_since(since) >= CUT_OFF;
        let is_cut_off = self.apart_since.is_some_and(too_long) || busy_since.is_some_and(too_long);
        self.is_cut_off = is_cut_off;
        let mut answers = Vec::new();
        if is_cut_off || !is_behind {
            answers.append(&mut self.held);
        }
        if is_cut_off && self.when_cut == WhenCut::GoOn {
            answers.extend(self.syncs.drain(..).map(|(_, answer)| answer));
        }
        answers
    }

    /// Ends all waits: there is no mirror any more. Returns the callers, and what they get.
    pub(super) fn end(&mut self) -> (Vec<WhenMirrored>, Result<(), Error>) {
        let syncs = self.syncs.drain(..).map(|(_, answer)| answer);
        let answers = syncs.chain(self.held.drain(..)).collect();
        let result = match self.when_cut {
            WhenCut::GoOn => Ok(()),
            WhenCut::Wait => Err(Code::Unavailable.into()),
        };
        (answers, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn nothing() -> WhenMirrored {
        Box::new(|_| {})
    }

    /// Waits with a mirror that follows, and the time.
    fn following(when_cut: WhenCut) -> (Waits, Instant) {
        let now = Instant::now();
        let mut waits = Waits::new(when_cut, now);
        waits.follows(true, now);
        assert!(waits.tick(now, None, false).is_empty());
        (waits, now)
    }

    #[test]
    fn a_sync_waits_for_its_group_commit_and_for_no_later_one() {
        let (mut waits, _) = following(WhenCut::GoOn);
        for commit in [3, 5, 4] {
            assert!(waits.sync(Commit(commit), nothing()).is_none());
        }
        assert_eq!(waits.mirrored(Commit(2)).len(), 0);
        assert_eq!(waits.mirrored(Commit(4)).len(), 2);
        assert_eq!(waits.mirrored(Commit(9)).len(), 1);
        assert_eq!(waits.syncs(), 0);
    }

    #[test]
    fn a_mirror_that_takes_nothing_for_three_seconds_is_cut_off() {
        let (mut waits, now) = following(WhenCut::GoOn);
        assert!(waits.sync(Commit(1), nothing()).is_none());
        assert_eq!(waits.tick(now + 2 * SECOND, Some(now), false).len(), 0);
        assert_eq!(waits.tick(now + 3 * SECOND, Some(now), false).len(), 1);
        assert!(waits.sync(Commit(2), nothing()).is_some(), "it goes on at once");
        waits.tick(now + 4 * SECOND, None, false);
        assert!(waits.sync(Commit(3), nothing()).is_none(), "the mirror answers again");
    }

    #[test]
    fn a_mirror_that_does_not_follow_is_cut_off_after_three_seconds() {
        let (mut waits, now) = following(WhenCut::GoOn);
        waits.follows(false, now);
        waits.follows(false, now + 2 * SECOND);
        assert!(waits.sync(Commit(1), nothing()).is_none(), "it may be back soon");
        assert_eq!(waits.tick(now + 3 * SECOND, None, false).len(), 1);
    }

    #[test]
    fn a_volume_that_is_to_wait_answers_nothing_while_the_mirror_is_cut_off() {
        let (mut waits, now) = following(WhenCut::Wait);
        assert!(waits.sync(Commit(1), nothing()).is_none());
        assert_eq!(waits.tick(now + 9 * SECOND, Some(now), false).len(), 0);
        assert!(waits.is_cut_off());
        assert!(waits.sync(Commit(2), nothing()).is_none());
        assert_eq!(waits.mirrored(Commit(1)).len(), 1);
        let (answers, result) = waits.end();
        assert_eq!((answers.len(), result.is_err()), (1, true), "a stop does not lie");
    }

    #[test]
    fn a_caller_that_is_held_back_goes_on_when_the_mirror_has_caught_up_or_is_cut_off() {
        for when_cut in [WhenCut::GoOn, WhenCut::Wait] {
            let (mut waits, now) = following(when_cut);
            assert!(waits.hold_back(nothing()).is_none());
            assert_eq!(waits.tick(now + SECOND, None, true).len(), 0);
            assert_eq!(waits.tick(now + SECOND, None, false).len(), 1);
            assert!(waits.hold_back(nothing()).is_none());
            assert_eq!(waits.tick(now + 5 * SECOND, Some(now), true).len(), 1);
            assert!(waits.hold_back(nothing()).is_some(), "nobody is held back meanwhile");
        }
    }
}
