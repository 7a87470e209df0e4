//! The spill of a file's bytes to its first content file, and the preparation of writes to a
//! content file.

use std::ops::Range;
use std::sync::Arc;

use pelago_meta::shard::{BytesChange, InlineBytes, LiveAttrs, Shard, WritingRow};
use pelago_store::content::{self, ContentFile, FileAccess};
use pelago_store::report::table_failed;
use pelago_wire::{Code, Error, Generation};

use crate::content_file::OpenContent;
use crate::inode::{Bytes, Uncommitted};
use crate::inode_guard::InodeGuard;

impl InodeGuard<'_> {
    /// Returns the content file of a file whose bytes in `range` are about to change. Creates it
    /// and its `writing` row if they are missing.
    ///
    /// # Errors
    /// `NoSpace`, `TooManyOpen`; if the table or the disk fails.
    pub(crate) fn content_to_write(
        &mut self,
        range: &Range<u64>,
    ) -> Result<Arc<OpenContent>, Error> {
        let content = match self.state.has_content() {
            true => self.existing_content_to_write()?,
            false => self.spill()?,
        };
        let files = self.files;
        files.changes.announce(&files.disk.content, &content, range, self.state.size);
        Ok(content)
    }

    fn existing_content_to_write(&mut self) -> Result<Arc<OpenContent>, Error> {
        if self.is_copy_on_write() {
            return self.renew_content(self.state.size);
        }
        let content = self.open_content_to_write()?;
        self.write_writing_row(&content)?;
        self.keep_pinned();
        if self.files.writing.begin_rewrite(self.ino()) {
            // The kernel reports the failure that put the file in error to this descriptor too. It
            // must not count as a failure of the following writes.
            drop(content.sync(true));
        }
        Ok(content)
    }

    /// Creates the content file of a file that was just created, open for `access`.
    ///
    /// # Errors
    /// `NoSpace`, `TooManyOpen`; if the table or the disk fails: the file stays in memory.
    pub(crate) fn begin_with_content(&mut self, access: FileAccess) -> Result<(), Error> {
        let ino = self.ino();
        let disk = &self.files.disk;
        let permit = self.files.take_fd_permit(ino)?;
        let created = match access {
            FileAccess::ReadWrite => disk.content.create(ino, Generation::FIRST),
            FileAccess::Read => disk.content.create_read_only(ino, Generation::FIRST),
        };
        let timed = created.and_then(|file| {
            // As for each `writing` row: after a crash the file gets the times of its content.
            file.set_times(None, Some(self.state.mtime))?;
            Ok(file)
        });
        let file = timed.map_err(|error| disk.failed(&error))?;
        let generation = file.generation();
        self.files.changes.note((ino, generation), &(0..0), 0);
        self.write_row(&BytesChange {
            generation: Some(generation),
            writing_row: WritingRow::Put,
            ..BytesChange::NOTHING
        })?;
        self.set_content(OpenContent::new(file, access, permit));
        Ok(())
    }

    /// Moves the bytes of a small file to its first content file.
    fn spill(&mut self) -> Result<Arc<OpenContent>, Error> {
        let ino = self.ino();
        let next = Shard::next_generation(self.state.generation);
        let permit = self.files.take_fd_permit(ino)?;
        let bytes = std::mem::take(self.bytes_in_memory()?);
        let spilled = self.write_spilled(next, &bytes).and_then(|(file, blocks)| {
            let generation = file.generation();
            self.state.blocks = blocks;
            // After the file exists, and before its row: so a cut with the row has the file, or an
            // earlier cut had it.
            let changed = 0..bytes.len() as u64;
            self.files.changes.note((ino, generation), &changed, changed.end);
            self.write_spilled_row(generation)?;
            Ok(file)
        });
        match spilled {
            Ok(file) => {
                let content = OpenContent::new(file, FileAccess::ReadWrite, permit);
                self.set_content(Arc::clone(&content));
                Ok(content)
            }
            Err(error) => {
                // A leftover content file is emptied when its generation is used again; in a shared
                // folder `pelago check` finds it. It is not removed if the batch may be in the
                // table nevertheless, or if it may be that of another server, in a shared folder.
                let content = &self.files.disk.content;
                if !matches!(error.code, Code::Io | Code::Corrupt) && !content.is_shared() {
                    drop(content.remove(ino, next));
                }
                self.state.bytes = Bytes::Memory(bytes);
                self.state.count_memory();
                Err(error)
            }
        }
    }

    /// Writes the bytes of a small file into a new content file. Returns the file and its blocks.
    fn write_spilled(
        &self,
        generation: Generation,
        bytes: &[u8],
    ) -> Result<(ContentFile, u64), Error> {
        // The bytes of an inline row may be safe. The row may be deleted only once they are safe in
        // the content file, and the name of this too.
        let is_promised = self.state.has_inline_row && !bytes.is_empty();
        let write = || -> Result<(ContentFile, u64), content::Error> {
            let file = self.files.disk.content.create(self.ino(), generation)?;
            file.write_at(bytes, 0)?;
            if is_promised {
                file.sync(false)?;
            }
            let blocks = file.stat()?.blocks;
            Ok((file, blocks))
        };
        let (file, blocks) = write().map_err(|error| self.files.disk.failed(&error))?;
        if is_promised {
            self.files.sync_name(&file)?;
        }
        Ok((file, blocks))
    }

    fn write_spilled_row(&self, generation: Generation) -> Result<(), Error> {
        let state = &*self.state;
        let has_inline_row = state.has_inline_row || state.uncommitted == Uncommitted::All;
        let change = BytesChange {
            live: Some(LiveAttrs { blocks: state.blocks, ..state.live() }),
            inline: if has_inline_row { InlineBytes::Delete } else { InlineBytes::Keep },
            generation: Some(generation),
            writing_row: WritingRow::Put,
            ..BytesChange::NOTHING
        };
        self.write_row(&change).map(drop)
    }

    /// Writes the `writing` row of a content file that is about to change, unless it exists.
    ///
    /// # Errors
    /// If the table or the disk fails; the row counts as absent then.
    pub(crate) fn write_writing_row(&mut self, content: &ContentFile) -> Result<(), Error> {
        if self.state.writeback.has_row {
            return Ok(());
        }
        let files = self.files;
        if let Some(unwritten) = files.writing.open(self.ino(), content.generation()) {
            // After a crash a file with a `writing` row gets the times of its content. If programs
            // write it without requests, it has the right ones already.
            let timed = match self.inode.has_external_writers() {
                true => Ok(()),
                false => content.set_times(None, Some(self.state.mtime)),
            };
            files.changes.note((self.ino(), content.generation()), &(0..0), self.state.size);
            let change = BytesChange { writing_row: WritingRow::Put, ..BytesChange::NOTHING };
            let written = timed
                .map_err(|error| files.disk.failed(&error))
                .and_then(|()| self.write_row(&change).map(drop));
            if let Err(error) = written {
                files.writing.undo_open(unwritten);
                return Err(error);
            }
            if files.disk.content.is_shared()
                && let Err(error) = files.table.persist()
            {
                // A server that takes this one for dead must know that this one may write the file.
                // The table has stopped, so the row is written again later.
                files.writing.undo_open(unwritten);
                return Err(table_failed("syncing the journal", &error));
            }
        }
        self.state.writeback.begin();
        Ok(())
    }

    /// Sets the content file that has the bytes from now on. The row names it already.
    pub(crate) fn set_content(&mut self, content: Arc<OpenContent>) {
        let files = self.files;
        let ino = self.ino();
        files.writing.open(ino, content.generation());
        let state = &mut *self.state;
        state.generation = Some(content.generation());
        state.bytes = Bytes::ContentOpen(content);
        state.has_inline_row = false;
        state.uncommitted = Uncommitted::Nothing;
        state.writeback.begin();
        state.count_memory();
        files.dirty.remove(ino);
    }
}
