//! Directories whose whole listing is in the kernel's cache and may be used again.
//!
//! The kernel caches the names of a listing and drops them with the first change in the directory.
//! It keeps the attributes elsewhere, with its inodes. Once it has forgotten many of these inodes,
//! requesting their attributes one by one costs more than a new listing, which has all of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_wire::InodeId;

use crate::init::TTL;

/// Directories whose listing was read to its end. Its lock is a leaf.
#[derive(Default)]
pub(crate) struct DirCache {
    whole: Mutex<HashMap<u64, Whole>>,
    forgotten: AtomicU64,
}

/// A listing that was read to its end.
struct Whole {
    read: Instant,
    entries: u64,
    /// Count of inodes that the kernel had forgotten when the listing was read.
    forgotten: u64,
}

/// Limit of directories in the map.
const DIRECTORIES: usize = 4096;
/// Age of a listing from which its attributes soon expire.
const FRESH: Duration = TTL.checked_div(2).expect("two is not zero");
/// A cached listing is used again until one inode in this number of entries was forgotten.
const WORTH: u64 = 16;

impl DirCache {
    /// Records that a directory was listed to its end, with `entries` entries.
    pub(crate) fn add(&self, dir: InodeId, entries: u64) {
        let forgotten = self.forgotten.load(Ordering::Relaxed);
        let mut whole = self.whole.lock();
        if whole.len() >= DIRECTORIES && !whole.contains_key(&dir.raw()) {
            // A directory that is dropped here is listed once more: that is cheap.
            whole.clear();
        }
        whole.insert(dir.raw(), Whole { read: Instant::now(), entries, forgotten });
    }

    /// Returns whether the kernel may use its cached listing of a directory again.
    pub(crate) fn may_keep(&self, dir: InodeId) -> bool {
        let whole = self.whole.lock();
        let Some(Whole { read, entries, forgotten }) = whole.get(&dir.raw()) else { return false };
        let since = self.forgotten.load(Ordering::Relaxed).saturating_sub(*forgotten);
        since <= entries / WORTH && read.elapsed() < FRESH
    }

    /// Counts an inode that the kernel has forgotten.
    pub(crate) fn inode_forgotten(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_used_again_until_inodes_are_forgotten() {
        let cache = DirCache::default();
        let one = InodeId::from_raw(2);
        let other = InodeId::from_raw(3);
        assert!(!cache.may_keep(one));
        cache.inode_forgotten();
        cache.add(one, 2 * WORTH);
        assert!(cache.may_keep(one) && !cache.may_keep(other));
        cache.inode_forgotten();
        cache.inode_forgotten();
        assert!(cache.may_keep(one));
        cache.inode_forgotten();
        assert!(!cache.may_keep(one));
        cache.add(one, 2 * WORTH);
        assert!(cache.may_keep(one));
    }

    #[test]
    fn the_map_is_bounded() {
        let cache = DirCache::default();
        for ino in 0..=DIRECTORIES as u64 {
            cache.add(InodeId::from_raw(ino), 0);
        }
        assert!(cache.whole.lock().len() <= DIRECTORIES);
        assert!(cache.may_keep(InodeId::from_raw(DIRECTORIES as u64)));
    }
}
