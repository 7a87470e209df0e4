//! Opens of the content file of an inode.

use std::sync::Arc;

use pelago_store::content::{ContentFile, FileAccess};
use pelago_wire::{Code, Error, InodeId};

use crate::content_file::OpenContent;
use crate::inode::Bytes;
use crate::inode_guard::InodeGuard;

impl InodeGuard<'_> {
    /// Returns the content file, open.
    ///
    /// # Errors
    /// `TooManyOpen`; `Corrupt` if it is missing; if the disk fails.
    pub(crate) fn open_content(&mut self) -> Result<Arc<OpenContent>, Error> {
        match &self.state.bytes {
            Bytes::ContentOpen(content) => {
                content.note_use();
                Ok(Arc::clone(content))
            }
            _ if self.files.read_only => self.open_content_to_read(),
            _ => self.open_content_to_write(),
        }
    }

    /// Returns the content file, open to read and write.
    ///
    /// # Errors
    /// Those of [`InodeGuard::open_content`].
    pub(crate) fn open_content_to_write(&mut self) -> Result<Arc<OpenContent>, Error> {
        if let Bytes::ContentOpen(content) = &self.state.bytes
            && content.is_writable()
        {
            content.note_use();
            return Ok(Arc::clone(content));
        }
        let content = self.open_kept_or_new(FileAccess::ReadWrite)?;
        self.state.bytes = Bytes::ContentOpen(Arc::clone(&content));
        Ok(content)
    }

    /// Returns the content file, open to read only. A descriptor that is open to write stays open.
    ///
    /// # Errors
    /// Those of [`InodeGuard::open_content`].
    pub(crate) fn open_content_to_read(&mut self) -> Result<Arc<OpenContent>, Error> {
        if let Bytes::ContentOpen(content) = &self.state.bytes
            && !content.is_writable()
        {
            return Ok(Arc::clone(content));
        }
        let content = self.open_kept_or_new(FileAccess::Read)?;
        if let Bytes::ContentClosed(_) = self.state.bytes {
            self.state.bytes = Bytes::ContentOpen(Arc::clone(&content));
        }
        Ok(content)
    }

    /// Returns the content file, open for this access. Uses the descriptor that was kept open since
    /// the file was closed, if it has this access.
    fn open_kept_or_new(&self, access: FileAccess) -> Result<Arc<OpenContent>, Error> {
        let files = self.files;
        let ino = self.ino();
        let (file, permit) = match files.writing.take_kept(ino) {
            Some(kept) if kept.access() == access => {
                kept.note_use();
                return Ok(kept);
            }
            Some(kept) => {
                // The other access is opened before the kept descriptor is closed, so that the
                // kernel forgets no writeback error in between.
                let file = self.open_file(access).inspect_err(|_| {
                    files.writing.interrupt_watch(ino);
                })?;
                let permit = match Arc::try_unwrap(kept) {
                    Ok(kept) => kept.into_permit(),
                    Err(_) => files.take_fd_permit(ino)?,
                };
                (file, permit)
            }
            None => {
                let permit = files.take_fd_permit(ino)?;
                (self.open_file(access)?, permit)
            }
        };
        Ok(OpenContent::new(file, access, permit))
    }

    /// Opens the content file once more.
    ///
    /// # Errors
    /// `Corrupt` if it is missing; if the disk fails.
    pub(crate) fn open_file(&self, access: FileAccess) -> Result<ContentFile, Error> {
        let disk = &self.files.disk;
        let ino = self.ino();
        // Callers have checked that the bytes are in a content file.
        let generation = self.state.bytes.generation().ok_or(Code::Bug)?;
        let opened = disk.content.open_file(ino, generation, access);
        opened.map_err(|error| disk.failed(&error))?.ok_or_else(|| content_missing(ino))
    }
}

/// Logs that the content file of a row is missing, and returns the code for the caller.
pub(crate) fn content_missing(ino: InodeId) -> Error {
    tracing::error!(%ino, "the content of a file is missing; run `pelago check`");
    Code::Corrupt.into()
}
