//! Cached listings of directories, and the directories of which all names are known.
//!
//! A listing is cached in the order in which the server sends it, from the first name on, as far as
//! it was read. The first change of a name in the directory drops it. A directory of which all
//! names are known stays so after a change, except for the changed name: a name that is not cached
//! does not exist there.

use std::collections::{HashMap, HashSet};

use pelago_wire::{Cookie, DirEntry, Entry, FileKind, InodeId, Name, limits};

use crate::most_facts::MostFacts;

/// The cached listings, and the directories of which all names are known.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    most: MostFacts,
    listed: HashMap<InodeId, Listing>,
    /// Names in all listings.
    count: usize,
    /// The directories of which all names are known, except those in the set.
    whole: HashMap<InodeId, HashSet<Name>>,
    /// Names in all these sets.
    unknown: usize,
}

/// The first names of a directory.
#[derive(Debug, Default)]
struct Listing {
    entries: Vec<ListedName>,
    /// No entry follows in the directory.
    is_whole: bool,
}

/// An entry of a listing. Its handle and its attributes are cached by name and by node; with room
/// for them an entry would take 240 bytes.
#[derive(Debug, Clone)]
pub(crate) struct ListedName {
    pub(crate) name: Name,
    pub(crate) ino: InodeId,
    kind: FileKind,
    cookie: Cookie,
}

impl ListedName {
    fn of(entry: &DirEntry) -> Self {
        let DirEntry { name, ino, kind, cookie, entry: _ } = entry;
        Self { name: name.clone(), ino: *ino, kind: *kind, cookie: *cookie }
    }

    /// Returns the entry as a reply has it, with the handle and the attributes of its file.
    pub(crate) fn with(&self, entry: Option<Entry>) -> DirEntry {
        let Self { name, ino, kind, cookie } = self;
        DirEntry { name: name.clone(), ino: *ino, kind: *kind, cookie: *cookie, entry }
    }
}

/// A part of a listing.
pub(crate) struct Page<'a> {
    pub(crate) entries: &'a [ListedName],
    /// No entry follows in the directory.
    pub(crate) end: bool,
}

impl Listings {
    /// Returns an empty cache with these limits.
    pub(crate) fn new(most: MostFacts) -> Self {
        Self { most, ..Self::default() }
    }

    /// Returns at most `most` entries after a position; `None` if none is cached.
    pub(crate) fn page(&self, dir: InodeId, after: Cookie, most: usize) -> Option<Page<'_>> {
        let Listing { entries, is_whole } = self.listed.get(&dir)?;
        let from = entries.get(position(entries, after)?..)?;
        let page = &from[..from.len().min(most)];
        let end = *is_whole && page.len() == from.len();
        (end || !page.is_empty()).then_some(Page { entries: page, end })
    }

    /// Returns whether entries after this position may be cached: the entry before it is.
    pub(crate) fn may_follow(&self, dir: InodeId, after: Cookie) -> bool {
        let entries = self.listed.get(&dir).map_or(&[][..], |listing| &listing.entries);
        position(entries, after).is_some()
    }

    /// Caches the entries that the server has sent after a position. Entries with ranked positions
    /// are not cached: a rank depends on other names.
    pub(crate) fn keep(&mut self, dir: InodeId, after: Cookie, entries: &[DirEntry], end: bool) {
        let is_kept = entries.iter().all(|entry| entry.cookie.rank().is_none());
        let listing = self.listed.entry(dir).or_default();
        let Some(at) = position(&listing.entries, after).filter(|_| is_kept) else {
            return self.drop_listing(dir);
        };
        self.count -= listing.entries.len() - at;
        listing.entries.truncate(at);
        self.count += entries.len();
        listing.entries.extend(entries.iter().map(ListedName::of));
        listing.is_whole = end;
        if end {
            listing.entries.shrink_to_fit();
            self.know_whole(dir);
        }
        if self.count > self.most.names || self.listed.len() > self.most.nodes {
            self.drop_all();
        }
    }

    /// Records that all names of a directory are known: it was listed to its end, or is new.
    pub(crate) fn know_whole(&mut self, dir: InodeId) {
        if self.whole.len() >= self.most.nodes {
            self.forget_whole();
        }
        let before = self.whole.insert(dir, HashSet::new());
        self.unknown -= before.map_or(0, |unknown| unknown.len());
    }

    /// Returns whether a name that is not cached does not exist.
    pub(crate) fn is_absent(&self, dir: InodeId, name: &Name) -> bool {
        self.whole.get(&dir).is_some_and(|unknown| !unknown.contains(name))
    }

    /// Records that the target of a name is cached, or its absence.
    pub(crate) fn know(&mut self, dir: InodeId, name: &Name) {
        if let Some(unknown) = self.whole.get_mut(&dir) {
            self.unknown -= usize::from(unknown.remove(name));
        }
    }

    /// Drops the listing of a directory whose name changes, and makes the name unknown.
    pub(crate) fn drop_name(&mut self, dir: InodeId, name: &Name) {
        self.drop_listing(dir);
        if let Some(unknown) = self.whole.get_mut(&dir) {
            self.unknown += usize::from(unknown.insert(name.clone()));
            if unknown.len() > limits::HOLDER_UNKNOWN_NAMES {
                self.unknown -= unknown.len();
                self.whole.remove(&dir);
            } else if self.unknown > self.most.names {
                self.forget_whole();
            }
        }
    }

    /// Drops everything.
    pub(crate) fn drop_all(&mut self) {
        *self = Self::new(self.most);
    }

    fn forget_whole(&mut self) {
        self.whole = HashMap::new();
        self.unknown = 0;
    }

    fn drop_listing(&mut self, dir: InodeId) {
        if let Some(listing) = self.listed.remove(&dir) {
            self.count -= listing.entries.len();
        }
    }
}

/// Returns the index of the entry that follows a position; `None` if the entry at the position is
/// not cached.
fn position(entries: &[ListedName], after: Cookie) -> Option<usize> {
    if after == Cookie::AFTER_DOT_DOT {
        return Some(0);
    }
    entries.binary_search_by_key(&after.0, |entry| entry.cookie.0).ok().map(|at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: InodeId = InodeId::from_raw(7);
    const START: Cookie = Cookie::AFTER_DOT_DOT;

    fn name(number: u64) -> Name {
        Name::new(number.to_string().as_bytes()).unwrap()
    }

    fn entries(numbers: std::ops::Range<u64>) -> Vec<DirEntry> {
        let entry = |number| DirEntry {
            name: name(number),
            ino: InodeId::from_raw(number),
            kind: FileKind::Regular,
            cookie: Cookie(number),
            entry: None,
        };
        numbers.map(entry).collect()
    }

    fn numbers(listings: &Listings, after: u64, most: usize) -> Option<(Vec<u64>, bool)> {
        let page = listings.page(DIR, Cookie(after), most)?;
        Some((page.entries.iter().map(|entry| entry.cookie.0).collect(), page.end))
    }

    #[test]
    fn a_listed_name_takes_little_memory() {
        assert!(size_of::<ListedName>() <= 40, "{}", size_of::<ListedName>());
    }

    #[test]
    fn a_listing_is_answered_as_far_as_it_was_read() {
        let mut listings = Listings::default();
        assert_eq!(numbers(&listings, START.0, 5), None);
        listings.keep(DIR, START, &entries(10..14), false);
        assert_eq!(numbers(&listings, START.0, 3), Some((vec![10, 11, 12], false)));
        assert_eq!(numbers(&listings, 12, 3), Some((vec![13], false)));
        assert_eq!(numbers(&listings, 13, 3), None, "what follows is not known");
        assert_eq!(numbers(&listings, 99, 3), None);
        listings.keep(DIR, Cookie(13), &entries(14..16), true);
        assert_eq!(numbers(&listings, 12, 3), Some((vec![13, 14, 15], true)));
        assert_eq!(numbers(&listings, 15, 3), Some((vec![], true)));
        // It is read again from the middle.
        listings.keep(DIR, Cookie(11), &entries(13..15), false);
        assert_eq!(numbers(&listings, 10, 9), Some((vec![11, 13, 14], false)));
        assert_eq!(listings.count, 4);
        listings.drop_name(DIR, &name(1));
        assert_eq!((numbers(&listings, START.0, 5), listings.count), (None, 0));
        // A part after a gap is of no use.
        listings.keep(DIR, Cookie(13), &entries(14..16), true);
        assert_eq!((numbers(&listings, 13, 5), listings.count), (None, 0));
        assert!(!Listings::is_absent(&listings, DIR, &name(1)));
    }

    #[test]
    fn names_that_change_in_a_directory_known_whole_are_unknown() {
        let mut listings = Listings::default();
        listings.keep(DIR, START, &entries(10..14), false);
        assert!(!listings.is_absent(DIR, &name(5)));
        listings.keep(DIR, Cookie(13), &[], true);
        assert!(listings.is_absent(DIR, &name(5)));
        listings.drop_name(DIR, &name(5));
        assert!(!listings.is_absent(DIR, &name(5)) && listings.is_absent(DIR, &name(6)));
        listings.know(DIR, &name(5));
        assert!(listings.is_absent(DIR, &name(5)));
        for number in 0..=limits::HOLDER_UNKNOWN_NAMES as u64 {
            listings.drop_name(DIR, &name(number));
        }
        assert!(!listings.is_absent(DIR, &name(u64::MAX)));
        assert_eq!((listings.whole.len(), listings.unknown), (0, 0));
    }

    #[test]
    fn names_that_are_unknown_are_bounded_over_all_directories() {
        let mut listings = Listings::default();
        let each = limits::HOLDER_UNKNOWN_NAMES as u64;
        let dirs = limits::HOLDER_NAMES as u64 / each;
        let dir = |number: u64| InodeId::from_raw(1000 + number);
        (0..=dirs).for_each(|number| listings.know_whole(dir(number)));
        for number in 0..dirs * each {
            listings.drop_name(dir(number / each), &name(number));
        }
        assert!(listings.is_absent(dir(dirs), &name(1)), "all are at their limit");
        listings.know(dir(0), &name(1));
        listings.drop_name(dir(dirs), &name(1));
        assert!(listings.is_absent(dir(dirs), &name(2)));
        listings.drop_name(dir(dirs), &name(2));
        assert_eq!((listings.whole.len(), listings.unknown), (0, 0), "one more");
    }

    #[test]
    fn a_small_process_caches_fewer_names() {
        let mut listings = Listings::new(MostFacts::of(8));
        for _ in 0..2 {
            listings.keep(DIR, START, &entries(10..18), true);
            assert_eq!(numbers(&listings, START.0, 99).unwrap().0.len(), 8);
            listings.keep(DIR, START, &entries(10..19), true);
            assert_eq!(numbers(&listings, START.0, 99), None, "one more, and all are forgotten");
        }
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut listings = Listings::default();
        let half = limits::HOLDER_NAMES as u64 / 2;
        for (dir, count) in [(1, half), (2, 2 * half), (3, 0), (4, half)] {
            listings.keep(InodeId::from_raw(dir), START, &entries(10..10 + half), true);
            assert_eq!(listings.count as u64, count, "one more, and all are forgotten");
        }
        let empty = limits::HOLDER_NODES as u64;
        (0..=empty).for_each(|dir| listings.keep(InodeId::from_raw(dir), START, &[], true));
        assert!(listings.listed.len() <= limits::HOLDER_NODES);
    }
}
