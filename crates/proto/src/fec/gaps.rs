//! The sequence numbers that have not arrived, as runs.

use std::collections::BTreeMap;
use std::ops::Range;

use pelago_wire::limits;

/// Runs of missing numbers below the next one that nobody has seen.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// The end of each run, by its first number.
    runs: BTreeMap<u64, u64>,
    /// The first number above all that have arrived.
    next: u64,
}

impl Gaps {
    /// Records that a number has arrived. Returns whether it was missing.
    pub(super) fn take(&mut self, number: u64) -> bool {
        if number >= self.next {
            if number > self.next {
                self.runs.insert(self.next, number);
                self.bound();
            }
            self.next = number.saturating_add(1);
            return true;
        }
        let Some((first, end)) = self.run_of(number) else { return false };
        self.runs.remove(&first);
        if first < number {
            self.runs.insert(first, number);
        }
        if number + 1 < end {
            self.runs.insert(number + 1, end);
        }
        self.bound();
        true
    }

    /// Records that the first run has come otherwise.
    pub(super) fn fill_first(&mut self) {
        self.runs.pop_first();
    }

    /// Returns the first run.
    pub(super) fn first(&self) -> Option<Range<u64>> {
        self.runs.first_key_value().map(|(first, end)| *first..*end)
    }

    /// Returns whether a number has not arrived.
    pub(super) fn is_missing(&self, number: u64) -> bool {
        number >= self.next || self.run_of(number).is_some()
    }

    /// Returns the first number that has not arrived.
    pub(super) fn complete(&self) -> u64 {
        self.first().map_or(self.next, |run| run.start)
    }

    fn run_of(&self, number: u64) -> Option<(u64, u64)> {
        let (first, end) = self.runs.range(..=number).next_back()?;
        (number < *end).then_some((*first, *end))
    }

    /// Joins the two oldest runs if there are too many. What has arrived between them counts as
    /// missing: it is asked for once more.
    fn bound(&mut self) {
        if self.runs.len() <= limits::DECODED_GAPS {
            return;
        }
        if let (Some((first, _)), Some((_, end))) = (self.runs.pop_first(), self.runs.pop_first()) {
            self.runs.insert(first, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_number_of_runs_is_kept() {
        let mut gaps = Gaps::default();
        for number in 0..2 * limits::DECODED_GAPS as u64 {
            assert!(gaps.take(3 * number + 1));
            assert!(gaps.runs.len() <= limits::DECODED_GAPS);
        }
        assert_eq!(gaps.complete(), 0);
        assert!(gaps.is_missing(1), "what has arrived between the oldest runs is asked for again");
    }
}
