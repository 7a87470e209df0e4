//! What the search index has not been told yet: the files that changed since its last commit.
//!
//! The feed is off until an index exists; then it costs an operation a look at an option. It holds
//! handles as the operations leave them, so that a search can look at these files itself and is
//! exact although the index is behind.

use std::sync::Arc;

use pelago_store::key;
use pelago_store::report::table_failed;
use pelago_store::rows::{IndexCommits, Row, Stamp};
use pelago_wire::id_map::IdMap;
use pelago_wire::{Error, Handle, InodeId, limits};

use super::Shard;
use super::locked::Locked;

/// Files that changed.
#[derive(Debug, Default)]
pub(super) struct Feed {
    /// Those that the index was not given.
    fresh: IdMap<InodeId, Handle>,
    /// Those that it was given, and that its last commit does not have; later ones are right. They
    /// change hands as they are: what reads them has the lock of the shard for a moment only.
    given: Vec<Files>,
    /// There were more than fit since the index was given some.
    has_more: bool,
    /// There were more than fit before.
    given_has_more: bool,
}

/// Files that changed in a time.
type Files = Arc<IdMap<InodeId, Handle>>;

/// What the index is given.
#[derive(Debug)]
pub struct FedChanges {
    /// The files, where they are now, or where they were last.
    pub files: Vec<Handle>,
    /// The newest batch that is in it.
    pub stamp: Stamp,
    /// There were more files than fit: whatever changed since the last commit may be missing.
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
    /// Begins to record the files that change, and forgets what was recorded. Returns the newest
    /// batch before that.
    pub fn begin_feed(&self) -> Stamp {
        let mut locked = self.lock();
        let next = locked.next_stamp();
        locked.state.feed = Some(Feed::default());
        Stamp { sequence: next.sequence - 1, ..next }
    }

    /// Returns the last commits of the indexes, as the rows have them; none if there were none, or
    /// if the row is damaged: then the indexes are built again.
    ///
    /// # Errors
    /// If the table fails.
    pub fn index_commits(&self) -> Result<IndexCommits, Error> {
        let value = self.table.get(&key::index_commits(self.id.shard));
        let value = value.map_err(|error| table_failed("reading", &error))?;
        let decoded = value.and_then(|value| IndexCommits::decode(&value).ok());
        Ok(decoded.map(|(_, commits)| commits).unwrap_or_default())
    }

    /// Writes that these are the last commits of the indexes. It must be safe before the commits
    /// are made.
    ///
    /// # Errors
    /// If the table fails.
    pub fn set_index_commits(&self, commits: &IndexCommits) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        txn.put(key::index_commits(self.id.shard), commits);
        txn.commit()?;
        Ok(())
    }

    /// Forgets what was recorded, and records no more.
    pub fn end_feed(&self) {
        self.lock().state.feed = None;
    }

    /// Returns what the index was not given since its last commit, together with what it was given
    /// without a commit.
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

    /// The index has committed what it was given. If there was more, it has read all rows that are
    /// newer than its commit before.
    pub fn committed_fed(&self) {
        let mut locked = self.lock();
        let Some(feed) = &mut locked.state.feed else { return };
        let given = std::mem::take(&mut feed.given);
        feed.given_has_more = false;
        drop(locked);
        drop(given);
    }

    /// Adds a file that the index knows wrongly, unless a change of it is known: the handle of that
    /// is newer.
    pub fn feed(&self, handle: Handle) {
        if let Some(feed) = &mut self.lock().state.feed
            && !feed.fresh.contains_key(&handle.ino)
            && !feed.given.iter().any(|given| given.contains_key(&handle.ino))
        {
            feed.add(handle);
        }
    }

    /// Calls `each` with the files that the last commit of the index does not have as they are now,
    /// and `unplaced` with those of which memory does not know where they are. Returns `false` if
    /// it does not know all of them.
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
