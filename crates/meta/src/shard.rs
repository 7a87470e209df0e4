//! A shard: the single writer of a set of directories and inodes.
//!
//! A shard is a struct, not a thread. Each operation runs on its caller's thread under one lock: it
//! reads the rows it needs, decides, writes one batch, and only then changes what is kept in
//! memory. An operation that fails has changed nothing, in memory or in the table.
//!
//! What is kept in memory beside the table:
//! - [`RowCache`]: rows used lately, equal to the table's;
//! - [`Directories`]: counts and times of directories between two group commits;
//! - [`OpenInodes`]: which inodes are open, and the size and times that open files have before they
//!   are committed. Every attribute that leaves the shard has them merged in, under the same lock
//!   that a commit takes, so that nobody ever sees a file's past. It is beside the state: whoever
//!   writes into an open file or lets go of one waits for no operation.
//!
//! Lock order: an open file, then the marks, then the movers of directories, then a shard's state,
//! then one leaf (holds, durability, tables of opens).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Mutex, MutexGuard, RwLock};

use pelago_store::hash::NameHasher;
use pelago_store::key;
use pelago_store::report::table_failed;
use pelago_store::rows::{HighWater, Row, Stamp};
use pelago_store::table::{self, Batch, SharedTable};
use pelago_store::volume::{SHARD, SITE};
use pelago_wire::{Error, InodeId, Time};

use crate::directory::Directories;
use crate::durability::Durability;
use crate::row_cache::RowCache;
use crate::writeback_errors::Changed;

pub use acl::SetXattr;
pub use commit::{BytesChange, Inline, Mark};
pub use create::NewNode;
pub use inode_ids::{Ids, Need};
pub use list::Page;
use open_inodes::OpenInodes;
pub use open_inodes::{AttrSource, Live, READ_AGAIN, read_counts};
pub use remove::Removed;
pub use rename::Move;
pub use scan::{Scan, Scanned};

mod acl;
mod attr;
mod climb;
mod commit;
mod create;
mod inode_ids;
mod link;
mod list;
mod lookup;
mod open_inodes;
mod remove;
mod rename;
mod scan;
mod txn;
#[cfg(test)]
mod work;
mod xattr;

#[cfg(test)]
mod tests;

/// The state, for as long as its lock is held.
#[cfg(not(test))]
type Turn<'a> = MutexGuard<'a, State>;
#[cfg(test)]
use work::Turn;

/// How often a caller looks whether another has ended its operation before it sleeps: for 20 to 100
/// microseconds.
const LOOKS: u32 = 2_000;

/// What a shard is made of.
pub struct Parts {
    /// Its rows.
    pub table: SharedTable,
    /// The volume's hash of names.
    pub hasher: NameHasher,
    /// Where it says how far it is.
    pub durability: Arc<Durability>,
    /// Which life of the shard this is: one more than the newest stamp in the table.
    pub epoch: u32,
    /// The first counter that was never given to an inode.
    pub next_id: u64,
    /// Bytes for [`RowCache`].
    pub cache_bytes: usize,
    /// When this life began.
    pub started: Time,
}

/// The single writer of a set of directories and inodes.
pub struct Shard {
    table: SharedTable,
    hasher: NameHasher,
    durability: Arc<Durability>,
    epoch: u32,
    started: Time,
    state: Mutex<State>,
    holds: OpenInodes,
    /// Held to write by a caller who moves a directory a long way up and was too late again and
    /// again, and to read, without waiting under the lock of the state, by all others who move one.
    movers: RwLock<()>,
    /// Whether any file may have extended attributes; once it is set it stays.
    has_xattrs: AtomicBool,
}

struct State {
    sequence: u64,
    ids: Ids,
    rows: RowCache,
    directories: Directories,
    /// Directories that moved to another one, and times that rows were forgotten: as long as this
    /// stays, so does what is above what.
    moves: u64,
    /// Inodes whose rows changed since the last group commit began.
    changed: Changed,
    /// How often somebody had the lock.
    #[cfg(test)]
    turns: u64,
}

impl State {
    fn forget_rows(&mut self) {
        self.rows.clear();
        self.directories.clear();
        self.moves += 1;
    }
}

impl Shard {
    /// A shard over rows that were recovered.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let state = State {
            sequence: 0,
            ids: Ids::new(SITE, SHARD, parts.next_id),
            rows: RowCache::new(parts.cache_bytes),
            directories: Directories::default(),
            moves: 0,
            changed: Changed::default(),
            #[cfg(test)]
            turns: 0,
        };
        Self {
            has_xattrs: AtomicBool::new(xattr::are_in(&*parts.table)),
            #[cfg(test)]
            table: work::counted(parts.table),
            #[cfg(not(test))]
            table: parts.table,
            hasher: parts.hasher,
            durability: parts.durability,
            epoch: parts.epoch,
            started: parts.started,
            state: Mutex::new(state),
            holds: OpenInodes::default(),
            movers: RwLock::default(),
        }
    }

    /// Writes the counts of all directories that changed since the last time, so that the next
    /// [`table::Table::persist`] makes them safe with the changes. Answers the newest batch.
    ///
    /// # Errors
    /// Where the table fails; the counts are then written the next time.
    pub fn write_counts(&self) -> Result<u64, Error> {
        self.put_counts(false)
    }

    /// `last`: no other batch comes that may need the space.
    fn put_counts(&self, last: bool) -> Result<u64, Error> {
        let mut state = self.lock();
        if !state.directories.have_changed() {
            return Ok(state.sequence);
        }
        let stamp = self.stamp(&state);
        let mut batch = Batch::new();
        if last {
            batch.allow_reserve();
        }
        let changed = state.directories.take_changed();
        for ino in &changed {
            let Some(directory) = state.directories.get(*ino) else { continue };
            if !directory.uncounted {
                batch.put(key::partition(*ino, 0), directory.row(false).encode(stamp));
            }
        }
        if let Err(error) = self.write(&mut state, batch) {
            changed.iter().for_each(|ino| state.directories.marked(*ino));
            return Err(error);
        }
        for ino in changed {
            if let Some(directory) = state.directories.get_mut(ino) {
                directory.marked = directory.uncounted;
            }
        }
        Ok(state.sequence)
    }

    /// Writes times of reads and counts, and gives unused numbers back: the last batch of a clean
    /// life.
    ///
    /// # Errors
    /// Where the table fails.
    pub fn finish(&self) -> Result<(), Error> {
        // No promise, as in a group commit.
        if let Err(error) = self.commit_reads() {
            tracing::debug!(%error, "times of reads are not written");
        }
        self.put_counts(true)?;
        let mut state = self.lock();
        let mut batch = Batch::new();
        batch.allow_reserve();
        let mark = HighWater { next: state.ids.next() };
        batch.put(key::high_water(SHARD), mark.encode(self.stamp(&state)));
        self.write(&mut state, batch)?;
        state.ids.gave_back();
        Ok(())
    }

    /// Hands over the inodes whose rows changed since this was called last: the group commit that
    /// begins now makes them safe, or loses them.
    pub fn begin_group_commit(&self) {
        let mut state = self.lock();
        let changed = std::mem::take(&mut state.changed);
        self.durability.writeback_errors.begin(changed);
    }

    /// OpenFiles the table again where it has stopped, forgets what is remembered of its rows, and
    /// trusts no mark that may be lost: what was done and not safe may be gone. Nobody works
    /// between: a row written from what is remembered of lost ones would fit none of the others.
    /// Answers whether what was not safe is gone.
    ///
    /// # Errors
    /// The table's; then nothing is forgotten.
    pub fn reopen(&self) -> Result<bool, table::Error> {
        let mut state = self.lock();
        let loses = self.table.reopen()?;
        state.forget_rows();
        state.ids.doubt();
        Ok(loses)
    }

    /// Forgets what is remembered of the rows.
    pub fn forget_rows(&self) {
        self.lock().forget_rows();
    }

    /// Bytes that the caches and filters take: rows, filters.
    #[must_use]
    pub fn memory(&self) -> (u64, u64) {
        let state = self.lock();
        (state.rows.bytes(), state.directories.filter_bytes())
    }

    fn lock(&self) -> Turn<'_> {
        let mut state = Turn::from(self.wait_for_turn());
        #[cfg(test)]
        (state.turns += 1);
        // Here and not where one more comes in: an operation relies on those it has looked at.
        state.directories.make_room();
        state
    }

    /// An operation takes a few microseconds, less than putting a thread to sleep and waking it: a
    /// caller looks again for some operations before it sleeps.
    fn wait_for_turn(&self) -> MutexGuard<'_, State> {
        for _ in 0..LOOKS {
            if !self.state.is_locked()
                && let Some(state) = self.state.try_lock()
            {
                return state;
            }
            std::hint::spin_loop();
        }
        self.state.lock()
    }

    /// The stamp of the batch that is written next.
    fn stamp(&self, state: &State) -> Stamp {
        Stamp { epoch: self.epoch, sequence: state.sequence + 1 }
    }

    /// Writes a batch whose rows bear [`Shard::stamp`].
    fn write(&self, state: &mut State, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        self.table.write(&batch).map_err(|error| table_failed("writing", &error))?;
        state.sequence += 1;
        self.durability.did(state.sequence);
        Ok(())
    }

    /// A number for a new inode. Now and then that takes a batch of its own.
    fn take_id(&self, state: &mut State) -> Result<InodeId, Error> {
        match state.ids.need(self.durability.safe()) {
            Need::Nothing => {}
            Need::Write(to) => self.reserve_ids(state, to)?,
            Need::WriteAndWait(to) => {
                self.reserve_ids(state, to)?;
                self.persist(state.sequence)?;
            }
            Need::Wait(sequence) => self.persist(sequence)?,
        }
        state.ids.take()
    }

    fn reserve_ids(&self, state: &mut State, to: u64) -> Result<(), Error> {
        let mut batch = Batch::new();
        batch.put(key::high_water(SHARD), HighWater { next: to }.encode(self.stamp(state)));
        self.write(state, batch)?;
        state.ids.wrote(to, state.sequence);
        Ok(())
    }

    fn persist(&self, sequence: u64) -> Result<(), Error> {
        self.table.persist().map_err(|error| table_failed("making a block of ids safe", &error))?;
        self.durability.found_safe(sequence);
        Ok(())
    }
}
