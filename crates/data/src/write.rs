//! Writes to open files: into memory while a file is small, later into a content file.

use std::ops::Range;

use pelago_meta::reply_cache::RequestKey;
use pelago_meta::shard::{Appended, WritingRow};
use pelago_store::clock;
use pelago_wire::{Code, Error, SetAttr, Whence, limits};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::inode::{Bytes, Uncommitted};
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;
use crate::open_key::OpenKey;

/// A write to an open file.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The offset in bytes; ignored with `append`.
    pub offset: u64,
    /// True to write at the end of the file.
    pub append: bool,
    /// The request, if a repetition of this append must write to the same offset.
    pub once: Option<RequestKey>,
    /// The bytes to write.
    pub bytes: &'a [u8],
    /// True if the setuid and setgid bits are cleared.
    pub kill_privileges: bool,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The number of bytes written.
    pub bytes: u64,
    /// The size of the file after the write.
    pub size: u64,
    /// True if the reply must wait until all done batches are safe.
    pub sync: bool,
}

impl OpenFiles {
    /// Writes bytes. Fewer are written only if the disk is full.
    ///
    /// # Errors
    /// `BadOpen`, `FileTooLarge`, `NoSpace`; [`OpError::WouldBlock`] with nothing done.
    pub fn write(
        &self,
        open: OpenKey,
        write: Write<'_>,
        may_block: MayBlock,
    ) -> Result<Written, OpError> {
        let opened = self.opens.get(open)?;
        if !opened.flags.write {
            return Err(Code::BadOpen.into());
        }
        if opened.flags.sync && may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let inode = &opened.inode;
        let mut guard = self.lock_if(inode, may_block)?;
        self.opens.check_open(open)?;
        guard.load()?;
        guard.expect_bytes_here()?;
        let at = if write.append { guard.state.size } else { write.offset };
        let end = at.checked_add(write.bytes.len() as u64);
        let end = end.filter(|end| *end <= limits::FILE_BYTES).ok_or(Code::FileTooLarge)?;
        if write.bytes.is_empty() {
            return Ok(Written { bytes: 0, size: guard.state.size, sync: false });
        }
        let bytes = if guard.fits_memory(end.max(guard.state.size)) {
            if end > guard.state.size {
                self.disk.space.admit()?;
            }
            guard.write_memory(at, write.bytes)?;
            let bytes = write.bytes.len();
            if let Some(request_key) = write.once.filter(|_| write.append) {
                // The reply is in the batch of the bytes: no other batch may have these before.
                let append = Appended { request_key, at, bytes: bytes as u64 };
                guard.commit_append(Some(append), WritingRow::Keep)?;
            }
            bytes
        } else {
            if may_block == MayBlock::No && self.may_copy(inode.handle.ino) {
                return Err(OpError::WouldBlock);
            }
            let _permit = self.io_permit(may_block)?;
            let room = guard.admit_bytes(at, write.bytes.len() as u64)?;
            let bytes = &write.bytes[..room as usize];
            match write.once.filter(|_| write.append) {
                Some(request_key) => guard.append_once(at, bytes, request_key)?,
                None => {
                    let at = Some(at).filter(|_| !(write.append && inode.has_external_writers()));
                    guard.write_content(at, bytes)?.1
                }
            }
        };
        if write.kill_privileges {
            guard.kill_privileges()?;
        }
        let size = guard.state.size;
        drop(guard);
        if opened.flags.sync {
            self.sync_open(open, inode, true, MayBlock::Yes)?;
        }
        Ok(Written { bytes: bytes as u64, size, sync: opened.flags.sync })
    }
}

impl InodeGuard<'_> {
    /// Returns how many of `bytes` bytes may be written into a content file at `at`. While new data
    /// is refused, only bytes that have blocks already may be written.
    ///
    /// # Errors
    /// `NoSpace`; if the disk fails.
    pub(crate) fn admit_bytes(&mut self, at: u64, bytes: u64) -> Result<u64, Error> {
        let disk = &self.files.disk;
        let admitted = disk.space.take(bytes);
        let refused = matches!(&admitted, Err(error) if error.code == Code::NoSpace);
        if !refused || !self.state.has_content() || at + bytes > self.state.size {
            return admitted;
        }
        let content = self.open_content()?;
        let hole = content.seek(at, Whence::Hole).map_err(|error| disk.failed(&error))?;
        // A file system reports reserved blocks as a hole. A file that has all its blocks has no
        // other holes.
        let has_all_blocks = self.state.blocks.saturating_mul(512) >= self.state.size;
        match has_all_blocks || hole.is_some_and(|hole| hole >= at + bytes) {
            true => Ok(bytes),
            false => admitted,
        }
    }

    /// Returns whether the file may stay in memory at this size until it is committed.
    pub(crate) fn fits_memory(&self, size: u64) -> bool {
        !self.state.has_content() && self.files.memory.fits(&self.state.memory, size)
    }

    /// Returns the bytes of a small file, in memory.
    pub(crate) fn bytes_in_memory(&mut self) -> Result<&mut Vec<u8>, Error> {
        if let Bytes::Inline = self.state.bytes {
            self.state.bytes = Bytes::Memory(self.read_inline_row()?);
        }
        match &mut self.state.bytes {
            Bytes::Memory(bytes) => Ok(bytes),
            _ => Err(Code::Bug.into()),
        }
    }

    fn write_memory(&mut self, at: u64, new: &[u8]) -> Result<(), Error> {
        let bytes = self.bytes_in_memory()?;
        let from = at as usize;
        // Only a gap is filled with zeros: the rest is overwritten at once.
        if bytes.len() < from {
            bytes.resize(from, 0);
        }
        let over = new.len().min(bytes.len() - from);
        let (over, behind) = new.split_at(over);
        bytes[from..from + over.len()].copy_from_slice(over);
        bytes.extend_from_slice(behind);
        self.note_memory_changed();
        Ok(())
    }

    /// Records that bytes in memory have changed.
    pub(crate) fn note_memory_changed(&mut self) {
        self.inode.invalidate_atime();
        let state = &mut *self.state;
        if let Bytes::Memory(bytes) = &state.bytes {
            state.size = bytes.len() as u64;
        }
        state.count_memory();
        state.touch(clock::now());
        if state.uncommitted < Uncommitted::Bytes {
            state.uncommitted = Uncommitted::Bytes;
            self.files.dirty.insert(self.inode.handle.ino);
        }
        self.publish();
    }

    /// Appends to the content file, after storing the offset of the bytes. So a repetition, also in
    /// the next run of the server, writes them to the same offset. Returns the number of bytes that
    /// were written.
    fn append_once(
        &mut self,
        at: u64,
        bytes: &[u8],
        request_key: RequestKey,
    ) -> Result<usize, Error> {
        let shard = &self.files.shard;
        let planned = Appended { request_key, at, bytes: bytes.len() as u64 };
        shard.store_append(&planned)?;
        let to = Some(at).filter(|_| !self.inode.has_external_writers());
        let result = self.write_content(to, bytes);
        // Fewer bytes were written, or at another offset because a program writes the file without
        // requests: other appends may use the rest of the planned range.
        let (at, written) = *result.as_ref().unwrap_or(&(at, 0));
        let done = Appended { at, bytes: written as u64, ..planned };
        if done != planned {
            shard.store_append(&done)?;
        }
        result.map(|(_, written)| written)
    }

    /// Writes into the content file, at its end for `None`. Returns the offset, and the number of
    /// bytes that were written.
    fn write_content(&mut self, at: Option<u64>, bytes: &[u8]) -> Result<(u64, usize), Error> {
        let files = self.files;
        let start = at.unwrap_or(self.state.size);
        let content = self.content_to_write(&(start..start.saturating_add(bytes.len() as u64)))?;
        let result = match at {
            Some(at) => content.write_at(bytes, at).map(|()| (at, bytes.len())),
            // The kernel finds the end, because other programs append at the same time.
            None => content.append(bytes),
        };
        let (at, written) = match result {
            Ok(done) => done,
            Err(error) => {
                let failed = files.disk.failed(&error);
                if error.written == 0 {
                    return Err(failed);
                }
                (at.unwrap_or(self.state.size), error.written)
            }
        };
        self.note_content_changed(&content, &(at..at.saturating_add(written as u64)))?;
        if files.writing.any_in_error() {
            let range = at..at.saturating_add(written as u64);
            files.writing.note_rewrite(self.ino(), range, self.state.size);
        }
        Ok((at, written))
    }

    /// Records that bytes of the content file have changed, and measures it.
    pub(crate) fn note_content_changed(
        &mut self,
        content: &OpenContent,
        range: &Range<u64>,
    ) -> Result<(), Error> {
        assert!(
            self.state.writeback.has_row,
            "I-5: a content file that changes has a `writing` row"
        );
        self.inode.invalidate_atime();
        self.state.writeback.note_change();
        if self.inode.has_external_writers()
            && let Some(observer) = &self.state.observer
        {
            observer.note_write();
            self.refresh();
            return Ok(());
        }
        self.state.touch(clock::now());
        let measured = content.stat().map_err(|error| self.files.disk.failed(&error))?;
        self.state.size = measured.size;
        self.state.blocks = measured.blocks;
        self.files.changes.note((content.ino(), content.generation()), range, measured.size);
        self.publish();
        Ok(())
    }

    /// Clears setuid and setgid bits, as a write by an unprivileged caller does.
    pub(crate) fn kill_privileges(&self) -> Result<(), Error> {
        let shard = &self.files.shard;
        let handle = self.handle();
        if shard.attr(handle)?.mode & 0o6000 == 0 {
            return Ok(());
        }
        let set = SetAttr { kill_privileges: true, ..SetAttr::default() };
        shard.set_attr(handle, &set, clock::now()).map(drop)
    }
}
