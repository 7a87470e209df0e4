//! The feed of the search index: the files that changed since its last commit.
//!
//! The feed is off until an index exists; an operation then pays for the check of an option. It has
//! the handles as the operations leave them, so that a search can examine these files itself and is
//! exact although the index is behind.

use std::sync::Arc;

use pelago_store::key;
use pelago_store::report::table_failed;
use pelago_store::rows::{IndexCommits, Row, Stamp};
use pelago_wire::id_map::IdMap;
use pelago_wire::{Error, Handle, InodeId, limits};

use super::Shard;
use super::locked::Locked;

/// The changed files.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// The files that the index was not given.
    fresh: IdMap<InodeId, Handle>,
    /// The files that the index was given and that its last commit does not have; of two entries
    /// the later is right. The maps are shared and never changed, so that a reader holds the lock
    /// of the shard for a moment only.
    given: Vec<Files>,
    /// True if there were more files than the limit since the index was given files.
    has_more: bool,
    /// True if there were more files than the limit before that.
    given_has_more: bool,
}

/// The files that changed in a period.
type Files = Arc<IdMap<InodeId, Handle>>;

/// The changes that the index is given.
#[derive(Debug)]
pub struct FedChanges {
    /// The handles of the files, with their present or last locations.
    pub files: Vec<Handle>,
    /// The newest batch whose changes are included.
    pub stamp: Stamp,
    /// True if there were more files than the limit: any file that changed since the last commit
    /// may be missing.
    pub has_more: bool,
}

impl Feed {
    /// Adds a file.
    pub(super) fn add(&mut self, handle: Handle) {
        let is_known = self.fresh.contains_key(&handle.ino);
        if is_known || self.fresh.len() < limits::FED_FILES {
            self.fresh.insert(handle.ino, handle);
        } else {
            self.has_more = true;
        }
    }
}

impl Locked<'_> {
    /// Adds a file that a batch has changed.
    pub(super) fn feed(&mut self, handle: Handle) {
        if let Some(feed) = &mut self.state.feed {
            feed.add(handle);
        }
    }
}

impl Shard {
    /// Begins to record the files that change, and forgets the recorded ones. Returns the newest
    /// batch before that.
    pub fn begin_feed(&self) -> Stamp {
        let mut locked = self.lock();
        let next = locked.next_stamp();
        locked.state.feed = Some(Feed::default());
        Stamp { sequence: next.sequence - 1, ..next }
    }

    /// Returns the last commits of the indexes, as the row has them; the default if there is no row
    /// or if it is damaged: then the indexes are built again.
    ///
    /// # Errors
    /// If the table fails.
    pub fn index_commits(&self) -> Result<IndexCommits, Error> {
        let value = self.table.get(&key::index_commits(self.id.shard));
        let value = value.map_err(|error| table_failed("reading", &error))?;
        let decoded = value.and_then(|value| IndexCommits::decode(&value).ok());
        Ok(decoded.map(|(_, commits)| commits).unwrap_or_default())
    }

    /// Writes the last commits of the indexes. The row must be safe before the commits are made.
    ///
    /// # Errors
    /// If the table fails.
    pub fn set_index_commits(&self, commits: &IndexCommits) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        txn.put(key::index_commits(self.id.shard), commits);
        txn.commit()?;
        Ok(())
    }

    /// Ends the recording, and forgets the recorded files.
    pub fn end_feed(&self) {
        self.lock().state.feed = None;
    }

    /// Returns the files that changed since the last commit of the index, also those that it was
    /// given before without a commit.
    pub fn take_fed(&self) -> FedChanges {
        let mut locked = self.lock();
        let next = locked.next_stamp();
        let stamp = Stamp { sequence: next.sequence - 1, ..next };
        let Some(feed) = &mut locked.state.feed else {
            return FedChanges { files: Vec::new(), stamp, has_more: false };
        };
        if !feed.fresh.is_empty() {
            let fresh = std::mem::take(&mut feed.fresh);
            feed.given.push(Arc::new(fresh));
        }
        feed.given_has_more |= std::mem::take(&mut feed.has_more);
        let given = feed.given.clone();
        let has_more = feed.given_has_more;
        drop(locked);
        let mut files: IdMap<InodeId, Handle> = IdMap::default();
        given.iter().for_each(|given| files.extend(given.iter().map(|(ino, file)| (*ino, *file))));
        FedChanges { files: files.into_values().collect(), stamp, has_more }
    }

    /// Records that the index has committed the files that it was given. If there were more, it has
    /// read all rows that are newer than its previous commit.
    pub fn committed_fed(&self) {
        let mut locked = self.lock();
        let Some(feed) = &mut locked.state.feed else { return };
        let given = std::mem::take(&mut feed.given);
        feed.given_has_more = false;
        drop(locked);
        drop(given);
    }

    /// Adds a file whose entry in the index is wrong, unless a change of the file is recorded: the
    /// handle of the change is newer.
    pub fn feed(&self, handle: Handle) {
        if let Some(feed) = &mut self.lock().state.feed
            && !feed.fresh.contains_key(&handle.ino)
            && !feed.given.iter().any(|given| given.contains_key(&handle.ino))
        {
            feed.add(handle);
        }
    }

    /// Calls `each` with the files that changed since the last commit of the index, and `unplaced`
    /// with those whose location is not in memory. Returns false if some of these files are not
    /// recorded.
    pub fn visit_fed(
        &self,
        mut each: impl FnMut(Handle),
        mut unplaced: impl FnMut(InodeId),
    ) -> bool {
        let locked = self.lock();
        // Their sizes and times are in memory.
        for ino in self.open_inodes.uncommitted() {
            match locked.state.rows.node(ino) {
                Some(node) => each(node.handle()),
                None => unplaced(ino),
            }
        }
        let Some(feed) = &locked.state.feed else { return false };
        let given = feed.given.clone();
        let fresh = feed.fresh.clone();
        let has_all = !feed.has_more && !feed.given_has_more;
        drop(locked);
        // The newest last.
        given.iter().flat_map(|given| given.values()).chain(fresh.values()).copied().for_each(each);
        has_all
    }
}
