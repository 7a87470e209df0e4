//! The groups that a relay has and the mirror may not have: a state machine without I/O.

use std::collections::VecDeque;
use std::time::Instant;

use pelago_store::rows::Stamp;
use pelago_wire::{MirrorStage, Time, limits};

use super::super::Commit;

/// The most bytes of groups that the relay is to keep; a part of what it can.
const MOST_BYTES: u64 = limits::RELAY_SPOOL_BYTES / 4;

/// A group that the relay has.
#[derive(Debug)]
pub(in super::super) struct Queued {
    /// Its number in the run.
    pub(in super::super) number: u64,
    /// The group commit that has cut it.
    pub(in super::super) commit: Commit,
    /// It has all that open files had in memory.
    pub(in super::super) has_all: bool,
    /// The stamp of the newest batch that it has.
    pub(in super::super) stamp: Stamp,
    /// The time of its cut.
    pub(in super::super) at: Time,
    /// The same time, by the clock that no one sets.
    pub(in super::super) since: Instant,
    /// Number of its bytes.
    pub(in super::super) bytes: u64,
}

/// The groups, from the oldest.
#[derive(Debug, Default)]
pub(in super::super) struct Queue {
    groups: VecDeque<Queued>,
    bytes: u64,
    /// The newest group that has left the relay. A report may come before its group is here.
    sent: u64,
    /// The newest group that the mirror has.
    safe: u64,
}

impl Queue {
    /// Adds a group. The relay may have reported more of it already.
    pub(super) fn push(&mut self, group: Queued) {
        self.bytes += group.bytes;
        self.groups.push_back(group);
    }

    /// Records that a group and all before it have left the relay.
    pub(super) fn set_sent(&mut self, number: u64) {
        self.sent = self.sent.max(number);
    }

    /// Records that the mirror has a group and all before it.
    pub(super) fn set_safe(&mut self, number: u64) {
        self.safe = self.safe.max(number);
    }

    /// Returns the group commit of the newest group that has left the relay; `None` if the mirror
    /// has all of those.
    pub(super) fn sent(&self) -> Option<Commit> {
        let sent = self.groups.iter().rev().find(|group| group.number <= self.sent);
        sent.map(|group| group.commit)
    }

    /// Removes the groups that the mirror has, and returns them.
    pub(super) fn take_safe(&mut self) -> Vec<Queued> {
        let mut taken = Vec::new();
        while let Some(group) = self.groups.pop_front_if(|group| group.number <= self.safe) {
            self.bytes -= group.bytes;
            taken.push(group);
        }
        taken
    }

    /// Forgets all groups: the mirror is compared.
    pub(super) fn clear(&mut self) {
        self.groups.clear();
        self.bytes = 0;
    }

    /// Returns whether the mirror has all groups.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the number of groups.
    pub(in super::super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the number of bytes of the groups.
    pub(in super::super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time of the cut of the oldest group.
    pub(in super::super) fn since(&self) -> Option<Instant> {
        self.groups.front().map(|group| group.since)
    }

    /// Returns the stage of the group that has this batch, or of the newest one, with its number
    /// and the time of its cut; `None` if no group here has it.
    pub(in super::super) fn stage_of(
        &self,
        stamp: Stamp,
        is_newest: bool,
    ) -> Option<(MirrorStage, u64, Instant)> {
        let group = match is_newest {
            true => self.groups.back(),
            false => self.groups.iter().find(|group| stamp <= group.stamp),
        }?;
        let stage = if group.number <= self.sent { MirrorStage::Sent } else { MirrorStage::Edge };
        Some((stage, group.number, group.since))
    }

    /// Returns whether the relay is to get another group now.
    pub(super) fn has_room(&self) -> bool {
        self.groups.len() < limits::RELAYED_GROUPS && self.bytes < MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(number: u64, bytes: u64) -> Queued {
        let at = Time { seconds: 0, nanos: 0 };
        let commit = Commit(number * 10);
        let stamp = Stamp { epoch: 1, sequence: number * 100 };
        Queued { number, commit, has_all: true, stamp, at, since: Instant::now(), bytes }
    }

    #[test]
    fn groups_leave_in_order_and_a_report_may_come_first() {
        let mut queue = Queue::default();
        queue.set_sent(2);
        queue.set_safe(1);
        for number in 1..=3 {
            queue.push(group(number, 100));
        }
        assert_eq!(queue.sent(), Some(Commit(20)));
        assert_eq!(queue.take_safe().len(), 1);
        assert_eq!((queue.len(), queue.bytes()), (2, 200));
        queue.set_safe(2);
        assert_eq!(queue.take_safe().len(), 1);
        assert_eq!(queue.sent(), None, "the mirror has it");
        queue.set_sent(3);
        assert_eq!(queue.sent(), Some(Commit(30)));
        queue.set_safe(9);
        assert_eq!(queue.take_safe().len(), 1);
        assert!(queue.is_empty() && queue.since().is_none() && queue.bytes() == 0);
    }

    #[test]
    fn a_change_is_where_its_group_is() {
        let mut queue = Queue::default();
        (1..=3).for_each(|number| queue.push(group(number, 1)));
        queue.set_sent(2);
        let stage = |sequence, is_newest| {
            let found = queue.stage_of(Stamp { epoch: 1, sequence }, is_newest);
            found.map(|(stage, number, _)| (stage, number))
        };
        assert_eq!(stage(100, false), Some((MirrorStage::Sent, 1)));
        assert_eq!(stage(101, false), Some((MirrorStage::Sent, 2)));
        assert_eq!(stage(201, false), Some((MirrorStage::Edge, 3)));
        assert_eq!(stage(301, false), None, "it is not cut yet");
        assert_eq!(stage(100, true), Some((MirrorStage::Edge, 3)));
    }

    #[test]
    fn a_relay_that_is_behind_gets_no_more() {
        let mut queue = Queue::default();
        assert!(queue.has_room());
        queue.push(group(1, MOST_BYTES));
        assert!(!queue.has_room());
        queue.clear();
        assert!(queue.has_room());
    }
}
