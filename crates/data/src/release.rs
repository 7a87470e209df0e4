//! The release of openers, whose changes are committed before they leave.

use pelago_meta::shard::WritingRow;
use pelago_wire::{Code, Error};

use crate::commit::LOCK_TIMEOUT;
use crate::inode::{Bytes, Inode, Unreleased};
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Released {
    /// The opener has left.
    Done,
    /// The opener stays as a writer, because a program may still write the content file without a
    /// request.
    Pending,
}

impl OpenFiles {
    /// Releases closed files that no program can write any more. Returns their number.
    ///
    /// # Errors
    /// The last failure to commit one of them, which is tried again.
    pub fn release_closed(&self) -> Result<usize, Error> {
        let mut released = 0;
        let mut result = Ok(());
        for ino in self.pending_close.inodes() {
            let Some(inode) = self.opens.inode(ino) else {
                self.pending_close.remove(ino);
                continue;
            };
            let Some(guard) = self.lock_within(&inode, LOCK_TIMEOUT) else { continue };
            if self.opens.writers(ino) > 1 {
                // It is open to write again: the release of that open tries again.
                continue;
            }
            self.pending_close.remove(ino);
            match guard.try_release(true) {
                Ok(Released::Pending) => {}
                Ok(Released::Done) => released += 1,
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| released)
    }

    /// Records an error that no descriptor has reported for the next opener of an inode that is
    /// about to leave the table.
    fn keep_error(&self, inode: &Inode) {
        if inode.errors.unseen().is_some() {
            self.durability.writeback_errors.record_inode(inode.handle.ino);
        }
    }
}

impl InodeGuard<'_> {
    /// Removes one opener after committing its changes. If the commit fails, the opener stays until
    /// a later group commit succeeds. If a program may still write the content file, the last
    /// writer stays and the worker for pending closes is notified.
    ///
    /// # Errors
    /// Those of [`InodeGuard::commit`].
    pub(crate) fn release(self, writes: bool) -> Result<(), Error> {
        let files = self.files;
        if self.try_release(writes)? == Released::Pending {
            files.pending_close.notify();
        }
        Ok(())
    }

    /// Does the same as [`InodeGuard::release`], without the notification.
    ///
    /// # Errors
    /// Those of [`InodeGuard::commit`].
    pub(crate) fn try_release(mut self, writes: bool) -> Result<Released, Error> {
        let files = self.files;
        let ino = self.ino();
        let last = files.opens.writers(ino) == u32::from(writes);
        if writes && last && self.inode.has_external_writers() {
            self.end_external_writes();
        }
        let pending = writes && last && self.inode.has_external_writers();
        let is_safe = !pending
            && last
            && self.state.writeback.is_synced()
            && !files.writing.is_in_error(ino)
            && !self.is_copy_on_write();
        let row = if is_safe { WritingRow::Delete } else { WritingRow::Keep };
        let committed = self.commit(row);
        if let Err(error) = committed
            && error.code != Code::Stale
        {
            let unreleased = &mut self.state.unreleased;
            unreleased.readers += u32::from(!writes);
            unreleased.writers += u32::from(writes);
            files.dirty.insert(ino);
            return Err(error);
        }
        self.commit_atime();
        if pending {
            self.park();
            files.pending_close.insert(ino);
            return Ok(Released::Pending);
        }
        if last && std::mem::take(&mut self.state.writeback.has_row) {
            if is_safe { files.writing.remove(ino) } else { files.writing.close(ino) }
        }
        if writes
            && last
            && let Some(dir) = self.inode.dir
        {
            files.placement.note_closed(dir, self.state.size);
        }
        self.stop_observing();
        self.keep_descriptor();
        files.opens.leave(ino, writes, |inode| files.keep_error(inode));
        drop(self);
        if files.shard.release(ino) {
            (files.notify_orphans)();
        }
        committed.map(|()| Released::Done)
    }

    /// Commits the inode, then removes the openers whose release could not be committed before.
    ///
    /// # Errors
    /// Those of [`InodeGuard::commit`].
    pub(crate) fn commit_and_release(mut self) -> Result<(), Error> {
        let files = self.files;
        let inode = self.inode;
        let committed = self.commit(WritingRow::Keep);
        if committed.is_err_and(|error| error.code != Code::Stale) {
            return committed;
        }
        let mut left = std::mem::take(&mut self.state.unreleased);
        drop(self);
        while let Some(writes) = left.next() {
            if let Err(error) = files.lock(inode).release(writes)
                && error.code != Code::Stale
            {
                // This opener is counted as unreleased again, and so are the remaining ones.
                let mut guard = files.lock(inode);
                guard.state.unreleased.readers += left.readers;
                guard.state.unreleased.writers += left.writers;
                return Err(error);
            }
        }
        committed
    }

    /// Keeps the descriptor of a file open after its last opener, until its bytes are safe.
    fn keep_descriptor(&self) {
        let files = self.files;
        let ino = self.ino();
        if !files.writing.contains(ino) || !files.opens.has_one_opener(ino) {
            return;
        }
        if let Bytes::ContentOpen(content) = &self.state.bytes {
            files.writing.keep_open(content);
        }
    }
}

impl Unreleased {
    /// Takes one opener, readers first. Returns true if it is a writer.
    fn next(&mut self) -> Option<bool> {
        let writes = self.readers == 0;
        let count = if writes { &mut self.writers } else { &mut self.readers };
        *count = count.checked_sub(1)?;
        Some(writes)
    }
}
