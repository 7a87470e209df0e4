//! Where the kernel's inodes were last seen.
//!
//! The kernel names a file by its number alone; the server wants a [`Handle`], the number with a
//! hint where its row is. This table keeps the hint of each file that the kernel knows and whose
//! row lives under a name, and counts the kernel's references, so that an entry goes when the
//! kernel forgets the file. Directories, files of several names and files without one have no hint
//! and are not kept: [`Handle::own`] says all of them.
//!
//! Ids are handed out in runs, so neighbours share a page: 22 bytes a file where the kernel knows a
//! whole directory, 352 where it knows one file in sixteen or fewer. Before the table is full the
//! kernel is asked to forget inodes ([`Inodes::learn`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use pelago_wire::{Handle, InodeId, NameHash, limits};

/// The hints of all files the kernel knows. Its locks are leaves: nothing is called under one.
pub struct Inodes {
    shards: Vec<Mutex<Shard>>,
    limit_bytes: u64,
    pages: AtomicU64,
    /// Pages beyond which the kernel is asked to forget some.
    full: AtomicU64,
    /// Whether it is being asked.
    is_sweeping: AtomicBool,
}

impl Inodes {
    /// A table that knows nothing and shall take so many bytes.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            shards: (0..Self::SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            limit_bytes,
            pages: AtomicU64::new(0),
            full: AtomicU64::new(most_pages(limit_bytes)),
            is_sweeping: AtomicBool::new(false),
        }
    }

    /// The kernel gets one more reference to a file, which was just seen where `handle` says.
    /// Answers whether the caller has to begin a sweep: to ask the kernel to forget parts of the
    /// table until there is room, then to say that the sweep has ended.
    #[must_use]
    pub fn learn(&self, handle: Handle) -> bool {
        let (page, index) = split(handle.ino);
        let mut shard = self.shard(page).lock();
        if handle.is_under_a_name() {
            let (slots, is_new) = match shard.0.entry(page) {
                Entry::Occupied(slots) => (slots.into_mut(), false),
                Entry::Vacant(place) => (place.insert(Box::default()), true),
            };
            slots.references[index] = slots.references[index].saturating_add(1);
            slots.put(index, handle);
            return is_new && self.is_full();
        }
        if let Some(slots) = shard.0.get_mut(&page)
            && slots.references[index] > 0
        {
            slots.references[index] = slots.references[index].saturating_add(1);
            slots.put(index, handle);
        }
        false
    }

    /// Counts a new page. Of all callers beyond the limit one begins the sweep.
    fn is_full(&self) -> bool {
        let pages = self.pages.fetch_add(1, Ordering::Relaxed) + 1;
        pages > self.full.load(Ordering::Relaxed) && !self.is_sweeping.swap(true, Ordering::Acquire)
    }

    /// The files of one part of a shard's pages, of so many parts.
    pub(crate) fn part_of_shard(&self, shard: usize, part: usize, parts: usize) -> Vec<InodeId> {
        let shard = self.shards[shard].lock();
        let pages = shard.0.len().div_ceil(parts);
        let mut files = Vec::new();
        for (page, slots) in shard.0.iter().skip(part * pages).take(pages) {
            let ids = page * SLOTS as u64..;
            let known = slots.references.iter().zip(ids).filter(|(count, _)| **count > 0);
            files.extend(known.map(|(_, ino)| InodeId::from_raw(ino)));
        }
        files
    }

    /// Whether an eighth more than what makes a sweep begin is free.
    pub(crate) fn has_room(&self) -> bool {
        let most = most_pages(self.limit_bytes);
        self.pages.load(Ordering::Relaxed) <= most - most / 8
    }

    /// The sweep has ended. If too much is in use, or the kernel does not know the question, the
    /// next one begins when the table has grown by an eighth of its limit.
    pub(crate) fn end_sweep(&self) {
        let most = most_pages(self.limit_bytes);
        let pages = self.pages.load(Ordering::Relaxed);
        let next = if pages > most { pages + most / 8 + 1 } else { most };
        self.full.store(next, Ordering::Relaxed);
        self.is_sweeping.store(false, Ordering::Release);
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.load(Ordering::Relaxed).saturating_mul(PAGE_BYTES)
    }

    /// Bytes that it shall take at the most.
    #[must_use]
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
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
            self.pages.fetch_sub(1, Ordering::Relaxed);
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
        let index = usize::try_from(page).unwrap_or(0) % Self::SHARDS;
        &self.shards[index]
    }

    pub(crate) const SHARDS: usize = 64;
}

/// Pages that leave an eighth of the limit for what is learnt while the kernel forgets.
const fn most_pages(limit_bytes: u64) -> u64 {
    (limit_bytes - limit_bytes / 8) / PAGE_BYTES
}

impl Default for Inodes {
    fn default() -> Self {
        Self::new(limits::INODE_TABLE_BYTES as u64)
    }
}

impl fmt::Debug for Inodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inodes({})", self.count())
    }
}

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

/// What a page takes: itself, and its place in a map that is half full.
const PAGE_BYTES: u64 = (size_of::<Page>() + 2 * size_of::<(u64, Box<Page>)>()) as u64;

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
        let inodes = Inodes::default();
        let file = under_a_name(20, 3);
        assert!(!inodes.learn(file));
        assert!(!inodes.learn(file));
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
        let inodes = Inodes::default();
        assert!(!inodes.learn(Handle::own(ino(9))));
        assert_eq!(inodes.count(), 0);
        inodes.forget(ino(9), 1);
        assert_eq!(inodes.handle(ino(9)), Handle::own(ino(9)));
        assert_eq!(inodes.handle(InodeId::ROOT), Handle::ROOT);
    }

    #[test]
    fn the_newest_hint_counts() {
        let inodes = Inodes::default();
        inodes.moved(under_a_name(5, 1));
        assert_eq!(inodes.count(), 0);
        assert!(!inodes.learn(under_a_name(5, 1)));
        inodes.moved(under_a_name(5, 2));
        assert_eq!(inodes.handle(ino(5)), under_a_name(5, 2));
        assert!(!inodes.learn(Handle::own(ino(5))));
        assert_eq!(inodes.handle(ino(5)), Handle::own(ino(5)));
        inodes.forget(ino(5), 2);
        assert_eq!(inodes.count(), 0);
    }

    #[test]
    fn many_files_keep_apart() {
        let inodes = Inodes::default();
        for counter in 100..10_100 {
            assert!(!inodes.learn(under_a_name(counter, counter * 31)));
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

    /// A million files of whole directories keep to the limit, and the sweeps of a full table come
    /// to each of its files.
    #[test]
    fn a_full_table_says_so_once_until_the_kernel_was_asked() {
        let inodes = Inodes::new(80 * PAGE_BYTES);
        let mut counter = 0;
        let mut fill = || loop {
            counter += SLOTS as u64;
            assert!(counter < 1_000_000, "it is never full");
            if inodes.learn(under_a_name(counter, 1)) {
                return;
            }
        };
        fill();
        assert_eq!(inodes.bytes(), 71 * PAGE_BYTES);
        assert!(!inodes.learn(under_a_name(5_000_000, 1)), "it is being swept");
        let of_part = |part| {
            let shards = 0..Inodes::SHARDS;
            shards.flat_map(|shard| inodes.part_of_shard(shard, part, 8)).collect::<Vec<_>>()
        };
        let mut asked: Vec<u64> = (0..8).flat_map(of_part).map(InodeId::raw).collect();
        inodes.end_sweep();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked.len(), 72, "each file is asked for");
        // Nothing was forgotten: it grows by an eighth before it says so again.
        fill();
        assert_eq!(inodes.bytes(), 82 * PAGE_BYTES);
        for ino in asked {
            inodes.forget(InodeId::from_raw(ino), 1);
        }
        assert!(inodes.has_room());
        inodes.end_sweep();
        fill();
        assert_eq!(inodes.bytes(), 71 * PAGE_BYTES);
    }

    #[test]
    fn a_million_files_take_less_than_the_limit() {
        let inodes = Inodes::default();
        for counter in 0..1_000_000 {
            assert!(!inodes.learn(under_a_name(counter, counter)), "full at {counter}");
        }
        assert!(inodes.bytes() <= 23_000_000, "{}", inodes.bytes());
    }
}
