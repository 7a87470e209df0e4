//! What a server knows of a directory besides its row: count and times, kept in memory between
//! group commits, and the filter of its names.
//!
//! One create costs one row: the count of the directory is not written with it. The first change
//! after a group commit puts a `dirty` mark into its own batch; the group commit writes the
//! count and takes the mark away. A partition found dirty at start is counted again by a worker.

use pelago_store::rows::Partition;
use pelago_wire::{InodeId, NameHash, Time};

use crate::name_filter::Filter;
use pelago_wire::id_map::IdMap;

#[cfg(test)]
pub(crate) use changes::CHANGES;
pub(crate) use changes::Changes;

mod changes;

/// Directories that are remembered; those with nothing to write are forgotten beyond that.
pub(crate) const DIRECTORIES: usize = 1 << 16;

/// One directory.
#[derive(Debug)]
pub(crate) struct Directory {
    /// Names in it.
    pub(crate) names: u64,
    /// Of those, directories.
    pub(crate) directories: u64,
    /// Last change of its names.
    pub(crate) mtime: Time,
    /// As `mtime`, but never set back.
    pub(crate) ctime: Time,
    /// The directory above, once somebody asked.
    pub(crate) parent: Option<InodeId>,
    /// The `dirty` mark is on the medium.
    pub(crate) marked: bool,
    /// The count was lost in an unclean stop and waits for a worker.
    pub(crate) uncounted: bool,
    /// Which names it may have.
    pub(crate) filter: Known,
}

/// How much is known of a directory's names.
#[derive(Debug)]
pub(crate) enum Known {
    /// Nothing: the engine answers.
    Nothing,
    /// A worker scans the names as they were at a snapshot; these came and went since.
    Scanning(Changes),
    /// All.
    All(Filter),
}

impl Directory {
    /// A directory that was just made.
    #[must_use]
    pub(crate) fn empty(now: Time, parent: InodeId) -> Self {
        Self {
            names: 0,
            directories: 0,
            mtime: now,
            ctime: now,
            parent: Some(parent),
            marked: false,
            uncounted: false,
            filter: Known::All(Filter::new()),
        }
    }

    /// A directory as its partition row says; without one it has no names yet, and `made` is the
    /// time it shows. `started` is when this life of the server began.
    #[must_use]
    pub(crate) fn stored(row: Option<&Partition>, made: Time, started: Time) -> Self {
        let Some(row) = row else {
            let filter = Known::Nothing;
            return Self { parent: None, filter, ..Self::empty(made, InodeId::ROOT) };
        };
        let mut directory = Self {
            names: row.names,
            directories: row.directories,
            mtime: row.mtime,
            ctime: row.ctime,
            parent: None,
            marked: row.dirty,
            uncounted: row.dirty,
            filter: Known::Nothing,
        };
        if row.dirty {
            // Its last changes were not written: no earlier than this may be shown for them.
            directory.mtime = directory.mtime.max(started);
            directory.ctime = directory.ctime.max(started);
        }
        directory
    }

    /// The row that says this.
    #[must_use]
    pub(crate) fn row(&self, dirty: bool) -> Partition {
        Partition {
            names: self.names,
            directories: self.directories,
            mtime: self.mtime,
            ctime: self.ctime,
            dirty,
            ..Partition::default()
        }
    }

    /// Whether a name with this hash is known to be absent.
    #[must_use]
    pub(crate) fn lacks(&self, hash: NameHash) -> bool {
        matches!(&self.filter, Known::All(filter) if !filter.may_contain(hash))
    }

    /// Whether it is known to have no names. Its count would not do: that may be wrong after a
    /// crash.
    #[must_use]
    pub(crate) fn is_surely_empty(&self) -> bool {
        matches!(&self.filter, Known::All(filter) if filter.is_empty())
    }

    /// A name came.
    pub(crate) fn came(&mut self, hash: NameHash, is_directory: bool, now: Time) {
        self.names += 1;
        self.directories += u64::from(is_directory);
        self.touch(now);
        match &mut self.filter {
            Known::Nothing => {}
            Known::Scanning(changes) => changes.came(hash, is_directory),
            Known::All(filter) => filter.insert(hash),
        }
    }

    /// A name went.
    pub(crate) fn went(&mut self, hash: NameHash, is_directory: bool, now: Time) {
        // An uncounted directory may have lost what it counts from.
        self.names = self.names.saturating_sub(1);
        self.directories = self.directories.saturating_sub(u64::from(is_directory));
        self.directories = self.directories.min(self.names);
        self.touch(now);
        match &mut self.filter {
            Known::Nothing => {}
            Known::Scanning(changes) => changes.went(hash, is_directory),
            Known::All(filter) => filter.remove(hash),
        }
    }

    /// Its names changed now.
    pub(crate) fn touch(&mut self, now: Time) {
        // Callers may come in another order than they looked at the clock. Only a time that was set
        // is later than the last change.
        let was_set = self.mtime > self.ctime;
        self.mtime = if was_set { now } else { self.mtime.max(now) };
        self.ctime = self.ctime.next().max(now);
    }
}

/// The directories that were used lately.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    known: IdMap<InodeId, Directory>,
    /// Those whose count differs from what is written.
    changed: Vec<InodeId>,
    /// How many could not be forgotten the last time.
    left: usize,
}

impl Directories {
    /// The directory, where it is known.
    pub(crate) fn get(&self, ino: InodeId) -> Option<&Directory> {
        self.known.get(&ino)
    }

    /// The directory, to change it.
    pub(crate) fn get_mut(&mut self, ino: InodeId) -> Option<&mut Directory> {
        self.known.get_mut(&ino)
    }

    /// The directory is known from now on.
    pub(crate) fn insert(&mut self, ino: InodeId, directory: Directory) {
        self.known.insert(ino, directory);
    }

    /// The directory is gone.
    pub(crate) fn remove(&mut self, ino: InodeId) {
        self.known.remove(&ino);
    }

    /// The mark of this directory was just written: its count is written at the next group commit.
    pub(crate) fn marked(&mut self, ino: InodeId) {
        if let Some(directory) = self.known.get_mut(&ino) {
            directory.marked = true;
            self.changed.push(ino);
        }
    }

    /// Takes the directories whose count is to be written.
    pub(crate) fn take_changed(&mut self) -> Vec<InodeId> {
        std::mem::take(&mut self.changed)
    }

    /// Whether counts are to be written.
    #[must_use]
    pub(crate) fn have_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Bytes that the filters take.
    #[must_use]
    pub(crate) fn filter_bytes(&self) -> u64 {
        let bytes = |directory: &Directory| match &directory.filter {
            Known::All(filter) => filter.bytes() as u64,
            _ => 0,
        };
        self.known.values().map(bytes).sum()
    }

    /// All that are known.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (InodeId, &Directory)> {
        self.known.iter().map(|(ino, directory)| (*ino, directory))
    }

    /// Forgets everything: after the table was opened again.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.changed.clear();
    }

    /// Forgets half of those that have nothing to write and no scan under way, where there are too
    /// many. To be called between two operations.
    pub(crate) fn make_room(&mut self) {
        // Where nearly all are busy it is not tried again for each one that comes.
        if self.known.len() < DIRECTORIES.max(self.left + DIRECTORIES / 4) {
            return;
        }
        let mut keep = false;
        self.known.retain(|_, directory| {
            let busy = directory.marked || matches!(directory.filter, Known::Scanning(_));
            keep = !keep;
            busy || keep
        });
        self.left = self.known.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation that brings directories in finds those that it looked at before; between two
    /// operations only those go that have nothing to write.
    #[test]
    fn room_is_made_between_operations_and_from_what_is_written() {
        let mut directories = Directories::default();
        let made = |number| InodeId::from_raw(number);
        let all = DIRECTORIES as u64 + 2;
        for number in 0..all {
            directories.insert(made(number), Directory::empty(Time::default(), InodeId::ROOT));
            directories.marked(made(number));
        }
        directories.make_room();
        assert!((0..all).all(|number| directories.get(made(number)).is_some()));
        for number in 0..all {
            directories.get_mut(made(number)).unwrap().marked = number % 8 == 0;
        }
        directories.left = 0;
        directories.make_room();
        let known = (0..all).filter(|number| directories.get(made(*number)).is_some());
        assert_eq!(known.clone().filter(|number| number % 8 == 0).count() as u64, all.div_ceil(8));
        assert!(known.count() < DIRECTORIES * 3 / 4);
    }
}
