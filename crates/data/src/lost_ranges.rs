//! What may be lost of a content file after a failed sync.
//!
//! Linux drops the dirty bytes of a file that it could not write back, and forgets that once it has
//! told. A later sync that succeeds says nothing about those bytes. So a file stays in error until
//! each of its bytes was written again.

use std::ops::Range;

use pelago_wire::limits;

/// The bytes, and the name, that may not be on the medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost {
    /// In order, apart from each other, none empty.
    ranges: Vec<Range<u64>>,
    /// The name of the content file, too: only another content file has one that is safe.
    name: bool,
    /// Nothing was written since the failure.
    is_fresh: bool,
}

impl Lost {
    /// All bytes of a file; its name too if the folder could not be synced.
    pub(crate) fn all(name: bool) -> Self {
        let all = Range { start: 0, end: u64::MAX };
        Self { ranges: Vec::from([all]), name, is_fresh: true }
    }

    /// Another sync has failed: all bytes may be lost again.
    pub(crate) fn merge(&mut self, again: Self) {
        self.name |= again.name;
        self.ranges = again.ranges;
        self.is_fresh = true;
    }

    /// A caller is about to write. Answers whether it is the first one since the failure.
    pub(crate) fn begin_rewrite(&mut self) -> bool {
        std::mem::take(&mut self.is_fresh)
    }

    /// These bytes were written again. With too many ranges the file stays in error for longer.
    pub(crate) fn rewrote(&mut self, written: Range<u64>) {
        let mut left = Vec::with_capacity(self.ranges.len() + 1);
        for range in &self.ranges {
            let before = range.start..range.end.min(written.start);
            let behind = range.start.max(written.end)..range.end;
            left.extend([before, behind].into_iter().filter(|part| !part.is_empty()));
        }
        if left.len() <= limits::LOST_RANGES {
            self.ranges = left;
        }
    }

    /// Whether nothing of a file of this size is left.
    pub(crate) fn is_over(&self, size: u64) -> bool {
        !self.name && self.ranges.first().is_none_or(|range| range.start >= size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_again_once_each_byte_was_written() {
        let mut lost = Lost::all(false);
        lost.rewrote(10..20);
        assert!(!lost.is_over(20) && !lost.is_over(1) && lost.is_over(0));
        lost.rewrote(0..10);
        assert!(lost.is_over(20) && !lost.is_over(21));
        lost.rewrote(30..40);
        lost.rewrote(15..35);
        assert!(lost.is_over(40) && !lost.is_over(41));
    }

    #[test]
    fn a_name_is_not_written_again_with_the_bytes() {
        let mut lost = Lost::all(true);
        lost.rewrote(0..u64::MAX);
        assert!(!lost.is_over(100));
        let mut bytes = Lost::all(false);
        bytes.merge(lost);
        assert!(!bytes.is_over(0));
    }

    #[test]
    fn too_many_ranges_are_not_kept_apart() {
        let mut lost = Lost::all(false);
        for number in 0..2 * limits::LOST_RANGES as u64 {
            lost.rewrote(2 * number + 1..2 * number + 2);
        }
        assert_eq!(lost.ranges.len(), limits::LOST_RANGES);
        lost.rewrote(0..u64::MAX);
        assert!(lost.is_over(u64::MAX));
    }
}
