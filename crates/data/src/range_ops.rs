//! Operations on ranges of open files: `fallocate`, the search for data and holes, and copies.

use std::sync::Arc;

use pelago_store::content::{self, ContentStat};
use pelago_wire::{AllocateMode, Buffer, Code, Error, SeekFrom, Whence, limits};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::disk::Disk;
use crate::inode::Uncommitted;
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;
use crate::open_key::OpenKey;
use crate::open_table::Opened;
use crate::write::{Write, Written};

/// The most bytes that one request copies, because the written file is locked meanwhile.
const COPY_BYTES: u64 = 16 << 20;
/// The most bytes that are copied by a read and a write: those that a file can have in memory.
const SMALL_BYTES: u64 = limits::INLINE_BYTES as u64;

/// A range to be reserved or freed.
#[derive(Debug, Clone, Copy)]
pub struct Allocate {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u64,
    /// The operation.
    pub mode: AllocateMode,
    /// True if the setuid and setgid bits are cleared.
    pub kill_privileges: bool,
}

/// A copy of bytes from one open file to another, or within one.
#[derive(Debug, Clone, Copy)]
pub struct Copy {
    /// The open to read from.
    pub from: OpenKey,
    /// Bytes from the start of that file.
    pub from_offset: u64,
    /// The open to write to.
    pub to: OpenKey,
    /// Bytes from the start of that file.
    pub to_offset: u64,
    /// Bytes to copy.
    pub length: u64,
    /// True if the setuid and setgid bits of the written file are cleared.
    pub kill_privileges: bool,
}

impl Allocate {
    fn end(&self) -> Result<u64, Code> {
        if self.length == 0 {
            return Err(Code::Invalid);
        }
        let end = self.offset.checked_add(self.length);
        end.filter(|end| *end <= limits::FILE_BYTES).ok_or(Code::FileTooLarge)
    }

    const fn keeps_size(&self) -> bool {
        match self.mode {
            AllocateMode::Reserve { keep_size } | AllocateMode::Zero { keep_size } => keep_size,
            AllocateMode::PunchHole => true,
        }
    }
}

impl OpenFiles {
    /// Reserves or frees a range, as `fallocate` does; `mtime` and `ctime` change. A file in memory
    /// needs no reservation: the table has room for its bytes. Returns whether the reply must wait
    /// until all done batches are safe.
    ///
    /// # Errors
    /// `BadOpen`, `Invalid` for an empty range, `FileTooLarge`, `NoSpace`, `NotSupported` if the
    /// disk cannot; [`OpError::WouldBlock`].
    pub fn allocate(
        &self,
        open: OpenKey,
        range: Allocate,
        may_block: MayBlock,
    ) -> Result<bool, OpError> {
        let opened = self.writer(open, may_block)?;
        let end = range.end()?;
        let inode = &opened.inode;
        let mut guard = self.lock_if(inode, may_block)?;
        self.opens.check_open(open)?;
        guard.load()?;
        if range.mode != AllocateMode::PunchHole {
            self.disk.space.admit()?;
        }
        let before = guard.state.size;
        let size = if range.keeps_size() { before } else { end.max(before) };
        let reserved = match range.mode {
            AllocateMode::Reserve { .. } => end.max(size),
            AllocateMode::PunchHole | AllocateMode::Zero { .. } => size,
        };
        if guard.fits_memory(reserved) {
            guard.allocate_memory(&range, end, size)?;
        } else if may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        } else {
            guard.allocate_content(&range)?;
        }
        if range.kill_privileges {
            guard.kill_privileges()?;
        }
        drop(guard);
        if opened.flags.sync {
            self.sync_open(open, inode, true, MayBlock::Yes)?;
        }
        Ok(opened.flags.sync)
    }

    /// Returns the offset of the next data or hole at or after an offset. The end of the file
    /// counts as a hole.
    ///
    /// # Errors
    /// `BadOpen`, `NoData`; [`OpError::WouldBlock`].
    pub fn seek(&self, open: OpenKey, from: SeekFrom, may_block: MayBlock) -> Result<u64, OpError> {
        let opened = self.opens.get(open)?;
        let mut guard = self.lock_if(&opened.inode, may_block)?;
        guard.load()?;
        let size = guard.state.size;
        if from.offset >= size {
            return Err(Code::NoData.into());
        }
        if !guard.state.has_content() {
            return Ok(match from.whence {
                Whence::Data => from.offset,
                Whence::Hole => size,
            });
        }
        if may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let content = guard.open_content()?;
        drop(guard);
        // This moves the offset of the descriptor, which no other code uses.
        let found = content.seek(from.offset, from.whence);
        let found = found.map_err(|error| range_failed(&self.disk, &error))?;
        found.ok_or_else(|| Code::NoData.into())
    }

    /// Copies bytes: fewer at the end of the source, and at most 16 MiB.
    ///
    /// # Errors
    /// `BadOpen`, also if the target is open to append; `Invalid` if the ranges overlap in one
    /// file; `FileTooLarge`, `NoSpace`; `NotSupported` if the disk cannot; [`OpError::WouldBlock`].
    pub fn copy_range(&self, copy: Copy, may_block: MayBlock) -> Result<Written, OpError> {
        let source = self.opens.get(copy.from)?;
        let target = self.writer(copy.to, may_block)?;
        if !source.flags.read || target.flags.append {
            return Err(Code::BadOpen.into());
        }
        let Copy { from_offset, to_offset, kill_privileges, .. } = copy;
        let mut guard = self.lock_if(&source.inode, may_block)?;
        guard.load()?;
        let length = copy.length.min(guard.state.size.saturating_sub(from_offset));
        let overlap = from_offset < to_offset.saturating_add(length)
            && to_offset < from_offset.saturating_add(length);
        if overlap && Arc::ptr_eq(&source.inode, &target.inode) {
            return Err(Code::Invalid.into());
        }
        if length <= SMALL_BYTES || !guard.state.has_content() {
            drop(guard);
            let buffer = match u32::try_from(length) {
                Ok(0) | Err(_) => Buffer::default(),
                Ok(length) => self.read(copy.from, from_offset, length, may_block, None)?,
            };
            let bytes = buffer.as_bytes();
            let write =
                Write { offset: to_offset, append: false, once: None, bytes, kill_privileges };
            return self.write(copy.to, write, may_block);
        }
        if may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let content = guard.open_content()?;
        // No thread locks two inodes at a time.
        drop(guard);
        self.copy_content(&content, &target, Copy { length: length.min(COPY_BYTES), ..copy })
    }

    /// Returns an open that may change its file.
    fn writer(&self, open: OpenKey, may_block: MayBlock) -> Result<Opened, OpError> {
        let opened = self.opens.get(open)?;
        if !opened.flags.write {
            return Err(Code::BadOpen.into());
        }
        if opened.flags.sync && may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        Ok(opened)
    }

    /// Copies from a content file into the file of another open, which is locked meanwhile.
    fn copy_content(
        &self,
        content: &OpenContent,
        target: &Opened,
        copy: Copy,
    ) -> Result<Written, OpError> {
        let end = copy.to_offset.checked_add(copy.length);
        end.filter(|end| *end <= limits::FILE_BYTES).ok_or(Code::FileTooLarge)?;
        let inode = &target.inode;
        let mut guard = self.lock(inode);
        self.opens.check_open(copy.to)?;
        guard.load()?;
        let length = guard.admit_bytes(copy.to_offset, copy.length)? as usize;
        let changed = copy.to_offset..copy.to_offset.saturating_add(length as u64);
        let into = guard.content_to_write(&changed)?;
        let bytes = match content.copy_to(copy.from_offset, &into, copy.to_offset, length) {
            Ok(bytes) => bytes,
            Err(error) if error.written == 0 => {
                return Err(range_failed(&self.disk, &error).into());
            }
            Err(error) => error.written,
        };
        guard.note_content_changed(&into, &changed)?;
        if copy.kill_privileges {
            guard.kill_privileges()?;
        }
        let size = guard.state.size;
        drop(guard);
        if target.flags.sync {
            self.sync_open(copy.to, inode, true, MayBlock::Yes)?;
        }
        Ok(Written { bytes: bytes as u64, size, sync: target.flags.sync })
    }
}

impl InodeGuard<'_> {
    fn allocate_memory(&mut self, range: &Allocate, end: u64, size: u64) -> Result<(), Error> {
        let bytes = self.bytes_in_memory()?;
        bytes.resize(size as usize, 0);
        if !matches!(range.mode, AllocateMode::Reserve { .. }) {
            bytes[range.offset.min(size) as usize..end.min(size) as usize].fill(0);
        }
        self.note_memory_changed();
        Ok(())
    }

    fn allocate_content(&mut self, range: &Allocate) -> Result<(), Error> {
        let disk = &self.files.disk;
        let changed = range.offset..range.offset.saturating_add(range.length);
        let content = self.content_to_write(&changed)?;
        if range.mode != AllocateMode::PunchHole {
            disk.space.admit_reservation(range.length, self.state.blocks * 512)?;
        }
        let Err(error) = allocate(&content, range) else {
            return self.note_content_changed(&content, &changed);
        };
        if range.mode != AllocateMode::PunchHole {
            self.undo_allocate(&content);
        }
        // It may have changed a part.
        let key = (content.ino(), content.generation());
        self.files.changes.note(key, &changed, self.state.size);
        // A request for more bytes than are free does not mean that the disk is full.
        match error.is_no_space() {
            true => Err(Code::NoSpace.into()),
            false => Err(range_failed(disk, &error)),
        }
    }

    /// Truncates the bytes that a failed reservation left after the end of the file, so that a
    /// failure changes nothing. If programs write the file without requests, these bytes may be
    /// theirs, and stay.
    fn undo_allocate(&mut self, content: &OpenContent) {
        if self.inode.has_external_writers() {
            return;
        }
        let state = &mut *self.state;
        let is_same = |now: &ContentStat| (now.size, now.blocks) == (state.size, state.blocks);
        if content.stat().is_ok_and(|now| is_same(&now)) {
            return;
        }
        // The caller reports the first failure, not this one.
        drop(content.truncate(state.size));
        if let Ok(now) = content.stat() {
            state.size = now.size;
            state.blocks = now.blocks;
        }
        state.uncommitted.add(Uncommitted::Attr);
        self.publish();
    }
}

/// Returns the code for the caller of a failed range operation.
fn range_failed(disk: &Disk, error: &content::Error) -> Error {
    if error.is_unsupported() {
        return Code::NotSupported.into();
    }
    disk.failed(error)
}

fn allocate(content: &OpenContent, range: &Allocate) -> Result<(), content::Error> {
    let Allocate { offset, length, mode, .. } = *range;
    match content.allocate(mode, offset, length) {
        // Not every file system can zero a range. A hole reads the same.
        Err(error) if error.is_unsupported() && matches!(mode, AllocateMode::Zero { .. }) => {
            let reserve = AllocateMode::Reserve { keep_size: range.keeps_size() };
            // The reservation comes first: if there is no room for it, no byte is lost.
            content.allocate(reserve, offset, length)?;
            content.allocate(AllocateMode::PunchHole, offset, length)?;
            // If another program took the space since, a hole stays, which reads the same.
            drop(content.allocate(reserve, offset, length));
            Ok(())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use pelago_wire::{DataPath, OpenFlags};

    use crate::testing::{READ_WRITE, Rig, pattern, reopened};

    /// A reservation that failed must take nothing from programs that write without requests.
    #[test]
    fn a_failed_reservation_cuts_nothing_off_a_file_with_external_writers() {
        let rig = Rig::new();
        let entry = rig.file("f", &pattern(100_000));
        let flags = OpenFlags { passthrough: true, ..READ_WRITE };
        let (open, opening) = rig.opening(entry.handle, flags).unwrap();
        let DataPath::Passthrough(backing) = &opening.path else { panic!("{opening:?}") };
        let program = reopened(backing, flags);
        let inode = rig.files.opens.get(open).unwrap().inode;
        let mut guard = rig.files.lock(&inode);
        let content = guard.open_content_to_write().unwrap();
        program.write_all_at(b"more", 100_000).unwrap();
        guard.undo_allocate(&content);
        assert_eq!(program.metadata().unwrap().len(), 100_004);
    }
}
