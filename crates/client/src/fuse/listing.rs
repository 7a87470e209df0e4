//! Directory listings.
//!
//! The kernel reads a directory in pieces and says where to go on: by the offset that the last
//! entry it used carried. That offset is the entry's cookie, stable while the directory changes.
//! `.` and `..` have the two below the first.
//!
//! Each piece is asked from the server afresh and what does not fit is dropped: an entry kept back
//! for the next piece could be gone by then, and an entry with attributes makes the kernel believe
//! in it for as long as the TTL says. How much is asked for follows how much fitted last time.
//!
//! Names with equal hashes have ranked cookies, which count names: they would lead elsewhere once
//! names of that hash have come or gone. So an open directory remembers which name stands before
//! each of them that it gave out ([`Places`]), and says it to the server, which goes on exactly
//! there, without counting.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use pelago_fuse::ids::FileId;
use pelago_fuse::listing::Listed as Named;
use pelago_fuse::protocol::{FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE};
use pelago_fuse::{FileType, Reply, listing, reply};
use pelago_wire::{Context, Cookie, DirEntry, Error, Handle, InodeId, Name, limits};

use super::attr;
use super::listed::Listed;
use super::state::State;
use super::writers::Moment;
use crate::files::Listing;

/// The directories that are open. As many as processes hold descriptors of; the kernel limits
/// those.
#[derive(Default)]
pub(crate) struct Streams {
    open: Mutex<HashMap<u64, Arc<Stream>>>,
    last: AtomicU64,
    pub(crate) listed: Listed,
}

impl Streams {
    /// Opens a directory; `losses` is how many the server has told of until now.
    pub(crate) fn open(&self, dir: InodeId, losses: u64) -> reply::Opened {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let stream = Stream { losses: AtomicU64::new(losses), ..Stream::default() };
        self.open.lock().insert(id, Arc::new(stream));
        let flags = match self.listed.may_keep(dir) {
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
/// slot ([`crate::inodes`]) until it needs the memory, wanted or not, so that somebody who lists
/// millions of names alone would fill both. Whoever wants attributes behind these asks one by one.
const WITH_ATTRIBUTES: u64 = 262_144;
/// One open directory.
pub(crate) struct Stream {
    /// To ask for next.
    entries: AtomicU32,
    /// Given to the kernel since it began.
    given: AtomicU64,
    /// How many of those bring attributes.
    with_attributes: u64,
    /// Losses of changes that its descriptor knows of.
    losses: AtomicU64,
    /// A leaf.
    places: Mutex<Places>,
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

    fn new(with_attributes: u64) -> Self {
        let entries = AtomicU32::new(FIRST_ENTRIES);
        let [given, losses] = [const { AtomicU64::new(0) }; 2];
        Self { entries, given, with_attributes, losses, places: Mutex::default() }
    }

    /// Whether the next names bring attributes.
    fn brings_attributes(&self) -> bool {
        self.given.load(Ordering::Relaxed) < self.with_attributes
    }

    /// Asks for a little more than fitted next time, or for much more if all fitted.
    fn learn(&self, asked: u32, fitted: u32, full: bool) {
        let next = if full { fitted + fitted / 8 + 4 } else { asked.saturating_mul(2) };
        let most = u32::try_from(limits::LIST_ENTRIES).unwrap_or(u32::MAX);
        self.entries.store(next.min(most), Ordering::Relaxed);
    }
}

/// Names that ranked places of one open directory are behind: the last
/// [`limits::LISTING_PLACES`] of them.
#[derive(Default)]
struct Places {
    names: HashMap<u64, Name>,
    offsets: HashMap<Name, u64>,
    order: VecDeque<u64>,
}

impl Places {
    /// Returns the offset behind an entry: the one that it had before, or a new one.
    fn offset_of(&mut self, entry: &DirEntry) -> u64 {
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
    fn behind(&self, offset: u64) -> Option<Name> {
        self.names.get(&offset).cloned()
    }
}

/// A reply that is being filled.
pub(crate) struct Sink {
    pub(crate) listing: listing::Listing,
    pub(crate) reply: Reply<listing::Listing>,
}

impl Sink {
    fn ok(self) {
        self.reply.ok(&self.listing);
    }

    pub(crate) fn error(self, error: Error) {
        self.reply.error(attr::error(error));
    }

    /// Adds `.` or `..`, of which the kernel wants no attributes; whether it fitted.
    fn add_dots(&mut self, ino: InodeId, after: Cookie, dots: &str) -> bool {
        let named = Named {
            ino: ino.raw(),
            offset: after.0,
            file_type: FileType::Directory,
            name: dots.as_bytes(),
        };
        self.listing.add(named, None)
    }
}

/// One READDIR or READDIRPLUS on its way.
pub(crate) struct Reading {
    pub(crate) state: Arc<State>,
    pub(crate) stream: Arc<Stream>,
    pub(crate) context: Context,
    pub(crate) dir: Handle,
    pub(crate) sink: Sink,
    pub(crate) asked: Moment,
}

impl Reading {
    /// Goes on from the kernel's offset.
    pub(crate) fn start(mut self, offset: u64) {
        if offset < Cookie::AFTER_DOT.0 {
            self.stream.given.store(0, Ordering::Relaxed);
        }
        if offset < Cookie::AFTER_DOT.0 && !self.sink.add_dots(self.dir.ino, Cookie::AFTER_DOT, ".")
        {
            return self.sink.ok();
        }
        if offset >= Cookie::AFTER_DOT_DOT.0 {
            let behind = self.stream.places.lock().behind(offset);
            return self.ask(Cookie(offset), behind);
        }
        let state = Arc::clone(&self.state);
        state.files.parent(&self.context, self.dir).then(move |parent| {
            // A directory that was removed while open has none; its own number does no harm.
            let ino = parent.map_or(self.dir.ino, |parent| parent.handle.ino);
            if !self.sink.add_dots(ino, Cookie::AFTER_DOT_DOT, "..") {
                return self.sink.ok();
            }
            self.ask(Cookie::AFTER_DOT_DOT, None);
        });
    }

    fn ask(self, after: Cookie, behind: Option<Name>) {
        let state = Arc::clone(&self.state);
        let entries = self.stream.entries.load(Ordering::Relaxed);
        let attributes = self.sink.listing.with_attributes() && self.stream.brings_attributes();
        state
            .files
            .list(&self.context, self.dir, after, behind, entries, attributes)
            .then(move |listing| self.deliver((entries, attributes), listing));
    }

    fn deliver(mut self, asked: (u32, bool), listing: Result<Listing, Error>) {
        let (asked, attributes) = asked;
        let listing = match listing {
            Ok(listing) => listing,
            Err(error) => return self.sink.error(error),
        };
        let moment = self.asked;
        let (state, places) = (&self.state, &self.stream.places);
        let filling = Filling { state, places, moment, attributes };
        let (fitted, full) = filling.fill(&mut self.sink.listing, &listing.entries);
        self.stream.learn(asked, fitted, full);
        let given = self.stream.given.fetch_add(u64::from(fitted), Ordering::Relaxed);
        if listing.end && !full {
            self.state.streams.listed.add(self.dir.ino, given + u64::from(fitted));
        }
        match listing.entries.last() {
            // None of the names was still there, and more come: an empty reply would say the end.
            Some(last) if fitted == 0 && !full && !listing.end => {
                let behind = last.cookie.rank().map(|_| last.name.clone());
                self.ask(last.cookie, behind);
            }
            _ => self.sink.ok(),
        }
    }
}

/// Entries of a directory on their way into a reply.
struct Filling<'a> {
    state: &'a State,
    places: &'a Mutex<Places>,
    /// Before the entries were asked for.
    moment: Moment,
    /// Whether they were asked for with attributes.
    attributes: bool,
}

impl Filling<'_> {
    /// Adds what fits; how many did and whether something did not.
    fn fill(&self, listing: &mut listing::Listing, entries: &[DirEntry]) -> (u32, bool) {
        let mut fitted = 0;
        for entry in entries {
            let offset = match entry.cookie.rank() {
                None => entry.cookie.0,
                Some(_) => self.places.lock().offset_of(entry),
            };
            match self.add(listing, entry, offset) {
                Added::Fitted => fitted += 1,
                Added::Gone => {}
                Added::Full => return (fitted, true),
            }
        }
        (fitted, false)
    }

    fn add(&self, listing: &mut listing::Listing, dir_entry: &DirEntry, offset: u64) -> Added {
        let named = Named {
            ino: dir_entry.ino.raw(),
            offset,
            file_type: attr::file_type(dir_entry.kind),
            name: dir_entry.name.as_bytes(),
        };
        let fitted = match &dir_entry.entry {
            None if self.attributes => return Added::Gone,
            Some(entry) if self.attributes => {
                let ttl = self.state.writers.ttl(&entry.attr, self.moment);
                let fitted = listing.add(named, Some(&attr::entry(entry, ttl)));
                if fitted {
                    // The kernel counts each entry it is given as a lookup.
                    self.state.learn(entry.handle);
                }
                fitted
            }
            _ => listing.add(named, None),
        };
        if fitted { Added::Fitted } else { Added::Full }
    }
}

enum Added {
    Fitted,
    Gone,
    Full,
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Attr, Bulk, Done, Entry, FileKind, NameHash, Request, Service, Time};

    use super::*;
    use crate::fuse::state::Preferences;
    use crate::service_files::ServiceFiles;

    const DIR: InodeId = InodeId::from_raw(7);

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
        let mut places = Places::default();
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
        let mut places = Places::default();
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

    /// Is asked nothing here.
    struct Silent;

    impl Service for Silent {
        fn ask(
            &self,
            _context: &Context,
            _request: Request,
            _bulk: Bulk<'_>,
            _later: &mut dyn FnMut() -> Done,
        ) -> Option<Result<pelago_wire::Reply, Error>> {
            Some(Err(pelago_wire::Code::Bug.into()))
        }
    }

    /// A file by its number, with attributes.
    fn file(number: u64) -> DirEntry {
        let ino = InodeId::from_raw(number);
        let time = Time { seconds: 5, nanos: 6 };
        let attr = Attr {
            ino,
            kind: FileKind::Regular,
            mode: 0o644,
            links: 1,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            changing: false,
        };
        let handle = Handle::at(ino, DIR, NameHash(number));
        let plain = entry(&number.to_string(), number);
        DirEntry { ino, entry: Some(Entry { handle, attr }), ..plain }
    }

    /// Names behind the limit cost neither the kernel nor us anything, and come all the same.
    #[test]
    fn a_long_listing_brings_attributes_of_its_first_names_alone() {
        let files = ServiceFiles::new(Arc::new(Silent));
        let state = State::new(Arc::new(files), Preferences::default());
        let stream = Stream::new(1_000);
        for first in (100..5_100).step_by(100) {
            let attributes = stream.brings_attributes();
            let moment = state.writers.moment();
            let places = &stream.places;
            let filling = Filling { state: &state, places, moment, attributes };
            let entries: Vec<_> = (first..first + 100).map(file).collect();
            let mut listing = listing::Listing::of_entries(32 << 10);
            let (fitted, full) = filling.fill(&mut listing, &entries);
            assert_eq!((fitted, full), (100, false));
            stream.given.fetch_add(u64::from(fitted), Ordering::Relaxed);
        }
        assert_eq!(state.inodes.count(), 1_000);
        let is_known = |number| state.inodes.handle(InodeId::from_raw(number)).is_under_a_name();
        assert!(is_known(1_099) && !is_known(1_100));
    }
}
