//! Open directories: the position of each listing, and the number of entries that it requests next.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use pelago_fuse::ids::FileId;
use pelago_fuse::protocol::{FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE};
use pelago_fuse::reply;
use pelago_wire::{Cookie, DirEntry, InodeId, Name, limits};

use crate::dir_cache::DirCache;
use crate::page_versions::Pages;

/// The open directories, whose number the kernel limits with that of descriptors.
#[derive(Default)]
pub(crate) struct Streams {
    open: Mutex<HashMap<u64, Arc<Stream>>>,
    last: AtomicU64,
    pub(crate) dir_cache: DirCache,
}

impl Streams {
    /// Opens a directory; `losses` is the present result of [`pelago_client::Files::losses`].
    /// `pages` is `None` if the kernel may not cache the listing.
    pub(crate) fn open(&self, dir: InodeId, losses: u64, pages: Option<Pages>) -> reply::Opened {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let has_pages = pages.is_some();
        let stream = Stream { losses: AtomicU64::new(losses), has_pages, ..Stream::default() };
        self.open.lock().insert(id, Arc::new(stream));
        let flags = match pages {
            Some(Pages::Same) if self.dir_cache.may_keep(dir) => FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE,
            Some(_) => FOPEN_CACHE_DIR,
            None => 0,
        };
        reply::Opened { file: FileId(id), flags, backing: None }
    }

    /// Closes a directory. Returns whether the kernel could keep its listing.
    pub(crate) fn close(&self, id: FileId) -> bool {
        self.open.lock().remove(&id.0).is_some_and(|stream| stream.has_pages)
    }

    pub(crate) fn get(&self, id: FileId) -> Option<Arc<Stream>> {
        self.open.lock().get(&id.0).map(Arc::clone)
    }
}

/// Entries of the first request; a reply of 32 KiB has room for about 190 with attributes.
const FIRST_ENTRIES: u32 = 128;
/// Names of one listing that have attributes. For each the kernel keeps an inode (1 KiB) and we a
/// slot ([`crate::inodes`]), so that a single listing of millions of names would fill both. The
/// kernel requests attributes of later names one by one.
const WITH_ATTRIBUTES: u64 = 262_144;

/// One open directory.
pub(crate) struct Stream {
    /// Entries to request next.
    pub(super) entries: AtomicU32,
    /// Entries sent to the kernel since the listing began.
    pub(super) given: AtomicU64,
    /// Limit of the entries of a listing that have attributes.
    with_attributes: u64,
    /// Losses that were reported through this descriptor.
    losses: AtomicU64,
    has_pages: bool,
    /// Its lock is a leaf.
    pub(super) offsets: Mutex<RankedOffsets>,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new(WITH_ATTRIBUTES)
    }
}

impl Stream {
    /// Returns how many losses of changes were reported through this descriptor.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Records that `losses` were reported through this descriptor.
    pub(crate) fn told(&self, losses: u64) {
        self.losses.store(losses, Ordering::Relaxed);
    }

    pub(super) fn new(with_attributes: u64) -> Self {
        Self {
            entries: AtomicU32::new(FIRST_ENTRIES),
            given: AtomicU64::new(0),
            with_attributes,
            losses: AtomicU64::new(0),
            has_pages: false,
            offsets: Mutex::default(),
        }
    }

    /// Returns whether the next names shall have attributes.
    pub(super) fn wants_attributes(&self) -> bool {
        self.given.load(Ordering::Relaxed) < self.with_attributes
    }

    /// Sets the number of entries to request next: a few more than fitted, or twice as many if all
    /// fitted.
    pub(super) fn learn(&self, requested: u32, fitted: u32, full: bool) {
        let next = if full { fitted + fitted / 8 + 4 } else { requested.saturating_mul(2) };
        let most = u32::try_from(limits::LIST_ENTRIES).unwrap_or(u32::MAX);
        self.entries.store(next.min(most), Ordering::Relaxed);
    }
}

/// The offsets of names with equal hashes that one open directory has returned, and the name before
/// each: the last [`limits::LISTING_PLACES`] of them.
#[derive(Default)]
pub(super) struct RankedOffsets {
    names: HashMap<u64, Name>,
    offsets: HashMap<Name, u64>,
    order: VecDeque<u64>,
}

impl RankedOffsets {
    /// Returns the offset after an entry: the one that it had before, or a new one.
    pub(super) fn offset_of(&mut self, entry: &DirEntry) -> u64 {
        let Some((prefix, _)) = entry.cookie.rank() else { return entry.cookie.0 };
        if let Some(offset) = self.offsets.get(&entry.name) {
            return *offset;
        }
        let mut offset = entry.cookie.0;
        // The kernel may still continue at the offset of another name.
        while self.names.contains_key(&offset) {
            offset += 1;
        }
        if Cookie(offset).rank().is_none_or(|(other, rank)| other != prefix || rank == 0) {
            return entry.cookie.0;
        }
        if self.order.len() >= limits::LISTING_PLACES
            && let Some(oldest) = self.order.pop_front()
            && let Some(name) = self.names.remove(&oldest)
        {
            self.offsets.remove(&name);
        }
        self.names.insert(offset, entry.name.clone());
        self.offsets.insert(entry.name.clone(), offset);
        self.order.push_back(offset);
        offset
    }

    /// Returns the name before an offset, if it is known.
    pub(super) fn name_before(&self, offset: u64) -> Option<Name> {
        self.names.get(&offset).cloned()
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, NameHash};

    use super::*;

    fn entry(name: &str, cookie: u64) -> DirEntry {
        DirEntry {
            name: Name::new(name.as_bytes()).unwrap(),
            ino: InodeId::from_raw(9),
            kind: FileKind::Regular,
            cookie: Cookie(cookie),
            entry: None,
        }
    }

    fn ranked(name: &str, rank: u64) -> DirEntry {
        entry(name, Cookie::ranked(NameHash(9 << 32), rank).unwrap().0)
    }

    #[test]
    fn an_offset_stays_with_its_name() {
        let mut offsets = RankedOffsets::default();
        assert_eq!(offsets.offset_of(&entry("plain", 77)), 77);
        assert_eq!(offsets.name_before(77), None);
        let b = offsets.offset_of(&ranked("b", 2));
        assert_eq!(b, ranked("b", 2).cookie.0);
        assert_eq!(offsets.name_before(b), Some(ranked("b", 2).name));
        // After the name before it was unlinked its rank is lower, but its offset is the same.
        assert_eq!(offsets.offset_of(&ranked("b", 1)), b);
        let c = offsets.offset_of(&ranked("c", 2));
        assert_eq!(c, b + 1, "an offset that was returned is not used for another name");
        assert_eq!(offsets.name_before(c), Some(ranked("c", 2).name));
    }

    #[test]
    fn offsets_are_bounded_and_the_last_are_kept() {
        let mut offsets = RankedOffsets::default();
        let count = limits::LISTING_PLACES as u64 + 100;
        for rank in 1..=count {
            offsets.offset_of(&ranked(&rank.to_string(), rank));
        }
        let sizes = (offsets.names.len(), offsets.offsets.len(), offsets.order.len());
        let most = limits::LISTING_PLACES;
        assert_eq!(sizes, (most, most, most));
        let behind = |rank: u64| offsets.name_before(ranked("x", rank).cookie.0);
        assert_eq!(behind(100), None);
        assert_eq!(behind(101), Some(ranked("101", 101).name));
        assert_eq!(behind(count), Some(ranked(&count.to_string(), count).name));
    }

    #[test]
    fn the_number_of_requested_entries_follows_what_fits() {
        let stream = Stream::default();
        stream.learn(128, 100, false);
        assert_eq!(stream.entries.load(Ordering::Relaxed), 256);
        stream.learn(256, 190, true);
        assert_eq!(stream.entries.load(Ordering::Relaxed), 217);
        stream.learn(1024, 1024, false);
        assert_eq!(stream.entries.load(Ordering::Relaxed), 1024);
    }
}
