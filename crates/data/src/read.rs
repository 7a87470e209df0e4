//! Where the bytes of an open file are, and reading them.

use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_store::content::ContentFile;
use pelago_store::key;
use pelago_store::rows::Inline;
use pelago_wire::{Buffer, Code, Error, FileKind, Generation, InodeId, OpenId, limits};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::inode::{Bytes, Inode, InodeState};
use crate::open_files::OpenFiles;
use pelago_store::report::{row_damaged, table_failed};

impl OpenFiles {
    /// Reads up to `size` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// `BadOpen`; [`OpError::WouldBlock`] where the bytes are not in memory and the caller cannot
    /// wait.
    pub fn read(
        &self,
        open: OpenId,
        offset: u64,
        size: u32,
        may_block: MayBlock,
    ) -> Result<Buffer, OpError> {
        let opened = self.known.get(open)?;
        if !opened.flags.read {
            return Err(Code::BadOpen.into());
        }
        let file = &opened.file;
        let mut state = file.lock(may_block)?;
        self.load(file, &mut state)?;
        if !opened.flags.no_atime {
            self.note_read(file, opened.flags.strict_atime);
        }
        let left = state.size.saturating_sub(offset);
        let size = u64::from(size).min(left).min(limits::IO_BYTES as u64) as usize;
        if size == 0 {
            return Ok(Buffer::default());
        }
        if let Bytes::Inline = state.bytes {
            let bytes = self.stored_bytes(file.handle.ino, state.size)?;
            if size == bytes.len() {
                // Whoever reads it whole, as a kernel does that keeps it then, seldom asks again.
                return Ok(Buffer::new(bytes));
            }
            if !self.has_room(&state, bytes.len()) {
                return Ok(slice(&bytes, offset, size));
            }
            state.bytes = Bytes::Memory(bytes);
            state.count_memory();
        }
        if let Bytes::Memory(bytes) = &state.bytes {
            return Ok(slice(bytes, offset, size));
        }
        let _slot = match state.bytes {
            Bytes::File(_) => self.slot(may_block)?,
            _ => None,
        };
        let content = self.open_content(file, &mut state)?;
        drop(state);
        self.read_content(&content, offset, size, may_block)
    }

    fn read_content(
        &self,
        content: &OpenContent,
        offset: u64,
        size: usize,
        may_block: MayBlock,
    ) -> Result<Buffer, OpError> {
        self.buffers.fill(size, |buffer| match may_block {
            MayBlock::No => read_cached(content, buffer, offset),
            MayBlock::Yes => {
                let read = content.read_at(buffer, offset);
                Ok(read.map_err(|error| self.refused(&error))?)
            }
        })
    }

    /// Reads the row of a file, where that was not done yet; looks at the content file, where that
    /// may have changed without a request.
    pub(crate) fn load(&self, file: &Inode, state: &mut InodeState) -> Result<(), Error> {
        if state.lost {
            return Err(Code::Stale.into());
        }
        self.look(file, state);
        if !matches!(state.bytes, Bytes::Unknown) {
            return Ok(());
        }
        let rnode = self.shard.stored_node(file.handle)?.rnode;
        if rnode.kind != FileKind::Regular {
            return Err(Code::Invalid.into());
        }
        file.loaded(&rnode.attr());
        let bytes = match rnode.generation {
            Some(generation) if rnode.flags.has_content => Bytes::File(generation),
            _ if rnode.flags.inline => Bytes::Inline,
            _ if rnode.size == 0 => Bytes::Memory(Vec::new()),
            _ => {
                tracing::error!(ino = %rnode.ino, "a file has lost its bytes; run `pelago check`");
                return Err(Code::Corrupt.into());
            }
        };
        state.bytes = bytes;
        (state.size, state.blocks) = (rnode.size, rnode.blocks);
        (state.mtime, state.ctime) = (rnode.mtime, rnode.ctime);
        state.generation = rnode.generation;
        state.inline_stored = rnode.flags.inline;
        match state.bytes {
            Bytes::File(generation) => self.compare_content(file, state, generation),
            _ => Ok(()),
        }
    }

    /// Where the machine died, bytes may have been safe before the mark that announced them. The
    /// content file is right then, and the row is told so at the next commit.
    fn compare_content(
        &self,
        file: &Inode,
        state: &mut InodeState,
        generation: Generation,
    ) -> Result<(), Error> {
        if self.marks.is_unsafe(file.handle.ino) {
            return Ok(());
        }
        self.correct(file, state, generation)
    }

    /// Takes size and times of the content file where they are others than the row's.
    pub(crate) fn correct(
        &self,
        file: &Inode,
        state: &mut InodeState,
        generation: Generation,
    ) -> Result<(), Error> {
        let ino = file.handle.ino;
        let measured = self.content.stat(ino, generation);
        let Some(measured) = measured.map_err(|error| self.refused(&error))? else {
            return Ok(());
        };
        if measured.size == state.size {
            return Ok(());
        }
        tracing::warn!(%ino, "a file is as long as its content, not as its row says");
        (state.size, state.blocks) = (measured.size, measured.blocks);
        state.mtime = measured.mtime;
        state.ctime = state.ctime.next().max(measured.ctime);
        if !self.read_only {
            state.changed.row = true;
            self.shard.set_live_attrs(ino, Some(state.live()));
        }
        Ok(())
    }

    /// The bytes of a small file as the table has them.
    pub(crate) fn stored_bytes(&self, ino: InodeId, size: u64) -> Result<Vec<u8>, Error> {
        let key = key::inline(ino);
        let value = self.table.get(&key).map_err(|error| table_failed("reading", &error))?;
        let Some(value) = value else {
            tracing::error!(%ino, "the bytes of a file are missing; run `pelago check`");
            return Err(Code::Corrupt.into());
        };
        let bytes = Inline::decode_owned(value).map_err(|error| row_damaged(&key, error))?;
        if bytes.len() as u64 != size {
            tracing::error!(%ino, "a file has not as many bytes as its row says");
            return Err(Code::Corrupt.into());
        }
        Ok(bytes)
    }

    /// The content file of a file whose bytes are in one.
    pub(crate) fn open_content(
        &self,
        file: &Inode,
        state: &mut InodeState,
    ) -> Result<Arc<OpenContent>, Error> {
        match &state.bytes {
            Bytes::Content(content) => {
                content.note_use();
                Ok(Arc::clone(content))
            }
            _ if self.read_only => self.open_to_read(file, state),
            _ => self.open_to_write(file, state),
        }
    }

    /// The same, open to write too.
    pub(crate) fn open_to_write(
        &self,
        file: &Inode,
        state: &mut InodeState,
    ) -> Result<Arc<OpenContent>, Error> {
        if let Bytes::Content(content) = &state.bytes
            && content.is_writable()
        {
            content.note_use();
            return Ok(Arc::clone(content));
        }
        let content = match self.marks.take_kept(file.handle.ino) {
            Some(kept) => self.open_kept(file, state, kept, true)?,
            None => {
                let descriptor = self.take_descriptor(file.handle.ino)?;
                OpenContent::new(self.open_file(file, state, true)?, descriptor)
            }
        };
        state.bytes = Bytes::Content(Arc::clone(&content));
        Ok(content)
    }

    /// The same, open to read only.
    pub(crate) fn open_to_read(
        &self,
        file: &Inode,
        state: &mut InodeState,
    ) -> Result<Arc<OpenContent>, Error> {
        if let Bytes::Content(content) = &state.bytes
            && !content.is_writable()
        {
            return Ok(Arc::clone(content));
        }
        let content = match self.marks.take_kept(file.handle.ino) {
            Some(kept) => self.open_kept(file, state, kept, false)?,
            None => {
                let descriptor = self.take_descriptor(file.handle.ino)?;
                OpenContent::to_read(self.open_file(file, state, false)?, descriptor)
            }
        };
        if let Bytes::File(_) = state.bytes {
            state.bytes = Bytes::Content(Arc::clone(&content));
        }
        Ok(content)
    }

    /// The content file that was kept open since its file was closed, open to write too or to read
    /// only.
    fn open_kept(
        &self,
        file: &Inode,
        state: &InodeState,
        kept: Arc<OpenContent>,
        write: bool,
    ) -> Result<Arc<OpenContent>, Error> {
        if kept.is_writable() == write {
            kept.note_use();
            return Ok(kept);
        }
        // The other way, and only then the first is closed: a failure to write bytes back is not
        // forgotten between.
        let opened = self.open_file(file, state, write).inspect_err(|_| {
            self.marks.break_watch(file.handle.ino);
        })?;
        let descriptor = match Arc::try_unwrap(kept) {
            Ok(kept) => kept.into_descriptor(),
            Err(_) => self.take_descriptor(file.handle.ino)?,
        };
        Ok(match write {
            true => OpenContent::new(opened, descriptor),
            false => OpenContent::to_read(opened, descriptor),
        })
    }

    fn open_file(
        &self,
        file: &Inode,
        state: &InodeState,
        write: bool,
    ) -> Result<ContentFile, Error> {
        // Nobody asks for a content file that there is not.
        let generation = state.bytes.generation().ok_or(Code::Bug)?;
        let ino = file.handle.ino;
        let opened = self.content.open_file(ino, generation, write);
        opened.map_err(|error| self.refused(&error))?.ok_or_else(|| missing(ino))
    }

    /// Whether the memory of all open files lets this one take so many bytes.
    pub(crate) fn has_room(&self, state: &InodeState, bytes: usize) -> bool {
        let all = self.held.load(Ordering::Relaxed);
        all.saturating_sub(state.held.bytes()) + bytes <= self.options.open_bytes
    }
}

/// What is told where the content file of a row is not there.
pub(crate) fn missing(ino: InodeId) -> Error {
    tracing::error!(%ino, "the content of a file is missing; run `pelago check`");
    Code::Corrupt.into()
}

/// The bytes of a range that begins within them.
fn slice(bytes: &[u8], offset: u64, size: usize) -> Buffer {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let to = from.saturating_add(size).min(bytes.len());
    Buffer::new(bytes[from..to].to_vec())
}

/// Reads what the system has in memory, all or nothing.
fn read_cached(content: &OpenContent, buffer: &mut [u8], offset: u64) -> Result<usize, OpError> {
    let wanted = buffer.len();
    let mut parts = [IoSliceMut::new(buffer)];
    match preadv2(content.as_fd(), &mut parts, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) if read == wanted => Ok(read),
        // Some is missing, or the medium knows no such reads: a thread that may wait finds out.
        Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => {
            Err(OpError::WouldBlock)
        }
        Err(_) => Err(OpError::WouldBlock),
    }
}
