//! The blocks of which there are copies, without I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use pelago_holder::FileVersion;
use pelago_wire::{InodeId, limits};

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

    /// Adds a file whose blocks were remembered, and which takes so many bytes of the disk, as the
    /// one that was used last.
    pub(super) fn add(&mut self, map: Map, bytes: u64) {
        let Map { version, blocks } = map;
        self.remove(version.ino);
        self.bytes += bytes;
        let written = blocks.keys().copied().collect();
        let entry = Entry { version, blocks, written, bytes, used: 0 };
        self.files.insert(version.ino, entry);
        self.note_use(version.ino);
    }

    /// Counts the bytes of a block that was written, and does not count as a copy yet.
    pub(super) fn note_written(&mut self, version: &FileVersion, block: u64) {
        let bytes = block_bytes(version, block);
        let entry = self.files.entry(version.ino).or_insert_with(|| Entry {
            version: *version,
            blocks: BTreeMap::new(),
            written: BTreeSet::new(),
            bytes: 0,
            used: 0,
        });
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
    pub(super) fn surplus(&self, budget: u64) -> Option<InodeId> {
        let is_full = self.bytes > budget || self.files.len() > limits::COPIED_FILES;
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

    #[test]
    fn what_was_used_least_recently_makes_room() {
        let mut index = Index::default();
        let files: Vec<_> = (1..=3).map(|ino| version(ino, 100, 1)).collect();
        for file in &files {
            index.note_written(file, 0);
            index.settle(file, 0, HASH);
        }
        assert_eq!(index.surplus(300), None);
        index.take(&files[0], 0);
        assert_eq!(index.surplus(299), Some(files[1].ino));
        index.remove(files[1].ino);
        assert_eq!(index.surplus(199), Some(files[2].ino));
        assert_eq!(index.take_changed().len(), 2);
        assert_eq!(index.take_changed().len(), 0);
    }
}
