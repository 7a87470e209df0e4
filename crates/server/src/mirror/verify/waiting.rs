//! The content files that a verification compares later: a queue without I/O.
//!
//! A file that has changed since a group is due after the next one. A file that failed is tried
//! alone, so that the one which fails is found among those of a slice.

use std::collections::VecDeque;

use pelago_data::ContentKey;

/// Content files of one slice: each takes a question, sixteen of which are under way at once.
pub(super) const SLICE_FILES: usize = 64;

/// A content file, and the blocks of it that are compared next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tried {
    pub(super) key: ContentKey,
    pub(super) row_key: Vec<u8>,
    /// The first block that is not compared yet.
    pub(super) first: u64,
    /// Number of tries during which it has changed.
    pub(super) changes: u32,
    /// How often the comparison has failed, of this file or of another one in the same slice.
    pub(super) failures: u32,
}

impl Tried {
    /// Returns a file that was not tried yet.
    pub(super) const fn new(key: ContentKey, row_key: Vec<u8>) -> Self {
        Self { key, row_key, first: 0, changes: 0, failures: 0 }
    }
}

/// The files that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Those that can be compared now.
    due: VecDeque<Tried>,
    /// Those that have changed, each with the group that the mirror had then, in this order.
    changed: VecDeque<(u64, Tried)>,
}

impl Waiting {
    /// Adds a file that is compared before all others.
    pub(super) fn push_next(&mut self, tried: Tried) {
        self.due.push_front(tried);
    }

    /// Adds a file that has changed since this group.
    pub(super) fn push_changed(&mut self, tried: Tried, group: u64) {
        self.changed.push_back((group, tried));
    }

    /// Makes the files due that have changed since an older group than this one, which the mirror
    /// has.
    pub(super) fn note_group(&mut self, group: u64) {
        while let Some((_, tried)) = self.changed.pop_front_if(|(at, _)| *at != group) {
            self.due.push_back(tried);
        }
    }

    /// Takes the files of a slice; none if none is due.
    pub(super) fn take(&mut self) -> Vec<Tried> {
        let Some(first) = self.due.pop_front() else { return Vec::new() };
        let is_alone = first.failures > 0;
        let mut files = vec![first];
        while !is_alone
            && files.len() < SLICE_FILES
            && let Some(next) = self.due.pop_front_if(|next| next.failures == 0)
        {
            files.push(next);
        }
        files
    }

    /// Returns the number of files that are due.
    pub(super) fn due(&self) -> usize {
        self.due.len()
    }

    /// Returns the number of all files.
    pub(super) fn len(&self) -> usize {
        self.due.len() + self.changed.len()
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Generation, InodeId};

    use super::*;

    fn file(number: u64) -> Tried {
        let ino = InodeId::from_raw(number + 100);
        Tried::new((ino, Generation::FIRST), vec![number as u8])
    }

    #[test]
    fn a_file_that_has_changed_is_due_after_the_next_group() {
        let mut waiting = Waiting::default();
        waiting.push_changed(file(1), 5);
        waiting.push_next(file(2));
        waiting.note_group(5);
        assert_eq!(waiting.take(), [file(2)]);
        assert_eq!(waiting.take(), []);
        waiting.push_changed(file(2), 6);
        waiting.note_group(6);
        assert_eq!((waiting.due(), waiting.len()), (1, 2));
        assert_eq!(waiting.take(), [file(1)]);
        waiting.note_group(7);
        assert_eq!(waiting.take(), [file(2)]);
        assert_eq!(waiting.len(), 0);
    }

    #[test]
    fn a_file_that_failed_is_tried_alone() {
        let failed = |number| Tried { failures: 1, ..file(number) };
        let mut waiting = Waiting::default();
        for tried in [file(4), failed(3), failed(2), file(1), file(0)] {
            waiting.push_next(tried);
        }
        let slices: Vec<_> = std::iter::from_fn(|| Some(waiting.take()))
            .take_while(|files| !files.is_empty())
            .collect();
        let expected = [vec![file(0), file(1)], vec![failed(2)], vec![failed(3)], vec![file(4)]];
        assert_eq!(slices, expected);
    }

    #[test]
    fn a_slice_has_a_limited_number_of_files() {
        let mut waiting = Waiting::default();
        (0..100).for_each(|number| waiting.push_changed(file(number), 1));
        waiting.note_group(2);
        assert_eq!((waiting.take().len(), waiting.due()), (SLICE_FILES, 36));
    }
}
