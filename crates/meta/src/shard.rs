//! A shard: the single writer of a set of directories and inodes.
//!
//! A shard is a struct, not a thread. Each operation runs on its caller's thread under one lock: it
//! reads the rows it needs, decides, writes one batch, and only then changes memory. An operation
//! that fails has changed nothing, in memory or in the table.
//!
//! `interface` has the methods of [`Shard`]. Most lock, run a function of the file that is named
//! after the operation, and commit. Those functions see the shard through `Locked` (the rows and
//! caches, under the lock) or `Txn` (the same, with the batch that the operation collects), and
//! never take the lock themselves.
//!
//! Memory beside the table:
//! - `RowCache`: recently used rows, equal to the table's;
//! - `Directories`: counts and times of directories between two group commits;
//! - `OpenInodes`: the open inodes, and the size and times of open files that are not committed
//!   yet. They are merged into every attribute that leaves the shard, under the lock that a commit
//!   takes too, so that no caller sees an older state of a file. It has a lock of its own: a write
//!   into an open file and its release wait for no operation;
//! - `RemovedFiles`: recently removed files, which can be brought back for a while.
//!
//! Lock order: an open file, then the `writing` rows of `data`, then the movers of directories,
//! then a shard's state, then one leaf (open inodes, removed files, durability, tables
//! of opens).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use pelago_store::sync::{Mutex, RwLock};

use pelago_store::hash::NameHasher;
use pelago_store::table::SharedTable;
use pelago_wire::{InodeId, ShardId, Time};

use crate::directory::Directories;
use crate::durability::Durability;
use crate::place_hints::PlaceHints;
use crate::reply_cache::StoredReplies;
use crate::row_cache::RowCache;
use crate::unsafe_changes::UnsafeChanges;
use crate::writeback_errors::Changed;

pub use acl::SetXattr;
pub use changed_rows::{ChangedRows, RowCut, RowRisk};
pub use feed::FedChanges;
pub use file_bytes::{
    Appended, BytesChange, BytesPlace, InlineBytes, WritingRow, without_privileges,
};
pub use intents::NameThere;
pub use last_change::LastChange;
pub use list::Page;
pub use new_inode::NewInode;
pub use open_inodes::{AttrSource, LiveAttrs};
pub use placement::{Ancestors, Placement};
pub use read_times::{ATIME_INTERVAL_SECONDS, atime_is_due};
pub use remove::Removed;
pub use rename::{Move, Renamed};
pub use revocations::RevokedCredential;
pub use scan::{Scan, Scanned};
pub use sites::{Inherited, Stepped};
pub use stays::FreedBytes;

use feed::Feed;
use inode_ids::InodeIds;
use open_inodes::OpenInodes;
use removed::RemovedFiles;

mod acl;
mod ancestry;
mod bring_back;
mod changed_rows;
mod climb;
mod create;
mod feed;
mod file_bytes;
mod inode_ids;
mod intents;
mod interface;
mod last_change;
mod link;
mod list;
#[cfg(test)]
mod lock_cost;
mod locked;
mod lookup;
mod new_inode;
mod open_inodes;
mod orphans;
mod other_writer;
mod placement;
mod read_times;
mod remove;
mod removed;
mod rename;
mod replies;
mod revocations;
mod scan;
mod sessions;
mod set_attr;
mod sites;
mod stays;
pub(crate) mod stored;
mod tag_changes;
mod tag_scan;
mod tags;
mod txn;
mod upkeep;
mod writing_rows;
mod xattr;

#[cfg(test)]
mod tests;

/// The parts of a shard.
pub struct Parts {
    /// Its number, and the number of its site.
    pub id: ShardId,
    /// Its rows.
    pub table: SharedTable,
    /// The volume's hash of names.
    pub hasher: NameHasher,
    /// Notified of each batch that is applied.
    pub durability: Arc<Durability>,
    /// The epoch of this run: one more than that of the newest stamp in the table.
    pub epoch: u32,
    /// The first counter that no inode was given.
    pub next_id: u64,
    /// Bytes of memory for cached rows.
    pub cache_bytes: usize,
    /// The start of this run.
    pub started: Time,
}

/// The single writer of a set of directories and inodes.
pub struct Shard {
    id: ShardId,
    table: SharedTable,
    hasher: NameHasher,
    durability: Arc<Durability>,
    /// Changes only under the lock of the state.
    epoch: AtomicU32,
    started: Time,
    state: Mutex<State>,
    open_inodes: OpenInodes,
    removed: RemovedFiles,
    /// Locked for writing by the rename of a directory whose long climb was outdated too often; for
    /// reading, and without waiting under the lock of the state, by every other rename that moves a
    /// directory to another parent.
    movers: RwLock<()>,
    /// True if any file may have extended attributes. Never cleared.
    has_xattrs: AtomicBool,
    /// True if there is a row for each tag, and no other row of a tag.
    tags_are_complete: AtomicBool,
    /// True if the volume has several sites.
    has_sites: AtomicBool,
    /// True if a directory was closed in this run. Never cleared.
    has_closed: AtomicBool,
    /// True if there are sessions of other processes.
    has_sessions: AtomicBool,
    /// The names under which searches found files.
    place_hints: Arc<PlaceHints>,
    /// Nodes of other sites whose bytes may not be needed any more. A leaf lock.
    freed: Mutex<Vec<FreedBytes>>,
}

/// The state that the lock of a shard guards.
struct State {
    /// The sequence of the newest batch; 0 before the first of this run.
    sequence: u64,
    ids: InodeIds,
    rows: RowCache,
    directories: Directories,
    /// Own directories that are being removed, and whose names are at another site.
    closed: HashSet<InodeId>,
    /// Counts moves of directories to another parent, and the times at which the cached rows were
    /// forgotten. While it stays the same, no directory has another parent.
    directory_moves: u64,
    /// Inodes whose rows changed since the last group commit began.
    changed: Changed,
    /// The changes that the search index does not have yet; `None` while there is no index.
    feed: Option<Feed>,
    /// The changed rows that the mirror does not have; `None` while there is no mirror.
    changed_rows: Option<ChangedRows>,
    /// The sessions of other processes, and the replies that are stored for them.
    replies: StoredReplies,
    /// The sessions of the changes that are not safe, while there are such sessions.
    unsafe_changes: UnsafeChanges,
    /// The number of times that the lock was taken.
    #[cfg(test)]
    locked_times: u64,
}

impl State {
    /// Forgets the cached rows and directories.
    fn forget_rows(&mut self) {
        self.rows.clear();
        self.directories.clear();
        self.directory_moves += 1;
    }
}

impl Shard {
    /// Returns a shard over a table that was recovered.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let state = State {
            sequence: 0,
            ids: InodeIds::new(parts.id, parts.next_id),
            rows: RowCache::new(parts.cache_bytes),
            directories: Directories::default(),
            closed: HashSet::new(),
            directory_moves: 0,
            changed: Changed::default(),
            feed: None,
            changed_rows: None,
            replies: StoredReplies::default(),
            unsafe_changes: UnsafeChanges::default(),
            #[cfg(test)]
            locked_times: 0,
        };
        Self {
            id: parts.id,
            has_xattrs: AtomicBool::new(xattr::are_in(&*parts.table)),
            #[cfg(test)]
            table: lock_cost::counted(parts.table),
            #[cfg(not(test))]
            table: parts.table,
            hasher: parts.hasher,
            durability: parts.durability,
            epoch: AtomicU32::new(parts.epoch),
            started: parts.started,
            state: Mutex::new(state),
            open_inodes: OpenInodes::default(),
            removed: RemovedFiles::default(),
            movers: RwLock::default(),
            tags_are_complete: AtomicBool::new(false),
            has_sites: AtomicBool::new(parts.id.site != 0),
            has_closed: AtomicBool::new(false),
            has_sessions: AtomicBool::new(false),
            place_hints: Arc::default(),
            freed: Mutex::default(),
        }
    }
}
