//! The placement of new files: with a content file from the beginning, or in memory.
//!
//! Most files are small, and are best stored in the table. If the recent files of a directory were
//! large, the next file gets its content file when it is created, so that its bytes never pass
//! through the server. The size is a moving average over closed files; directories of small files,
//! which are nearly all, have no entry.

use pelago_store::sync::Mutex;
use pelago_wire::id_map::IdMap;
use pelago_wire::{InodeId, OpenFlags};

/// The conditions for opens by passthrough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passthrough {
    /// Never: every byte passes through the server.
    Never,
    /// If a file has a content file; a new file gets one at once if the recent files of its
    /// directory were large.
    #[default]
    Auto,
    /// As [`Passthrough::Auto`], and every new file gets its content file at once: for tests.
    Always,
}

/// The files of a directory are large if their average is above this, in bytes.
const LARGE_BYTES: u64 = 1 << 20;
/// The most bytes that a file counts, so that one large file does not count for ever.
const MOST_BYTES: u64 = 16 << 20;
/// The last file contributes one part in this many to the average.
const WEIGHT: u64 = 8;
/// An average below this has no entry.
const LEAST_BYTES: u64 = 64 << 10;
/// The most directories with an entry.
const DIRECTORIES: usize = 1024;

/// Decides which files are opened by passthrough.
pub(crate) struct Placement {
    mode: Passthrough,
    /// True if the file system can tell whether a process writes a file.
    can_detect_writers: bool,
    /// A leaf lock.
    sizes: Mutex<SizeHistory>,
}

/// The average size of the recent files of each directory. A restart loses it.
#[derive(Debug, Default)]
struct SizeHistory {
    averages: IdMap<InodeId, Average>,
    /// Counts closed files.
    now: u64,
}

#[derive(Debug, Clone, Copy)]
struct Average {
    bytes: u64,
    /// The count of closed files at its last change.
    at: u64,
}

impl Placement {
    /// Returns a placement without history.
    pub(crate) fn new(mode: Passthrough, can_detect_writers: bool) -> Self {
        Self { mode, can_detect_writers, sizes: Mutex::default() }
    }

    /// Returns whether files are opened by passthrough at all.
    pub(crate) fn passes(&self) -> bool {
        self.can_detect_writers && self.mode != Passthrough::Never
    }

    /// Returns whether a new file in this directory begins with a content file.
    pub(crate) fn begins_with_content(&self, dir: InodeId, flags: OpenFlags) -> bool {
        match self.mode {
            Passthrough::Never => false,
            Passthrough::Auto => {
                flags.passthrough && self.passes() && self.sizes.lock().are_large(dir)
            }
            Passthrough::Always => true,
        }
    }

    /// Records the size in bytes of a file that was written and closed.
    pub(crate) fn note_closed(&self, dir: InodeId, bytes: u64) {
        if self.passes() {
            self.sizes.lock().note_closed(dir, bytes);
        }
    }
}

impl SizeHistory {
    fn note_closed(&mut self, dir: InodeId, bytes: u64) {
        let before = self.averages.get(&dir).map_or(0, |average| average.bytes);
        if before == 0 && bytes < LEAST_BYTES {
            return;
        }
        let average = (before * (WEIGHT - 1) + bytes.min(MOST_BYTES)) / WEIGHT;
        if average < LEAST_BYTES {
            self.averages.remove(&dir);
            return;
        }
        if before == 0 && self.averages.len() >= DIRECTORIES {
            self.forget_oldest();
        }
        self.now += 1;
        self.averages.insert(dir, Average { bytes: average, at: self.now });
    }

    /// Returns whether the recent files of a directory were large.
    fn are_large(&self, dir: InodeId) -> bool {
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
    fn one_huge_file_or_several_large_ones_make_the_files_of_a_directory_large() {
        let mut sizes = SizeHistory::default();
        sizes.note_closed(DIR, 1 << 40);
        assert!(sizes.are_large(DIR));
        assert!(!sizes.are_large(InodeId::ROOT));
        let mut sizes = SizeHistory::default();
        let many = (0..).take_while(|_| {
            sizes.note_closed(DIR, 2 * MIB);
            !sizes.are_large(DIR)
        });
        assert_eq!(many.count(), 5);
    }

    #[test]
    fn small_files_are_not_remembered_and_lower_an_average() {
        let mut sizes = SizeHistory::default();
        (0..100).for_each(|_| sizes.note_closed(DIR, 4096));
        assert!(sizes.averages.is_empty());
        sizes.note_closed(DIR, 1 << 40);
        let few = (0..).take_while(|_| {
            sizes.note_closed(DIR, 0);
            sizes.are_large(DIR)
        });
        assert_eq!(few.count(), 5);
        (0..100).for_each(|_| sizes.note_closed(DIR, 0));
        assert!(sizes.averages.is_empty());
    }

    #[test]
    fn the_number_of_remembered_directories_is_bounded() {
        let mut sizes = SizeHistory::default();
        let last = DIRECTORIES as u64 + 10;
        for number in 1..=last {
            sizes.note_closed(InodeId::from_raw(number), 32 * MIB);
        }
        assert_eq!(sizes.averages.len(), DIRECTORIES);
        assert!(sizes.are_large(InodeId::from_raw(last)));
        assert!(!sizes.are_large(InodeId::from_raw(10)));
    }
}
