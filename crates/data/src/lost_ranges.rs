//! The bytes that a content file may have lost in a failed sync.
//!
//! Linux drops the dirty pages of a file that it could not write back, and forgets the failure once
//! it has reported it. A later successful sync proves nothing about those bytes. So a file stays in
//! error until each of its bytes was written again.

use std::ops::Range;

use pelago_wire::limits;

/// The bytes of a content file, and its name, that may not be on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostRanges {
    /// Sorted, disjoint, none empty.
    ranges: Vec<Range<u64>>,
    /// True if the name may be lost too: only another content file gets a safe name.
    name: bool,
    /// True if the file was not written since the failure.
    is_fresh: bool,
}

impl LostRanges {
    /// Returns all bytes of a file, and its `name` if its folder could not be synced.
    pub(crate) fn all(name: bool) -> Self {
        let all = Range { start: 0, end: u64::MAX };
        Self { ranges: Vec::from([all]), name, is_fresh: true }
    }

    /// Adds the loss of another failed sync: all bytes may be lost again.
    pub(crate) fn merge(&mut self, again: Self) {
        self.name |= again.name;
        self.ranges = again.ranges;
        self.is_fresh = true;
    }

    /// Records that a caller is about to write. Returns whether it is the first since the failure.
    pub(crate) fn begin_rewrite(&mut self) -> bool {
        std::mem::take(&mut self.is_fresh)
    }

    /// Removes bytes that were written again. If that makes more ranges than
    /// [`limits::LOST_RANGES`], the write is ignored, and the file stays in error for longer.
    pub(crate) fn note_rewrite(&mut self, written: Range<u64>) {
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

    /// Returns whether no lost byte of a file of this size is left.
    pub(crate) fn is_restored(&self, size: u64) -> bool {
        !self.name && self.ranges.first().is_none_or(|range| range.start >= size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_restored_once_each_byte_was_written() {
        let mut lost = LostRanges::all(false);
        lost.note_rewrite(10..20);
        assert!(!lost.is_restored(20) && !lost.is_restored(1) && lost.is_restored(0));
        lost.note_rewrite(0..10);
        assert!(lost.is_restored(20) && !lost.is_restored(21));
        lost.note_rewrite(30..40);
        lost.note_rewrite(15..35);
        assert!(lost.is_restored(40) && !lost.is_restored(41));
    }

    #[test]
    fn writing_all_bytes_does_not_restore_the_name() {
        let mut lost = LostRanges::all(true);
        lost.note_rewrite(0..u64::MAX);
        assert!(!lost.is_restored(100));
        let mut bytes = LostRanges::all(false);
        bytes.merge(lost);
        assert!(!bytes.is_restored(0));
    }

    #[test]
    fn beyond_the_limit_ranges_are_not_split() {
        let mut lost = LostRanges::all(false);
        for number in 0..2 * limits::LOST_RANGES as u64 {
            lost.note_rewrite(2 * number + 1..2 * number + 2);
        }
        assert_eq!(lost.ranges.len(), limits::LOST_RANGES);
        lost.note_rewrite(0..u64::MAX);
        assert!(lost.is_restored(u64::MAX));
    }
}
