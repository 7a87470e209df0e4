//! The sizes of the steps in which the index is built and hits are ranked.

use std::time::Duration;

use pelago_wire::limits;

/// The sizes of steps. [`Steps::default`] are those of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steps {
    /// The time of one piece of work.
    pub piece: Duration,
    /// Rows that are read at once.
    pub rows_at_once: usize,
    /// Files of a long reading in one commit.
    pub commit_files: usize,
    /// Texts that are read for one commit, once all others are in the index.
    pub texts_at_once: usize,
    /// The longest wait of a commit for its rows to be safe.
    pub safe_timeout: Duration,
    /// Files that are ranked with each other: those of the highest [`pelago_find::score_alone`].
    /// The others follow in the order of that score. To read the row of each takes most of the
    /// time.
    pub ranked_files: usize,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            piece: Duration::from_millis(20),
            rows_at_once: 512,
            commit_files: limits::INDEX_INODES / 2,
            texts_at_once: 256,
            safe_timeout: Duration::from_secs(5),
            ranked_files: 1000,
        }
    }
}

impl Steps {
    /// Returns steps that are as small as they can be, for tests that look between two of them.
    #[must_use]
    pub const fn small() -> Self {
        Self {
            piece: Duration::ZERO,
            rows_at_once: 8,
            commit_files: 16,
            texts_at_once: 1,
            safe_timeout: Duration::from_millis(400),
            ranked_files: 8,
        }
    }
}
