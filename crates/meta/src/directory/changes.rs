//! What happens to the names of a directory while they are scanned.

use pelago_wire::NameHash;

use crate::name_filter::Filter;

/// Changes that are kept one by one: 4 MiB.
pub(crate) const CHANGES: usize = 1 << 18;

/// What came and went since a scan began. How many is always known; which names only where there
/// were no more than [`CHANGES`].
#[derive(Debug, Default)]
pub(crate) struct Changes {
    came: Count,
    went: Count,
    /// In order; empty where there were too many.
    each: Vec<Change>,
    too_many: bool,
}

/// How many names.
#[derive(Debug, Default)]
struct Count {
    names: u64,
    /// Of those, directories.
    directories: u64,
}

#[derive(Debug)]
struct Change {
    hash: NameHash,
    /// Else it went.
    came: bool,
}

impl Changes {
    /// A name with this hash came.
    pub(crate) fn came(&mut self, hash: NameHash, is_directory: bool) {
        self.came.add(is_directory);
        self.keep(Change { hash, came: true });
    }

    /// A name with this hash went.
    pub(crate) fn went(&mut self, hash: NameHash, is_directory: bool) {
        self.went.add(is_directory);
        self.keep(Change { hash, came: false });
    }

    /// Whether there were more than are kept.
    #[must_use]
    pub(crate) const fn were_too_many(&self) -> bool {
        self.too_many
    }

    /// How many names, and directories among them, there are now where there were so many.
    #[must_use]
    pub(crate) const fn count_on(&self, (names, directories): (u64, u64)) -> (u64, u64) {
        let names = (names + self.came.names).saturating_sub(self.went.names);
        let directories = directories + self.came.directories;
        (names, directories.saturating_sub(self.went.directories))
    }

    /// The filter as it is now; `None` where nobody knows which names came and went.
    #[must_use]
    pub(crate) fn filter_on(&self, mut filter: Filter) -> Option<Filter> {
        if self.too_many {
            return None;
        }
        for change in &self.each {
            match change.came {
                true => filter.insert(change.hash),
                false => filter.remove(change.hash),
            }
        }
        Some(filter)
    }

    fn keep(&mut self, change: Change) {
        self.too_many |= self.each.len() == CHANGES;
        match self.too_many {
            false => self.each.push(change),
            true => self.each = Vec::new(),
        }
    }
}

impl Count {
    fn add(&mut self, is_directory: bool) {
        self.names += 1;
        self.directories += u64::from(is_directory);
    }
}
