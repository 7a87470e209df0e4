//! Whether a new file begins with a content file, or in memory.
//!
//! Most files are small, and are best kept in the table. Where the files of a directory were large
//! lately, the next one gets its content file when it is made, so that its bytes never pass
//! through the server. How large is a moving average of what was closed; directories of small
//! files, nearly all, are not even remembered.

use pelago_wire::InodeId;

use pelago_wire::id_map::IdMap;

/// When files are handed to who asks for them, as descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passthrough {
    /// Never: every byte passes through the server.
    Never,
    /// Where a file has a content file; new ones get it at once where the files of their directory
    /// were large lately.
    #[default]
    Auto,
    /// As [`Passthrough::Auto`], and every new file gets its content file at once, whoever makes
    /// it: for tests.
    Always,
}

/// A directory's files are large where their average is above this, in bytes.
const LARGE_BYTES: u64 = 1 << 20;
/// A file counts as no larger than this: what was large once shall not count for ever.
const MOST_BYTES: u64 = 16 << 20;
/// The last file is one in so many of the average.
const WEIGHT: u64 = 8;
/// An average below this is forgotten.
const LEAST_BYTES: u64 = 64 << 10;
/// Directories that are remembered.
const DIRECTORIES: usize = 1024;

/// How large the files of each directory were lately. It is not kept over a restart.
#[derive(Debug, Default)]
pub(crate) struct SizeHistory {
    averages: IdMap<InodeId, Average>,
    /// Counts up with each file that is closed.
    now: u64,
}

#[derive(Debug, Clone, Copy)]
struct Average {
    bytes: u64,
    /// When it changed last.
    at: u64,
}

impl SizeHistory {
    /// A file of a directory was written and closed.
    pub(crate) fn closed(&mut self, dir: InodeId, bytes: u64) {
        let known = self.averages.get(&dir).map_or(0, |average| average.bytes);
        if known == 0 && bytes < LEAST_BYTES {
            return;
        }
        let average = (known * (WEIGHT - 1) + bytes.min(MOST_BYTES)) / WEIGHT;
        if average < LEAST_BYTES {
            self.averages.remove(&dir);
            return;
        }
        if known == 0 && self.averages.len() >= DIRECTORIES {
            self.forget_oldest();
        }
        self.now += 1;
        self.averages.insert(dir, Average { bytes: average, at: self.now });
    }

    /// Whether the files of a directory were large lately.
    pub(crate) fn are_large(&self, dir: InodeId) -> bool {
        self.averages.get(&dir).is_some_and(|average| average.bytes > LARGE_BYTES)
    }

    fn forget_oldest(&mut self) {
        let oldest = self.averages.iter().min_by_key(|(_, average)| average.at);
        if let Some(dir) = oldest.map(|(dir, _)| *dir) {
            self.averages.remove(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId::from_raw(5);
    const MIB: u64 = 1 << 20;

    #[test]
    fn one_huge_file_or_several_large_ones_make_a_directory_one_of_large_files() {
        let mut sizes = SizeHistory::default();
        sizes.closed(DIR, 1 << 40);
        assert!(sizes.are_large(DIR));
        assert!(!sizes.are_large(InodeId::ROOT));
        let mut sizes = SizeHistory::default();
        let many = (0..).take_while(|_| {
            sizes.closed(DIR, 2 * MIB);
            !sizes.are_large(DIR)
        });
        assert_eq!(many.count(), 5);
    }

    #[test]
    fn small_files_are_not_remembered_and_bring_an_average_down() {
        let mut sizes = SizeHistory::default();
        (0..100).for_each(|_| sizes.closed(DIR, 4096));
        assert!(sizes.averages.is_empty());
        sizes.closed(DIR, 1 << 40);
        let few = (0..).take_while(|_| {
            sizes.closed(DIR, 0);
            sizes.are_large(DIR)
        });
        assert_eq!(few.count(), 5);
        (0..100).for_each(|_| sizes.closed(DIR, 0));
        assert!(sizes.averages.is_empty());
    }

    #[test]
    fn only_so_many_directories_are_remembered() {
        let mut sizes = SizeHistory::default();
        let last = DIRECTORIES as u64 + 10;
        for number in 1..=last {
            sizes.closed(InodeId::from_raw(number), 32 * MIB);
        }
        assert_eq!(sizes.averages.len(), DIRECTORIES);
        assert!(sizes.are_large(InodeId::from_raw(last)));
        assert!(!sizes.are_large(InodeId::from_raw(10)));
    }
}
