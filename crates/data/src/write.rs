//! Changing the bytes of open files: in memory while they are few, in a content file from then on.

use std::sync::Arc;

use pelago_store::content::ContentFile;
use pelago_wire::{Code, Error, Generation, OpenId, SetAttr, Whence, limits};

use crate::blocking::{MayBlock, OpError};
use crate::content_file::OpenContent;
use crate::inode::{Bytes, Changed, Inode, InodeState};
use crate::open_files::{OpenFiles, Written};
use pelago_meta::shard::{BytesChange, Inline, LiveAttrs, Shard, WritingRow};
use pelago_store::clock;

/// Where a write goes and what it does besides.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Bytes from the start of the file, where it is not opened to append.
    pub offset: u64,
    /// What is written.
    pub bytes: &'a [u8],
    /// Clear setuid and setgid bits.
    pub kill_privileges: bool,
}

impl OpenFiles {
    /// Writes bytes. Fewer are taken only where the medium is full.
    ///
    /// # Errors
    /// `BadOpen`, `FileTooLarge`, `NoSpace`; [`OpError::WouldBlock`] where it may take long and the
    /// caller cannot wait: nothing was done then.
    pub fn write(
        &self,
        open: OpenId,
        write: Write<'_>,
        may_block: MayBlock,
    ) -> Result<Written, OpError> {
        let opened = self.known.get(open)?;
        if !opened.flags.write {
            return Err(Code::BadOpen.into());
        }
        if opened.flags.sync && may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let file = &opened.file;
        let mut state = file.lock(may_block)?;
        if !self.known.has(open) {
            return Err(Code::BadOpen.into());
        }
        self.load(file, &mut state)?;
        let at = if opened.flags.append { state.size } else { write.offset };
        let end = at.checked_add(write.bytes.len() as u64);
        let end = end.filter(|end| *end <= limits::FILE_BYTES).ok_or(Code::FileTooLarge)?;
        if write.bytes.is_empty() {
            return Ok(Written { bytes: 0, size: state.size, sync: false });
        }
        let bytes = if self.fits_memory(&state, end.max(state.size)) {
            if end > state.size {
                self.space.admit()?;
            }
            self.write_memory(file, &mut state, at, write.bytes)?;
            write.bytes.len()
        } else {
            let _slot = self.slot(may_block)?;
            let room = self.expect_bytes(file, &mut state, at, write.bytes.len() as u64)?;
            let at = Some(at).filter(|_| !(opened.flags.append && file.has_external_writers()));
            self.write_content(file, &mut state, at, &write.bytes[..room as usize])?
        };
        if write.kill_privileges {
            self.kill_privileges(file)?;
        }
        let size = state.size;
        drop(state);
        if opened.flags.sync {
            self.sync_open(open, file, true, MayBlock::Yes)?;
        }
        Ok(Written { bytes: bytes as u64, size, sync: opened.flags.sync })
    }

    /// How many of some bytes may be written into a content file. While new data is refused these
    /// are bytes that have their blocks already.
    ///
    /// # Errors
    /// `NoSpace`; those of the medium.
    pub(crate) fn expect_bytes(
        &self,
        file: &Inode,
        state: &mut InodeState,
        at: u64,
        bytes: u64,
    ) -> Result<u64, Error> {
        let taken = self.space.take(bytes);
        let refused = matches!(&taken, Err(error) if error.code == Code::NoSpace);
        if !refused || !state.has_content() || at + bytes > state.size {
            return taken;
        }
        let content = self.open_content(file, state)?;
        let hole = content.seek(at, Whence::Hole).map_err(|error| self.refused(&error))?;
        // A file system calls reserved blocks a hole; a file that has them all has no other.
        let whole = state.blocks.saturating_mul(512) >= state.size;
        if whole || hole.is_some_and(|hole| hole >= at + bytes) { Ok(bytes) } else { taken }
    }

    /// Cuts a file off, or extends it by a hole. Its row was read.
    pub(crate) fn truncate(
        &self,
        file: &Inode,
        state: &mut InodeState,
        size: u64,
    ) -> Result<(), Error> {
        if size > limits::FILE_BYTES {
            return Err(Code::FileTooLarge.into());
        }
        if size > state.size && !state.has_content() {
            self.space.admit()?;
        }
        if self.fits_memory(state, size) {
            if size == 0 {
                state.bytes = Bytes::Memory(Vec::new());
            }
            let bytes = self.in_memory(file, state)?;
            bytes.resize(size as usize, 0);
            self.changed_memory(file, state);
            return Ok(());
        }
        if size == 0 && state.outside.is_none() && self.marks.is_failed(file.handle.ino) {
            return self.begin_again(file, state);
        }
        let content = self.content_to_write(file, state)?;
        content.truncate(size).map_err(|error| self.refused(&error))?;
        self.marks.rewrote(file.handle.ino, 0..0, size);
        self.changed_content(file, state, &content)
    }

    /// Empties a file in error: it gets another content file, of which nothing is lost.
    fn begin_again(&self, file: &Inode, state: &mut InodeState) -> Result<(), Error> {
        let (ino, before) = (file.handle.ino, state.generation);
        let generation = Shard::next_generation(before);
        let descriptor = self.take_descriptor(ino)?;
        let made = self.content.create(ino, generation).map_err(|error| self.refused(&error))?;
        state.touch(clock::now());
        let timed = made.set_times(None, Some(state.mtime));
        timed.map_err(|error| self.refused(&error))?;
        let live = LiveAttrs { size: 0, blocks: 0, ..state.live() };
        let change = BytesChange {
            live: Some(live),
            generation: Some(generation),
            writing_row: WritingRow::Put,
            ..BytesChange::NOTHING
        };
        self.tell(file, &change)?;
        (state.size, state.blocks) = (0, 0);
        self.marks.heal(ino);
        self.has_begun(file, state, OpenContent::new(made, descriptor));
        file.changed();
        self.shard.set_live_attrs(ino, Some(state.live()));
        if let Some(before) = before {
            // What is left of it after a failure is for `check`.
            drop(self.content.remove(ino, before));
        }
        Ok(())
    }

    /// Whether a file of this size is kept in memory until it is committed.
    pub(crate) fn fits_memory(&self, state: &InodeState, size: u64) -> bool {
        size <= self.options.inline_bytes as u64
            && !state.has_content()
            && self.has_room(state, size as usize)
    }

    /// The bytes of a small file, in memory.
    pub(crate) fn in_memory<'a>(
        &self,
        file: &Inode,
        state: &'a mut InodeState,
    ) -> Result<&'a mut Vec<u8>, Error> {
        if let Bytes::Inline = state.bytes {
            state.bytes = Bytes::Memory(self.stored_bytes(file.handle.ino, state.size)?);
        }
        match &mut state.bytes {
            Bytes::Memory(bytes) => Ok(bytes),
            _ => Err(Code::Bug.into()),
        }
    }

    fn write_memory(
        &self,
        file: &Inode,
        state: &mut InodeState,
        at: u64,
        new: &[u8],
    ) -> Result<(), Error> {
        let bytes = self.in_memory(file, state)?;
        let from = at as usize;
        // Zeros only where something is left out.
        if bytes.len() < from {
            bytes.resize(from, 0);
        }
        let over = new.len().min(bytes.len() - from);
        let (over, behind) = new.split_at(over);
        bytes[from..from + over.len()].copy_from_slice(over);
        bytes.extend_from_slice(behind);
        self.changed_memory(file, state);
        Ok(())
    }

    pub(crate) fn changed_memory(&self, file: &Inode, state: &mut InodeState) {
        file.changed();
        if let Bytes::Memory(bytes) = &state.bytes {
            state.size = bytes.len() as u64;
        }
        state.count_memory();
        state.touch(clock::now());
        if !state.changed.bytes {
            state.changed.bytes = true;
            self.dirty.lock().insert(file.handle.ino);
        }
        self.shard.set_live_attrs(file.handle.ino, Some(state.live()));
    }

    fn write_content(
        &self,
        file: &Inode,
        state: &mut InodeState,
        at: Option<u64>,
        bytes: &[u8],
    ) -> Result<usize, Error> {
        let content = self.content_to_write(file, state)?;
        let done = match at {
            Some(at) => content.write_at(bytes, at).map(|()| bytes.len()),
            // Where the end is then: others write behind it meanwhile.
            None => content.append(bytes),
        };
        let written = match done {
            Ok(written) => written,
            Err(error) => {
                let refused = self.refused(&error);
                if error.written == 0 {
                    return Err(refused);
                }
                error.written
            }
        };
        self.changed_content(file, state, &content)?;
        if self.marks.any_failed() {
            let from = at.unwrap_or_else(|| state.size.saturating_sub(written as u64));
            let range = from..from.saturating_add(written as u64);
            self.marks.rewrote(file.handle.ino, range, state.size);
        }
        Ok(written)
    }

    pub(crate) fn changed_content(
        &self,
        file: &Inode,
        state: &mut InodeState,
        content: &OpenContent,
    ) -> Result<(), Error> {
        file.changed();
        state.written += 1;
        if file.has_external_writers()
            && let Some(outside) = &state.outside
        {
            outside.touch();
            self.look(file, state);
            return Ok(());
        }
        state.touch(clock::now());
        let measured = content.stat().map_err(|error| self.refused(&error))?;
        (state.size, state.blocks) = (measured.size, measured.blocks);
        self.shard.set_live_attrs(file.handle.ino, Some(state.live()));
        Ok(())
    }

    /// The content file of a file that is about to change there: it exists, and the mark stands.
    pub(crate) fn content_to_write(
        &self,
        file: &Inode,
        state: &mut InodeState,
    ) -> Result<Arc<OpenContent>, Error> {
        if !state.has_content() {
            return self.spill(file, state);
        }
        let content = self.open_to_write(file, state)?;
        self.mark(file, state, &content)?;
        if self.marks.begin_rewrite(file.handle.ino) {
            // The system tells this descriptor too of the failure that put the file in error. It
            // must not be taken for one of what is written from here on.
            drop(content.sync(true));
        }
        Ok(content)
    }

    /// The content file is about to change: the mark stands when this returns.
    pub(crate) fn mark(
        &self,
        file: &Inode,
        state: &mut InodeState,
        content: &ContentFile,
    ) -> Result<(), Error> {
        if state.marked {
            return Ok(());
        }
        let ino = file.handle.ino;
        if let Some(begun) = self.marks.begin(ino, content.generation()) {
            // After a crash the times of a marked file are those of its content. Where somebody
            // changes it without a request they are that already.
            let timed = match file.has_external_writers() {
                true => Ok(()),
                false => content.set_times(None, Some(state.mtime)),
            };
            let change = BytesChange { writing_row: WritingRow::Put, ..BytesChange::NOTHING };
            let marked = timed
                .map_err(|error| self.refused(&error))
                .and_then(|()| self.tell(file, &change).map(drop));
            if let Err(error) = marked {
                self.marks.undo(begun);
                return Err(error);
            }
        }
        state.marked = true;
        state.written += 1;
        Ok(())
    }

    /// A file that was just made gets its content file, open to write too where `write` is set.
    pub(crate) fn begin_content(
        &self,
        file: &Inode,
        state: &mut InodeState,
        write: bool,
    ) -> Result<(), Error> {
        let (ino, generation) = (file.handle.ino, Generation::FIRST);
        let descriptor = self.take_descriptor(ino)?;
        let made = match write {
            true => self.content.create(ino, generation),
            false => self.content.create_read_only(ino, generation),
        };
        let timed = made.and_then(|content| {
            // As whenever a mark is put.
            content.set_times(None, Some(state.mtime))?;
            Ok(content)
        });
        let content = timed.map_err(|error| self.refused(&error))?;
        let change = BytesChange {
            generation: Some(generation),
            writing_row: WritingRow::Put,
            ..BytesChange::NOTHING
        };
        self.tell(file, &change)?;
        let content = match write {
            true => OpenContent::new(content, descriptor),
            false => OpenContent::to_read(content, descriptor),
        };
        self.has_begun(file, state, content);
        Ok(())
    }

    /// The bytes are in a content file from now on, and the row says so.
    fn has_begun(&self, file: &Inode, state: &mut InodeState, content: Arc<OpenContent>) {
        self.marks.begin(file.handle.ino, content.generation());
        state.generation = Some(content.generation());
        state.bytes = Bytes::Content(content);
        state.inline_stored = false;
        state.changed = Changed::default();
        state.marked = true;
        state.written += 1;
        state.count_memory();
        self.dirty.lock().remove(&file.handle.ino);
    }

    /// Moves the bytes of a small file to its first content file.
    fn spill(&self, file: &Inode, state: &mut InodeState) -> Result<Arc<OpenContent>, Error> {
        let (stored, ino) = (state.inline_stored, file.handle.ino);
        let generation = Shard::next_generation(state.generation);
        let descriptor = self.take_descriptor(ino)?;
        let bytes = std::mem::take(self.in_memory(file, state)?);
        let spilled = self.content.create(ino, generation).and_then(|content| {
            content.write_at(&bytes, 0)?;
            if stored && !bytes.is_empty() {
                // The table promised them: it may forget them only when they are safe elsewhere.
                content.sync(false)?;
            }
            let measured = content.stat()?;
            Ok((content, measured.blocks))
        });
        let named = spilled.map_err(|error| self.refused(&error)).and_then(|spilled| {
            match stored && !bytes.is_empty() {
                true => self.sync_name(&spilled.0).map(|()| spilled),
                false => Ok(spilled),
            }
        });
        let told = named.and_then(|(content, blocks)| {
            state.blocks = blocks;
            let change = BytesChange {
                live: Some(LiveAttrs { blocks, ..state.live() }),
                inline: if stored || state.changed.all { Inline::Delete } else { Inline::Keep },
                generation: Some(generation),
                writing_row: WritingRow::Put,
                ..BytesChange::NOTHING
            };
            self.tell(file, &change)?;
            Ok(content)
        });
        let content = match told {
            Ok(content) => OpenContent::new(content, descriptor),
            Err(error) => {
                // What is left of it is emptied when the number is used again. Where the table may
                // have taken the batch all the same, its bytes stay.
                if !matches!(error.code, Code::Io | Code::Corrupt) {
                    drop(self.content.remove(ino, generation));
                }
                state.bytes = Bytes::Memory(bytes);
                state.count_memory();
                return Err(error);
            }
        };
        self.has_begun(file, state, Arc::clone(&content));
        Ok(content)
    }

    /// A write by somebody without privilege takes setuid and setgid bits away.
    pub(crate) fn kill_privileges(&self, file: &Inode) -> Result<(), Error> {
        if self.shard.attr(file.handle)?.mode & 0o6000 == 0 {
            return Ok(());
        }
        let set = SetAttr { kill_privileges: true, ..SetAttr::default() };
        self.shard.set_attr(file.handle, &set, clock::now()).map(drop)
    }
}
