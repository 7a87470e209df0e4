//! Ranges of open files: reserved and freed, searched for data and holes, copied.

use std::sync::Arc;

use pelago_store::content;
use pelago_wire::{AllocateMode, Code, Error, OpenId, SeekFrom, Whence, limits};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::inode::{Inode, InodeState};
use crate::open_files::{OpenFiles, Written};
use crate::open_table::Opened;
use crate::write::Write;

/// Bytes that are copied for one request at the most: the file that gets them is not free for
/// others meanwhile.
const COPY_BYTES: u64 = 16 << 20;
/// Up to so many bytes a copy is a read and a write: all that memory can hold of one file.
const SMALL_BYTES: u64 = limits::INLINE_BYTES as u64;

/// A range to be reserved or freed.
#[derive(Debug, Clone, Copy)]
pub struct Allocate {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes of the range.
    pub length: u64,
    /// What to do with it.
    pub mode: AllocateMode,
    /// Clear setuid and setgid bits.
    pub kill_privileges: bool,
}

/// Bytes to be copied from one open file to another, or within one.
#[derive(Debug, Clone, Copy)]
pub struct Copy {
    /// The open file to read.
    pub from: OpenId,
    /// Bytes from its start.
    pub from_offset: u64,
    /// The open file to write.
    pub to: OpenId,
    /// Bytes from its start.
    pub to_offset: u64,
    /// Bytes to copy.
    pub length: u64,
    /// Clear setuid and setgid bits of the file that is written.
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
    /// Reserves or frees a range, as `fallocate` does; both times change. What is kept in memory
    /// needs no reservation: its bytes have their place in the table. Answers whether it may be
    /// answered only when what is done now is safe.
    ///
    /// # Errors
    /// `BadOpen`, `Invalid` for no bytes, `FileTooLarge`, `NoSpace`, `NotSupported` where the
    /// medium cannot; [`OpError::WouldBlock`].
    pub fn allocate(
        &self,
        open: OpenId,
        asked: Allocate,
        may_block: MayBlock,
    ) -> Result<bool, OpError> {
        let opened = self.writer(open, may_block)?;
        let end = asked.end()?;
        let file = &opened.file;
        let mut state = file.lock(may_block)?;
        if !self.known.has(open) {
            return Err(Code::BadOpen.into());
        }
        self.load(file, &mut state)?;
        if asked.mode != AllocateMode::PunchHole {
            self.space.admit()?;
        }
        let size = if asked.keeps_size() { state.size } else { end.max(state.size) };
        let reserved = match asked.mode {
            AllocateMode::Reserve { .. } => end.max(size),
            AllocateMode::PunchHole | AllocateMode::Zero { .. } => size,
        };
        if self.fits_memory(&state, reserved) {
            let bytes = self.in_memory(file, &mut state)?;
            bytes.resize(size as usize, 0);
            if !matches!(asked.mode, AllocateMode::Reserve { .. }) {
                bytes[asked.offset.min(size) as usize..end.min(size) as usize].fill(0);
            }
            self.changed_memory(file, &mut state);
        } else if may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        } else {
            self.allocate_content(file, &mut state, &asked)?;
        }
        if asked.kill_privileges {
            self.kill_privileges(file)?;
        }
        drop(state);
        if opened.flags.sync {
            self.sync_open(open, file, true, MayBlock::Yes)?;
        }
        Ok(opened.flags.sync)
    }

    /// The next data or hole at or behind an offset; the end of the file counts as a hole.
    ///
    /// # Errors
    /// `BadOpen`, `NoData`; [`OpError::WouldBlock`].
    pub fn seek(&self, open: OpenId, from: SeekFrom, may_block: MayBlock) -> Result<u64, OpError> {
        let opened = self.known.get(open)?;
        let file = &opened.file;
        let mut state = file.lock(may_block)?;
        self.load(file, &mut state)?;
        if from.offset >= state.size {
            return Err(Code::NoData.into());
        }
        if !state.has_content() {
            return Ok(match from.whence {
                Whence::Data => from.offset,
                Whence::Hole => state.size,
            });
        }
        if may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let content = self.open_content(file, &mut state)?;
        drop(state);
        // The descriptor's own offset moves, which nobody looks at.
        let found = content.seek(from.offset, from.whence);
        let found = found.map_err(|error| self.refused_range(&error))?;
        found.ok_or_else(|| Code::NoData.into())
    }

    /// Copies bytes; fewer at the end of the file that is read, and where that many are too many
    /// for one request.
    ///
    /// # Errors
    /// `BadOpen`, also for a file to be written that is open to append; `Invalid` where the ranges
    /// overlap in one file; `FileTooLarge`, `NoSpace`; `NotSupported` where the medium cannot;
    /// [`OpError::WouldBlock`].
    pub fn copy_range(&self, copy: Copy, may_block: MayBlock) -> Result<Written, OpError> {
        let source = self.known.get(copy.from)?;
        let target = self.writer(copy.to, may_block)?;
        if !source.flags.read || target.flags.append {
            return Err(Code::BadOpen.into());
        }
        let Copy { from_offset, to_offset, kill_privileges, .. } = copy;
        let mut state = source.file.lock(may_block)?;
        self.load(&source.file, &mut state)?;
        let length = copy.length.min(state.size.saturating_sub(from_offset));
        let overlap = from_offset < to_offset.saturating_add(length)
            && to_offset < from_offset.saturating_add(length);
        if overlap && Arc::ptr_eq(&source.file, &target.file) {
            return Err(Code::Invalid.into());
        }
        if length <= SMALL_BYTES || !state.has_content() {
            drop(state);
            let buffer = match u32::try_from(length) {
                Ok(0) | Err(_) => pelago_wire::Buffer::default(),
                Ok(length) => self.read(copy.from, from_offset, length, may_block)?,
            };
            let write = Write { offset: to_offset, bytes: buffer.as_bytes(), kill_privileges };
            return self.write(copy.to, write, may_block);
        }
        if may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let content = self.open_content(&source.file, &mut state)?;
        // Nobody holds two files at a time.
        drop(state);
        self.copy_content(&content, &target, Copy { length: length.min(COPY_BYTES), ..copy })
    }

    /// An open that changes a file.
    fn writer(&self, open: OpenId, may_block: MayBlock) -> Result<Opened, OpError> {
        let opened = self.known.get(open)?;
        if !opened.flags.write {
            return Err(Code::BadOpen.into());
        }
        if opened.flags.sync && may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        Ok(opened)
    }

    fn allocate_content(
        &self,
        file: &Inode,
        state: &mut InodeState,
        asked: &Allocate,
    ) -> Result<(), Error> {
        let content = self.content_to_write(file, state)?;
        if asked.mode != AllocateMode::PunchHole {
            self.expect_space(asked.length, state.blocks * 512)?;
        }
        let Err(error) = allocate(&content, asked) else {
            return self.changed_content(file, state, &content);
        };
        if asked.mode != AllocateMode::PunchHole {
            self.give_back(file, state, &content);
        }
        // Who asks for more than there is has not filled the medium.
        match error.is_no_space() {
            true => Err(Code::NoSpace.into()),
            false => Err(self.refused_range(&error)),
        }
    }

    /// Whether so many bytes can be had by a file that has some: else a file system takes all that
    /// is left, from everybody, before it gives up.
    fn expect_space(&self, bytes: u64, has: u64) -> Result<(), Error> {
        let stats = self.space.measure()?;
        let free = stats.available.saturating_mul(u64::from(stats.block_bytes));
        match bytes > free.saturating_add(has) {
            true => Err(Code::NoSpace.into()),
            false => Ok(()),
        }
    }

    /// A reservation failed half-way: what lies behind the end goes again, so that a failure
    /// changes nothing. Where others write the file meanwhile what lies there may be theirs.
    pub(crate) fn give_back(&self, file: &Inode, state: &mut InodeState, content: &OpenContent) {
        if file.has_external_writers() {
            return;
        }
        let (size, blocks) = (state.size, state.blocks);
        let is_same = |now: &content::ContentStat| (now.size, now.blocks) == (size, blocks);
        if content.stat().is_ok_and(|now| is_same(&now)) {
            return;
        }
        // The one who asked learns of the first failure.
        drop(content.truncate(size));
        if let Ok(now) = content.stat() {
            (state.size, state.blocks) = (now.size, now.blocks);
        }
        state.changed.row = true;
        self.shard.set_live_attrs(file.handle.ino, Some(state.live()));
    }

    /// Copies between content files, into one that nobody else changes meanwhile.
    fn copy_content(
        &self,
        content: &OpenContent,
        target: &Opened,
        copy: Copy,
    ) -> Result<Written, OpError> {
        let end = copy.to_offset.checked_add(copy.length);
        end.filter(|end| *end <= limits::FILE_BYTES).ok_or(Code::FileTooLarge)?;
        let file = &target.file;
        let mut state = file.wait();
        if !self.known.has(copy.to) {
            return Err(Code::BadOpen.into());
        }
        self.load(file, &mut state)?;
        let length = self.expect_bytes(file, &mut state, copy.to_offset, copy.length)? as usize;
        let into = self.content_to_write(file, &mut state)?;
        let bytes = match content.copy_to(copy.from_offset, &into, copy.to_offset, length) {
            Ok(bytes) => bytes,
            Err(error) if error.written == 0 => return Err(self.refused_range(&error).into()),
            Err(error) => error.written,
        };
        self.changed_content(file, &mut state, &into)?;
        if copy.kill_privileges {
            self.kill_privileges(file)?;
        }
        let size = state.size;
        drop(state);
        if target.flags.sync {
            self.sync_open(copy.to, file, true, MayBlock::Yes)?;
        }
        Ok(Written { bytes: bytes as u64, size, sync: target.flags.sync })
    }

    fn refused_range(&self, error: &content::Error) -> Error {
        if error.is_unsupported() {
            return Code::NotSupported.into();
        }
        self.refused(error)
    }
}

fn allocate(content: &OpenContent, asked: &Allocate) -> Result<(), content::Error> {
    let Allocate { offset, length, mode, .. } = *asked;
    match content.allocate(mode, offset, length) {
        // Not every file system can; a hole reads the same.
        Err(error) if error.is_unsupported() && matches!(mode, AllocateMode::Zero { .. }) => {
            let reserve = AllocateMode::Reserve { keep_size: asked.keeps_size() };
            // First: where there is no room for it, no byte is lost.
            content.allocate(reserve, offset, length)?;
            content.allocate(AllocateMode::PunchHole, offset, length)?;
            // It had the space a moment ago; whoever took it leaves a hole that reads the same.
            drop(content.allocate(reserve, offset, length));
            Ok(())
        }
        done => done,
    }
}
