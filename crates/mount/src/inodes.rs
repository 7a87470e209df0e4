//! Table of the inodes that the kernel refers to, with the name under which each was last seen.
//!
//! The kernel names a file by its node id alone; the server wants a [`Handle`], the inode id with a
//! hint where its row is. This table holds the hint of each file that the kernel refers to and
//! whose row is under a name. It counts the kernel's references (lookups), and drops an entry with
//! the last one. Directories, files of several names and files without a name have no hint and are
//! not in the table: [`Handle::own`] suffices for them.
//!
//! Ids are allocated in runs, so neighbours share a page: 22 bytes a file if the kernel refers to a
//! whole directory, 352 if it refers to one file in sixteen or fewer. Before the table is full the
//! kernel is asked to forget inodes ([`Inodes::learn`], [`crate::prune`]).

use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pelago_wire::{Handle, InodeId, NameHash, limits};

use crate::striped::StripedMap;

/// The hints of all files that the kernel refers to.
pub struct Inodes {
    pages: StripedMap<Box<Page>, { Self::STRIPES }>,
    limit_bytes: u64,
    page_count: AtomicU64,
    /// Pages beyond which the kernel is asked to forget some.
    sweep_above: AtomicU64,
    /// A sweep is running.
    is_sweeping: AtomicBool,
}

/// The result of a new reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Learned {
    /// The caller must begin a sweep: ask the kernel to forget parts of the table until there is
    /// room, then call [`Inodes::end_sweep`].
    pub(crate) must_sweep: bool,
    /// The kernel refers to the file already, and its row was under another name.
    pub(crate) has_moved: bool,
}

impl Inodes {
    /// Returns an empty table that may take `limit_bytes`.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            pages: StripedMap::default(),
            limit_bytes,
            page_count: AtomicU64::new(0),
            sweep_above: AtomicU64::new(most_pages(limit_bytes)),
            is_sweeping: AtomicBool::new(false),
        }
    }

    /// Counts one more reference of the kernel to a file, whose row was just seen at the place in
    /// `handle`.
    #[must_use]
    pub(crate) fn learn(&self, handle: Handle) -> Learned {
        let (page, index) = split(handle.ino);
        let mut stripe = self.pages.lock(page);
        if handle.is_under_a_name() {
            let (slots, is_new) = match stripe.entry(page) {
                Entry::Occupied(slots) => (slots.into_mut(), false),
                Entry::Vacant(place) => (place.insert(Box::default()), true),
            };
            let has_moved = slots.has_other(index, handle);
            slots.references[index] = slots.references[index].saturating_add(1);
            slots.put(index, handle);
            return Learned { must_sweep: is_new && self.is_full(), has_moved };
        }
        let mut has_moved = false;
        if let Some(slots) = stripe.get_mut(&page)
            && slots.references[index] > 0
        {
            has_moved = slots.has_other(index, handle);
            slots.references[index] = slots.references[index].saturating_add(1);
            slots.put(index, handle);
        }
        Learned { must_sweep: false, has_moved }
    }

    /// Counts a new page. Returns true to one of the callers beyond the limit: it must begin a
    /// sweep.
    fn is_full(&self) -> bool {
        let pages = self.page_count.fetch_add(1, Ordering::Relaxed) + 1;
        pages > self.sweep_above.load(Ordering::Relaxed)
            && !self.is_sweeping.swap(true, Ordering::Acquire)
    }

    /// Returns the files of part number `part` of `parts` of a stripe.
    pub(crate) fn part_of_stripe(&self, stripe: usize, part: usize, parts: usize) -> Vec<InodeId> {
        let stripe = self.pages.stripe(stripe);
        let pages = stripe.len().div_ceil(parts);
        let mut files = Vec::new();
        for (page, slots) in stripe.iter().skip(part * pages).take(pages) {
            let ids = page * SLOTS as u64..;
            let known = slots.references.iter().zip(ids).filter(|(count, _)| **count > 0);
            files.extend(known.map(|(_, ino)| InodeId::from_raw(ino)));
        }
        files
    }

    /// Calls `with` for each file that the kernel refers to.
    pub(crate) fn all(&self, mut with: impl FnMut(InodeId)) {
        for stripe in 0..Self::STRIPES {
            self.part_of_stripe(stripe, 0, 1).into_iter().for_each(&mut with);
        }
    }

    /// Returns whether an eighth of the limit is free beyond what starts a sweep.
    pub(crate) fn has_room(&self) -> bool {
        let most = most_pages(self.limit_bytes);
        self.page_count.load(Ordering::Relaxed) <= most - most / 8
    }

    /// Ends a sweep. If too much is in use, or the kernel cannot be asked, the next sweep begins
    /// after the table has grown by an eighth of its limit.
    pub(crate) fn end_sweep(&self) {
        let most = most_pages(self.limit_bytes);
        let pages = self.page_count.load(Ordering::Relaxed);
        let next = if pages > most { pages + most / 8 + 1 } else { most };
        self.sweep_above.store(next, Ordering::Relaxed);
        self.is_sweeping.store(false, Ordering::Release);
    }

    /// Returns how many bytes the table takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.page_count.load(Ordering::Relaxed).saturating_mul(PAGE_BYTES)
    }

    /// Returns how many bytes the table may take.
    #[must_use]
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns whether the kernel refers to a file of the table, or is about to: an entry was sent
    /// that it has not installed yet.
    pub(crate) fn is_known(&self, ino: InodeId) -> bool {
        let (page, index) = split(ino);
        self.pages.lock(page).get(&page).is_some_and(|slots| slots.references[index] > 0)
    }

    /// Records a new place of a file; the kernel's references stay as they are.
    pub(crate) fn moved(&self, handle: Handle) {
        let (page, index) = split(handle.ino);
        if let Some(slots) = self.pages.lock(page).get_mut(&page)
            && slots.references[index] > 0
        {
            slots.put(index, handle);
        }
    }

    /// Drops `count` references of the kernel (FORGET). Returns whether those were the last of a
    /// file in the table.
    pub(crate) fn forget(&self, ino: InodeId, count: u64) -> bool {
        let (page, index) = split(ino);
        let mut stripe = self.pages.lock(page);
        let Some(slots) = stripe.get_mut(&page) else { return false };
        let before = u64::from(slots.references[index]);
        let left = before.saturating_sub(count);
        slots.references[index] = u32::try_from(left).unwrap_or(u32::MAX);
        if slots.references.iter().all(|references| *references == 0) {
            stripe.remove(&page);
            self.page_count.fetch_sub(1, Ordering::Relaxed);
        }
        before > 0 && left == 0
    }

    /// Returns the handle by which the server finds a file.
    pub(crate) fn handle(&self, ino: InodeId) -> Handle {
        let (page, index) = split(ino);
        match self.pages.lock(page).get(&page) {
            Some(slots) if slots.references[index] > 0 => slots.get(index, ino),
            _ => Handle::own(ino),
        }
    }

    /// Returns how many files are in the table, by counting them.
    #[must_use]
    pub fn count(&self) -> usize {
        let known = |page: &Page| page.references.iter().filter(|count| **count > 0).count();
        self.pages
            .stripes()
            .map(|stripe| stripe.values().map(|page| known(page)).sum::<usize>())
            .sum()
    }

    pub(crate) const STRIPES: usize = 64;
}

/// Returns the pages that leave an eighth of the limit for files that the kernel looks up while it
/// forgets others.
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

/// Neighbouring ids; a slot without references is empty. One array per field avoids padding.
#[derive(Default)]
struct Page {
    dirs: [u64; SLOTS],
    hashes: [u64; SLOTS],
    references: [u32; SLOTS],
}

/// Memory of a page: itself, and its place in a map that is half full.
const PAGE_BYTES: u64 = (size_of::<Page>() + 2 * size_of::<(u64, Box<Page>)>()) as u64;

impl Page {
    fn put(&mut self, index: usize, handle: Handle) {
        self.dirs[index] = handle.dir.raw();
        self.hashes[index] = handle.hash.0;
    }

    /// Returns whether the file has references, and a hint that is not the one of `handle`.
    fn has_other(&self, index: usize, handle: Handle) -> bool {
        let before = self.get(index, handle.ino);
        self.references[index] > 0 && before.is_under_a_name() && before != handle
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
        assert!(!inodes.learn(file).must_sweep);
        assert!(!inodes.learn(file).must_sweep);
        assert_eq!(inodes.handle(file.ino), file);
        assert!(!inodes.forget(file.ino, 1));
        assert_eq!(inodes.handle(file.ino), file);
        assert!(inodes.forget(file.ino, 1));
        assert!(!inodes.forget(file.ino, 1));
        assert_eq!(inodes.handle(file.ino), Handle::own(file.ino));
        assert_eq!(inodes.count(), 0);
        assert!(inodes.pages.stripes().all(|stripe| stripe.is_empty()));
    }

    #[test]
    fn a_file_without_a_hint_is_not_kept() {
        let inodes = Inodes::default();
        assert!(!inodes.learn(Handle::own(ino(9))).must_sweep);
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
        assert!(!inodes.learn(under_a_name(5, 1)).must_sweep);
        inodes.moved(under_a_name(5, 2));
        assert_eq!(inodes.handle(ino(5)), under_a_name(5, 2));
        assert!(!inodes.learn(Handle::own(ino(5))).must_sweep);
        assert_eq!(inodes.handle(ino(5)), Handle::own(ino(5)));
        inodes.forget(ino(5), 2);
        assert_eq!(inodes.count(), 0);
    }

    #[test]
    fn a_file_under_another_name_has_moved() {
        let inodes = Inodes::default();
        let has_moved = |handle| inodes.learn(handle).has_moved;
        assert!(!has_moved(under_a_name(5, 1)) && !has_moved(under_a_name(5, 1)));
        assert!(has_moved(under_a_name(5, 2)) && !has_moved(under_a_name(5, 2)));
        inodes.moved(under_a_name(5, 3));
        assert!(!has_moved(under_a_name(5, 3)), "this mount has moved it");
        assert!(has_moved(Handle::own(ino(5))) && !has_moved(Handle::own(ino(5))));
        assert!(!has_moved(under_a_name(5, 3)), "it has got one name of several");
        inodes.forget(ino(5), 8);
        assert!(!has_moved(under_a_name(5, 9)), "the kernel does not know it");
    }

    #[test]
    fn many_files_keep_apart() {
        let inodes = Inodes::default();
        for counter in 100..10_100 {
            assert!(!inodes.learn(under_a_name(counter, counter * 31)).must_sweep);
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

    #[test]
    fn one_caller_sweeps_a_full_table_and_reaches_each_file() {
        let inodes = Inodes::new(80 * PAGE_BYTES);
        let mut counter = 0;
        let mut fill = || loop {
            counter += SLOTS as u64;
            assert!(counter < 1_000_000, "it is never full");
            if inodes.learn(under_a_name(counter, 1)).must_sweep {
                return;
            }
        };
        fill();
        assert_eq!(inodes.bytes(), 71 * PAGE_BYTES);
        assert!(!inodes.learn(under_a_name(5_000_000, 1)).must_sweep, "it is being swept");
        let of_part = |part| {
            let stripes = 0..Inodes::STRIPES;
            stripes.flat_map(|stripe| inodes.part_of_stripe(stripe, part, 8)).collect::<Vec<_>>()
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
            assert!(!inodes.learn(under_a_name(counter, counter)).must_sweep, "full at {counter}");
        }
        assert!(inodes.bytes() <= 23_000_000, "{}", inodes.bytes());
    }
}
