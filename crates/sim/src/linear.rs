//! Linearizability of the operations on one object: an order in which each has its effect at one
//! moment between its beginning and its end (Wing and Gong 1993; Lowe 2017 for the memory).

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// Operations of one thing that can be checked.
pub(crate) const MOST: usize = 128;

/// An operation of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation<A> {
    pub(crate) begun: u64,
    /// `u64::MAX` if it is not known whether it has had an effect, which it may still have.
    pub(crate) ended: u64,
    pub(crate) act: A,
}

/// An operation on a state.
pub(crate) trait Act: Copy + Debug {
    type State: Copy + Eq + Hash + Debug;

    /// Returns the state after the operation; `None` if it cannot have its result in this state.
    fn step(self, state: Self::State) -> Option<Self::State>;
}

/// Returns whether the operations have an order. One without an end may be left out.
pub(crate) fn have_order<A: Act>(first: A::State, all: &[Operation<A>]) -> bool {
    assert!(all.len() <= MOST, "{} operations of one thing", all.len());
    let mut seen = HashSet::new();
    let mut open = vec![(0_u128, first)];
    while let Some((done, state)) = open.pop() {
        if !seen.insert((done, state)) {
            continue;
        }
        let is_left = |at: &usize| done & (1 << at) == 0;
        let left = || (0..all.len()).filter(is_left);
        // An operation that began after another has ended follows it.
        let first_end = left().map(|at| all[at].ended).min().unwrap_or(u64::MAX);
        if first_end == u64::MAX {
            return true;
        }
        let next = left().filter(|at| all[*at].begun <= first_end);
        open.extend(next.filter_map(|at| Some((done | 1 << at, all[at].act.step(state)?))));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Register {
        Write(u64),
        Read(u64),
    }

    impl Act for Register {
        type State = u64;

        fn step(self, state: u64) -> Option<u64> {
            match self {
                Self::Write(value) => Some(value),
                Self::Read(value) => (value == state).then_some(state),
            }
        }
    }

    use Register::{Read, Write};

    fn check(all: &[(u64, u64, Register)]) -> bool {
        let operation =
            |&(begun, ended, act): &(u64, u64, Register)| Operation { begun, ended, act };
        have_order(0, &all.iter().map(operation).collect::<Vec<_>>())
    }

    #[test]
    fn a_read_sees_the_last_write_or_one_that_runs() {
        assert!(check(&[(1, 2, Write(7)), (3, 4, Read(7))]));
        assert!(!check(&[(1, 2, Write(7)), (3, 4, Read(0))]), "an old value");
        assert!(check(&[(1, 5, Write(7)), (3, 4, Read(0))]));
        assert!(check(&[(1, 5, Write(7)), (3, 4, Read(7))]));
        assert!(!check(&[(1, 9, Write(7)), (2, 3, Read(7)), (4, 5, Read(0))]), "it goes back");
    }

    #[test]
    fn what_has_no_end_may_come_late_or_never() {
        let lost = (1, u64::MAX, Write(7));
        assert!(check(&[lost, (3, 4, Read(0))]) && check(&[lost, (3, 4, Read(7))]));
        assert!(check(&[lost, (3, 4, Read(0)), (5, 6, Read(7))]));
        assert!(!check(&[lost, (3, 4, Read(7)), (5, 6, Read(0))]));
        assert!(!check(&[(5, u64::MAX, Write(7)), (3, 4, Read(7))]), "it has not begun");
    }

    #[test]
    fn writes_that_meet_have_one_order_for_all() {
        let both = [(1, 9, Write(1)), (1, 9, Write(2))];
        let reads = |values: [u64; 2]| [(10, 11, Read(values[0])), (12, 13, Read(values[1]))];
        assert!(check(&[&both[..], &reads([2, 2])].concat()));
        assert!(!check(&[&both[..], &reads([1, 2])].concat()));
    }
}
