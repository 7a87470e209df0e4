//! Changes of a directory's names during a scan.

use pelago_wire::NameHash;

use crate::name_filter::Filter;

/// The most changes that are recorded one by one: 4 MiB.
pub(crate) const RECORDED_CHANGES: usize = 1 << 18;

/// The names that were added and removed since a scan began: always their numbers, and each change
/// in order up to [`RECORDED_CHANGES`].
#[derive(Debug, Default)]
pub(crate) struct Changes {
    added: NameCount,
    removed: NameCount,
    /// In order; empty if there were too many.
    each: Vec<Change>,
    too_many: bool,
}

/// The number of names of a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct NameCount {
    /// All names.
    pub(crate) names: u64,
    /// The directories among them.
    pub(crate) directories: u64,
}

#[derive(Debug)]
struct Change {
    hash: NameHash,
    /// True if the name was added, false if it was removed.
    is_added: bool,
}

impl Changes {
    /// Records a name that was added.
    pub(crate) fn name_added(&mut self, hash: NameHash, is_directory: bool) {
        self.added.add(is_directory);
        self.record(Change { hash, is_added: true });
    }

    /// Records a name that was removed.
    pub(crate) fn name_removed(&mut self, hash: NameHash, is_directory: bool) {
        self.removed.add(is_directory);
        self.record(Change { hash, is_added: false });
    }

    /// Returns whether there were more changes than are recorded.
    #[must_use]
    pub(crate) const fn were_too_many(&self) -> bool {
        self.too_many
    }

    /// Returns the number of names now, given that of the start of the scan.
    #[must_use]
    pub(crate) const fn count_on(&self, start: NameCount) -> NameCount {
        let names = start.names + self.added.names;
        let directories = start.directories + self.added.directories;
        NameCount {
            names: names.saturating_sub(self.removed.names),
            directories: directories.saturating_sub(self.removed.directories),
        }
    }

    /// Returns the filter now, given that of the start of the scan; `None` if not all changes were
    /// recorded.
    #[must_use]
    pub(crate) fn filter_on(&self, mut filter: Filter) -> Option<Filter> {
        if self.too_many {
            return None;
        }
        for change in &self.each {
            match change.is_added {
                true => filter.insert(change.hash),
                false => _ = filter.remove(change.hash),
            }
        }
        Some(filter)
    }

    fn record(&mut self, change: Change) {
        self.too_many |= self.each.len() == RECORDED_CHANGES;
        match self.too_many {
            false => self.each.push(change),
            true => self.each = Vec::new(),
        }
    }
}

impl NameCount {
    fn add(&mut self, is_directory: bool) {
        self.names += 1;
        self.directories += u64::from(is_directory);
    }
}
