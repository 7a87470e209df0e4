//! The memory of open files: the budget of their bytes, and buffers for reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::buffers::Buffers;

/// The budget of memory for the bytes of open files.
pub(crate) struct MemoryBudget {
    /// Bytes taken by all open files.
    taken: Arc<AtomicUsize>,
    /// Bytes that all open files may take.
    limit: usize,
    /// The size of the largest file that stays in memory until it is committed.
    inline_bytes: usize,
    /// Memory for replies to reads.
    pub(crate) buffers: Arc<Buffers>,
}

/// The memory of one open file, which is counted in that of all.
pub(crate) struct MemoryShare {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl MemoryBudget {
    /// Returns a budget of `limit` bytes, for files of up to `inline_bytes` bytes.
    pub(crate) fn new(limit: usize, inline_bytes: usize) -> Self {
        Self { taken: Arc::default(), limit, inline_bytes, buffers: Arc::default() }
    }

    /// Bytes taken by all open files.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Returns whether more than half of the budget is taken.
    pub(crate) fn is_half_taken(&self) -> bool {
        self.taken() > self.limit / 2
    }

    /// Returns an empty share for one more file.
    pub(crate) fn share(&self) -> MemoryShare {
        MemoryShare { all: Arc::clone(&self.taken), bytes: 0 }
    }

    /// Returns whether the file with this share may change it to `bytes` bytes.
    pub(crate) fn has_room(&self, share: &MemoryShare, bytes: usize) -> bool {
        self.taken().saturating_sub(share.bytes) + bytes <= self.limit
    }

    /// Returns whether a file of this size may stay in memory until it is committed.
    pub(crate) fn fits(&self, share: &MemoryShare, size: u64) -> bool {
        size <= self.inline_bytes as u64 && self.has_room(share, size as usize)
    }
}

impl MemoryShare {
    /// Sets the number of bytes of this file.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes >= self.bytes {
            self.all.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            let less = self.bytes - bytes;
            let before = self.all.fetch_sub(less, Ordering::Relaxed);
            assert!(before >= less, "the memory of all open files is the sum of their shares");
        }
        self.bytes = bytes;
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_counts_in_the_budget_until_it_is_dropped() {
        let budget = MemoryBudget::new(100, 50);
        let mut one = budget.share();
        let mut other = budget.share();
        one.set(60);
        other.set(30);
        assert!(budget.taken() == 90 && budget.is_half_taken());
        assert!(budget.has_room(&other, 40) && !budget.has_room(&other, 41));
        assert!(budget.fits(&one, 50) && !budget.fits(&one, 51), "a larger file is not kept");
        drop(one);
        other.set(10);
        assert_eq!(budget.taken(), 10);
    }
}
