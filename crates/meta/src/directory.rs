//! Directories in memory: the counts and times that their rows do not have between two group
//! commits, and the filters of their names.
//!
//! A create writes one row: the count of the directory is not written with it. The first change
//! after a group commit adds a row with the `dirty` flag to its own batch; the group commit writes
//! the count without the flag. After an unclean stop a worker counts each directory whose row has
//! the flag.

use pelago_store::rows::Partition;
use pelago_wire::id_map::IdMap;
use pelago_wire::{InodeId, NameHash, Time};

use crate::name_filter::Filter;

#[cfg(test)]
pub(crate) use changes::RECORDED_CHANGES;
pub(crate) use changes::{Changes, NameCount};

mod changes;

/// The most directories in memory. Beyond that, directories with nothing to write are forgotten.
pub(crate) const DIRECTORIES: usize = 1 << 16;

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The number of names.
    pub(crate) names: u64,
    /// The number of directories among them.
    pub(crate) directories: u64,
    /// Last change of its names.
    pub(crate) mtime: Time,
    /// As `mtime`, but never set back.
    pub(crate) ctime: Time,
    /// The parent directory; `None` until it is needed.
    pub(crate) parent: Option<InodeId>,
    /// True if the row in the table has the `dirty` flag.
    pub(crate) is_dirty_in_table: bool,
    /// True if the count was lost in an unclean stop, and a worker must count again.
    pub(crate) needs_recount: bool,
    /// The filter of its names.
    pub(crate) filter: FilterState,
}

/// The filter of a directory, if it is known.
#[derive(Debug)]
pub(crate) enum FilterState {
    /// There is none: each lookup of a name reads the engine.
    Absent,
    /// A worker scans the names of a snapshot; these are the changes since the snapshot.
    Building(Changes),
    /// The filter has all names.
    Ready(Filter),
}

impl Directory {
    /// Returns a directory that was just made.
    #[must_use]
    pub(crate) fn empty(now: Time, parent: InodeId) -> Self {
        Self {
            names: 0,
            directories: 0,
            mtime: now,
            ctime: now,
            parent: Some(parent),
            is_dirty_in_table: false,
            needs_recount: false,
            filter: FilterState::Ready(Filter::new()),
        }
    }

    /// Returns a directory with the values of its row. A directory without a row never had a name;
    /// its times are `made`. `started`: the start of this run of the server.
    #[must_use]
    pub(crate) fn stored(row: Option<&Partition>, made: Time, started: Time) -> Self {
        let Some(row) = row else {
            let filter = FilterState::Absent;
            return Self { parent: None, filter, ..Self::empty(made, InodeId::ROOT) };
        };
        let mut directory = Self {
            names: row.names,
            directories: row.directories,
            mtime: row.mtime,
            ctime: row.ctime,
            parent: None,
            is_dirty_in_table: row.dirty,
            needs_recount: row.dirty,
            filter: FilterState::Absent,
        };
        if row.dirty {
            // Times of its last changes were not written. They are no later than the start.
            directory.mtime = directory.mtime.max(started);
            directory.ctime = directory.ctime.max(started);
        }
        directory
    }

    /// Returns the row.
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

    /// Returns true if no name has this hash; false also if that is not known.
    #[must_use]
    pub(crate) fn lacks(&self, hash: NameHash) -> bool {
        matches!(&self.filter, FilterState::Ready(filter) if !filter.may_contain(hash))
    }

    /// Returns true if the directory certainly has no names. The count proves nothing: it may be
    /// wrong after a crash.
    #[must_use]
    pub(crate) fn is_surely_empty(&self) -> bool {
        matches!(&self.filter, FilterState::Ready(filter) if filter.is_empty())
    }

    /// Counts a name that was added.
    pub(crate) fn name_added(&mut self, hash: NameHash, is_directory: bool, now: Time) {
        self.names += 1;
        self.directories += u64::from(is_directory);
        self.touch(now);
        match &mut self.filter {
            FilterState::Absent => {}
            FilterState::Building(changes) => changes.name_added(hash, is_directory),
            FilterState::Ready(filter) => filter.insert(hash),
        }
    }

    /// Counts a name that was removed.
    pub(crate) fn name_removed(&mut self, hash: NameHash, is_directory: bool, now: Time) {
        // Below zero only if the count was lost.
        self.names = self.names.saturating_sub(1);
        self.directories = self.directories.saturating_sub(u64::from(is_directory));
        self.directories = self.directories.min(self.names);
        self.touch(now);
        match &mut self.filter {
            FilterState::Absent => {}
            FilterState::Building(changes) => changes.name_removed(hash, is_directory),
            FilterState::Ready(filter) => {
                let was_there = filter.remove(hash);
                assert!(was_there, "I-7: a filter denied a name that was just removed");
            }
        }
    }

    /// Sets the number of names, which an unclean stop had lost.
    pub(crate) fn set_recounted(&mut self, count: NameCount) {
        self.names = count.names;
        self.directories = count.directories;
        self.needs_recount = false;
    }

    /// Sets the times after a change of the names.
    pub(crate) fn touch(&mut self, now: Time) {
        // Operations may be applied in another order than they read the clock. So an `mtime` after
        // the last change was set by a caller.
        let was_set = self.mtime > self.ctime;
        self.mtime = if was_set { now } else { self.mtime.max(now) };
        self.ctime = self.ctime.next().max(now);
    }
}

/// The recently used directories.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    known: IdMap<InodeId, Directory>,
    /// The directories whose count differs from the table's.
    changed: Vec<InodeId>,
    /// The number of directories after the last [`Directories::make_room`].
    left: usize,
}

impl Directories {
    /// Returns a directory, if it is in memory.
    pub(crate) fn get(&self, ino: InodeId) -> Option<&Directory> {
        self.known.get(&ino)
    }

    /// Returns a mutable reference to a directory, if it is in memory.
    pub(crate) fn get_mut(&mut self, ino: InodeId) -> Option<&mut Directory> {
        self.known.get_mut(&ino)
    }

    /// Adds a directory.
    pub(crate) fn insert(&mut self, ino: InodeId, directory: Directory) {
        self.known.insert(ino, directory);
    }

    /// Forgets a directory that was removed.
    pub(crate) fn remove(&mut self, ino: InodeId) {
        self.known.remove(&ino);
    }

    /// Records that the row of a directory has the `dirty` flag, or must be written without it: the
    /// next group commit writes its count.
    pub(crate) fn flagged_dirty(&mut self, ino: InodeId) {
        if let Some(directory) = self.known.get_mut(&ino) {
            directory.is_dirty_in_table = true;
            self.changed.push(ino);
        }
    }

    /// Returns the directories whose count must be written. Some of them may be removed.
    #[must_use]
    pub(crate) fn changed(&self) -> &[InodeId] {
        &self.changed
    }

    /// Records that all counts were written.
    pub(crate) fn clear_changed(&mut self) {
        self.changed.clear();
    }

    /// Returns the bytes of memory that the filters take.
    #[must_use]
    pub(crate) fn filter_bytes(&self) -> u64 {
        let bytes = |directory: &Directory| match &directory.filter {
            FilterState::Ready(filter) => filter.bytes() as u64,
            _ => 0,
        };
        self.known.values().map(bytes).sum()
    }

    /// Returns all directories in memory.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (InodeId, &Directory)> {
        self.known.iter().map(|(ino, directory)| (*ino, directory))
    }

    /// Forgets all directories, after the table was opened again.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.changed.clear();
    }

    /// Forgets, if there are too many directories, half of those that have nothing to write and are
    /// not being scanned. Called between two operations.
    #[inline]
    pub(crate) fn make_room(&mut self) {
        // If nearly all must stay, the next attempt waits for more directories: not each insertion
        // pays for one.
        if self.known.len() < DIRECTORIES.max(self.left + DIRECTORIES / 4) {
            return;
        }
        let mut keep = false;
        self.known.retain(|_, directory| {
            let is_scanned = matches!(directory.filter, FilterState::Building(_));
            keep = !keep;
            directory.is_dirty_in_table || is_scanned || keep
        });
        self.left = self.known.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operation that adds directories still finds those that it read before; between two
    /// operations only those are forgotten that have nothing to write.
    #[test]
    fn directories_are_forgotten_between_operations_and_never_if_dirty() {
        let mut directories = Directories::default();
        let made = |number| InodeId::from_raw(number);
        let all = DIRECTORIES as u64 + 2;
        for number in 0..all {
            directories.insert(made(number), Directory::empty(Time::default(), InodeId::ROOT));
            directories.flagged_dirty(made(number));
        }
        directories.make_room();
        assert!((0..all).all(|number| directories.get(made(number)).is_some()));
        for number in 0..all {
            directories.get_mut(made(number)).unwrap().is_dirty_in_table = number % 8 == 0;
        }
        directories.left = 0;
        directories.make_room();
        let known = (0..all).filter(|number| directories.get(made(*number)).is_some());
        assert_eq!(known.clone().filter(|number| number % 8 == 0).count() as u64, all.div_ceil(8));
        assert!(known.count() < DIRECTORIES * 3 / 4);
    }
}
