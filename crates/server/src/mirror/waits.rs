//! The callers that wait for the mirror: a state machine without I/O. There are three kinds.
//!
//! A sync of level *remote* waits until the mirror has everything that was done before a group
//! commit; one of level *network* until that has left the relay, or the mirror has it. If the
//! mirror is cut off, it is answered when its change is safe here, unless the volume
//! is to wait all the same. `pelago wait` and a handover want more: also what open files had in
//! memory. They ask again and again whether the mirror has it, and never go on without it. A caller
//! that was held back because the mirror is too far behind waits until it has caught up, or is cut
//! off.

use std::time::{Duration, Instant};

use pelago_wire::{Code, Error};

use super::Commit;

/// The time after which a mirror that does not follow, or does not take or answer what is sent,
/// counts as cut off.
pub(super) const CUT_OFF: Duration = Duration::from_secs(3);

/// A callback, called once.
pub(crate) type WhenMirrored = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The longest time for which a reply is held back. Clients and other sites give a request up after
/// some seconds.
const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// The event that a sync waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The relay has sent the change (level *network*), or the mirror has it.
    Sent,
    /// The mirror has the change on stable storage (level *remote*).
    Mirrored,
}

/// The reaction of a sync of level *network* or *remote* to a mirror that is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenCut {
    /// It is answered when the change is safe at the server.
    #[default]
    GoOn,
    /// It waits until the mirror is back.
    Wait,
}

/// The reason for which nobody waits for the mirror any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitsEnd {
    /// The volume has no mirror any more: level *remote* means *local*.
    Removed,
    /// The server stops, or the mirror was promoted. What the mirror lacks now may be lost.
    Stopped,
}

/// The state of the mirror at a tick.
#[derive(Debug, Clone, Copy)]
pub(super) struct MirrorSigns {
    /// The time since which the mirror has not taken, or not answered, the last part that was sent.
    pub(super) busy_since: Option<Instant>,
    /// It lacks more than the limit of the backlog.
    pub(super) is_behind: bool,
}

/// The callers that wait.
pub(super) struct Waits {
    when_cut: WhenCut,
    /// The time since which the mirror does not follow; `None` if it does.
    apart_since: Option<Instant>,
    is_cut_off: bool,
    /// The newest group commit that the mirror has with all that open files had in memory: it has
    /// everything that was done before that commit began.
    whole: Commit,
    /// The newest group commit that the relay has.
    queued: Commit,
    /// The newest one that it has with all that open files had in memory.
    queued_whole: Commit,
    /// The newest group commit that a caller wants whole.
    wanted: Commit,
    /// The last group commit could not write all that open files had in memory.
    lacks_some: bool,
    /// Callers that wait for everything that was done before a group commit.
    syncs: Vec<Sync>,
    /// Callers that are held back, each with the time since which it is.
    held: Vec<(Instant, WhenMirrored)>,
}

/// A caller that waits for everything that was done before a group commit.
struct Sync {
    commit: Commit,
    awaited: Awaited,
    answer: WhenMirrored,
}

impl Waits {
    /// Returns the waits of a volume whose mirror is not connected yet.
    pub(super) const fn new(when_cut: WhenCut, now: Instant) -> Self {
        Self {
            when_cut,
            apart_since: Some(now),
            is_cut_off: false,
            whole: Commit(0),
            queued: Commit(0),
            queued_whole: Commit(0),
            wanted: Commit(0),
            lacks_some: false,
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

    /// Has a caller wait for everything that was done before a group commit. Returns the callback
    /// if it needs not wait.
    pub(super) fn sync(
        &mut self,
        commit: Commit,
        awaited: Awaited,
        answer: WhenMirrored,
    ) -> Option<WhenMirrored> {
        if self.is_cut_off && self.when_cut == WhenCut::GoOn {
            return Some(answer);
        }
        self.syncs.push(Sync { commit, awaited, answer });
        None
    }

    /// Returns whether a caller waits until a change has left the relay.
    pub(super) fn await_sent(&self) -> bool {
        self.syncs.iter().any(|sync| sync.awaited == Awaited::Sent)
    }

    /// Records that the relay has what a group commit has made safe; `has_all` as for
    /// [`Waits::mirrored`].
    pub(super) fn queued(&mut self, commit: Commit, has_all: bool) {
        self.queued = self.queued.max(commit);
        if has_all {
            self.queued_whole = self.queued_whole.max(commit);
        }
    }

    /// Records that nothing is on its way from the relay any more.
    pub(super) const fn forget_queued(&mut self) {
        self.queued = Commit(0);
        self.queued_whole = Commit(0);
    }

    /// Records that everything that was done before a group commit has left the relay. Returns the
    /// callers that waited for that.
    pub(super) fn sent(&mut self, commit: Commit) -> Vec<WhenMirrored> {
        self.answered(|sync| sync.commit <= commit && sync.awaited == Awaited::Sent)
    }

    fn answered(&mut self, is_answered: impl Fn(&Sync) -> bool) -> Vec<WhenMirrored> {
        let ready = self.syncs.extract_if(.., |sync| is_answered(sync));
        ready.map(|sync| sync.answer).collect()
    }

    /// Records that the mirror has taken nothing for so long that it counts as cut off: the next
    /// tick answers for it.
    pub(super) fn cut_off(&mut self, now: Instant) {
        self.apart_since.get_or_insert(now);
        self.is_cut_off = true;
    }

    /// Records that a caller wants the mirror to have everything that was done before a group
    /// commit.
    pub(super) fn want(&mut self, commit: Commit) {
        self.wanted = self.wanted.max(commit);
    }

    /// Returns whether the mirror has everything that was done before a group commit.
    pub(super) fn has(&self, commit: Commit) -> bool {
        self.whole >= commit
    }

    /// Returns whether a cut is waited for, though nothing may have changed. One that the relay has
    /// is on its way.
    pub(super) fn want_cut(&self) -> bool {
        self.want_whole_cut() || self.want_any_cut()
    }

    fn want_whole_cut(&self) -> bool {
        self.wanted > self.whole.max(self.queued_whole)
    }

    fn want_any_cut(&self) -> bool {
        self.syncs.iter().any(|sync| sync.commit > self.queued)
    }

    /// Returns whether a group commit is to cut at once. One that lacked something is not repeated
    /// without a pause.
    pub(super) fn are_urgent(&self) -> bool {
        (self.want_whole_cut() && !self.lacks_some) || self.want_any_cut()
    }

    /// Records whether a group commit has written all that open files had in memory.
    pub(super) const fn committed(&mut self, has_all: bool) {
        self.lacks_some = !has_all;
    }

    /// Holds a caller back. Returns the callback if the mirror is cut off.
    pub(super) fn hold_back(&mut self, now: Instant, answer: WhenMirrored) -> Option<WhenMirrored> {
        if self.is_cut_off {
            return Some(answer);
        }
        self.held.push((now, answer));
        None
    }

    /// Records whether the mirror follows.
    pub(super) fn follows(&mut self, follows: bool, now: Instant) {
        match follows {
            true => self.apart_since = None,
            false => drop(self.apart_since.get_or_insert(now)),
        }
    }

    /// Records that the mirror has what a group commit has made safe; `has_all`: with all that open
    /// files had in memory. Returns the callers that waited for that.
    pub(super) fn mirrored(&mut self, commit: Commit, has_all: bool) -> Vec<WhenMirrored> {
        if has_all {
            self.whole = self.whole.max(commit);
        }
        self.answered(|sync| sync.commit <= commit)
    }

    /// Decides whether the mirror is cut off. One that was is not back before it follows, answers,
    /// and has caught up: an hour of changes must hold nobody up. Returns the callers that wait no
    /// longer.
    pub(super) fn tick(&mut self, now: Instant, signs: MirrorSigns) -> Vec<WhenMirrored> {
        let MirrorSigns { busy_since, is_behind } = signs;
        let too_long = |since: Instant| now.saturating_duration_since(since) >= CUT_OFF;
        let is_silent = busy_since.is_some_and(too_long);
        self.is_cut_off = match self.is_cut_off {
            true => is_silent || self.apart_since.is_some() || is_behind,
            false => is_silent || self.apart_since.is_some_and(too_long),
        };
        let mut answers = Vec::new();
        let all = self.is_cut_off || !is_behind;
        let is_over = |since: Instant| all || now.saturating_duration_since(since) >= LONGEST_HOLD;
        let held = self.held.extract_if(.., |(since, _)| is_over(*since));
        answers.extend(held.map(|(_, answer)| answer));
        if self.is_cut_off && self.when_cut == WhenCut::GoOn {
            answers.extend(self.syncs.drain(..).map(|sync| sync.answer));
        }
        answers
    }

    /// Ends all waits, and begins anew for another mirror. Returns the callers, and what they get.
    pub(super) fn end(
        &mut self,
        why: WaitsEnd,
        now: Instant,
    ) -> Vec<(WhenMirrored, Result<(), Error>)> {
        // Those who ask again and again have other ways to hear of it.
        let Self { whole, wanted, lacks_some, .. } = *self;
        let anew = Self { whole, wanted, lacks_some, ..Self::new(self.when_cut, now) };
        let waits = std::mem::replace(self, anew);
        let result = match why {
            WaitsEnd::Removed => Ok(()),
            WaitsEnd::Stopped => Err(Code::Unavailable.into()),
        };
        let syncs = waits.syncs.into_iter().map(|sync| (sync.answer, result));
        // These changes are done.
        let held = waits.held.into_iter().map(|(_, answer)| (answer, Ok(())));
        syncs.chain(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn nothing() -> WhenMirrored {
        Box::new(|_| {})
    }

    /// A mirror that answers at once and lacks little.
    const WELL: MirrorSigns = MirrorSigns { busy_since: None, is_behind: false };
    const BEHIND: MirrorSigns = MirrorSigns { busy_since: None, is_behind: true };

    fn busy(since: Instant) -> MirrorSigns {
        MirrorSigns { busy_since: Some(since), is_behind: false }
    }

    /// Waits with a mirror that follows, and the time.
    fn following(when_cut: WhenCut) -> (Waits, Instant) {
        let now = Instant::now();
        let mut waits = Waits::new(when_cut, now);
        waits.follows(true, now);
        assert!(waits.tick(now, WELL).is_empty());
        (waits, now)
    }

    #[test]
    fn a_sync_waits_for_its_group_commit_and_for_no_later_one() {
        let (mut waits, _) = following(WhenCut::GoOn);
        for commit in [3, 5, 4] {
            assert!(waits.sync(Commit(commit), Awaited::Mirrored, nothing()).is_none());
        }
        assert_eq!(waits.mirrored(Commit(2), true).len(), 0);
        assert_eq!(waits.mirrored(Commit(4), true).len(), 2);
        assert_eq!(waits.mirrored(Commit(9), true).len(), 1);
        assert_eq!(waits.syncs(), 0);
    }

    #[test]
    fn a_cut_that_the_relay_has_is_not_taken_again() {
        let (mut waits, _) = following(WhenCut::GoOn);
        assert!(waits.sync(Commit(2), Awaited::Mirrored, nothing()).is_none());
        waits.want(Commit(2));
        assert!(waits.want_cut() && waits.are_urgent());
        waits.queued(Commit(2), false);
        assert!(waits.want_cut(), "a caller wants all of it");
        waits.queued(Commit(2), true);
        assert!(!waits.want_cut() && !waits.are_urgent());
        assert!(waits.sync(Commit(3), Awaited::Sent, nothing()).is_none());
        assert!(waits.want_cut());
        waits.queued(Commit(3), true);
        waits.forget_queued();
        assert!(waits.want_cut() && waits.are_urgent(), "the relay is lost");
    }

    #[test]
    fn a_sync_of_level_network_waits_for_what_comes_first() {
        let (mut waits, now) = following(WhenCut::GoOn);
        for awaited in [Awaited::Sent, Awaited::Mirrored] {
            assert!(waits.sync(Commit(2), awaited, nothing()).is_none());
        }
        assert!(waits.await_sent());
        assert_eq!(waits.sent(Commit(1)).len(), 0);
        assert_eq!(waits.sent(Commit(2)).len(), 1);
        assert!(!waits.await_sent());
        assert!(waits.sync(Commit(2), Awaited::Sent, nothing()).is_none());
        assert_eq!(waits.mirrored(Commit(2), true).len(), 2);
        assert!(waits.sync(Commit(3), Awaited::Sent, nothing()).is_none());
        waits.cut_off(now);
        assert_eq!(waits.tick(now, WELL).len(), 1, "the relay says that the mirror takes nothing");
        waits.follows(true, now);
        waits.tick(now, WELL);
        assert!(!waits.is_cut_off());
    }

    #[test]
    fn a_mirror_that_takes_nothing_for_three_seconds_is_cut_off() {
        let (mut waits, now) = following(WhenCut::GoOn);
        assert!(waits.sync(Commit(1), Awaited::Mirrored, nothing()).is_none());
        assert_eq!(waits.tick(now + 2 * SECOND, busy(now)).len(), 0);
        assert_eq!(waits.tick(now + 3 * SECOND, busy(now)).len(), 1);
        assert!(
            waits.sync(Commit(2), Awaited::Mirrored, nothing()).is_some(),
            "it goes on at once"
        );
        waits.tick(now + 4 * SECOND, WELL);
        assert!(
            waits.sync(Commit(3), Awaited::Mirrored, nothing()).is_none(),
            "the mirror answers again"
        );
    }

    #[test]
    fn a_mirror_that_does_not_follow_is_cut_off_after_three_seconds() {
        let (mut waits, now) = following(WhenCut::GoOn);
        waits.follows(false, now);
        waits.follows(false, now + 2 * SECOND);
        assert!(
            waits.sync(Commit(1), Awaited::Mirrored, nothing()).is_none(),
            "it may be back soon"
        );
        assert_eq!(waits.tick(now + 3 * SECOND, WELL).len(), 1);
    }

    /// The connection to a mirror that has vanished ends after a minute: that is no sign of it.
    #[test]
    fn a_mirror_is_not_back_because_its_connection_ends() {
        let (mut waits, now) = following(WhenCut::GoOn);
        waits.tick(now + 3 * SECOND, busy(now));
        waits.follows(false, now + 60 * SECOND);
        waits.tick(now + 60 * SECOND, WELL);
        assert!(waits.is_cut_off());
    }

    /// What has gathered while it was away takes hours on its line.
    #[test]
    fn a_mirror_is_not_back_before_it_has_caught_up() {
        let (mut waits, now) = following(WhenCut::GoOn);
        waits.follows(false, now);
        waits.tick(now + 3 * SECOND, BEHIND);
        waits.follows(true, now + 4 * SECOND);
        waits.tick(now + 5 * SECOND, BEHIND);
        assert!(waits.sync(Commit(1), Awaited::Mirrored, nothing()).is_some());
        assert!(waits.hold_back(now + 5 * SECOND, nothing()).is_some());
        waits.tick(now + 6 * SECOND, WELL);
        assert!(!waits.is_cut_off());
    }

    #[test]
    fn a_volume_that_is_to_wait_answers_nothing_while_the_mirror_is_cut_off() {
        let (mut waits, now) = following(WhenCut::Wait);
        assert!(waits.sync(Commit(1), Awaited::Mirrored, nothing()).is_none());
        assert_eq!(waits.tick(now + 9 * SECOND, busy(now)).len(), 0);
        assert!(waits.is_cut_off());
        assert!(waits.sync(Commit(2), Awaited::Mirrored, nothing()).is_none());
        assert_eq!(waits.mirrored(Commit(1), true).len(), 1);
    }

    #[test]
    fn whoever_wants_all_is_not_content_with_less() {
        let (mut waits, now) = following(WhenCut::GoOn);
        assert!(!waits.want_cut());
        waits.want(Commit(3));
        assert!(waits.want_cut() && waits.are_urgent());
        waits.committed(false);
        assert!(waits.want_cut() && !waits.are_urgent(), "a file fails: there is a pause");
        waits.mirrored(Commit(3), false);
        assert!(!waits.has(Commit(3)));
        waits.tick(now + 3 * SECOND, busy(now));
        assert!(waits.is_cut_off() && !waits.has(Commit(3)), "it never goes on without it");
        waits.committed(true);
        waits.mirrored(Commit(4), true);
        assert!(waits.has(Commit(3)) && !waits.has(Commit(5)) && !waits.want_cut());
    }

    #[test]
    fn a_stop_does_not_lie_and_a_mirror_that_is_given_up_is_not_waited_for() {
        for when_cut in [WhenCut::GoOn, WhenCut::Wait] {
            for (why, is_ok) in [(WaitsEnd::Removed, true), (WaitsEnd::Stopped, false)] {
                let (mut waits, now) = following(when_cut);
                assert!(waits.sync(Commit(1), Awaited::Mirrored, nothing()).is_none());
                assert!(waits.hold_back(now, nothing()).is_none());
                let ended = waits.end(why, now);
                let results: Vec<bool> = ended.iter().map(|(_, result)| result.is_ok()).collect();
                assert_eq!(results, [is_ok, true], "{why:?}");
            }
        }
    }

    #[test]
    fn a_caller_that_is_held_back_goes_on_when_the_mirror_has_caught_up_or_is_cut_off() {
        for when_cut in [WhenCut::GoOn, WhenCut::Wait] {
            let (mut waits, now) = following(when_cut);
            assert!(waits.hold_back(now, nothing()).is_none());
            assert_eq!(waits.tick(now + SECOND, BEHIND).len(), 0);
            assert_eq!(waits.tick(now + SECOND, WELL).len(), 1);
            assert!(waits.hold_back(now + SECOND, nothing()).is_none());
            assert_eq!(waits.tick(now + 6 * SECOND, BEHIND).len(), 1, "and after five seconds");
            assert!(waits.hold_back(now, nothing()).is_none());
            assert_eq!(waits.tick(now + 5 * SECOND, busy(now)).len(), 1);
            assert!(waits.hold_back(now, nothing()).is_some(), "nobody is held back meanwhile");
        }
    }
}
