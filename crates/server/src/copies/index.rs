//! The blocks of which there are copies, without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use pelago_holder::FileVersion;
use pelago_wire::InodeId;

use super::map::{BlockHash, Map};

/// The copies of all files.
#[derive(Default)]
pub(super) struct Index {
    files: HashMap<InodeId, Entry>,
    /// The files by their last use: the first one was used least recently.
    by_use: BTreeMap<u64, InodeId>,
    /// Counts the uses.
    uses: u64,
    /// Bytes on the disk, of all files.
    bytes: u64,
    /// Files whose maps on the disk are older.
    changed: HashSet<InodeId>,
}

/// The copies of a file.
struct Entry {
    version: FileVersion,
    blocks: BTreeMap<u64, BlockHash>,
    /// The blocks of earlier versions that are at their places, with as many bytes as in this one.
    older: BTreeMap<u64, BlockHash>,
    /// The blocks that were written since the start, also those that do not count.
    written: BTreeSet<u64>,
    /// Bytes on the disk.
    bytes: u64,
    used: u64,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many bytes of a file there are copies of.
    pub(super) fn bytes_of(&self, file: InodeId) -> u64 {
        let Some(entry) = self.files.get(&file) else { return 0 };
        entry.blocks.keys().map(|block| block_bytes(&entry.version, *block)).sum()
    }

    /// Returns the hash of a block, if there is a copy of it.
    pub(super) fn hash(&self, version: &FileVersion, block: u64) -> Option<BlockHash> {
        let entry = self.files.get(&version.ino).filter(|entry| entry.version == *version)?;
        entry.blocks.get(&block).copied()
    }

    /// Returns the hash of a block that is about to be read.
    pub(super) fn take(&mut self, version: &FileVersion, block: u64) -> Option<BlockHash> {
        let hash = self.hash(version, block)?;
        self.note_use(version.ino);
        Some(hash)
    }

    /// Returns whether copies of another version of the file are here.
    pub(super) fn has_other(&self, version: &FileVersion) -> bool {
        self.files.get(&version.ino).is_some_and(|entry| entry.version != *version)
    }

    /// Returns the hash of a block in a copy of another version, if it has as many bytes in this
    /// one.
    pub(super) fn older_hash(&self, version: &FileVersion, block: u64) -> Option<BlockHash> {
        let entry = self.files.get(&version.ino)?;
        let of_entry = entry.blocks.get(&block).filter(|_| entry.version != *version);
        let hash = of_entry.or_else(|| entry.older.get(&block))?;
        entry.is_as_long(block, version).then_some(*hash)
    }

    /// Returns the blocks within these, from the first to the last, that have such a hash.
    pub(super) fn older(&self, version: &FileVersion, blocks: Range<u64>) -> Option<Range<u64>> {
        let entry = self.files.get(&version.ino)?;
        let is_other = entry.version != *version;
        let of_entry = entry.blocks.range(blocks.clone()).filter(|_| is_other);
        let places = of_entry.chain(entry.older.range(blocks)).map(|(block, _)| *block);
        let mut places = places.filter(|block| entry.is_as_long(*block, version));
        let first = places.next()?;
        let range =
            places.fold(first..first, |range, block| range.start.min(block)..range.end.max(block));
        Some(range.start..range.end + 1)
    }

    /// Returns the hash of such a block that is about to be read.
    pub(super) fn take_older(&mut self, version: &FileVersion, block: u64) -> Option<BlockHash> {
        let hash = self.older_hash(version, block)?;
        self.note_use(version.ino);
        Some(hash)
    }

    /// Forgets such a block, whose copy is damaged. Returns `false` if it has changed meanwhile.
    pub(super) fn forget_older(
        &mut self,
        version: &FileVersion,
        block: u64,
        hash: BlockHash,
    ) -> bool {
        let is_same = self.older_hash(version, block) == Some(hash);
        if is_same && let Some(entry) = self.files.get_mut(&version.ino) {
            entry.older.remove(&block);
            if entry.version != *version && entry.blocks.remove(&block).is_some() {
                self.changed.insert(version.ino);
            }
        }
        is_same
    }

    /// Makes the copies of a file those of an older version than this one. What is after the end of
    /// this one does not count any more.
    pub(super) fn renew(&mut self, version: &FileVersion) {
        let Some(entry) = self.files.get_mut(&version.ino) else { return };
        let mut older = std::mem::take(&mut entry.older);
        older.append(&mut entry.blocks);
        older.retain(|block, _| entry.is_as_long(*block, version));
        entry.older = older;
        entry.version = *version;
        entry.written.retain(|block| block_bytes(version, *block) > 0);
        let bytes: u64 = entry.written.iter().map(|block| block_bytes(version, *block)).sum();
        self.bytes = self.bytes - entry.bytes + bytes;
        entry.bytes = bytes;
        // The map on the disk is one of an older version, too, until a block of this one counts.
        self.changed.remove(&version.ino);
    }

    /// Adds a file whose blocks were remembered, and which takes so many bytes of the disk, as the
    /// one that was used last.
    pub(super) fn add(&mut self, map: Map, bytes: u64) {
        let Map { version, blocks } = map;
        self.remove(version.ino);
        self.bytes += bytes;
        let written = blocks.keys().copied().collect();
        let entry = Entry { version, blocks, older: BTreeMap::new(), written, bytes, used: 0 };
        self.files.insert(version.ino, entry);
        self.note_use(version.ino);
    }

    /// Counts the bytes of a block that was written, and does not count as a copy yet. What was at
    /// its place is gone.
    pub(super) fn note_written(&mut self, version: &FileVersion, block: u64) {
        let bytes = block_bytes(version, block);
        let entry = self.files.entry(version.ino).or_insert_with(|| Entry {
            version: *version,
            blocks: BTreeMap::new(),
            older: BTreeMap::new(),
            written: BTreeSet::new(),
            bytes: 0,
            used: 0,
        });
        entry.older.remove(&block);
        if entry.written.insert(block) {
            entry.bytes += bytes;
            self.bytes += bytes;
        }
        self.note_use(version.ino);
    }

    /// Makes a block that was written a copy, unless the file was forgotten meanwhile.
    pub(super) fn settle(&mut self, version: &FileVersion, block: u64, hash: BlockHash) {
        let entry = self.files.get_mut(&version.ino).filter(|entry| entry.version == *version);
        if let Some(entry) = entry {
            entry.older.remove(&block);
            entry.blocks.insert(block, hash);
            self.changed.insert(version.ino);
        }
    }

    /// Forgets a block whose copy is damaged. Returns `false` if it has changed meanwhile.
    pub(super) fn forget_block(
        &mut self,
        version: &FileVersion,
        block: u64,
        hash: BlockHash,
    ) -> bool {
        let is_same = self.hash(version, block) == Some(hash);
        if is_same && let Some(entry) = self.files.get_mut(&version.ino) {
            entry.blocks.remove(&block);
            self.changed.insert(version.ino);
        }
        is_same
    }

    /// Removes a file.
    pub(super) fn remove(&mut self, ino: InodeId) {
        if let Some(entry) = self.files.remove(&ino) {
            self.by_use.remove(&entry.used);
            self.bytes -= entry.bytes;
        }
    }

    /// Returns the file that was used least recently, if there are too many files or bytes.
    pub(super) fn surplus(&self, budget: u64, most_files: usize) -> Option<InodeId> {
        let is_full = self.bytes > budget || self.files.len() > most_files;
        self.by_use.values().next().copied().filter(|_| is_full)
    }

    /// Returns the files whose maps are older, with what they are to say.
    pub(super) fn take_changed(&mut self) -> Vec<Map> {
        let changed = std::mem::take(&mut self.changed);
        let entries = changed.iter().filter_map(|ino| self.files.get(ino));
        entries.map(|entry| Map { version: entry.version, blocks: entry.blocks.clone() }).collect()
    }

    /// Records that the map of a file is older on the disk.
    pub(super) fn note_changed(&mut self, ino: InodeId) {
        self.changed.insert(ino);
    }

    fn note_use(&mut self, ino: InodeId) {
        let Some(entry) = self.files.get_mut(&ino) else { return };
        self.by_use.remove(&entry.used);
        self.uses += 1;
        entry.used = self.uses;
        self.by_use.insert(self.uses, ino);
    }
}

impl Entry {
    /// Returns whether a block has as many bytes here as in a version.
    fn is_as_long(&self, block: u64, version: &FileVersion) -> bool {
        block_bytes(&self.version, block) == block_bytes(version, block)
    }
}

/// Returns the bytes of a block: of the last one of a file less than of others.
pub(super) fn block_bytes(version: &FileVersion, block: u64) -> u64 {
    version.size.saturating_sub(block * super::BLOCK).min(super::BLOCK)
}

#[cfg(test)]
mod tests {
    use pelago_wire::Time;

    use super::*;

    fn version(ino: u64, size: u64, at: i64) -> FileVersion {
        let time = Time { seconds: at, nanos: 0 };
        FileVersion { ino: InodeId::from_raw(ino), size, mtime: time, ctime: time }
    }

    const HASH: BlockHash = BlockHash([1; 16]);

    #[test]
    fn a_copy_is_of_one_version() {
        let mut index = Index::default();
        let old = version(1, 300_000, 1);
        for block in [0, 1] {
            index.note_written(&old, block);
            assert_eq!(index.take(&old, block), None, "it does not count yet");
            index.settle(&old, block, HASH);
        }
        assert_eq!((index.take(&old, 1), index.bytes()), (Some(HASH), 300_000));
        for other in [version(1, 300_000, 2), version(1, 300_001, 1)] {
            assert_eq!(index.hash(&other, 0), None);
            assert!(index.has_other(&other));
            index.settle(&other, 0, HASH);
            assert_eq!(index.hash(&other, 0), None);
        }
        assert!(!index.forget_block(&old, 1, BlockHash([2; 16])), "it is another one by now");
        assert!(index.forget_block(&old, 1, HASH));
        assert_eq!((index.hash(&old, 0), index.hash(&old, 1)), (Some(HASH), None));
        index.remove(old.ino);
        assert_eq!((index.len(), index.bytes(), index.hash(&old, 0)), (0, 0, None));
    }

    /// A version of which all blocks but the last have 256 KiB.
    fn large(size: u64, at: i64) -> FileVersion {
        version(1, size, at)
    }

    fn settled(index: &mut Index, version: &FileVersion, blocks: &[u64], hash: u8) {
        for block in blocks {
            index.note_written(version, *block);
            index.settle(version, *block, BlockHash([hash; 16]));
        }
    }

    #[test]
    fn copies_of_an_older_version_stay_until_they_are_overwritten() {
        let mut index = Index::default();
        let block = super::super::BLOCK;
        let old = large(4 * block + 100, 1);
        settled(&mut index, &old, &[0, 1, 2, 4], 1);
        let new = large(4 * block + 100, 2);
        assert_eq!(index.older(&old, 0..5), None, "they are of this version");
        // Also before anything of the new version is here.
        let ranges =
            |index: &Index| [0..5, 1..3, 2..4, 3..4, 4..64].map(|blocks| index.older(&new, blocks));
        let all = [Some(0..5), Some(1..3), Some(2..3), None, Some(4..5)];
        assert_eq!(ranges(&index), all);
        index.renew(&new);
        assert_eq!(ranges(&index), all);
        assert_eq!(index.hash(&new, 0), None, "it may be other bytes");
        assert!(!index.has_other(&new));
        assert_eq!(index.take_changed().len(), 0, "the map is one of the older version");
        // One is taken over, another one is overwritten, and does not count yet.
        index.settle(&new, 0, BlockHash([1; 16]));
        index.note_written(&new, 1);
        assert_eq!(index.hash(&new, 0), Some(BlockHash([1; 16])));
        assert_eq!(
            [0, 1, 2].map(|block| index.older_hash(&new, block).is_some()),
            [false, false, true]
        );
        assert_eq!(index.bytes(), 3 * block + 100, "each is there once");
        // A third version: what counted is older now.
        let third = large(4 * block + 100, 3);
        index.renew(&third);
        assert_eq!(
            [0, 1, 2].map(|block| index.older_hash(&third, block).is_some()),
            [true, false, true]
        );
    }

    #[test]
    fn an_older_block_is_as_long_as_the_new_one() {
        let block = super::super::BLOCK;
        let mut index = Index::default();
        settled(&mut index, &large(2 * block + 100, 1), &[0, 1, 2], 1);
        for (size, is_whole) in [(2 * block + 99, false), (9 * block, false)] {
            let new = large(size, 2);
            assert_eq!(index.older(&new, 0..64), Some(0..2));
            assert_eq!(index.older_hash(&new, 2).is_some(), is_whole);
        }
        let cut = large(block + 1, 2);
        index.renew(&cut);
        assert_eq!(index.older(&cut, 0..64), Some(0..1));
        assert_eq!(index.bytes(), block + 1);
        // What is gone does not come back with the size.
        let grown = large(2 * block + 100, 3);
        index.renew(&grown);
        assert_eq!(index.older(&grown, 0..64), Some(0..1));
        index.remove(grown.ino);
        assert_eq!(index.bytes(), 0);
    }

    #[test]
    fn a_damaged_older_block_is_forgotten() {
        let block = super::super::BLOCK;
        let mut index = Index::default();
        settled(&mut index, &large(4 * block, 1), &[0, 1], 1);
        let new = large(4 * block, 2);
        let hash = BlockHash([1; 16]);
        assert_eq!(index.take_older(&new, 0), Some(hash));
        assert!(!index.forget_older(&new, 0, BlockHash([2; 16])), "it is another one by now");
        assert!(index.forget_older(&new, 0, hash));
        index.renew(&new);
        assert!(index.forget_older(&new, 1, hash));
        assert_eq!(index.older(&new, 0..4), None);
    }

    #[test]
    fn what_was_used_least_recently_makes_room() {
        let mut index = Index::default();
        let files: Vec<_> = (1..=3).map(|ino| version(ino, 100, 1)).collect();
        for file in &files {
            index.note_written(file, 0);
            index.settle(file, 0, HASH);
        }
        assert_eq!(index.surplus(300, 3), None);
        assert_eq!(index.surplus(300, 2), Some(files[0].ino), "too many files");
        index.take(&files[0], 0);
        assert_eq!(index.surplus(299, 9), Some(files[1].ino));
        index.remove(files[1].ino);
        assert_eq!(index.surplus(199, 9), Some(files[2].ino));
        assert_eq!(index.take_changed().len(), 2);
        assert_eq!(index.take_changed().len(), 0);
    }
}
