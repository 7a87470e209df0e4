//! The search for a loop in a walk along parents, in constant memory (Brent's algorithm).

use pelago_wire::InodeId;

/// A walk. It remembers one inode at a time, each for twice as many steps as the one before, so
/// that a loop is found within three times the length of the way into it and around it.
pub struct CycleFinder {
    /// The inode that is remembered.
    remembered: InodeId,
    /// Steps until another inode is remembered.
    left: u64,
    /// Steps for which the inode is remembered in all.
    span: u64,
}

impl CycleFinder {
    /// Begins a walk.
    #[must_use]
    pub const fn from(start: InodeId) -> Self {
        Self { remembered: start, left: 1, span: 1 }
    }

    /// Takes a step. Returns whether the walk is in a loop, which may be noticed after some rounds.
    #[must_use]
    pub fn has_looped(&mut self, here: InodeId) -> bool {
        if here == self.remembered {
            return true;
        }
        self.left -= 1;
        if self.left == 0 {
            self.span *= 2;
            self.remembered = here;
            self.left = self.span;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_found_and_straight_walks_have_none() {
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
