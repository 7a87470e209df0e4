//! All open files of a server, with their bounds.
//!
//! All opens of an inode share one [`Inode`](crate::inode::Inode). Its bytes are in memory up to
//! the inline limit, and beyond it in a content file; they never move back. Size and times are
//! passed to the shard at once (`Shard::set_live_attrs`), so that every attribute is right, and to
//! the table at each commit.
//!
//! Nothing is read or opened before it is needed: a file that is created and closed empty costs an
//! operation of the shard and two small map entries.
//!
//! Callers that serve others pass [`MayBlock::No`]: an operation that might have to wait for the
//! disk returns [`OpError::WouldBlock`] with nothing done, and is repeated by a thread that may
//! block.
//!
//! Lock order: an open inode, then the `writing` rows ([`WritingSet`]), then a shard's state, then
//! a leaf.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_store::content::ContentStore;
use pelago_store::sync::Mutex;
use pelago_store::table::SharedTable;
use pelago_wire::{Error, Generation, Handle, InodeId, OpenFlags, SessionId, limits};

use crate::blocking::{MayBlock, OpError};
use crate::changed_content::ContentChanges;
use crate::dirty::DirtySet;
use crate::disk::Disk;
use crate::fd_budget::FdBudget;
use crate::io_permits::{IoPermit, IoPermits};
use crate::memory::MemoryBudget;
use crate::notify::WakeWorker;
use crate::open_key::OpenKey;
use crate::open_table::{Counts, OpenLimit, OpenTable};
use crate::passthrough::pending_close::PendingClose;
use crate::passthrough::placement::{Passthrough, Placement};
use crate::pins::budget::PinLimits;
use crate::pins::table::PinTable;
use crate::space::Space;
use crate::writing::WritingSet;

/// The parts of the open files of a server.
pub struct Parts {
    /// The names and attributes of the files.
    pub shard: Arc<Shard>,
    /// The rows, among them the bytes of small files.
    pub table: SharedTable,
    /// The content files: the bytes of all other files.
    pub content: Arc<ContentStore>,
    /// Starts group commits; records errors that no descriptor has reported.
    pub durability: Arc<Durability>,
    /// Decides whether new data is admitted.
    pub space: Arc<Space>,
    /// Bounds the number of open content files.
    pub fd_budget: Arc<FdBudget>,
    /// True if nothing may be changed.
    pub read_only: bool,
    /// Called when a file has lost its last name and its last opener.
    pub notify_orphans: WakeWorker,
    /// Called when a closed file may still be written by a program.
    pub notify_pending_close: WakeWorker,
    /// Settings.
    pub options: Options,
}

/// Settings of the open files.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The size of the largest file that is stored in the table, up to [`limits::INLINE_BYTES`].
    pub inline_bytes: usize,
    /// The most bytes of open files in memory.
    pub open_bytes: usize,
    /// The most opens at the same time.
    pub open_files: usize,
    /// The number of these that only the server's own session may have.
    pub own_open_files: usize,
    /// The most opens of all sessions of one peer: of a machine, or of a user of this machine.
    pub peer_open_files: usize,
    /// The number of callers with [`MayBlock::No`] that may wait for the disk at the same time.
    pub io_permits: usize,
    /// The conditions for opens by passthrough.
    pub passthrough: Passthrough,
    /// True if the file system can tell whether a process writes a file. Otherwise there is no
    /// passthrough.
    pub can_detect_writers: bool,
    /// The limits of pins.
    pub pins: PinLimits,
    /// True for the readers of a mirror: a content file may have bytes ahead of its row, whose size
    /// counts.
    pub trusts_rows: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inline_bytes: limits::INLINE_DEFAULT_BYTES,
            open_bytes: limits::OPEN_BYTES,
            open_files: limits::OPEN_FILES,
            own_open_files: limits::OWN_OPEN_FILES,
            peer_open_files: limits::PEER_OPEN_FILES,
            io_permits: 1,
            passthrough: Passthrough::Auto,
            can_detect_writers: true,
            pins: PinLimits::default(),
            trusts_rows: false,
        }
    }
}

/// All open files of a server.
pub struct OpenFiles {
    /// The names and attributes of the files.
    pub(crate) shard: Arc<Shard>,
    /// The rows, among them the bytes of small files.
    pub(crate) table: SharedTable,
    /// The done and the safe sequences.
    pub(crate) durability: Arc<Durability>,
    /// The content files, with their space and descriptors.
    pub(crate) disk: Disk,
    /// The opens by id, and the inodes that they share.
    pub(crate) opens: OpenTable,
    /// The inodes that the next group commit commits.
    pub(crate) dirty: DirtySet,
    /// The `writing` rows.
    pub(crate) writing: WritingSet,
    /// Closed files that a program may still write.
    pub(crate) pending_close: PendingClose,
    /// The versions of files that deliveries read.
    pub(crate) pins: Arc<PinTable>,
    /// The changes of content files that the mirror of the volume does not have.
    pub(crate) changes: ContentChanges,
    /// Decides which files are opened by passthrough.
    pub(crate) placement: Placement,
    /// The budget of memory for the bytes of open files.
    pub(crate) memory: MemoryBudget,
    /// The permits of callers with [`MayBlock::No`] to wait for the disk.
    pub(crate) io_permits: IoPermits,
    /// Called when a file has lost its last name and its last opener.
    pub(crate) notify_orphans: WakeWorker,
    /// True if nothing may be changed.
    pub(crate) read_only: bool,
    /// The value of [`Options::trusts_rows`].
    pub(crate) trusts_rows: bool,
    /// True if a file was opened whose bytes are at another site. Never cleared.
    pub(crate) has_elsewhere: AtomicBool,
    /// Files whose bytes are at other sites, and the nodes there: nothing is written into these any
    /// more. A leaf lock.
    pub(crate) given: Mutex<HashMap<InodeId, InodeId>>,
}

impl OpenFiles {
    /// Returns the open files of a server; no file is open yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { content, space, fd_budget, options, .. } = parts;
        Self {
            shard: parts.shard,
            table: parts.table,
            durability: parts.durability,
            disk: Disk { content, space, fd_budget },
            opens: OpenTable::new(OpenLimit {
                total: options.open_files,
                others: options.open_files.saturating_sub(options.own_open_files),
                share: options.peer_open_files,
            }),
            dirty: DirtySet::default(),
            writing: WritingSet::default(),
            pending_close: PendingClose::new(parts.notify_pending_close),
            pins: Arc::new(PinTable::new(options.pins)),
            changes: ContentChanges::default(),
            placement: Placement::new(options.passthrough, options.can_detect_writers),
            memory: MemoryBudget::new(options.open_bytes, options.inline_bytes),
            io_permits: IoPermits::new(options.io_permits),
            notify_orphans: parts.notify_orphans,
            read_only: parts.read_only,
            trusts_rows: options.trusts_rows,
            has_elsewhere: AtomicBool::new(false),
            given: Mutex::default(),
        }
    }

    /// Returns the inode of an open, and the flags of the open.
    ///
    /// # Errors
    /// `BadOpen`.
    pub fn opened(&self, open: OpenKey) -> Result<(InodeId, OpenFlags), Error> {
        self.opens.get(open).map(|opened| (opened.inode.handle.ino, opened.flags))
    }

    /// Counts the opens.
    #[must_use]
    pub fn count(&self) -> usize {
        self.opens.count()
    }

    /// Counts the opens, and the inodes in use without an open.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.opens.counts()
    }

    /// Returns the inode of an open.
    ///
    /// # Errors
    /// `BadOpen`.
    pub fn inode_of(&self, open: OpenKey) -> Result<InodeId, Error> {
        Ok(self.opens.get(open)?.inode.handle.ino)
    }

    /// Returns the handle of the file of an open, with the hint of its first open.
    ///
    /// # Errors
    /// `BadOpen`.
    pub fn handle_of(&self, open: OpenKey) -> Result<Handle, Error> {
        Ok(self.opens.get(open)?.inode.handle)
    }

    /// Counts the closed files that a program may still write.
    #[must_use]
    pub fn pending_closes(&self) -> usize {
        self.pending_close.count()
    }

    /// Returns the bytes of memory that open files take.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.memory.taken() as u64
    }

    /// Returns whether this session has the file open.
    #[must_use]
    pub fn is_open_in(&self, session: SessionId, ino: InodeId) -> bool {
        let opens = self.opens.opens_of(session);
        opens.into_iter().any(|open| self.inode_of(open).is_ok_and(|of| of == ino))
    }

    /// Returns whether this session has the file open, and no other session uses it.
    #[must_use]
    pub fn is_used_only_by(&self, session: SessionId, ino: InodeId) -> bool {
        self.opens.is_used_only_by(session, ino)
    }

    /// Returns whether a loss of power may lose bytes of any content file.
    #[must_use]
    pub fn any_unsafe(&self) -> bool {
        self.writing.count() > 0
    }

    /// Returns whether an open of this file may write it.
    #[must_use]
    pub fn has_writers(&self, ino: InodeId) -> bool {
        self.opens.writers(ino) > 0
    }

    /// Returns whether the rows of a file may lack what a program has written to it.
    #[must_use]
    pub fn has_uncommitted_bytes(&self, ino: InodeId) -> bool {
        let Some(inode) = self.opens.inode(ino) else { return false };
        // A lock that is taken now is mostly that of a write or of a commit.
        let guard = self.lock_within(&inode, Duration::ZERO);
        guard.is_none_or(|guard| guard.has_uncommitted())
    }

    /// Returns whether a loss of power may lose bytes of this file: it has a `writing` row.
    #[must_use]
    pub fn is_unsafe(&self, ino: InodeId) -> bool {
        self.writing.contains(ino)
    }

    /// Returns the changes of content files that the mirror of the volume does not have.
    #[must_use]
    pub const fn changes(&self) -> &ContentChanges {
        &self.changes
    }

    /// Begins to record changes of content files, for a mirror. Blocks until all changes that began
    /// before have ended.
    pub fn collect_changes(&self) {
        self.changes.begin();
        for inode in self.opens.inodes() {
            drop(self.lock(&inode));
        }
    }

    /// Has the mirror get all of a content file again.
    pub fn mirror_again(&self, ino: InodeId, generation: Generation, size: u64) {
        self.changes.add_all((ino, generation), size);
    }

    /// Records that a content file is about to lose its name.
    pub fn content_goes(&self, ino: InodeId, generation: Generation) {
        self.changes.hand_over((ino, generation), &self.disk.content);
    }

    /// Records that a content file is about to be removed, with its rows.
    pub fn content_removed(&self, ino: InodeId, generation: Generation) {
        self.changes.remove((ino, generation), &self.disk.content);
    }

    /// Records that the disk is full: new data is refused until there is room.
    pub fn note_disk_full(&self) {
        self.disk.space.note_full();
    }

    /// Takes a permit to wait for the disk. Callers that may block need none.
    ///
    /// # Errors
    /// [`OpError::WouldBlock`] if none is free.
    pub(crate) fn io_permit(&self, may_block: MayBlock) -> Result<Option<IoPermit<'_>>, OpError> {
        match may_block {
            MayBlock::Yes => Ok(None),
            MayBlock::No => self.io_permits.take().map(Some).ok_or(OpError::WouldBlock),
        }
    }

    /// Takes a permit for an operation that, once begun, waits for the inode and for the disk.
    ///
    /// # Errors
    /// [`OpError::WouldBlock`] if none is free or another thread has the inode.
    pub(crate) fn io_permit_for(
        &self,
        ino: InodeId,
        may_block: MayBlock,
    ) -> Result<Option<IoPermit<'_>>, OpError> {
        let is_locked = || self.opens.inode(ino).is_some_and(|inode| inode.is_locked());
        if may_block == MayBlock::No && is_locked() {
            return Err(OpError::WouldBlock);
        }
        self.io_permit(may_block)
    }

    /// Takes a permit as [`OpenFiles::io_permit_for`] does, for an operation that changes the
    /// bytes. Only a thread that may block can do so if bytes must be copied first.
    ///
    /// # Errors
    /// [`OpError::WouldBlock`] also if bytes must be copied first.
    pub(crate) fn io_permit_to_change(
        &self,
        ino: InodeId,
        may_block: MayBlock,
    ) -> Result<Option<IoPermit<'_>>, OpError> {
        if may_block == MayBlock::No && self.may_copy(ino) {
            return Err(OpError::WouldBlock);
        }
        self.io_permit_for(ino, may_block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rig, pattern};
    use crate::write::Write;

    fn write_now(rig: &Rig, open: OpenKey, bytes: &[u8]) -> Result<u64, OpError> {
        let write = Write { offset: 0, append: false, once: None, bytes, kill_privileges: false };
        Ok(rig.files.write(open, write, MayBlock::No)?.bytes)
    }

    #[test]
    fn a_caller_that_may_not_block_is_refused_an_inode_that_another_thread_has() {
        let rig = Rig::new();
        let (entry, open) = rig.create("f");
        let inode = rig.files.opens.inode(entry.handle.ino).unwrap();
        let locked = inode.lock();
        assert_eq!(write_now(&rig, open, b"abc"), Err(OpError::WouldBlock));
        drop(locked);
        assert_eq!(rig.read(open, 0, 10).unwrap(), b"", "nothing was done");
        assert_eq!(write_now(&rig, open, b"abc"), Ok(3));
        rig.close(open);
    }

    #[test]
    fn a_caller_that_may_not_block_needs_a_permit_to_write_to_the_disk() {
        let rig = Rig::new();
        let (_, open) = rig.create("f");
        let permit = rig.files.io_permits.take().unwrap();
        assert_eq!(write_now(&rig, open, b"few"), Ok(3), "memory needs no permit");
        assert_eq!(write_now(&rig, open, &pattern(50_000)), Err(OpError::WouldBlock));
        assert_eq!(rig.read(open, 0, 10).unwrap(), b"few", "nothing was done");
        drop(permit);
        assert_eq!(write_now(&rig, open, &pattern(50_000)), Ok(50_000));
        rig.close(open);
    }
}
