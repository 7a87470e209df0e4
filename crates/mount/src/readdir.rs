//! READDIR and READDIRPLUS.
//!
//! The kernel reads a directory in pieces and continues at the offset of the last entry that it
//! used. That offset is the entry's cookie, stable while the directory changes. `.` and `..` have
//! the two offsets below the first cookie.
//!
//! Each piece is requested from the server anew, and entries that do not fit are dropped: an entry
//! held for the next piece could be unlinked by then, and the kernel would trust its attributes for
//! the whole TTL. The number of requested entries follows how many fitted last time.
//!
//! Names with equal hashes have ranked cookies, which count names: they lead elsewhere once names
//! of that hash have come or gone. So an open directory remembers the name before each of them that
//! it returned ([`RankedOffsets`]), and sends it to the server, which continues exactly there,
//! without counting.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::Listing;
use pelago_fuse::listing::Dirent;
use pelago_fuse::{FileType, Reply, listing};
use pelago_wire::{Context, Cookie, DirEntry, Error, Handle, InodeId, Name};

use crate::attr;
use crate::dir_streams::{RankedOffsets, Stream};
use crate::lifetimes::{ReplyGuard, Sample};
use crate::state::State;

/// A reply in progress.
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

    /// Adds `.` or `..`, which have no attributes, and returns whether it fitted.
    fn add_dots(&mut self, ino: InodeId, after: Cookie, dots: &str) -> bool {
        let named = Dirent {
            ino: ino.raw(),
            offset: after.0,
            file_type: FileType::Directory,
            name: dots.as_bytes(),
        };
        self.listing.add(named, None)
    }
}

/// A READDIR or READDIRPLUS in progress.
pub(crate) struct Reading {
    pub(crate) state: Arc<State>,
    pub(crate) stream: Arc<Stream>,
    pub(crate) context: Context,
    pub(crate) dir: Handle,
    pub(crate) sink: Sink,
    pub(crate) sample: Sample,
}

impl Reading {
    /// Continues at the kernel's offset.
    pub(crate) fn start(mut self, offset: u64) {
        self.state.list_pages(self.dir.ino);
        if offset < Cookie::AFTER_DOT.0 {
            self.stream.given.store(0, Ordering::Relaxed);
        }
        if offset < Cookie::AFTER_DOT.0 && !self.sink.add_dots(self.dir.ino, Cookie::AFTER_DOT, ".")
        {
            return self.sink.ok();
        }
        if offset >= Cookie::AFTER_DOT_DOT.0 {
            let after_name = self.stream.offsets.lock().name_before(offset);
            return self.ask(Cookie(offset), after_name);
        }
        let state = Arc::clone(&self.state);
        state.files.parent(&self.context, self.dir).then(move |parent| {
            // A directory that was removed while open has no parent; its own id does no harm.
            let ino = parent.map_or(self.dir.ino, |parent| parent.handle.ino);
            if !self.sink.add_dots(ino, Cookie::AFTER_DOT_DOT, "..") {
                return self.sink.ok();
            }
            self.ask(Cookie::AFTER_DOT_DOT, None);
        });
    }

    fn ask(self, after: Cookie, after_name: Option<Name>) {
        let state = Arc::clone(&self.state);
        let entries = self.stream.entries.load(Ordering::Relaxed);
        let lifetimes = &state.lifetimes;
        let keeps =
            !lifetimes.keeps_nothing_of(self.dir.ino) && !lifetimes.is_elsewhere(self.dir.ino);
        let attributes =
            keeps && self.sink.listing.with_attributes() && self.stream.wants_attributes();
        let listed =
            state.files.list(&self.context, self.dir, after, after_name, entries, attributes);
        listed.then(move |listing| self.deliver(entries, attributes, listing));
    }

    /// Replies with the entries that the server has returned, of `requested` ones at most.
    fn deliver(mut self, requested: u32, attributes: bool, listing: Result<Listing, Error>) {
        let listing = match listing {
            Ok(listing) => listing,
            Err(error) => return self.sink.error(error),
        };
        // The kernel counts no lookups of a listing whose caller was killed. A listing with counted
        // entries is the last of this request, so the reply can be claimed here.
        let counts = attributes && listing.entries.iter().any(|entry| entry.entry.is_some());
        if counts && !self.sink.reply.claim() {
            return;
        }
        let state = Arc::clone(&self.state);
        let guard = state.reply_guard();
        let sample = self.sample;
        let offsets = &self.stream.offsets;
        let site = self.dir.ino.site();
        let copier = Copier { state: &state, guard: &guard, offsets, sample, attributes, site };
        let (fitted, full) = copier.fill(&mut self.sink.listing, &listing.entries);
        self.stream.learn(requested, fitted, full);
        let given = self.stream.given.fetch_add(u64::from(fitted), Ordering::Relaxed);
        if listing.end && !full {
            self.state.streams.dir_cache.add(self.dir.ino, given + u64::from(fitted));
        }
        match listing.entries.last() {
            // All names of this page are unlinked, but more follow: the kernel takes an empty reply
            // for the end of the directory.
            Some(last) if fitted == 0 && !full && !listing.end => {
                let after_name = last.cookie.rank().map(|_| last.name.clone());
                drop(guard);
                self.ask(last.cookie, after_name);
            }
            _ => {
                state.list_pages(self.dir.ino);
                self.sink.ok();
            }
        }
    }
}

/// Copies directory entries into a reply.
struct Copier<'a> {
    state: &'a State,
    offsets: &'a Mutex<RankedOffsets>,
    guard: &'a ReplyGuard<'a>,
    /// Sample of the directory from before the entries were requested.
    sample: Sample,
    /// The entries were requested with attributes.
    attributes: bool,
    /// The site of the directory.
    site: u16,
}

impl Copier<'_> {
    /// Adds entries. Returns how many fitted and whether the reply is full.
    fn fill(&self, listing: &mut listing::Listing, entries: &[DirEntry]) -> (u32, bool) {
        let mut fitted = 0;
        for entry in entries {
            let offset = match entry.cookie.rank() {
                None => entry.cookie.0,
                Some(_) => self.offsets.lock().offset_of(entry),
            };
            match self.add(listing, entry, offset) {
                Added::Fitted => fitted += 1,
                Added::Unlinked => {}
                Added::Full => return (fitted, true),
            }
        }
        (fitted, false)
    }

    fn add(&self, listing: &mut listing::Listing, dir_entry: &DirEntry, offset: u64) -> Added {
        let named = Dirent {
            ino: dir_entry.ino.raw(),
            offset,
            file_type: attr::file_type(dir_entry.kind),
            name: dir_entry.name.as_bytes(),
        };
        let fitted = match &dir_entry.entry {
            // A directory of another site has its attributes there.
            None if self.attributes && dir_entry.ino.site() == self.site => {
                return Added::Unlinked;
            }
            // Attributes that are compared below count as sent: so they must fit.
            Some(_) if self.attributes && !listing.has_room_for(named.name) => return Added::Full,
            Some(entry) if self.attributes => {
                let name_ttl = self.guard.name_listed(&self.sample, &dir_entry.name);
                let attr_ttl = match self.state.entry_holds(&entry.attr) {
                    true => self.guard.found_attr(entry, &self.sample),
                    false => Duration::ZERO,
                };
                let entry_reply = attr::entry(entry, name_ttl, attr_ttl);
                let fitted = listing.add(named, Some(&entry_reply));
                if fitted {
                    // The kernel counts each entry with attributes as a lookup.
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
    Unlinked,
    Full,
}

#[cfg(test)]
mod tests {
    use pelago_client::Files;
    use pelago_wire::{Attr, Entry, FileKind, LeaseTimes, NameHash, Time};

    use super::*;
    use crate::init::TTL;
    use crate::options::Keeps;
    use crate::silent::Silent;
    use crate::state::Preferences;

    const DIR: InodeId = InodeId::from_raw(7);

    /// Returns the entry of a file, with attributes.
    fn file(number: u64) -> DirEntry {
        let ino = InodeId::from_raw(number);
        let attr = Attr::empty(ino, FileKind::Regular);
        let handle = Handle::at(ino, DIR, NameHash(number));
        let name = Name::new(number.to_string().as_bytes()).unwrap();
        let entry = Some(Entry { handle, attr });
        DirEntry { name, ino, kind: FileKind::Regular, cookie: Cookie(number), entry }
    }

    struct Leases;

    impl LeaseTimes for Leases {
        fn attr_left(&self, _: InodeId) -> Duration {
            TTL
        }

        fn attr_holds(&self, attr: &Attr) -> Duration {
            self.attr_left(attr.ino)
        }

        fn name_left(&self, _dir: InodeId, _name: &Name) -> Duration {
            Duration::ZERO
        }
    }

    /// An entry for which a full listing has no room is not sent: the kernel still has the old
    /// attributes of an open file, with which the next ones are compared.
    #[test]
    fn an_entry_that_does_not_fit_is_not_recorded_as_sent() {
        let keeps = Keeps::Leased(Arc::new(Leases));
        let preferences = Preferences { keeps, ..Preferences::default() };
        let state = State::new(Files::new(Arc::new(Silent)), preferences);
        let stream = Stream::new(1_000);
        let attr_of = |number, size, changed| {
            let ctime = Time { seconds: changed, nanos: 0 };
            Attr { size, ctime, ..Attr::empty(InodeId::from_raw(number), FileKind::Regular) }
        };
        state.open_pages(&attr_of(300, 0, 1)).unwrap();
        let sample = state.sample(DIR);
        let guard = state.reply_guard();
        let offsets = &stream.offsets;
        let site = 0;
        let copier =
            Copier { state: &state, guard: &guard, offsets, sample, attributes: true, site };
        let mut entries = [100, 300].map(file);
        entries[1].entry.as_mut().unwrap().attr = attr_of(300, 5, 2);
        let mut listing = listing::Listing::of_entries(200);
        assert_eq!(copier.fill(&mut listing, &entries), (1, true));
        assert!(state.page_versions.compare(&attr_of(300, 0, 3), None));
    }

    /// Names beyond the limit are listed without attributes, so that they take no memory.
    #[test]
    fn a_long_listing_has_attributes_of_its_first_names_only() {
        let files = Files::new(Arc::new(Silent));
        let state = State::new(files, Preferences::default());
        let stream = Stream::new(1_000);
        for first in (100..5_100).step_by(100) {
            let attributes = stream.wants_attributes();
            let sample = state.sample(DIR);
            let guard = state.reply_guard();
            let offsets = &stream.offsets;
            let site = 0;
            let copier = Copier { state: &state, guard: &guard, offsets, sample, attributes, site };
            let entries: Vec<_> = (first..first + 100).map(file).collect();
            let mut listing = listing::Listing::of_entries(32 << 10);
            let (fitted, full) = copier.fill(&mut listing, &entries);
            assert_eq!((fitted, full), (100, false));
            stream.given.fetch_add(u64::from(fitted), Ordering::Relaxed);
        }
        assert_eq!(state.inodes.count(), 1_000);
        let is_known = |number| state.inodes.handle(InodeId::from_raw(number)).is_under_a_name();
        assert!(is_known(1_099) && !is_known(1_100));
    }
}
