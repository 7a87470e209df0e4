//! The order in which the extents of a file are sent.

use std::ops::Range;

use pelago_wire::blocks::{Extents, HaveMap};

/// The extents of which a client lacks a part, in the order in which it gets them.
///
/// This is the one place that decides what comes next: here it is the order of the file.
#[derive(Debug)]
pub(crate) struct ExtentOrder {
    file: Extents,
    have: HaveMap,
    left: Range<u64>,
}

impl ExtentOrder {
    pub(crate) fn new(file: Extents, have: HaveMap) -> Self {
        Self { file, have, left: 0..file.count() }
    }

    /// Returns the number of the extent that the client gets next; `None` once it has got all.
    pub(crate) fn next_extent(&mut self) -> Option<u64> {
        self.left.find(|extent| !self.have.contains_all(self.file.blocks_of(*extent)))
    }

    /// Returns whether the client had a block before.
    pub(crate) fn has(&self, block: u64) -> bool {
        self.have.contains(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_the_client_has_are_left_out() {
        let file = Extents::of(5 << 20).unwrap();
        // All of extent 1, a part of 2, all of 4.
        let have = HaveMap::of((16..40).chain(64..80));
        let mut order = ExtentOrder::new(file, have);
        assert!(order.has(39) && !order.has(40));
        assert_eq!(std::iter::from_fn(|| order.next_extent()).collect::<Vec<_>>(), [0, 2, 3]);
    }
}
