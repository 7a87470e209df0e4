//! Finds that a walk through a tree comes back to where it was, without remembering the places.

use pelago_wire::InodeId;

/// A walk: looks back at one place at a time, twice as far behind each time, so that a loop is
/// found within three times its length.
pub struct CycleFinder {
    seen: InodeId,
    left: u64,
    span: u64,
}

impl CycleFinder {
    /// A walk from here.
    #[must_use]
    pub const fn from(start: InodeId) -> Self {
        Self { seen: start, left: 1, span: 1 }
    }

    /// The walk comes here next. Answers whether it was here before, at the latest when it has been
    /// here a few times.
    #[must_use]
    pub fn has_looped(&mut self, here: InodeId) -> bool {
        if here == self.seen {
            return true;
        }
        self.left -= 1;
        if self.left == 0 {
            self.span *= 2;
            (self.seen, self.left) = (here, self.span);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_found_and_straight_ways_are_none() {
        for (lead, round) in [(0, 1), (0, 2), (5, 1), (100, 7), (3, 1000)] {
            let place = |step: u64| match step {
                step if step < lead => step,
                step => lead + (step - lead) % round,
            };
            let mut steps = CycleFinder::from(InodeId::from_raw(place(0)));
            let found = (1..).find(|step| steps.has_looped(InodeId::from_raw(place(*step))));
            assert!(found.is_some_and(|step| step <= 3 * (lead + round)), "{lead} {round}");
        }
        let mut steps = CycleFinder::from(InodeId::from_raw(0));
        assert!((1..100_000).all(|step| !steps.has_looped(InodeId::from_raw(step))));
    }
}
