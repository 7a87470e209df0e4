//! The history of one primary: what its programs did, and what must be left of it when its mirror
//! is promoted.
//!
//! Programs change *things*: 8 bytes of a file, or the names of a program. Each change gives its
//! thing a value that no other change gives. The state of a promoted volume has an order with all
//! changes if there is one moment so that no value was written after it, and none was overwritten
//! before it.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::Program;
use crate::linear::{MOST, Operation};
use crate::register::{self, Cell};

/// Something that has a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    /// Eight bytes of a file: at its beginning, and far from it.
    Near(usize),
    Far(usize),
    /// The names of a program.
    Names(Program),
}

/// The values of all things.
pub(super) type Values = BTreeMap<Thing, u64>;

/// The changes and reads in the time of one primary.
#[derive(Default)]
pub(super) struct Reign {
    moment: u64,
    first: Values,
    all: BTreeMap<Thing, Vec<Operation<Cell>>>,
    /// Everything that was done before this moment is at the mirror.
    covered: u64,
    /// Changes that are at the mirror, though they may have been done after that.
    kept: Vec<(Thing, u64)>,
}

impl Reign {
    /// Returns the reign that begins with these values.
    pub(super) fn new(first: Values) -> Self {
        Self { first, ..Self::default() }
    }

    pub(super) const fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Returns whether `more` further operations on this thing can be checked.
    pub(super) fn has_room(&self, thing: Thing, more: usize) -> bool {
        self.all.get(&thing).map_or(0, Vec::len) + more < MOST
    }

    /// Records the beginning of a change, which may be done at any time from now on.
    pub(super) fn begin(&mut self, thing: Thing, value: u64) {
        let begun = self.moment();
        let change = Operation { begun, ended: u64::MAX, act: Cell::Write(value) };
        self.all.entry(thing).or_default().push(change);
    }

    /// Records that a change is done.
    pub(super) fn end(&mut self, thing: Thing, value: u64) {
        let ended = self.moment();
        let all = self.all.entry(thing).or_default();
        if let Some(change) = all.iter_mut().find(|it| it.act == Cell::Write(value)) {
            change.ended = ended;
        }
    }

    /// Records a value that a program saw.
    pub(super) fn saw(&mut self, thing: Thing, begun: u64, value: u64) {
        let ended = self.moment();
        let read = Operation { begun, ended, act: Cell::Read(value) };
        self.all.entry(thing).or_default().push(read);
    }

    /// Records that the server was killed: changes that were not answered may be done once more.
    pub(super) fn may_change_again(&mut self) {
        let begun = self.moment();
        for all in self.all.values_mut() {
            let is_open =
                |it: &&Operation<Cell>| it.ended == u64::MAX && matches!(it.act, Cell::Write(_));
            let again = all.iter().filter(is_open).map(|it| Operation { begun, ..*it });
            let room = MOST.saturating_sub(all.len() + 24);
            let again: Vec<_> = again.take(room).collect();
            all.extend(again);
        }
    }

    /// Records that the mirror has all that was done before this moment.
    pub(super) fn cover(&mut self, moment: u64) {
        self.covered = self.covered.max(moment);
    }

    /// Records that the mirror has these changes.
    pub(super) fn keep(&mut self, changes: &[(Thing, u64)]) {
        self.kept.extend(changes);
    }

    /// Returns what is wrong with this state of the promoted volume.
    pub(super) fn check(&self, promoted: &Values) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut from = (self.covered, "what was waited for".to_owned());
        let mut until = (u64::MAX, String::new());
        let none = Vec::new();
        let things: BTreeSet<&Thing> =
            self.first.keys().chain(self.all.keys()).chain(promoted.keys()).collect();
        for thing in things {
            let all = self.all.get(thing).unwrap_or(&none);
            let first = self.first.get(thing).copied().unwrap_or(0);
            let mut with_first = vec![Operation { begun: 0, ended: 0, act: Cell::Write(first) }];
            with_first.extend(all);
            if !register::have_order(&with_first) {
                wrong.push(format!("{thing:?} has no order: {with_first:?}"));
            }
            let value = promoted.get(thing).copied().unwrap_or(0);
            let is_its = |it: &&Operation<Cell>| it.act == Cell::Write(value);
            let Some(change) = with_first.iter().find(is_its) else {
                wrong.push(format!("{thing:?} is {value}, which nobody has written"));
                continue;
            };
            if change.begun > from.0 {
                from = (change.begun, format!("{thing:?} is {value}"));
            }
            // One that may have been done twice may be the last one at any time.
            let ended = with_first.iter().filter(is_its).map(|it| it.ended).max();
            let ended = ended.unwrap_or(u64::MAX);
            let is_later =
                |it: &&Operation<Cell>| matches!(it.act, Cell::Write(_)) && it.begun > ended;
            let later = with_first.iter().filter(is_later).map(|it| it.ended).min();
            if let Some(ended) = later.filter(|ended| *ended < until.0) {
                until = (ended, format!("{thing:?} is {value} no more"));
            }
            for (_, kept) in self.kept.iter().filter(|(of, _)| of == thing) {
                let kept = with_first.iter().find(|it| it.act == Cell::Write(*kept));
                if kept.is_some_and(|kept| ended < kept.begun) {
                    wrong.push(format!("{thing:?} is {value}, and {kept:?} was waited for"));
                }
            }
        }
        if from.0 > until.0 {
            wrong.push(format!("the promoted volume is of no moment: {from:?}, {until:?}"));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Thing = Thing::Near(0);
    const B: Thing = Thing::Far(0);

    /// Two changes, one after the other.
    fn two() -> Reign {
        let mut reign = Reign::default();
        for thing in [A, B] {
            reign.begin(thing, 1);
            reign.end(thing, 1);
        }
        reign
    }

    #[test]
    fn a_promoted_volume_has_no_change_without_those_before_it() {
        let reign = two();
        let wrong = |one, other| reign.check(&Values::from([(A, one), (B, other)])).len();
        assert_eq!([wrong(0, 0), wrong(1, 0), wrong(1, 1)], [0, 0, 0]);
        assert_eq!(wrong(0, 1), 1);
        assert_eq!(wrong(2, 0), 1, "nobody has written it");
    }

    #[test]
    fn what_was_waited_for_is_there() {
        let mut reign = two();
        reign.begin(A, 2);
        let moment = reign.moment();
        reign.cover(moment);
        let wrong =
            |reign: &Reign, one, other| reign.check(&Values::from([(A, one), (B, other)])).len();
        assert_eq!([wrong(&reign, 1, 1), wrong(&reign, 2, 1)], [0, 0]);
        assert_eq!(wrong(&reign, 1, 0), 1);
        reign.keep(&[(A, 2)]);
        assert_eq!([wrong(&reign, 1, 1), wrong(&reign, 2, 1)], [1, 0]);
    }
}
