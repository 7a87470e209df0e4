//! Copy on write of content files that a fenced owner of the shared store may still write.
//!
//! A server that was taken for dead may only have been paused. When it runs again, it may finish a
//! write to a content file that it has open. The next owner finds these files by the `writing`
//! rows: the row of a content file that a safe row names is safe before the file is written. Each
//! of these files is *copy-on-write*: it is read as it is, and its first change copies it into a
//! content file of the next generation, which the fenced server does not know. Until then its
//! `writing` row stays, so that each later owner of the store treats it in the same way.

use std::sync::Arc;

use pelago_meta::shard::{BytesChange, LiveAttrs, Shard, WritingRow};
use pelago_store::content::{self, ContentFile, FileAccess};
use pelago_wire::{Code, Error, Generation, InodeId, Whence};

use crate::content_file::OpenContent;
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;

/// The most bytes that one call copies.
const COPIED_AT_ONCE: u64 = 64 << 20;

impl OpenFiles {
    /// Returns whether a change of the content file may first copy all of it, or wait for the
    /// journal: the store is shared, or the bytes are pinned.
    pub(crate) fn may_copy(&self, ino: InodeId) -> bool {
        self.disk.content.is_shared() || self.is_pinned(ino)
    }
}

impl InodeGuard<'_> {
    /// Returns whether the content file is copy-on-write.
    pub(crate) fn is_copy_on_write(&self) -> bool {
        let writing = &self.files.writing;
        self.state.generation.is_some_and(|known| writing.is_copy_on_write(self.ino(), known))
    }

    /// Copies the first `size` bytes of the content file into a content file of the next
    /// generation, which replaces it. Returns the new file, open to write and with its `writing`
    /// row. Bytes that a fenced server has added since the old file was measured are not copied: no
    /// request has read them.
    ///
    /// # Errors
    /// `NoSpace`, `TooManyOpen`; if the table or the disk fails. The file keeps the old content
    /// file then.
    pub(crate) fn renew_content(&mut self, size: u64) -> Result<Arc<OpenContent>, Error> {
        let files = self.files;
        let ino = self.ino();
        let disk = &files.disk;
        let before = self.state.generation;
        let old = self.open_content()?;
        let permit = files.take_fd_permit(ino)?;
        let failed = |error: content::Error| disk.failed(&error);
        if disk.space.take(size)? < size {
            return Err(Code::NoSpace.into());
        }
        let file = disk.content.create(ino, Shard::next_generation(before)).map_err(failed)?;
        let copied = copy_bytes(&old, &file, size)
            .and_then(|()| file.set_times(None, Some(self.state.mtime)))
            // The row of the new file may become safe at any time, and promises all bytes that were
            // safe in the old file.
            .and_then(|()| file.sync(false));
        let copied = copied.and_then(|()| file.stat());
        let measured = copied.map_err(failed).and_then(|measured| {
            files.sync_name(&file)?;
            let change = BytesChange {
                live: Some(LiveAttrs {
                    size: measured.size,
                    blocks: measured.blocks,
                    ..self.state.live()
                }),
                generation: Some(file.generation()),
                writing_row: WritingRow::Put,
                ..BytesChange::NOTHING
            };
            self.write_row(&change)?;
            Ok(measured)
        });
        let measured = measured.inspect_err(|error| {
            // If the batch may be in the table nevertheless, the copy stays.
            if !matches!(error.code, Code::Io | Code::Corrupt) {
                drop(disk.content.remove(ino, file.generation()));
            }
        })?;
        self.state.size = measured.size;
        self.state.blocks = measured.blocks;
        tracing::debug!(%ino, size, "a file has a content file of its own again");
        let content = OpenContent::new(file, FileAccess::ReadWrite, permit);
        self.take_new_content(Arc::clone(&content), before);
        Ok(content)
    }

    /// Replaces the content file of the generation `before` by a new one. The row has the new
    /// generation already.
    pub(crate) fn take_new_content(
        &mut self,
        content: Arc<OpenContent>,
        before: Option<Generation>,
    ) {
        let files = self.files;
        let ino = self.ino();
        files.writing.clear_copy_on_write(ino);
        // Pins keep the descriptor of the old file, which does not change any more.
        drop(files.pins.take(ino));
        // Writeback errors of the old bytes do not matter any more.
        drop(files.writing.take_kept(ino));
        self.set_content(content);
        self.inode.invalidate_atime();
        self.publish();
        if let Some(before) = before {
            files.content_removed(ino, before);
            self.remove_replaced(before);
        }
    }

    /// Removes a content file that the row no longer names. If that fails, `pelago check` finds the
    /// file.
    fn remove_replaced(&self, generation: Generation) {
        let files = self.files;
        let ino = self.ino();
        if !files.disk.content.is_shared() {
            drop(files.disk.content.remove(ino, generation));
            return;
        }
        // The next owner of the store may not have the new row, and would miss the old file.
        self.remove_when_safe(generation);
    }

    /// Removes a content file that the row no longer names, once the row is safe.
    pub(crate) fn remove_when_safe(&self, generation: Generation) {
        let files = self.files;
        let ino = self.ino();
        let content = Arc::clone(&files.disk.content);
        let durability = &files.durability;
        let remove = Box::new(move |safe: Result<(), Error>| {
            if safe.is_ok() {
                drop(content.remove(ino, generation));
            }
        });
        durability.when_safe(durability.done(), durability.invalidations(), remove);
    }
}

/// Copies the first `size` bytes of a content file, without its holes, into an empty one.
fn copy_bytes(from: &ContentFile, to: &ContentFile, size: u64) -> Result<(), content::Error> {
    if from.clone_to(to).is_ok() {
        return to.truncate(size);
    }
    to.truncate(size)?;
    let mut at = 0;
    while let Some(start) = from.seek(at, Whence::Data)?.filter(|start| *start < size) {
        let end = from.seek(start, Whence::Hole)?.unwrap_or(size).min(size);
        at = start;
        while at < end {
            let length = (end - at).min(COPIED_AT_ONCE);
            match from.copy_to(at, to, at, length as usize)? {
                // The old file is shorter because of damage: no server truncates a content file of
                // a shared store in place.
                0 => return Ok(()),
                copied => at += copied as u64,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
