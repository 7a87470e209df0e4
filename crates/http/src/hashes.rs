//! A cache of the hashes of extents, and the root of a file.

use std::collections::VecDeque;

use parking_lot::Mutex;
use pelago_wire::blocks::{ExtentHash, Extents, ROOT_CONTEXT};
use pelago_wire::limits::{EXTENT_HASHES, HASHED_VERSIONS};

/// A cache of the hashes of recently read extents, so that no extent is read only to be hashed.
#[derive(Debug, Default)]
pub(crate) struct ExtentHashes {
    /// Versions of files; the most recently used is at the back.
    files: Mutex<VecDeque<VersionHashes>>,
}

/// The hashes of one version of a file.
#[derive(Debug)]
struct VersionHashes {
    tag: String,
    hashes: Vec<Option<ExtentHash>>,
}

/// Returns the root of a file from the hashes of all its extents, in their order.
pub(crate) fn root(file: Extents, hashes: impl IntoIterator<Item = ExtentHash>) -> ExtentHash {
    let mut hasher = blake3::Hasher::new_derive_key(ROOT_CONTEXT);
    hasher.update(&file.size().to_le_bytes());
    hashes.into_iter().for_each(|hash| {
        hasher.update(&hash);
    });
    *hasher.finalize().as_bytes()
}

impl ExtentHashes {
    /// Returns the hash of an extent of the version with this tag.
    pub(crate) fn get(&self, tag: &str, extent: u64) -> Option<ExtentHash> {
        let files = self.files.lock();
        let found = files.iter().rev().find(|it| it.tag == tag)?;
        found.hashes.get(index(extent)).copied().flatten()
    }

    /// Caches the hash of an extent. The least recently used versions make room; a version that
    /// alone exceeds the limit is not cached.
    pub(crate) fn put(&self, tag: &str, file: Extents, extent: u64, hash: ExtentHash) {
        let count = index(file.count());
        if count > EXTENT_HASHES {
            return;
        }
        let mut files = self.files.lock();
        let at = files.iter().position(|it| it.tag == tag);
        let mut found = at.and_then(|at| files.remove(at)).unwrap_or_else(|| {
            let mut all: usize = files.iter().map(|it| it.hashes.len()).sum();
            while all + count > EXTENT_HASHES || files.len() >= HASHED_VERSIONS {
                let Some(oldest) = files.pop_front() else { break };
                all -= oldest.hashes.len();
            }
            VersionHashes { tag: tag.to_owned(), hashes: vec![None; count] }
        });
        if let Some(slot) = found.hashes.get_mut(index(extent)) {
            *slot = Some(hash);
        }
        files.push_back(found);
    }

    /// Returns the root of the version with this tag, if the hashes of all its extents are cached.
    pub(crate) fn root(&self, tag: &str, file: Extents) -> Option<ExtentHash> {
        if file.count() == 0 {
            return Some(root(file, []));
        }
        let files = self.files.lock();
        let found = files.iter().rev().find(|it| it.tag == tag)?;
        let is_complete = found.hashes.iter().all(Option::is_some);
        is_complete.then(|| root(file, found.hashes.iter().flatten().copied()))
    }
}

/// Returns the number of an extent as an index; a number that does not fit is beyond every list.
fn index(extent: u64) -> usize {
    usize::try_from(extent).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use pelago_wire::limits::EXTENT_BYTES;

    use super::*;

    fn of_extents(count: usize) -> Extents {
        Extents::of((count * EXTENT_BYTES) as u64).unwrap()
    }

    /// The root is part of the protocol.
    #[test]
    fn the_root_depends_on_the_size_and_on_each_hash() {
        let file = of_extents(2);
        let hex = |hash: ExtentHash| blake3::Hash::from_bytes(hash).to_hex().to_string();
        let expected = "767f73bb";
        assert_eq!(&hex(root(file, [[1; 32], [2; 32]]))[..8], expected);
        assert_ne!(root(file, [[1; 32], [3; 32]]), root(file, [[1; 32], [2; 32]]));
        let shorter = Extents::of(file.size() - 1).unwrap();
        assert_ne!(root(file, [[1; 32], [2; 32]]), root(shorter, [[1; 32], [2; 32]]));
    }

    #[test]
    fn there_is_a_root_once_all_hashes_are_known() {
        let hashes = ExtentHashes::default();
        let file = of_extents(2);
        hashes.put("a", file, 1, [2; 32]);
        assert_eq!((hashes.get("a", 1), hashes.get("a", 0)), (Some([2; 32]), None));
        assert_eq!(hashes.root("a", file), None);
        hashes.put("a", file, 0, [1; 32]);
        assert_eq!(hashes.root("a", file), Some(root(file, [[1; 32], [2; 32]])));
        assert_eq!(hashes.get("b", 0), None);
        assert!(hashes.root("none", of_extents(0)).is_some());
    }

    #[test]
    fn the_version_that_was_used_least_recently_makes_room() {
        let hashes = ExtentHashes::default();
        let half = of_extents(EXTENT_HASHES / 2);
        for tag in ["a", "b", "a", "c"] {
            hashes.put(tag, half, 0, [1; 32]);
        }
        let is_there = |tag| hashes.get(tag, 0).is_some();
        assert!(is_there("a") && !is_there("b") && is_there("c"));
        hashes.put("d", of_extents(EXTENT_HASHES + 1), 0, [1; 32]);
        assert!(!is_there("d") && is_there("a"));
    }
}
