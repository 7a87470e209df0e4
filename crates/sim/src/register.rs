//! Linearizability of the reads and writes of one part of a file.
//!
//! The search of [`crate::linear`] does not end if there are many writes that may be lost: each of
//! them could come at any time. Here such a write is placed right before a read that has seen its
//! value, and nowhere else: before another write no program would see it, and before a read of
//! another value it is impossible.

use std::collections::HashSet;

use crate::linear::Operation;

/// A read or a write of 8 bytes of a file. Each program writes other values; a value may be written
/// twice if its write was not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    Write(u64),
    Read(u64),
}

/// Returns whether the operations at a place have an order. At first there is 0. A write without an
/// end (`u64::MAX`) may have its effect at any time after its beginning, or none.
pub(crate) fn have_order(all: &[Operation<Cell>]) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![(0_u128, 0)];
    while let Some((done, value)) = open.pop() {
        if !seen.insert((done, value)) {
            continue;
        }
        let left = || (0..all.len()).filter(|at| done & (1 << at) == 0);
        // An operation that began after another has ended follows it.
        let first_end = left().map(|at| all[at].ended).min().unwrap_or(u64::MAX);
        if first_end == u64::MAX {
            return true;
        }
        let next = || left().filter(|at| all[*at].begun <= first_end);
        let lost = |written: u64| {
            let is_it =
                |it: &Operation<Cell>| it.ended == u64::MAX && it.act == Cell::Write(written);
            next().find(|at| is_it(&all[*at]))
        };
        for at in next().filter(|at| all[*at].ended != u64::MAX) {
            let with_it = done | 1 << at;
            match all[at].act {
                Cell::Write(written) => open.push((with_it, written)),
                Cell::Read(read) if read == value => open.push((with_it, value)),
                Cell::Read(read) => {
                    open.extend(lost(read).map(|lost| (with_it | 1 << lost, read)));
                }
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use pelago_random::Random;

    use super::*;
    use crate::linear::{self, Act};

    impl Act for Cell {
        type State = u64;

        fn step(self, state: u64) -> Option<u64> {
            match self {
                Self::Write(value) => Some(value),
                Self::Read(value) => (value == state).then_some(state),
            }
        }
    }

    const fn act(begun: u64, ended: u64, act: Cell) -> Operation<Cell> {
        Operation { begun, ended, act }
    }

    /// Returns up to eight operations of random times, some writes of which have no end.
    fn random_operations(random: &mut Random) -> Vec<Operation<Cell>> {
        let count = 1 + random.below(8);
        let writes = 1 + random.below(4);
        let mut moments: Vec<u64> = (1..=2 * count).collect();
        let mut take = |random: &mut Random| {
            let at = random.below(moments.len() as u64);
            moments.swap_remove(at as usize)
        };
        (0..count)
            .map(|number| {
                let one = take(random);
                let other = take(random);
                let begun = one.min(other);
                let ended = one.max(other);
                if number >= writes {
                    return act(begun, ended, Cell::Read(random.below(writes + 2)));
                }
                // Only a write that may be lost is carried out twice.
                match random.below(3) {
                    0 => act(begun, u64::MAX, Cell::Write(1)),
                    1 => act(begun, u64::MAX, Cell::Write(number + 1)),
                    _ => act(begun, ended, Cell::Write(number + 2)),
                }
            })
            .collect()
    }

    #[test]
    fn what_was_read_is_written_and_stays_until_the_next_write() {
        let mut all: Vec<_> = (0..60).map(|it| act(it, u64::MAX, Cell::Write(it + 1))).collect();
        all.push(act(70, 71, Cell::Read(5)));
        assert!(have_order(&all));
        all.push(act(72, 73, Cell::Read(0)));
        assert!(!have_order(&all));
        all.pop();
        all.push(act(72, 73, Cell::Write(100)));
        all.push(act(74, 75, Cell::Read(5)));
        assert!(!have_order(&all));
        assert!(!have_order(&[act(1, 2, Cell::Read(7))]), "nothing has written it");
    }

    #[test]
    fn a_search_over_all_orders_says_the_same() {
        let mut random = Random::new(7);
        let mut with_order = 0;
        for _ in 0..20_000 {
            let all = random_operations(&mut random);
            let has_order = linear::have_order(0, &all);
            assert_eq!(have_order(&all), has_order, "{all:?}");
            with_order += u32::from(has_order);
        }
        assert!((2_000..18_000).contains(&with_order), "{with_order}");
    }

    /// A search over all orders does not end here.
    #[test]
    fn many_writes_that_may_be_lost_and_were_read_take_no_time() {
        let mut all: Vec<_> = (1..60).map(|it| act(it, u64::MAX, Cell::Write(it))).collect();
        let reads = |values: &[u64]| -> Vec<_> {
            let moments = (100..).step_by(2);
            moments.zip(values).map(|(at, value)| act(at, at + 1, Cell::Read(*value))).collect()
        };
        let values: Vec<u64> = (1..60).rev().collect();
        all.extend(reads(&values));
        assert!(have_order(&all));
        all.push(act(400, 401, Cell::Read(7)));
        assert!(!have_order(&all), "another value was read in between");
    }
}
