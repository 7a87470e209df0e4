//! Copies of pinned bytes, made before their content file changes.

use std::sync::Arc;

use pelago_store::clock;
use pelago_store::content::{self, FileAccess};
use pelago_wire::Error;

use crate::content_file::OpenContent;
use crate::inode::Bytes;
use crate::inode_guard::InodeGuard;
use crate::pins::table::VersionContent;

impl InodeGuard<'_> {
    /// Copies the pinned bytes of a content file that is about to change, or ends their pins with
    /// `Changed`. Copies up to [`pelago_wire::limits::PIN_COPY_BYTES`]; never fails, because the
    /// program that changes the file must not notice. If nothing is pinned, this only checks a
    /// counter.
    pub(crate) fn keep_pinned(&self) {
        let Some(pinned) = self.files.pins.take(self.ino()) else { return };
        let kept = pinned.content().and_then(|version| self.keep(&version.content));
        if kept.is_none() {
            tracing::debug!(ino = %self.ino(), "a pinned file changes, and its bytes are not kept");
        }
        pinned.set_kept(kept);
    }

    /// Returns a copy of a content file, without a name; `None` if it would be too large, or there
    /// is no room for it.
    fn keep(&self, from: &OpenContent) -> Option<VersionContent> {
        let files = self.files;
        let ino = self.ino();
        let warn = |error: content::Error| {
            tracing::debug!(%error, source = %error.source, "pinned bytes are not kept");
        };
        let permit = files.take_fd_permit(ino).ok()?;
        let content = &files.disk.content;
        let to = content.create_unnamed(ino, from.generation()).map_err(warn).ok()?;
        if from.clone_to(&to).is_ok() {
            let content = OpenContent::new(to, FileAccess::Read, permit);
            return Some(VersionContent::new(content, None));
        }
        let size = from.stat().map_err(warn).ok()?.size;
        let share = files.pins.budget.copy(size)?;
        // The size, not the disk space of the file: holes become blocks in the copy.
        if !files.disk.space.has_room(size) || files.disk.space.take(size).ok()? < size {
            return None;
        }
        let length = usize::try_from(size).ok()?;
        let copied = from.copy_to(0, &to, 0, length).map_err(warn).ok()?;
        let share = (copied == length).then_some(share)?;
        Some(VersionContent::new(OpenContent::new(to, FileAccess::Read, permit), Some(share)))
    }

    /// Empties a pinned file whose content file is reached by requests only: an empty content file
    /// takes the place of the old one, which the pins keep. Nothing is copied.
    ///
    /// # Errors
    /// `TooManyOpen`; if the table or the disk fails. The file may still have its bytes then.
    pub(crate) fn empty_pinned(&mut self) -> Result<(), Error> {
        let files = self.files;
        let ino = self.ino();
        let before = self.open_content_to_write()?;
        self.write_writing_row(&before)?;
        let permit = files.take_fd_permit(ino)?;
        let changed = 0..self.state.size;
        // A cut may come at any of these: it has the old file, or the size of the new one.
        files.content_goes(ino, before.generation());
        files.changes.note((ino, before.generation()), &changed, 0);
        files.content_goes(ino, before.generation());
        let replaced = files.disk.content.replace(ino, before.generation());
        let file = replaced.map_err(|error| files.disk.failed(&error))?;
        // The pins keep the descriptor that they have.
        drop(files.pins.take(ino));
        // Writeback errors of the old bytes do not matter any more.
        drop(files.writing.take_kept(ino));
        files.writing.restart_watch(ino);
        let content = OpenContent::new(file, FileAccess::ReadWrite, permit);
        self.state.bytes = Bytes::ContentOpen(Arc::clone(&content));
        self.state.touch(clock::now());
        // After a crash the file gets the times of its content.
        let timed = content.set_times(None, Some(self.state.mtime));
        timed.map_err(|error| files.disk.failed(&error))?;
        self.note_content_changed(&content, &changed)
    }
}
