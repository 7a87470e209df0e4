//! An open inode: the bytes, size and times that all its opens share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use pelago_meta::shard::LiveAttrs;
use pelago_store::sync::{Mutex, MutexGuard};
use pelago_wire::{Entry, Error, Generation, Handle, InodeId, Time};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::error_sequence::ErrorSequence;
use crate::memory::{MemoryBudget, MemoryShare};
use crate::passthrough::observer::Observer;

/// Bytes of a block. The disk space of an inline file is its size, rounded up to blocks.
const BLOCK_BYTES: u64 = 4096;

/// An inode that is open.
pub(crate) struct Inode {
    /// Its handle at the first open.
    pub(crate) handle: Handle,
    /// The directory in which it was created or found, if known.
    pub(crate) dir: Option<InodeId>,
    /// Seconds of the clock before which no read changes the access time.
    pub(crate) atime_fresh_until: AtomicI64,
    /// True if a read has changed the access time and the row does not have it yet.
    pub(crate) atime_uncommitted: AtomicBool,
    /// True while a program may write the content file without a request. Size and times are then
    /// those of the content file. Changed under the lock of the state.
    external_writers: AtomicBool,
    /// The errors that its descriptors must report.
    pub(crate) errors: ErrorSequence,
    /// Held while the content file is synced and a failure is recorded: the kernel reports a
    /// failure to one call for each descriptor, and no other sync may return before it is recorded.
    /// Taken without the lock of the state.
    pub(crate) sync_turn: Mutex<()>,
    state: Mutex<InodeState>,
}

/// Bytes, size and times of an open inode.
pub(crate) struct InodeState {
    pub(crate) bytes: Bytes,
    /// The size in bytes; for [`Bytes::Memory`] its length.
    pub(crate) size: u64,
    /// The disk space in units of 512 bytes; meaningful only for a content file.
    pub(crate) blocks: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    /// The generation of the newest content file that the inode ever had.
    pub(crate) generation: Option<Generation>,
    /// True if the table has an inline row, with these or older bytes.
    pub(crate) has_inline_row: bool,
    pub(crate) uncommitted: Uncommitted,
    pub(crate) writeback: Writeback,
    /// True if the table has lost the row: no commit can succeed any more.
    pub(crate) row_lost: bool,
    pub(crate) unreleased: Unreleased,
    /// Its part of the memory of all open files.
    pub(crate) memory: MemoryShare,
    /// Observes the content file while programs reach it without a request.
    pub(crate) observer: Option<Arc<Observer>>,
}

/// The place of the bytes.
pub(crate) enum Bytes {
    /// Unknown, because the row was not read yet.
    Unloaded,
    /// In the table, in the inline row.
    Inline,
    /// In memory.
    Memory(Vec<u8>),
    /// In the content file of this generation, which is not open.
    ContentClosed(Generation),
    /// In this content file, which is open.
    ContentOpen(Arc<OpenContent>),
    /// In this node of another site.
    Elsewhere(InodeId),
}

/// The values that a commit must still write. Each variant includes those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Uncommitted {
    /// None: the row has all values.
    #[default]
    Nothing,
    /// Size or times.
    Attr,
    /// Bytes in memory.
    Bytes,
    /// All values: the table lost batches, so that no earlier write counts.
    All,
}

/// The state of the writeback of a content file, as far as its openers know.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    /// True if the `writing` row exists. It is deleted or kept when the last writer leaves.
    pub(crate) has_row: bool,
    /// Counts up with each change of the content file.
    changes: u64,
    /// The value of `changes` at the last sync.
    synced: u64,
}

/// Openers whose release could not be committed yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Unreleased {
    pub(crate) readers: u32,
    pub(crate) writers: u32,
}

impl Inode {
    /// Returns an inode whose row is read when it is needed. `unseen` is an earlier error that no
    /// descriptor has reported.
    pub(crate) fn stored(handle: Handle, memory: &MemoryBudget, unseen: Option<Error>) -> Self {
        let dir = handle.is_under_a_name().then_some(handle.dir);
        let errors = ErrorSequence::after(unseen);
        Self { errors, ..Self::new(handle, dir, InodeState::new(Bytes::Unloaded, memory.share())) }
    }

    /// Returns the inode of a file that was just created in `dir`.
    pub(crate) fn created(entry: &Entry, dir: InodeId, memory: &MemoryBudget) -> Self {
        let mtime = entry.attr.mtime;
        let ctime = entry.attr.ctime;
        let state = InodeState::new(Bytes::Memory(Vec::new()), memory.share());
        Self::new(entry.handle, Some(dir), InodeState { mtime, ctime, ..state })
    }

    fn new(handle: Handle, dir: Option<InodeId>, state: InodeState) -> Self {
        Self {
            handle,
            dir,
            atime_fresh_until: AtomicI64::new(i64::MIN),
            atime_uncommitted: AtomicBool::new(false),
            external_writers: AtomicBool::new(false),
            errors: ErrorSequence::default(),
            sync_turn: Mutex::default(),
            state: Mutex::new(state),
        }
    }

    /// Returns whether a program may write the content file without a request.
    pub(crate) fn has_external_writers(&self) -> bool {
        self.external_writers.load(Ordering::Acquire)
    }

    /// Sets whether a program may write the content file without a request. The caller holds the
    /// lock of the state.
    pub(crate) fn set_external_writers(&self, external_writers: bool) {
        self.external_writers.store(external_writers, Ordering::Release);
    }

    /// Locks the state; waits as long as necessary.
    pub(crate) fn lock(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock()
    }

    /// Locks the state.
    ///
    /// # Errors
    /// [`OpError::WouldBlock`] if another thread has it and the caller may not block.
    pub(crate) fn lock_if(
        &self,
        may_block: MayBlock,
    ) -> Result<MutexGuard<'_, InodeState>, OpError> {
        match may_block {
            MayBlock::Yes => Ok(self.state.lock()),
            MayBlock::No => self.state.try_lock().ok_or(OpError::WouldBlock),
        }
    }

    /// Locks the state; returns `None` if another thread has it for longer than `timeout`.
    pub(crate) fn lock_within(&self, timeout: Duration) -> Option<MutexGuard<'_, InodeState>> {
        self.state.try_lock_for(timeout)
    }

    /// Returns whether the state is locked.
    pub(crate) fn is_locked(&self) -> bool {
        self.state.is_locked()
    }
}

impl InodeState {
    fn new(bytes: Bytes, memory: MemoryShare) -> Self {
        Self {
            bytes,
            size: 0,
            blocks: 0,
            mtime: Time::default(),
            ctime: Time::default(),
            generation: None,
            has_inline_row: false,
            uncommitted: Uncommitted::default(),
            writeback: Writeback::default(),
            row_lost: false,
            unreleased: Unreleased::default(),
            memory,
            observer: None,
        }
    }

    /// Returns the present size and times.
    pub(crate) fn live(&self) -> LiveAttrs {
        let blocks = match self.has_content() {
            true => self.blocks,
            false => self.size.div_ceil(BLOCK_BYTES) * (BLOCK_BYTES / 512),
        };
        LiveAttrs { size: self.size, blocks, mtime: self.mtime, ctime: self.ctime }
    }

    /// Records that the bytes changed now. The change time never goes back, and the modification
    /// time is set to the same.
    pub(crate) fn touch(&mut self, now: Time) {
        self.ctime = now.max(self.ctime.next());
        self.mtime = self.ctime;
        self.uncommitted.add(Uncommitted::Attr);
    }

    /// Returns whether a commit must write something.
    pub(crate) fn is_uncommitted(&self) -> bool {
        self.uncommitted != Uncommitted::Nothing
    }

    /// Returns whether the bytes are in a content file.
    pub(crate) fn has_content(&self) -> bool {
        matches!(self.bytes, Bytes::ContentClosed(_) | Bytes::ContentOpen(_))
    }

    /// Updates the memory that the bytes take.
    pub(crate) fn count_memory(&mut self) {
        let bytes = match &self.bytes {
            Bytes::Memory(bytes) => bytes.len(),
            _ => 0,
        };
        self.memory.set(bytes);
    }
}

impl Bytes {
    /// Returns the generation of the content file, if the bytes are in one.
    pub(crate) fn generation(&self) -> Option<Generation> {
        match self {
            Self::ContentClosed(generation) => Some(*generation),
            Self::ContentOpen(content) => Some(content.generation()),
            Self::Unloaded | Self::Inline | Self::Memory(_) | Self::Elsewhere(_) => None,
        }
    }
}

impl Uncommitted {
    /// Adds values that a commit must write.
    pub(crate) fn add(&mut self, more: Self) {
        *self = more.max(*self);
    }
}

impl Writeback {
    /// Records that the `writing` row was written, for a change that follows.
    pub(crate) fn begin(&mut self) {
        self.has_row = true;
        self.changes += 1;
    }

    /// Records a change of the content file.
    pub(crate) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Counts the changes of the content file.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Records that the first `changes` changes are safe.
    pub(crate) fn note_synced(&mut self, changes: u64) {
        assert!(changes <= self.changes, "only changes that happened can be safe");
        self.synced = self.synced.max(changes);
    }

    /// Returns whether the openers know that every change since they wrote the `writing` row is
    /// safe.
    pub(crate) fn is_synced(&self) -> bool {
        self.has_row && self.changes == self.synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_commit_must_write_only_grows() {
        let mut uncommitted = Uncommitted::Nothing;
        uncommitted.add(Uncommitted::Bytes);
        uncommitted.add(Uncommitted::Attr);
        assert_eq!(uncommitted, Uncommitted::Bytes);
        uncommitted.add(Uncommitted::All);
        assert_eq!(uncommitted, Uncommitted::All);
    }

    #[test]
    fn a_sync_covers_only_the_changes_before_it() {
        let mut writeback = Writeback::default();
        assert!(!writeback.is_synced(), "there is no `writing` row to delete");
        writeback.begin();
        let synced = writeback.changes();
        writeback.note_change();
        writeback.note_synced(synced);
        assert!(!writeback.is_synced());
        writeback.note_synced(writeback.changes());
        assert!(writeback.is_synced());
    }
}
