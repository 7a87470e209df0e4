//! Truncations of open files.

use pelago_meta::shard::{BytesChange, LiveAttrs, Shard, WritingRow};
use pelago_store::clock;
use pelago_store::content::FileAccess;
use pelago_wire::{Code, Error, limits};

use crate::content_file::OpenContent;
use crate::inode::Bytes;
use crate::inode_guard::InodeGuard;

impl InodeGuard<'_> {
    /// Truncates a loaded file to `size` bytes, or extends it by a hole.
    ///
    /// # Errors
    /// `FileTooLarge`, `NoSpace`; if the table or the disk fails.
    pub(crate) fn truncate(&mut self, size: u64) -> Result<(), Error> {
        if let Some(node) = self.bytes_elsewhere().filter(|_| size == 0) {
            return self.empty_elsewhere(node);
        }
        self.expect_bytes_here()?;
        let files = self.files;
        if size > limits::FILE_BYTES {
            return Err(Code::FileTooLarge.into());
        }
        if size > self.state.size && !self.state.has_content() {
            files.disk.space.admit()?;
        }
        if self.fits_memory(size) {
            if size == 0 {
                self.state.bytes = Bytes::Memory(Vec::new());
            }
            self.bytes_in_memory()?.resize(size as usize, 0);
            self.note_memory_changed();
            return Ok(());
        }
        let ino = self.ino();
        let is_lost = files.writing.is_in_error(ino) || self.is_copy_on_write();
        if size == 0 && self.state.observer.is_none() && is_lost {
            return self.replace_content();
        }
        if files.disk.content.is_shared() && size < self.state.size {
            return self.cut_to_new_content(size);
        }
        let is_unread = || {
            let generation = self.state.generation;
            generation.is_some_and(|generation| files.changes.is_unread((ino, generation)))
        };
        if size == 0
            && self.state.observer.is_none()
            && (files.is_pinned(ino) || is_unread())
            && self.empty_pinned().is_ok()
        {
            return Ok(());
        }
        let changed = size.min(self.state.size)..size.max(self.state.size);
        let content = self.content_to_write(&changed)?;
        // The smaller size first: a cut in between must not take the truncated bytes for a hole.
        let key = (content.ino(), content.generation());
        files.changes.note(key, &changed, changed.start);
        content.truncate(size).map_err(|error| files.disk.failed(&error))?;
        files.writing.note_rewrite(ino, 0..0, size);
        self.note_content_changed(&content, &changed)
    }

    /// Truncates a file by a new content file. In a shared store no content file is truncated in
    /// place: a fenced server that runs again would remove bytes of the next owner.
    fn cut_to_new_content(&mut self, size: u64) -> Result<(), Error> {
        if size == 0 {
            return self.replace_content();
        }
        let changed = size..self.state.size;
        let content = self.renew_content(size)?;
        self.files.writing.note_rewrite(self.ino(), 0..0, size);
        self.note_content_changed(&content, &changed)
    }

    /// Empties a file by a new content file. This ends an error of the file, and no fenced server
    /// writes the new content file.
    fn replace_content(&mut self) -> Result<(), Error> {
        let files = self.files;
        let ino = self.ino();
        let disk = &files.disk;
        let before = self.state.generation;
        let permit = files.take_fd_permit(ino)?;
        let created = disk.content.create(ino, Shard::next_generation(before));
        let file = created.map_err(|error| disk.failed(&error))?;
        let generation = file.generation();
        self.state.touch(clock::now());
        let timed = file.set_times(None, Some(self.state.mtime));
        timed.map_err(|error| disk.failed(&error))?;
        let change = BytesChange {
            live: Some(LiveAttrs { size: 0, blocks: 0, ..self.state.live() }),
            generation: Some(generation),
            writing_row: WritingRow::Put,
            ..BytesChange::NOTHING
        };
        files.changes.note((ino, generation), &(0..0), 0);
        self.write_row(&change)?;
        self.state.size = 0;
        self.state.blocks = 0;
        files.writing.clear_error(ino);
        self.take_new_content(OpenContent::new(file, FileAccess::ReadWrite, permit), before);
        Ok(())
    }
}
