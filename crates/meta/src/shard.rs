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
//! - `RowCache`: rows used lately, equal to the table's;
//! - `Directories`: counts and times of directories between two group commits;
//! - `OpenInodes`: which inodes are open, and the size and times that open files have before they
//!   are committed. Every attribute that leaves the shard has them merged in, under the same lock
//!   that a commit takes, so that no caller sees the past of a file. It has a lock of its own: a
//!   write into an open file and its release wait for no operation;
//! - `RemovedFiles`: files that were removed a moment ago, and can be brought back for a while.
//!
//! Lock order: an open file, then the `writing` rows of `data`, then the movers of directories,
//! then a shard's state, then one leaf (open inodes, removed files, durability, tables
//! of opens).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use pelago_store::sync::{Mutex, RwLock};

use pelago_store::hash::NameHasher;
use pelago_store::table::SharedTable;
use pelago_wire::{ShardId, Time};

use crate::directory::Directories;
use crate::durability::Durability;
use crate::place_hints::PlaceHints;
use crate::reply_cache::StoredReplies;
use crate::row_cache::RowCache;
use crate::unsafe_changes::UnsafeChanges;
use crate::writeback_errors::Changed;

pub use acl::SetXattr;
pub use below::Below;
pub use changed_rows::{ChangedRows, RowCut, RowRisk};
pub use feed::FedChanges;
pub use file_bytes::{Appended, BytesChange, InlineBytes, WritingRow};
pub use list::Page;
pub use new_inode::NewInode;
pub use open_inodes::{AttrSource, LiveAttrs};
pub use read_times::{ATIME_INTERVAL_SECONDS, atime_is_due};
pub use remove::Removed;
pub use rename::{Move, Renamed};
pub use scan::{Scan, Scanned};
pub use sites::{Inherited, Stepped};

use feed::Feed;
use inode_ids::InodeIds;
use open_inodes::OpenInodes;
use removed::RemovedFiles;

mod acl;
mod below;
mod bring_back;
mod changed_rows;
mod climb;
mod create;
mod feed;
mod file_bytes;
mod inode_ids;
mod interface;
mod link;
mod list;
#[cfg(test)]
mod lock_cost;
mod locked;
mod lookup;
mod new_inode;
mod open_inodes;
mod orphans;
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

/// What a shard is made of.
pub struct Parts {
    /// Its number, and that of its site.
    pub id: ShardId,
    /// Its rows.
    pub table: SharedTable,
    /// The volume's hash of names.
    pub hasher: NameHasher,
    /// Told of each batch that is applied.
    pub durability: Arc<Durability>,
    /// The run of the shard: one more than the newest stamp in the table.
    pub epoch: u32,
    /// The first counter that no inode has had.
    pub next_id: u64,
    /// Bytes of memory for cached rows.
    pub cache_bytes: usize,
    /// When this run began.
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
    /// Locked for writing by a rename of a directory that climbed a long way and was outdated too
    /// often; for reading, and without waiting under the lock of the state, by every other rename
    /// that moves a directory to another one.
    movers: RwLock<()>,
    /// Whether any file may have extended attributes. Never cleared.
    has_xattrs: AtomicBool,
    /// Whether there is a row for each tag, and no other.
    tags_are_complete: AtomicBool,
    /// Whether the volume has several sites.
    has_sites: AtomicBool,
    /// Whether there are sessions of other processes.
    has_sessions: AtomicBool,
    /// Where searches found files.
    place_hints: Arc<PlaceHints>,
}

/// What the lock of a shard guards.
struct State {
    /// The sequence of the newest batch; 0 before the first of this run.
    sequence: u64,
    ids: InodeIds,
    rows: RowCache,
    directories: Directories,
    /// Counts directories that moved to another one, and times that the rows were forgotten. While
    /// it stays the same, so does which directory is below which.
    directory_moves: u64,
    /// Inodes whose rows changed since the last group commit began.
    changed: Changed,
    /// What the search index does not know yet; `None` while there is none.
    feed: Option<Feed>,
    /// The rows that the mirror does not have; `None` while there is no mirror.
    changed_rows: Option<ChangedRows>,
    /// The sessions of other processes, and the replies that are stored for them.
    replies: StoredReplies,
    /// Whose the changes are that are not safe, while there are such sessions.
    unsafe_changes: UnsafeChanges,
    /// How often the lock was taken.
    #[cfg(test)]
    locked_times: u64,
}

impl State {
    /// Forgets what is in memory of the rows.
    fn forget_rows(&mut self) {
        self.rows.clear();
        self.directories.clear();
        self.directory_moves += 1;
    }
}

impl Shard {
    /// Returns a shard over rows that were recovered.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let state = State {
            sequence: 0,
            ids: InodeIds::new(parts.id, parts.next_id),
            rows: RowCache::new(parts.cache_bytes),
            directories: Directories::default(),
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
            has_sessions: AtomicBool::new(false),
            place_hints: Arc::default(),
        }
    }
}
