//! The course of a mirror: a state machine that decides which kind of group it gets next.
//!
//! A mirror follows only if it reports a group of this run that was sent to it. If it has another
//! state of the volume, it gets what differs from that (a *resync*). If it has none, or could not
//! keep the last resync, it gets a copy of the whole volume, and then a completion.
//!
//! A group that a relay keeps counts as one that the mirror has: the changes in it are forgotten
//! here. If the mirror turns out not to have it, it is compared.

use pelago_wire::mirror::{GroupKind, GroupState, PrimaryRun};

/// The record of the groups of this run.
#[derive(Debug)]
pub(super) struct Course {
    run: PrimaryRun,
    /// The last group that was sent, whether the mirror has it or not.
    sent: u64,
    /// The newest group that the mirror has confirmed as safe, or that the relay keeps.
    safe: u64,
    /// The newest group that a lost relay may have, and may deliver at any time. A copy or a
    /// comparison must not have its number: the mirror would seem to have that.
    relayed: u64,
    stage: Stage,
    /// The mirror could not keep what was to be the next state.
    needs_copy: bool,
}

/// The stage of the mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has no state of the volume.
    Nothing,
    /// It has a state to which the collected changes cannot be applied.
    Behind,
    /// It has the copy, which came over this connection.
    Copied,
    /// It has the state of a group of this run.
    Follows,
}

/// The number and kind of a group to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    pub(super) number: u64,
    pub(super) kind: GroupKind,
}

impl Course {
    pub(super) const fn new(run: PrimaryRun) -> Self {
        Self { run, sent: 0, safe: 0, relayed: 0, stage: Stage::Nothing, needs_copy: false }
    }

    pub(super) const fn run(&self) -> PrimaryRun {
        self.run
    }

    /// Returns the newest group that the mirror has, or the relay for it.
    pub(super) const fn safe(&self) -> u64 {
        self.safe
    }

    /// Returns whether the mirror has one state of the volume of this run.
    pub(super) fn follows(&self) -> bool {
        self.stage == Stage::Follows
    }

    /// Records the state that the mirror reports at the beginning of a connection. The last group
    /// may have arrived although its answer was lost. A copy counts for one connection only.
    pub(super) fn connected(&mut self, state: &GroupState) {
        let is_known = match self.stage {
            Stage::Nothing => false,
            // If only the answer to a resync was lost, it is complete.
            Stage::Behind => state.number == self.sent && self.sent > self.safe,
            // If only the answer was lost, the copy is complete.
            Stage::Copied => state.number == self.sent && self.sent > self.safe,
            // The changes of a group whose answer was lost are sent again, so it does not matter
            // which of two groups of one number it is.
            Stage::Follows => (self.safe..=self.sent).contains(&state.number),
        };
        let has_state = state.run == self.run && is_known;
        self.stage = match has_state {
            true => Stage::Follows,
            false if state.number > 0 && !self.needs_copy => Stage::Behind,
            false => Stage::Nothing,
        };
        if has_state {
            self.safe = state.number;
            self.sent = state.number;
        }
    }

    /// Records the last group of this run that the relay has, at the beginning of a connection to
    /// it. Returns whether it is one that the next group can follow.
    pub(super) fn resumed(&mut self, last: u64) -> bool {
        let resumes = self.follows() && (self.safe..=self.sent).contains(&last);
        if resumes {
            self.safe = last;
            self.sent = last;
        }
        resumes
    }

    /// Records that the connection to the relay has ended: it may have the group that was begun.
    pub(super) const fn relay_lost(&mut self) {
        self.relayed = self.sent;
    }

    /// Returns the kind of the next group.
    pub(super) const fn kind(&self) -> GroupKind {
        match self.stage {
            Stage::Nothing => GroupKind::Copy,
            Stage::Behind => GroupKind::Resync,
            Stage::Copied => GroupKind::Completion,
            Stage::Follows => GroupKind::Change,
        }
    }

    /// Returns the group to send. From then on the mirror may have it.
    pub(super) fn begin_group(&mut self) -> Next {
        if !self.follows() {
            self.sent = self.sent.max(self.relayed);
        }
        self.sent += 1;
        Next { number: self.sent, kind: self.kind() }
    }

    /// Returns the group in which the mirror is asked, and which is given up then.
    pub(super) const fn begin_question(&mut self) -> Next {
        self.sent += 1;
        Next { number: self.sent, kind: GroupKind::Resync }
    }

    /// Records that the mirror has a group on stable storage. Returns false if it is not the group
    /// that was sent.
    pub(super) fn confirm(&mut self, number: u64) -> bool {
        if number != self.sent {
            return false;
        }
        self.safe = number;
        self.stage = match self.stage {
            Stage::Nothing => Stage::Copied,
            Stage::Behind | Stage::Copied | Stage::Follows => Stage::Follows,
        };
        self.needs_copy &= self.stage != Stage::Follows;
        true
    }

    /// Records that the group which was begun is given up, and that the mirror was informed: its
    /// number is free again.
    pub(super) fn gave_up(&mut self) {
        self.sent = self.safe;
        if self.stage == Stage::Copied {
            self.stage = Stage::Nothing;
        }
    }

    /// Has the mirror compared or copied again, because the changes are not known any more.
    pub(super) fn start_over(&mut self) {
        self.stage = match self.stage {
            Stage::Follows | Stage::Behind => Stage::Behind,
            Stage::Nothing | Stage::Copied => Stage::Nothing,
        };
    }

    /// Records that the mirror could not keep a group. After a resync it gets a copy: what it has
    /// may be damaged. After a copy it is compared again: its disk may have no room for a second
    /// image.
    pub(super) fn refused(&mut self) {
        self.needs_copy = self.stage == Stage::Behind;
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::mirror::MirrorSays;

    use super::*;

    const RUN: PrimaryRun = [1; 16];

    fn state(run: PrimaryRun, number: u64) -> GroupState {
        GroupState { reign: 1, run, number, says: MirrorSays::Ready }
    }

    fn next(number: u64, kind: GroupKind) -> Next {
        Next { number, kind }
    }

    /// A course whose mirror has group 2.
    fn following() -> Course {
        let mut course = Course::new(RUN);
        course.connected(&state([0; 16], 0));
        assert_eq!(course.begin_group(), next(1, GroupKind::Copy));
        assert!(course.confirm(1));
        assert!(!course.follows());
        assert_eq!(course.begin_group(), next(2, GroupKind::Completion));
        assert!(course.confirm(2));
        assert!(course.follows());
        course
    }

    #[test]
    fn a_new_mirror_gets_a_copy_and_what_changed_meanwhile() {
        let mut course = following();
        assert_eq!(course.begin_group(), next(3, GroupKind::Change));
    }

    #[test]
    fn an_answer_that_was_lost_is_heard_at_the_next_connection() {
        let mut course = following();
        assert_eq!(course.begin_group().number, 3);
        course.connected(&state(RUN, 3));
        assert_eq!(course.begin_group(), next(4, GroupKind::Change));
    }

    #[test]
    fn a_group_that_did_not_arrive_is_sent_under_its_number() {
        let mut course = following();
        assert_eq!(course.begin_group().number, 3);
        course.connected(&state(RUN, 2));
        assert_eq!(course.begin_group(), next(3, GroupKind::Change));
        course.gave_up();
        assert_eq!(course.begin_group(), next(3, GroupKind::Change));
    }

    /// A folder that was put back from a backup, or another one, has another state.
    #[test]
    fn a_mirror_with_another_state_gets_what_differs() {
        for other in [state(RUN, 1), state(RUN, 5), state([2; 16], 2)] {
            let mut course = following();
            course.connected(&other);
            assert_eq!(course.begin_group(), next(3, GroupKind::Resync), "{other:?}");
            course.gave_up();
            assert_eq!(course.begin_group(), next(3, GroupKind::Resync), "{other:?}");
            assert!(course.confirm(3) && course.follows());
            assert_eq!(course.begin_group(), next(4, GroupKind::Change));
        }
        let mut course = following();
        course.connected(&state(RUN, 0));
        assert_eq!(course.begin_group().kind, GroupKind::Copy, "it has nothing");
    }

    #[test]
    fn a_resync_counts_if_only_its_answer_was_lost() {
        let mut course = Course::new(RUN);
        course.connected(&state([2; 16], 9));
        assert_eq!(course.begin_group(), next(1, GroupKind::Resync));
        course.connected(&state(RUN, 1));
        assert!(course.follows());
    }

    #[test]
    fn a_mirror_that_could_not_keep_a_resync_gets_a_copy() {
        let mut course = Course::new(RUN);
        course.connected(&state([2; 16], 9));
        assert_eq!(course.begin_group().kind, GroupKind::Resync);
        course.refused();
        for _ in 0..2 {
            course.connected(&state([2; 16], 9));
            assert_eq!(course.begin_group().kind, GroupKind::Copy);
        }
        course.refused();
        course.connected(&state([2; 16], 9));
        assert_eq!(course.begin_group().kind, GroupKind::Resync, "nor could it keep a copy");
        course.refused();
        course.connected(&state([2; 16], 9));
        assert_eq!(course.begin_group(), next(5, GroupKind::Copy));
        assert!(course.confirm(5));
        course.begin_group();
        assert!(course.confirm(6) && course.follows());
        course.connected(&state([3; 16], 1));
        assert_eq!(course.begin_group().kind, GroupKind::Resync, "it has a new state");
    }

    #[test]
    fn a_completion_that_is_given_up_needs_a_new_copy() {
        let mut course = Course::new(RUN);
        course.connected(&state([0; 16], 0));
        course.begin_group();
        assert!(course.confirm(1));
        course.begin_group();
        course.gave_up();
        assert_eq!(course.begin_group(), next(2, GroupKind::Copy));
        assert!(!course.confirm(1), "that is an older one");
    }

    #[test]
    fn too_many_changes_are_found_by_comparing() {
        let mut course = following();
        course.start_over();
        assert_eq!(course.begin_group(), next(3, GroupKind::Resync));
        // Nor does it follow if the connection is lost meanwhile.
        course.connected(&state(RUN, 2));
        assert_eq!(course.begin_group(), next(4, GroupKind::Resync));
        course.connected(&state(RUN, 4));
        assert!(course.follows());
    }

    #[test]
    fn a_relay_that_is_back_goes_on_after_its_last_group() {
        for last in [2, 3] {
            let mut course = following();
            assert_eq!(course.begin_group().number, 3);
            course.relay_lost();
            assert!(course.resumed(last));
            assert_eq!(course.begin_group(), next(last + 1, GroupKind::Change));
        }
        for last in [0, 1, 4] {
            let mut course = following();
            assert_eq!(course.begin_group().number, 3);
            course.relay_lost();
            assert!(!course.resumed(last), "it has lost groups, or is another one");
        }
    }

    /// It may deliver that group at any time, and the mirror would seem to have been compared.
    #[test]
    fn a_comparison_has_no_number_of_a_group_that_a_lost_relay_may_have() {
        let mut course = following();
        assert_eq!(course.begin_group().number, 3);
        course.relay_lost();
        course.connected(&state(RUN, 2));
        assert_eq!(course.begin_group(), next(3, GroupKind::Change), "it has all of the other one");
        course.gave_up();
        course.start_over();
        assert_eq!(course.begin_group(), next(4, GroupKind::Resync));
        course.connected(&state(RUN, 3));
        assert!(!course.follows(), "the relay has delivered its group");
        assert_eq!(course.begin_group(), next(5, GroupKind::Resync));
        assert!(course.confirm(5) && course.follows());
        let mut delivered = following();
        delivered.begin_group();
        delivered.relay_lost();
        delivered.connected(&state(RUN, 3));
        assert_eq!(delivered.begin_group(), next(4, GroupKind::Change));
    }

    #[test]
    fn a_copy_counts_for_one_connection() {
        let mut course = Course::new(RUN);
        for sent in [1, 2] {
            course.connected(&state([0; 16], 0));
            assert_eq!(course.begin_group(), next(sent, GroupKind::Copy));
            assert!(course.confirm(sent));
        }
        assert_eq!(course.begin_group(), next(3, GroupKind::Completion));
        course.connected(&state(RUN, 3));
        assert!(course.follows());
    }
}
