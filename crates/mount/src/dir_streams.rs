//! Open directories: where each listing stands, and how much it asks for.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use pelago_fuse::ids::FileId;
use pelago_fuse::protocol::{FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE};
use pelago_fuse::reply;
use pelago_wire::{Cookie, DirEntry, InodeId, Name, limits};

use crate::dir_cache::DirCache;

/// The directories that are open. As many as processes hold descriptors of; the kernel limits
/// those.
#[derive(Default)]
pub(crate) struct Streams {
    open: Mutex<HashMap<u64, Arc<Stream>>>,
    last: AtomicU64,
    pub(crate) dir_cache: DirCache,
}

impl Streams {
    /// OpenIds a directory; `losses` is how many the server has told of until now.
    pub(crate) fn open(&self, dir: InodeId, losses: u64) -> reply::Opened {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = Stream { losses: AtomicU64::new(losses), ..Stream::default() };
        self.open.lock().insert(id, Arc::new(stream));
        let flags = match self.dir_cache.may_keep(dir) {
            true => FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE,
            false => FOPEN_CACHE_DIR,
        };
        reply::Opened { file: FileId(id), flags, backing: None }
    }

    pub(crate) fn close(&self, id: FileId) {
        self.open.lock().remove(&id.0);
    }

    pub(crate) fn get(&self, id: FileId) -> Option<Arc<Stream>> {
        self.open.lock().get(&id.0).map(Arc::clone)
    }
}

/// Entries to ask for first; a reply of 32 KiB holds about 190 with attributes.
const FIRST_ENTRIES: u32 = 128;
/// Names of one listing that bring attributes. With each the kernel keeps an inode (1 KiB) and we a
/// slot ([`crate::inodes`]) until it needs the memory, so that a listing of millions of names alone
/// would fill both. Attributes of later names are requested one by one.
const WITH_ATTRIBUTES: u64 = 262_144;

/// One open directory.
pub(crate) struct Stream {
    /// To ask for next.
    pub(super) entries: AtomicU32,
    /// Given to the kernel since it began.
    pub(super) given: AtomicU64,
    /// How many of those bring attributes.
    with_attributes: u64,
    /// Losses of changes that its descriptor knows of.
    losses: AtomicU64,
    /// A leaf.
    pub(super) places: Mutex<RankedOffsets>,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new(WITH_ATTRIBUTES)
    }
}

impl Stream {
    /// Losses of changes that its descriptor knows of.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Its descriptor was told of as many.
    pub(crate) fn told(&self, losses: u64) {
        self.losses.store(losses, Ordering::Relaxed);
    }

    pub(super) fn new(with_attributes: u64) -> Self {
        let entries = AtomicU32::new(FIRST_ENTRIES);
        let [given, losses] = [const { AtomicU64::new(0) }; 2];
        Self { entries, given, with_attributes, losses, places: Mutex::default() }
    }

    /// Whether the next names bring attributes.
    pub(super) fn brings_attributes(&self) -> bool {
        self.given.load(Ordering::Relaxed) < self.with_attributes
    }

    /// Asks for a little more than fitted next time, or for much more if all fitted.
    pub(super) fn learn(&self, asked: u32, fitted: u32, full: bool) {
        let next = if full { fitted + fitted / 8 + 4 } else { asked.saturating_mul(2) };
        let most = u32::try_from(limits::LIST_ENTRIES).unwrap_or(u32::MAX);
        self.entries.store(next.min(most), Ordering::Relaxed);
    }
}

/// Names that ranked places of one open directory are behind: the last
/// [`limits::LISTING_PLACES`] of them.
#[derive(Default)]
pub(super) struct RankedOffsets {
    names: HashMap<u64, Name>,
    offsets: HashMap<Name, u64>,
    order: VecDeque<u64>,
}

impl RankedOffsets {
    /// Returns the offset behind an entry: the one that it had before, or a new one.
    pub(super) fn offset_of(&mut self, entry: &DirEntry) -> u64 {
        let Some((prefix, _)) = entry.cookie.rank() else { return entry.cookie.0 };
        if let Some(offset) = self.offsets.get(&entry.name) {
            return *offset;
        }
        let mut offset = entry.cookie.0;
        // What stood there before may be asked for still.
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

    /// Returns the name that an offset is behind, if that is remembered.
    pub(super) fn behind(&self, offset: u64) -> Option<Name> {
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
    fn a_place_stays_with_its_name() {
        let mut places = RankedOffsets::default();
        assert_eq!(places.offset_of(&entry("plain", 77)), 77);
        assert_eq!(places.behind(77), None);
        let b = places.offset_of(&ranked("b", 2));
        assert_eq!(b, ranked("b", 2).cookie.0);
        assert_eq!(places.behind(b), Some(ranked("b", 2).name));
        // The name before it has gone: its rank is another now, and its place is not.
        assert_eq!(places.offset_of(&ranked("b", 1)), b);
        let c = places.offset_of(&ranked("c", 2));
        assert_eq!(c, b + 1, "what was given out is not given out again");
        assert_eq!(places.behind(c), Some(ranked("c", 2).name));
    }

    #[test]
    fn places_are_bounded_and_the_last_are_kept() {
        let mut places = RankedOffsets::default();
        let count = limits::LISTING_PLACES as u64 + 100;
        for rank in 1..=count {
            places.offset_of(&ranked(&rank.to_string(), rank));
        }
        let sizes = (places.names.len(), places.offsets.len(), places.order.len());
        let most = limits::LISTING_PLACES;
        assert_eq!(sizes, (most, most, most));
        let behind = |rank: u64| places.behind(ranked("x", rank).cookie.0);
        assert_eq!(behind(100), None);
        assert_eq!(behind(101), Some(ranked("101", 101).name));
        assert_eq!(behind(count), Some(ranked(&count.to_string(), count).name));
    }

    #[test]
    fn what_is_asked_for_follows_what_fits() {
        let stream = Stream::default();
        stream.learn(128, 100, false);
        assert_eq!(stream.entries.load(Ordering::Relaxed), 256);
        stream.learn(256, 190, true);
        assert_eq!(stream.entries.load(Ordering::Relaxed), 217);
        stream.learn(1024, 1024, false);
        assert_eq!(stream.entries.load(Ordering::Relaxed), 1024);
    }
}
