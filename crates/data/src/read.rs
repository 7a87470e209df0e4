//! Reads of open files.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};

use pelago_wire::{Buffer, Code, limits};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::inode::Bytes;
use crate::open_files::OpenFiles;
use crate::open_key::OpenKey;

impl OpenFiles {
    /// Reads up to `size` bytes; fewer only at the end of the file. They are read into `room`
    /// instead of a new buffer, if it is given and large enough.
    ///
    /// # Errors
    /// `BadOpen`; those of the table and the disk; [`OpError::WouldBlock`] if the bytes are not in
    /// memory and the caller may not block.
    pub fn read(
        &self,
        open: OpenKey,
        offset: u64,
        size: u32,
        may_block: MayBlock,
        room: Option<&mut [u8]>,
    ) -> Result<Buffer, OpError> {
        let opened = self.opens.get(open)?;
        if !opened.flags.read {
            return Err(Code::BadOpen.into());
        }
        let mut guard = self.lock_if(&opened.inode, may_block)?;
        guard.load()?;
        if !opened.flags.no_atime {
            guard.note_read(opened.flags.strict_atime);
        }
        let left = guard.state.size.saturating_sub(offset);
        let size = u64::from(size).min(left).min(limits::IO_BYTES as u64) as usize;
        if size == 0 {
            return Ok(Buffer::default());
        }
        guard.expect_bytes_here()?;
        if let Bytes::Inline = guard.state.bytes {
            let bytes = guard.read_inline_row()?;
            if size == bytes.len() {
                // A kernel that reads a whole file caches its pages, and rarely reads it again.
                return Ok(Buffer::new(bytes));
            }
            if !self.memory.has_room(&guard.state.memory, bytes.len()) {
                return Ok(slice(&bytes, offset, size));
            }
            guard.state.bytes = Bytes::Memory(bytes);
            guard.state.count_memory();
        }
        if let Bytes::Memory(bytes) = &guard.state.bytes {
            return Ok(slice(bytes, offset, size));
        }
        let _permit = match guard.state.bytes {
            Bytes::ContentClosed(_) => self.io_permit(may_block)?,
            _ => None,
        };
        let content = guard.open_content()?;
        drop(guard);
        match room.and_then(|room| room.get_mut(..size)) {
            Some(room) => {
                let read = self.read_content(&content, offset, room, may_block)?;
                Ok(Buffer::in_room(read))
            }
            None => self
                .memory
                .buffers
                .fill(size, |buffer| self.read_content(&content, offset, buffer, may_block)),
        }
    }

    fn read_content(
        &self,
        content: &OpenContent,
        offset: u64,
        buffer: &mut [u8],
        may_block: MayBlock,
    ) -> Result<usize, OpError> {
        match may_block {
            MayBlock::No => read_cached(content.as_fd(), buffer, offset),
            MayBlock::Yes => {
                let read = content.read_at(buffer, offset);
                Ok(read.map_err(|error| self.disk.failed(&error))?)
            }
        }
    }
}

/// Copies the part of a range that lies within the bytes.
fn slice(bytes: &[u8], offset: u64, size: usize) -> Buffer {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let to = from.saturating_add(size).min(bytes.len());
    Buffer::new(bytes[from..to].to_vec())
}

/// Reads bytes that are all in the page cache, without waiting. In any other case, such as a short
/// read, an error, or a file system without such reads, it returns [`OpError::WouldBlock`], so that
/// a thread that may block reads again.
pub(crate) fn read_cached(
    content: BorrowedFd<'_>,
    buffer: &mut [u8],
    offset: u64,
) -> Result<usize, OpError> {
    let wanted = buffer.len();
    let mut parts = [IoSliceMut::new(buffer)];
    match preadv2(content, &mut parts, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) if read == wanted => Ok(read),
        Ok(_) | Err(_) => Err(OpError::WouldBlock),
    }
}
