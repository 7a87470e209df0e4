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
//! Several names may share a cookie. The server never cuts them apart, but the kernel may, so all
//! but the last of them carry a *mark*: an offset above all cookies that says which names of a
//! cookie are behind it. Marks are the same for everybody who reads the directory, because the
//! kernel keeps listings (`listed`), offsets included, for whoever reads it next.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use pelago_fuse::listing::Listed as Named;
use pelago_fuse::protocol::{FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE};
use pelago_fuse::request::FileId;
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
    marks: Marks,
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
/// Marks of all directories. Names share a cookie about never (62 bits of a keyed hash); beyond the
/// limit they are delivered twice rather than lost.
const MARKS: usize = 1024;
/// The offset of the first mark, above every cookie.
const FIRST_MARK: u64 = 3 << 61;

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

    const fn new(with_attributes: u64) -> Self {
        let entries = AtomicU32::new(FIRST_ENTRIES);
        let [given, losses] = [const { AtomicU64::new(0) }; 2];
        Self { entries, given, with_attributes, losses }
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

/// The marks of all directories. Its lock is a leaf.
#[derive(Default)]
struct Marks(Mutex<Vec<(InodeId, Mark)>>);

impl Marks {
    /// The offset of an entry behind which `mark` is: all names but the last of a cookie.
    fn offset_of(&self, dir: InodeId, mark: Mark) -> u64 {
        let mut marks = self.0.lock();
        let known = marks.iter().position(|(of, known)| *of == dir && *known == mark);
        let index = match known {
            Some(index) => index,
            None if marks.len() < MARKS => {
                marks.push((dir, mark));
                marks.len() - 1
            }
            None => return mark.cookie.0.saturating_sub(1),
        };
        FIRST_MARK + index as u64
    }

    /// Where to go on in a directory from an offset.
    fn at(&self, dir: InodeId, offset: u64) -> Mark {
        let index = offset.checked_sub(FIRST_MARK).and_then(|index| usize::try_from(index).ok());
        let known = index.and_then(|index| self.0.lock().get(index).cloned());
        match known {
            Some((of, mark)) if of == dir => mark,
            _ => Mark { cookie: Cookie(offset), behind: Vec::new() },
        }
    }
}

/// A place in a listing: behind `cookie`; if names are given, behind those of its names.
#[derive(Clone, PartialEq, Eq)]
struct Mark {
    cookie: Cookie,
    behind: Vec<Name>,
}

impl Mark {
    /// Where the server shall go on: before the cookie where some of its names are still to come.
    fn after(&self) -> Cookie {
        if self.behind.is_empty() { self.cookie } else { Cookie(self.cookie.0.saturating_sub(1)) }
    }

    fn has_passed(&self, entry: &DirEntry) -> bool {
        entry.cookie == self.cookie && self.behind.contains(&entry.name)
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
            let mark = self.state.streams.marks.at(self.dir.ino, offset);
            return self.ask(mark);
        }
        let state = Arc::clone(&self.state);
        state.files.parent(&self.context, self.dir).then(move |parent| {
            // A directory that was removed while open has none; its own number does no harm.
            let ino = parent.map_or(self.dir.ino, |parent| parent.handle.ino);
            if !self.sink.add_dots(ino, Cookie::AFTER_DOT_DOT, "..") {
                return self.sink.ok();
            }
            self.ask(Mark { cookie: Cookie::AFTER_DOT_DOT, behind: Vec::new() });
        });
    }

    fn ask(self, from: Mark) {
        let state = Arc::clone(&self.state);
        let entries = self.stream.entries.load(Ordering::Relaxed);
        let attributes = self.sink.listing.with_attributes() && self.stream.brings_attributes();
        state
            .files
            .list(&self.context, self.dir, from.after(), entries, attributes)
            .then(move |listing| self.deliver(&from, (entries, attributes), listing));
    }

    fn deliver(mut self, from: &Mark, asked: (u32, bool), listing: Result<Listing, Error>) {
        let (asked, attributes) = asked;
        let listing = match listing {
            Ok(listing) => listing,
            Err(error) => return self.sink.error(error),
        };
        let moment = self.asked;
        let filling = Filling { state: &self.state, dir: self.dir.ino, moment, attributes };
        let (fitted, full) = filling.fill(&mut self.sink.listing, from, &listing.entries);
        self.stream.learn(asked, fitted, full);
        let given = self.stream.given.fetch_add(u64::from(fitted), Ordering::Relaxed);
        if listing.end && !full {
            self.state.streams.listed.add(self.dir.ino, given + u64::from(fitted));
        }
        match listing.entries.last() {
            // None of the names was still there, and more come: an empty reply would say the end.
            Some(last) if fitted == 0 && !full && !listing.end => {
                let from = Mark { cookie: last.cookie, behind: Vec::new() };
                self.ask(from);
            }
            _ => self.sink.ok(),
        }
    }
}

/// Entries of a directory on their way into a reply.
struct Filling<'a> {
    state: &'a State,
    dir: InodeId,
    /// Before the entries were asked for.
    moment: Moment,
    /// Whether they were asked for with attributes.
    attributes: bool,
}

impl Filling<'_> {
    /// Adds what fits; how many did and whether something did not.
    fn fill(
        &self,
        listing: &mut listing::Listing,
        from: &Mark,
        entries: &[DirEntry],
    ) -> (u32, bool) {
        let mut fitted = 0;
        for (index, entry) in entries.iter().enumerate() {
            if from.has_passed(entry) {
                continue;
            }
            let next = entries.get(index + 1);
            let offset = if next.is_some_and(|next| next.cookie == entry.cookie) {
                self.state.streams.marks.offset_of(self.dir, mark_behind(&entries[..=index]))
            } else {
                entry.cookie.0
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

/// The place behind the last of `entries`, which is not the last of its cookie.
fn mark_behind(entries: &[DirEntry]) -> Mark {
    let cookie = entries.last().map_or(Cookie::START, |entry| entry.cookie);
    let same = entries.iter().rev().take_while(|entry| entry.cookie == cookie);
    let mut behind: Vec<_> = same.map(|entry| entry.name.clone()).collect();
    behind.reverse();
    Mark { cookie, behind }
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

    #[test]
    fn a_mark_goes_on_between_names_of_one_cookie() {
        let marks = Marks::default();
        let entries = [entry("a", 8), entry("b", 9), entry("c", 9), entry("d", 9)];
        let offset = marks.offset_of(DIR, mark_behind(&entries[..3]));
        assert!(offset > Cookie::of(NameHash(u64::MAX)).0);
        assert_eq!(marks.offset_of(DIR, mark_behind(&entries[..3])), offset);
        let mark = marks.at(DIR, offset);
        assert_eq!(mark.after(), Cookie(8));
        let passed: Vec<_> = entries.iter().map(|entry| mark.has_passed(entry)).collect();
        assert_eq!(passed, [false, true, true, false]);
    }

    #[test]
    fn an_offset_that_is_no_mark_is_a_cookie() {
        let marks = Marks::default();
        for offset in [0, 3, 77, Cookie::of(NameHash(u64::MAX)).0, FIRST_MARK, u64::MAX] {
            assert_eq!(marks.at(DIR, offset).after(), Cookie(offset));
        }
    }

    #[test]
    fn marks_are_bounded_and_then_repeat_rather_than_lose() {
        let marks = Marks::default();
        for index in 0..MARKS {
            let entries = [entry(&format!("{index}"), 50)];
            assert!(marks.offset_of(DIR, mark_behind(&entries)) >= FIRST_MARK);
        }
        let offset = marks.offset_of(DIR, mark_behind(&[entry("one more", 50)]));
        assert_eq!(marks.at(DIR, offset).after(), Cookie(49));
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
        fn call(&self, _context: &Context, _request: Request, _bulk: Bulk<'_>, done: Done) {
            done(Err(pelago_wire::Code::Bug.into()));
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
        let nowhere = Mark { cookie: Cookie::AFTER_DOT_DOT, behind: Vec::new() };
        for first in (100..5_100).step_by(100) {
            let attributes = stream.brings_attributes();
            let moment = state.writers.moment();
            let filling = Filling { state: &state, dir: DIR, moment, attributes };
            let entries: Vec<_> = (first..first + 100).map(file).collect();
            let mut listing = listing::Listing::of_entries(32 << 10);
            let (fitted, full) = filling.fill(&mut listing, &nowhere, &entries);
            assert_eq!((fitted, full), (100, false));
            stream.given.fetch_add(u64::from(fitted), Ordering::Relaxed);
        }
        assert_eq!(state.inodes.count(), 1_000);
        let is_known = |number| state.inodes.handle(InodeId::from_raw(number)).is_under_a_name();
        assert!(is_known(1_099) && !is_known(1_100));
    }
}
