//! Sets of bytes of a file.

use std::collections::BTreeMap;
use std::ops::Range;

/// Bytes of a file, as ranges that neither touch nor overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ranges {
    /// The ends of the ranges, by their starts.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Adds bytes.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut merged = range;
        // Ranges that touch it are at its start or within it, or the one before reaches it.
        while let Some((&start, &end)) = self.ends.range(..=merged.end).next_back()
            && end >= merged.start
        {
            self.ends.remove(&start);
            merged = merged.start.min(start)..merged.end.max(end);
        }
        self.ends.insert(merged.start, merged.end);
    }

    /// Removes bytes. Returns those that were in the set.
    pub(super) fn remove(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let found = self.overlap(range);
        for part in &found {
            let within =
                self.ends.range(..=part.start).next_back().map(|(start, end)| *start..*end);
            let Some(within) = within else { continue };
            self.ends.remove(&within.start);
            self.insert(within.start..part.start);
            self.insert(part.end..within.end);
        }
        found
    }

    /// Returns the bytes of `range` that are in the set, in order.
    pub(super) fn overlap(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.ends.range(..range.start).next_back();
        let within = self.ends.range(range.start..range.end.max(range.start));
        let parts = before.into_iter().chain(within);
        let parts = parts.map(|(start, end)| (*start).max(range.start)..(*end).min(range.end));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// Adds all bytes of another set.
    pub(super) fn merge(&mut self, other: &Self) {
        other.iter().for_each(|range| self.insert(range));
    }

    /// Makes the set smaller in memory: each range grows to multiples of `unit` bytes.
    pub(super) fn coarsen(&mut self, unit: u64) {
        let ends = std::mem::take(&mut self.ends);
        for (start, end) in ends {
            let end = end.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
            self.insert(start - start % unit..end);
        }
    }

    /// Returns the ranges in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// Returns the first range.
    pub(super) fn first(&self) -> Option<Range<u64>> {
        self.iter().next()
    }

    /// Counts the ranges.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Counts the bytes below `size`.
    pub(super) fn bytes_below(&self, size: u64) -> u64 {
        self.iter().map(|range| range.end.min(size).saturating_sub(range.start)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first byte of a range, and the first one after it.
    type Ends = [u64; 2];

    fn of(ranges: &[Ends]) -> Ranges {
        let mut set = Ranges::default();
        ranges.iter().for_each(|[start, end]| set.insert(*start..*end));
        set
    }

    fn ends(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Ends> {
        ranges.into_iter().map(|range| [range.start, range.end]).collect()
    }

    fn list(set: &Ranges) -> Vec<Ends> {
        ends(set.iter())
    }

    #[test]
    fn ranges_that_touch_become_one() {
        assert_eq!(list(&of(&[[5, 9], [0, 2], [2, 5]])), [[0, 9]]);
        assert_eq!(list(&of(&[[0, 1], [4, 5], [8, 9], [0, 9]])), [[0, 9]]);
        assert_eq!(list(&of(&[[4, 6], [0, 3]])), [[0, 3], [4, 6]]);
        assert_eq!(list(&of(&[[0, 10], [3, 4]])), [[0, 10]]);
        assert_eq!(list(&of(&[[7, 7]])), [[0; 2]; 0]);
    }

    /// All sets of bytes below eight, against a set of single bytes.
    #[test]
    fn a_set_is_that_of_its_bytes() {
        let bytes = |mask: u32| (0..8).filter(move |byte| mask & (1 << byte) != 0);
        let set_of = |mask: u32| of(&bytes(mask).map(|byte| [byte, byte + 1]).collect::<Vec<_>>());
        for mask in 0..256 {
            for start in 0..8 {
                for end in start..=8 {
                    let range = start..end;
                    let within: u32 = range.clone().map(|byte| 1 << byte).sum();
                    let mut set = set_of(mask);
                    assert_eq!(ends(set.overlap(&range)), list(&set_of(mask & within)));
                    assert_eq!(ends(set.remove(&range)), list(&set_of(mask & within)));
                    assert_eq!(set, set_of(mask & !within), "{mask:b} without {range:?}");
                    let mut set = set_of(mask);
                    set.insert(range);
                    assert_eq!(set, set_of(mask | within));
                    assert_eq!(set.bytes_below(8), u64::from((mask | within).count_ones()));
                }
            }
        }
    }

    #[test]
    fn a_coarser_set_has_the_same_bytes_and_more() {
        let mut set = of(&[[3, 4], [9, 10], [30, 31]]);
        set.coarsen(8);
        assert_eq!(list(&set), [[0, 16], [24, 32]]);
        let mut all = of(&[[0, u64::MAX]]);
        all.coarsen(8);
        assert_eq!(list(&all), [[0, u64::MAX]]);
    }
}
