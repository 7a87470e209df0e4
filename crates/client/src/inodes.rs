//! Where the kernel's inodes were last seen.
//!
//! The kernel names a file by its number alone; the server wants a [`Handle`], the number with a
//! hint where its row is. This table keeps the hint of each file that the kernel knows and whose
//! row lives under a name, and counts the kernel's references, so that an entry goes when the
//! kernel forgets the file. Directories, files of several names and files without one have no hint
//! and are not kept: [`Handle::own`] says all of them.
//!
//! Its size follows the kernel's own cache of inodes, which takes about fifty times as much memory.
//! Ids are handed out in runs, so neighbours share a page: 23 bytes a file where the kernel knows a
//! whole directory, 360 where it knows one file in sixteen or fewer.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::Mutex;
use pelago_wire::{Handle, InodeId, NameHash};

/// The hints of all files the kernel knows. Its locks are leaves: nothing is called under one.
pub struct Inodes {
    shards: Vec<Mutex<Shard>>,
}

impl Inodes {
    /// A table that knows nothing.
    #[must_use]
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect() }
    }

    /// The kernel gets one more reference to a file, which was just seen where `handle` says.
    pub fn learn(&self, handle: Handle) {
        let (page, index) = split(handle.ino);
        let mut shard = self.shard(page).lock();
        if handle.is_under_a_name() {
            let slots = shard.0.entry(page).or_default();
            slots.references[index] = slots.references[index].saturating_add(1);
            slots.put(index, handle);
        } else if let Some(slots) = shard.0.get_mut(&page)
            && slots.references[index] > 0
        {
            slots.references[index] = slots.references[index].saturating_add(1);
            slots.put(index, handle);
        }
    }

    /// A file was seen at another place; the kernel's references stay as they are.
    pub fn moved(&self, handle: Handle) {
        let (page, index) = split(handle.ino);
        let mut shard = self.shard(page).lock();
        if let Some(slots) = shard.0.get_mut(&page)
            && slots.references[index] > 0
        {
            slots.put(index, handle);
        }
    }

    /// The kernel gave back `count` references. Answers whether those were the last of a file that
    /// was kept.
    pub fn forget(&self, ino: InodeId, count: u64) -> bool {
        let (page, index) = split(ino);
        let mut shard = self.shard(page).lock();
        let Some(slots) = shard.0.get_mut(&page) else { return false };
        let had = u64::from(slots.references[index]);
        let left = had.saturating_sub(count);
        slots.references[index] = u32::try_from(left).unwrap_or(u32::MAX);
        if slots.references.iter().all(|references| *references == 0) {
            shard.0.remove(&page);
        }
        had > 0 && left == 0
    }

    /// How to name a file to the server.
    #[must_use]
    pub fn handle(&self, ino: InodeId) -> Handle {
        let (page, index) = split(ino);
        match self.shard(page).lock().0.get(&page) {
            Some(slots) if slots.references[index] > 0 => slots.get(index, ino),
            _ => Handle::own(ino),
        }
    }

    /// Files that are kept.
    #[must_use]
    pub fn count(&self) -> usize {
        let in_shard = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            let kept = |page: &Page| page.references.iter().filter(|count| **count > 0).count();
            shard.0.values().map(|page| kept(page)).sum::<usize>()
        };
        self.shards.iter().map(in_shard).sum()
    }

    fn shard(&self, page: u64) -> &Mutex<Shard> {
        let index = usize::try_from(page).unwrap_or(0) % SHARDS;
        &self.shards[index]
    }
}

impl Default for Inodes {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Inodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inodes({})", self.count())
    }
}

const SHARDS: usize = 64;
/// Files of a page; a power of two.
const SLOTS: usize = 16;

#[derive(Default)]
struct Shard(HashMap<u64, Box<Page>, BuildHasherDefault<IdHasher>>);

/// Neighbouring ids; a slot without references is empty. Fields apart, so that nothing pads them.
#[derive(Default)]
struct Page {
    dirs: [u64; SLOTS],
    hashes: [u64; SLOTS],
    references: [u32; SLOTS],
}

impl Page {
    fn put(&mut self, index: usize, handle: Handle) {
        self.dirs[index] = handle.dir.raw();
        self.hashes[index] = handle.hash.0;
    }

    fn get(&self, index: usize, ino: InodeId) -> Handle {
        Handle::at(ino, InodeId::from_raw(self.dirs[index]), NameHash(self.hashes[index]))
    }
}

fn split(ino: InodeId) -> (u64, usize) {
    let slots = SLOTS as u64;
    let index = usize::try_from(ino.raw() % slots).expect("a remainder below sixteen");
    (ino.raw() / slots, index)
}

/// Spreads ids over the table. They are the server's own numbers, so nobody can choose bad ones.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        let product = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(counter: u64) -> InodeId {
        InodeId::new(1, 2, counter).unwrap()
    }

    fn under_a_name(counter: u64, hash: u64) -> Handle {
        Handle::at(ino(counter), ino(7), NameHash(hash))
    }

    #[test]
    fn an_entry_lives_as_long_as_the_kernel_refers_to_it() {
        let inodes = Inodes::new();
        let file = under_a_name(20, 3);
        inodes.learn(file);
        inodes.learn(file);
        assert_eq!(inodes.handle(file.ino), file);
        assert!(!inodes.forget(file.ino, 1));
        assert_eq!(inodes.handle(file.ino), file);
        assert!(inodes.forget(file.ino, 1));
        assert!(!inodes.forget(file.ino, 1));
        assert_eq!(inodes.handle(file.ino), Handle::own(file.ino));
        assert_eq!(inodes.count(), 0);
        assert!(inodes.shards.iter().all(|shard| shard.lock().0.is_empty()));
    }

    #[test]
    fn a_file_without_a_hint_is_not_kept() {
        let inodes = Inodes::new();
        inodes.learn(Handle::own(ino(9)));
        assert_eq!(inodes.count(), 0);
        inodes.forget(ino(9), 1);
        assert_eq!(inodes.handle(ino(9)), Handle::own(ino(9)));
        assert_eq!(inodes.handle(InodeId::ROOT), Handle::ROOT);
    }

    #[test]
    fn the_newest_hint_counts() {
        let inodes = Inodes::new();
        inodes.moved(under_a_name(5, 1));
        assert_eq!(inodes.count(), 0);
        inodes.learn(under_a_name(5, 1));
        inodes.moved(under_a_name(5, 2));
        assert_eq!(inodes.handle(ino(5)), under_a_name(5, 2));
        inodes.learn(Handle::own(ino(5)));
        assert_eq!(inodes.handle(ino(5)), Handle::own(ino(5)));
        inodes.forget(ino(5), 2);
        assert_eq!(inodes.count(), 0);
    }

    #[test]
    fn many_files_keep_apart() {
        let inodes = Inodes::new();
        for counter in 100..10_100 {
            inodes.learn(under_a_name(counter, counter * 31));
        }
        assert_eq!(inodes.count(), 10_000);
        for counter in (100..10_100).step_by(2) {
            inodes.forget(ino(counter), 1);
        }
        for counter in 100..10_100 {
            let kept = counter % 2 == 1;
            assert_eq!(inodes.handle(ino(counter)).is_under_a_name(), kept, "{counter}");
        }
    }
}
