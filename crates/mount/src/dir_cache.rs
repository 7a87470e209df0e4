//! Which directories the kernel has listed to their end, and so may list again without asking.
//!
//! The kernel keeps a listing in its own memory and drops it with the first change in the
//! directory. It keeps names there, without attributes: those are with the inodes it knows. Where
//! it has forgotten many of these meanwhile, asking for each by itself would cost more than a
//! listing, which brings them all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_wire::InodeId;

use crate::init::TTL;

/// Listings that were read to their end. Its lock is a leaf.
#[derive(Default)]
pub(crate) struct DirCache {
    whole: Mutex<HashMap<u64, Whole>>,
    forgotten: AtomicU64,
}

/// One of them.
struct Whole {
    read: Instant,
    entries: u64,
    /// Inodes that the kernel had forgotten by then.
    forgotten: u64,
}

/// Directories that are remembered, at the most.
const DIRECTORIES: usize = 4096;
/// After this time attributes soon need to be asked for again.
const FRESH: Duration = TTL.checked_div(2).expect("two is not zero");
/// One inode forgotten among so many entries still makes the kept listing the cheaper one.
const WORTH: u64 = 16;

impl DirCache {
    /// A directory was read to its end, with so many entries.
    pub(crate) fn add(&self, dir: InodeId, entries: u64) {
        let forgotten = self.forgotten.load(Ordering::Relaxed);
        let mut whole = self.whole.lock();
        if whole.len() >= DIRECTORIES && !whole.contains_key(&dir.raw()) {
            // Whoever is forgotten here is listed once more.
            whole.clear();
        }
        whole.insert(dir.raw(), Whole { read: Instant::now(), entries, forgotten });
    }

    /// Whether what the kernel kept of a directory's listing may be used again.
    pub(crate) fn may_keep(&self, dir: InodeId) -> bool {
        let whole = self.whole.lock();
        let Some(Whole { read, entries, forgotten }) = whole.get(&dir.raw()) else { return false };
        let since = self.forgotten.load(Ordering::Relaxed).saturating_sub(*forgotten);
        since <= entries / WORTH && read.elapsed() < FRESH
    }

    /// The kernel has forgotten an inode.
    pub(crate) fn forgot(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_kept_as_long_as_its_inodes_are() {
        let listed = DirCache::default();
        let (one, other) = (InodeId::from_raw(2), InodeId::from_raw(3));
        assert!(!listed.may_keep(one));
        listed.forgot();
        listed.add(one, 2 * WORTH);
        assert!(listed.may_keep(one) && !listed.may_keep(other));
        listed.forgot();
        listed.forgot();
        assert!(listed.may_keep(one));
        listed.forgot();
        assert!(!listed.may_keep(one));
        listed.add(one, 2 * WORTH);
        assert!(listed.may_keep(one));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let listed = DirCache::default();
        for ino in 0..=DIRECTORIES as u64 {
            listed.add(InodeId::from_raw(ino), 0);
        }
        assert!(listed.whole.lock().len() <= DIRECTORIES);
        assert!(listed.may_keep(InodeId::from_raw(DIRECTORIES as u64)));
    }
}
