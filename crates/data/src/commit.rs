//! Commits: the bytes, size and times of open files are written to rows, at FLUSH, at fsync, with
//! the last release, and at each group commit.

use std::sync::Arc;
use std::time::Duration;

use pelago_meta::shard::{Appended, BytesChange, BytesPlace, InlineBytes, WritingRow};
use pelago_wire::{Attr, Code, Error, Handle, InodeId};

use crate::blocking::{MayBlock, OpError};
use crate::inode::{Bytes, Uncommitted, Unreleased};
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;

/// The time that a background job waits for an inode that another thread has locked.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_millis(10);

impl OpenFiles {
    /// Commits all small files whose bytes are not in the table yet. The next call tries failed
    /// commits again. Returns false if a file was left out because another thread had it locked.
    ///
    /// # Errors
    /// The last failure.
    pub fn commit_dirty(&self) -> Result<bool, Error> {
        let mut result = Ok(true);
        for ino in self.dirty.take() {
            let Some(inode) = self.opens.inode(ino) else { continue };
            let Some(guard) = self.lock_within(&inode, LOCK_TIMEOUT) else {
                // Its bytes are moving to a content file; the other inodes must not wait for that.
                self.dirty.insert(ino);
                result = result.map(|_| false);
                continue;
            };
            match guard.commit_and_release() {
                // The table lost the row, and the openers get an error: another attempt cannot
                // help.
                Ok(()) | Err(Error { code: Code::Stale }) => {}
                Err(error) => {
                    self.dirty.insert(ino);
                    result = Err(error);
                }
            }
        }
        result
    }

    /// Commits every open file, as the last step before a clean end.
    ///
    /// # Errors
    /// The last failure.
    pub fn commit_all(&self) -> Result<(), Error> {
        let mut result = Ok(());
        for inode in self.opens.inodes() {
            match self.lock(&inode).commit_and_release() {
                Ok(()) | Err(Error { code: Code::Stale }) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Commits a file if it is open, before a rename puts it over another one, so that no later
    /// batch survives a crash without its bytes.
    ///
    /// # Errors
    /// Those of [`OpenFiles::flush`].
    pub fn commit_open(&self, ino: InodeId, may_block: MayBlock) -> Result<(), OpError> {
        let Some(inode) = self.opens.inode(ino) else { return Ok(()) };
        let mut guard = self.lock_if(&inode, may_block)?;
        guard.refresh();
        let needs_disk = guard.state.has_content() && guard.state.is_uncommitted();
        if needs_disk && may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        Ok(guard.commit(WritingRow::Keep)?)
    }

    /// Commits a file without a name if it is open, before it gets its first name.
    ///
    /// # Errors
    /// `Stale`; those of [`OpenFiles::flush`].
    pub fn commit_unnamed(&self, handle: Handle, may_block: MayBlock) -> Result<(), OpError> {
        match self.opens.inode(handle.ino).is_some() && self.shard.attr(handle)?.links == 0 {
            true => self.commit_open(handle.ino, may_block),
            false => Ok(()),
        }
    }
}

impl InodeGuard<'_> {
    /// Writes the values that the row does not have yet, and changes the `writing` row.
    ///
    /// # Errors
    /// `Stale` if the row was deleted; `NoSpace`; if the table or the disk fails.
    pub(crate) fn commit(&mut self, row: WritingRow) -> Result<(), Error> {
        self.commit_append(None, row)
    }

    /// Commits as [`InodeGuard::commit`] does, with the reply of the append that changed the bytes.
    pub(crate) fn commit_append(
        &mut self,
        append: Option<Appended>,
        row: WritingRow,
    ) -> Result<(), Error> {
        if self.state.row_lost {
            return Err(Code::Stale.into());
        }
        self.refresh_for_commit();
        if !self.state.is_uncommitted() && row == WritingRow::Keep {
            return Ok(());
        }
        let mut change = BytesChange { writing_row: row, append, ..BytesChange::NOTHING };
        if self.state.is_uncommitted() {
            self.describe_content(&mut change)?;
            change.live = Some(self.state.live());
            if self.state.uncommitted == Uncommitted::All {
                // The row may be from before the bytes came home.
                change.place = BytesPlace::Here;
            }
        }
        let state = &*self.state;
        if let Bytes::Memory(bytes) = &state.bytes
            && state.uncommitted >= Uncommitted::Bytes
        {
            let may_be_stored = state.has_inline_row || state.uncommitted == Uncommitted::All;
            change.inline = match bytes.is_empty() {
                false => InlineBytes::Put(bytes),
                true if may_be_stored => InlineBytes::Delete,
                true => InlineBytes::Keep,
            };
        }
        let stored = match change.inline {
            InlineBytes::Put(bytes) => Some(bytes.len()),
            InlineBytes::Delete => Some(0),
            InlineBytes::Keep => None,
        };
        match self.write_row(&change) {
            Ok(_) => {
                self.note_committed(stored);
                Ok(())
            }
            Err(error) => {
                if error.code == Code::Stale {
                    self.note_row_lost();
                }
                Err(error)
            }
        }
    }

    /// Adds the values of the content file to a commit.
    fn describe_content(&mut self, change: &mut BytesChange<'_>) -> Result<(), Error> {
        if let Some(generation) = self.state.bytes.generation()
            && self.state.uncommitted == Uncommitted::All
        {
            change.generation = Some(generation);
            change.inline = InlineBytes::Delete;
            change.writing_row = WritingRow::Put;
        }
        let Bytes::ContentOpen(content) = &self.state.bytes else { return Ok(()) };
        if self.inode.has_external_writers() {
            // It was measured just now, and its times belong to the programs that write it.
            return Ok(());
        }
        let content = Arc::clone(content);
        let disk = &self.files.disk;
        let mut measured = content.stat().map_err(|error| disk.failed(&error))?;
        if measured.mtime != self.state.mtime {
            // After a crash a file with a `writing` row gets the times of its content.
            let timed = content.set_times(None, Some(self.state.mtime));
            timed.map_err(|error| disk.failed(&error))?;
            self.files.changes.note(
                (content.ino(), content.generation()),
                &(0..0),
                self.state.size,
            );
            measured = content.stat().map_err(|error| disk.failed(&error))?;
        }
        self.state.size = measured.size;
        self.state.blocks = measured.blocks;
        Ok(())
    }

    /// Records that the row has all values. `stored`: the length of the inline row, if the commit
    /// wrote or deleted it.
    fn note_committed(&mut self, stored: Option<usize>) {
        let files = self.files;
        let ino = self.ino();
        if self.state.uncommitted == Uncommitted::All
            && let Some(generation) = self.state.bytes.generation()
        {
            files.writing.open(ino, generation);
            self.state.writeback.has_row = true;
        }
        // If openers wait for their release, the group commit must still process this inode.
        if self.state.uncommitted >= Uncommitted::Bytes
            && self.state.unreleased == Unreleased::default()
        {
            files.dirty.remove(ino);
        }
        self.state.uncommitted = Uncommitted::Nothing;
        let Some(stored) = stored else { return };
        self.state.has_inline_row = stored > 0;
        if stored > 0 && files.memory.is_half_taken() {
            self.state.bytes = Bytes::Inline;
            self.state.count_memory();
        }
        if files.dirty.count_unsafe(stored) {
            files.durability.flush_soon();
        }
    }

    /// Records that the table has lost the row: no later commit can save the acknowledged changes.
    fn note_row_lost(&mut self) {
        self.state.uncommitted = Uncommitted::Nothing;
        if !std::mem::replace(&mut self.state.row_lost, true) {
            self.inode.errors.record(Code::Io.into());
        }
    }

    /// Writes a change of the inode's row and of the rows that belong to it. Returns the new
    /// attributes.
    pub(crate) fn write_row(&self, change: &BytesChange<'_>) -> Result<Attr, Error> {
        match self.files.shard.commit_bytes(self.handle(), change) {
            Ok((attr, _)) => Ok(attr),
            Err(error) => {
                if error.code == Code::NoSpace {
                    self.files.disk.space.note_full();
                }
                Err(error)
            }
        }
    }
}
