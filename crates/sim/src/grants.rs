//! The rights of each guest at each moment of a run, as the replies to the owner say.

use std::collections::BTreeMap;

use pelago_keynote::Right;

use crate::shares::{self, GuestNumber, SharedNode, Source};

/// The state of a right. A state is as strong as the weakest one that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grant {
    Denied,
    /// A request that changes it is under way, or has failed.
    Unsure,
    Granted,
}

/// The states of one source, each from its moment on. Before the first one it is granted.
#[derive(Debug, Default)]
struct Line(Vec<(u64, Grant)>);

/// The use of a node by a guest, between two moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Use {
    pub(crate) guest: GuestNumber,
    pub(crate) node: SharedNode,
    /// The right that it needs; `None` if any one suffices.
    pub(crate) right: Option<Right>,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

/// The grants of a run.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    lines: BTreeMap<Source, Line>,
}

impl Line {
    fn set(&mut self, moment: u64, state: Grant) {
        self.0.push((moment, state));
    }

    fn at(&self, moment: u64) -> Grant {
        let last = self.0.iter().rev().find(|(from, _)| *from <= moment);
        last.map_or(Grant::Granted, |(_, state)| *state)
    }

    fn changes(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|(moment, _)| *moment)
    }
}

impl Grants {
    /// Records that from this moment on a source is in this state. Credentials that were taken back
    /// or have ended never count again.
    pub(crate) fn set(&mut self, source: Source, moment: u64, state: Grant) {
        let line = self.lines.entry(source).or_default();
        let is_over = matches!(source, Source::First(_) | Source::Attached(_))
            && line.at(u64::MAX) == Grant::Denied;
        if !is_over {
            line.set(moment, state);
        }
    }

    /// Returns the part of the time of a use in which it may have been granted: from its first such
    /// moment to the end of the last one. `None` if it was denied all the time.
    pub(crate) fn may_be_granted(&self, what: Use) -> Option<(u64, u64)> {
        let spans = self.spans(what);
        let mut granted = spans.iter().filter(|(_, _, state)| *state != Grant::Denied);
        let (first, end, _) = granted.next()?;
        Some((*first, granted.next_back().map_or(*end, |(_, end, _)| *end)))
    }

    /// Returns whether a use was granted all the time.
    pub(crate) fn is_granted(&self, what: Use) -> bool {
        self.spans(what).iter().all(|(_, _, state)| *state == Grant::Granted)
    }

    /// Returns the states in the time of a use, each with its first moment and its end.
    pub(crate) fn spans(&self, what: Use) -> Vec<(u64, u64, Grant)> {
        let Use { guest, node, right, begun, ended } = what;
        let chains = shares::granting(guest, node, right);
        let lines = |chain: &[Source]| -> Vec<&Line> {
            chain.iter().filter_map(|source| self.lines.get(source)).collect()
        };
        // One chain suffices, and needs all its sources.
        let chains: Vec<Vec<&Line>> = chains.iter().map(|chain| lines(chain)).collect();
        let inside = |moment: &u64| begun < *moment && *moment <= ended;
        let changes = chains.iter().flatten().flat_map(|line| line.changes());
        let mut moments: Vec<u64> = changes.filter(inside).collect();
        moments.push(begun);
        moments.sort_unstable();
        moments.dedup();
        let ends = moments.iter().skip(1).copied().chain([ended]);
        let of_chain = |chain: &Vec<&Line>, at: u64| {
            chain.iter().map(|line| line.at(at)).min().unwrap_or(Grant::Granted)
        };
        let state = |at: u64| chains.iter().map(|chain| of_chain(chain, at)).max();
        let spans = moments.iter().zip(ends);
        spans.map(|(from, end)| (*from, end, state(*from).unwrap_or(Grant::Denied))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: GuestNumber = GuestNumber(1);
    const NODE: SharedNode = shares::DEEP;
    const PLACE: Source = Source::Inside(NODE);

    fn used(begun: u64, ended: u64) -> Use {
        Use { guest: GUEST, node: NODE, right: Some(Right::Read), begun, ended }
    }

    fn moved_out_and_in() -> Grants {
        let mut grants = Grants::default();
        let states = [Grant::Unsure, Grant::Denied, Grant::Unsure, Grant::Granted];
        for (moment, state) in [10, 20, 30, 40].into_iter().zip(states) {
            grants.set(PLACE, moment, state);
        }
        grants
    }

    #[test]
    fn a_use_is_wrong_only_if_it_was_denied_at_each_moment() {
        let grants = moved_out_and_in();
        assert_eq!(grants.may_be_granted(used(1, 5)), Some((1, 5)));
        assert_eq!(grants.may_be_granted(used(15, 25)), Some((15, 20)));
        assert_eq!(grants.may_be_granted(used(20, 29)), None);
        assert_eq!(grants.may_be_granted(used(21, 35)), Some((30, 35)));
        assert_eq!(grants.may_be_granted(used(5, 50)), Some((5, 50)));
    }

    #[test]
    fn a_refusal_is_wrong_only_if_it_was_granted_at_each_moment() {
        let grants = moved_out_and_in();
        assert!(grants.is_granted(used(1, 9)) && grants.is_granted(used(40, 41)));
        assert!(!grants.is_granted(used(1, 10)) && !grants.is_granted(used(39, 41)));
        let other = Use { node: shares::STEADY, ..used(15, 25) };
        assert!(grants.is_granted(other));
    }

    #[test]
    fn a_use_needs_the_guest_and_the_node() {
        let mut grants = moved_out_and_in();
        grants.set(Source::First(GUEST), 35, Grant::Denied);
        assert_eq!(grants.may_be_granted(used(41, 50)), None);
        assert!(!grants.is_granted(used(41, 50)));
        let other = Use { guest: GuestNumber(0), ..used(41, 50) };
        assert!(grants.is_granted(other));
        grants.set(Source::First(GUEST), 60, Grant::Unsure);
        assert_eq!(grants.may_be_granted(used(61, 70)), None, "it does not come back");
    }

    #[test]
    fn one_chain_suffices_for_the_rights_that_it_gives() {
        let mut grants = Grants::default();
        grants.set(Source::Inside(shares::NAMED), 10, Grant::Denied);
        let used = |right, ended| {
            let node = shares::NAMED;
            Use { guest: shares::ENDING, node, right: Some(right), begun: 10, ended }
        };
        assert!(grants.is_granted(used(Right::Read, 20)));
        assert_eq!(grants.may_be_granted(used(Right::Write, 20)), None);
        grants.set(Source::Name, 30, Grant::Denied);
        assert_eq!(grants.may_be_granted(used(Right::Read, 40)), Some((10, 30)));
    }
}
