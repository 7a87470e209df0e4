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
//! each of them that it returned ([`RankedOffsets`]), and tells it to the server, which continues
//! exactly there, without counting.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use pelago_fuse::listing::Dirent;
use pelago_fuse::{FileType, Reply, listing};
use pelago_wire::{Context, Cookie, DirEntry, Error, Handle, InodeId, Name};

use crate::attr;
use crate::attr_ttl::Epoch;
use crate::dir_streams::{RankedOffsets, Stream};
use crate::state::State;
use pelago_client::Listing;

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
        let named = Dirent {
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
    pub(crate) epoch: Epoch,
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
        let epoch = self.epoch;
        let (state, places) = (&self.state, &self.stream.places);
        let filling = Filling { state, places, epoch, attributes };
        let (fitted, full) = filling.fill(&mut self.sink.listing, &listing.entries);
        self.stream.learn(asked, fitted, full);
        let given = self.stream.given.fetch_add(u64::from(fitted), Ordering::Relaxed);
        if listing.end && !full {
            self.state.streams.dir_cache.add(self.dir.ino, given + u64::from(fitted));
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
    places: &'a Mutex<RankedOffsets>,
    /// Before the entries were asked for.
    epoch: Epoch,
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
                Added::Vanished => {}
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
            None if self.attributes => return Added::Vanished,
            Some(entry) if self.attributes => {
                let ttl = self.state.attr_ttl.ttl(&entry.attr, self.epoch);
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
    Vanished,
    Full,
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Attr, Bulk, Done, Entry, FileKind, NameHash, Request, Service};

    use super::*;
    use crate::state::Preferences;
    use pelago_client::ServiceFiles;

    const DIR: InodeId = InodeId::from_raw(7);

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
        let attr = Attr::empty(ino, FileKind::Regular);
        let handle = Handle::at(ino, DIR, NameHash(number));
        let name = Name::new(number.to_string().as_bytes()).unwrap();
        let entry = Some(Entry { handle, attr });
        DirEntry { name, ino, kind: FileKind::Regular, cookie: Cookie(number), entry }
    }

    /// Names behind the limit cost neither the kernel nor us anything, and come all the same.
    #[test]
    fn a_long_listing_brings_attributes_of_its_first_names_alone() {
        let files = ServiceFiles::new(Arc::new(Silent));
        let state = State::new(Arc::new(files), Preferences::default());
        let stream = Stream::new(1_000);
        for first in (100..5_100).step_by(100) {
            let attributes = stream.brings_attributes();
            let epoch = state.attr_ttl.epoch();
            let places = &stream.places;
            let filling = Filling { state: &state, places, epoch, attributes };
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
