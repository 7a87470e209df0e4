//! Pins, by which a delivery reads the bytes of one version of a file while programs may change the
//! file.
//!
//! A pin copies nothing until then: it reads the content file, whose descriptor all pins of a
//! version share. Each change of a content file calls `InodeGuard::keep_pinned` first ([`keep`]):
//! the pinned bytes are copied to a file without a name, or the pins end with `Changed`. After a
//! truncation to 0 bytes or a removal the pins keep the old content file. A pin has no row and no
//! name on the disk, so it does not outlive the process.
//!
//! A pin waits for no writer, and no writer waits for a pin: after a read, a pin checks that the
//! bytes were still those of the version, and else reads the copy.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::{fmt, io};

use pelago_store::content::{self, FileAccess};
use pelago_store::report::content_failed;
use pelago_wire::limits::BLOCK_BYTES;
use pelago_wire::{Attr, Caching, Code, Error, Handle, InodeId, PinError, Pinned, PinnedBlock};

use crate::content_file::OpenContent;
use crate::inode::Bytes;
use crate::inode_guard::InodeGuard;
use crate::open_files::OpenFiles;
use crate::pins::budget::Share;
use crate::pins::table::{PinTable, PinnedContent};
use crate::read;

pub(crate) mod budget;
mod keep;
pub(crate) mod table;
#[cfg(test)]
mod tests;

/// A pin, until dropped.
pub struct Pin {
    attr: Attr,
    bytes: PinnedBytes,
    pins: Arc<PinTable>,
    _share: Share,
}

/// The place of the bytes of a pin.
enum PinnedBytes {
    /// In memory: the file is small.
    Memory { bytes: Vec<u8>, _share: Share },
    /// In a content file.
    Content(Arc<PinnedContent>),
}

impl OpenFiles {
    /// Pins the present bytes of an ordinary file. Blocks on the disk.
    ///
    /// # Errors
    /// [`PinError::Written`] while it has a writer; `TooManyOpen`; those of [`OpenFiles::open`].
    pub fn pin(&self, handle: Handle) -> Result<Pin, PinError> {
        let (inode, _) = self.enter(handle, false)?;
        let mut guard = self.lock(&inode);
        let pinned = guard.pin();
        guard.release(false)?;
        pinned
    }

    /// Returns whether a change of this content file must first copy its bytes for pins, which
    /// blocks.
    pub(crate) fn is_pinned(&self, ino: InodeId) -> bool {
        self.pins.contains(ino)
    }
}

impl InodeGuard<'_> {
    /// Pins the bytes, with the attributes that belong to them.
    fn pin(&mut self) -> Result<Pin, PinError> {
        let files = self.files;
        self.load()?;
        if self.expect_bytes_here().is_err() {
            return Err(PinError::Failed(Code::Elsewhere.into()));
        }
        // Each writer has entered before it changes bytes, and changes them under this lock.
        if files.opens.writers(self.ino()) > 0 || self.inode.has_external_writers() {
            return Err(PinError::Written);
        }
        let too_many = || PinError::Failed(Code::TooManyOpen.into());
        let share = files.pins.budget.pins(1).ok_or_else(too_many)?;
        self.note_read(false);
        let attr = files.shard.attr(self.handle())?;
        let bytes = match self.state.has_content() {
            true => PinnedBytes::Content(self.pin_content()?),
            false => {
                let bytes = self.copy_of_memory()?;
                let memory = files.pins.budget.memory(bytes.len() as u64).ok_or_else(too_many)?;
                PinnedBytes::Memory { bytes, _share: memory }
            }
        };
        Ok(Pin { attr, bytes, pins: Arc::clone(&files.pins), _share: share })
    }

    fn pin_content(&mut self) -> Result<Arc<PinnedContent>, PinError> {
        let files = self.files;
        let ino = self.ino();
        if let Some(pinned) = files.pins.join(ino) {
            return Ok(pinned);
        }
        let permit = files.take_fd_permit(ino)?;
        let content = OpenContent::new(self.open_file(FileAccess::Read)?, FileAccess::Read, permit);
        Ok(files.pins.insert(ino, content))
    }

    /// Returns the bytes of a small file.
    fn copy_of_memory(&self) -> Result<Vec<u8>, Error> {
        match &self.state.bytes {
            Bytes::Inline => self.read_inline_row(),
            Bytes::Memory(bytes) => Ok(bytes.clone()),
            _ => Err(Code::Bug.into()),
        }
    }
}

impl Pinned for Pin {
    fn attr(&self) -> &Attr {
        &self.attr
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, PinError> {
        match &self.bytes {
            PinnedBytes::Memory { bytes, .. } => Ok(copy_part(bytes, buffer, offset)),
            PinnedBytes::Content(pinned) => pinned.read(|version| {
                let read = version.content.read_at(buffer, offset);
                read.map_err(|error| PinError::Failed(content_failed(&error)))
            }),
        }
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>, PinError> {
        match &self.bytes {
            PinnedBytes::Memory { bytes, .. } => Ok(Some(copy_part(bytes, buffer, offset))),
            PinnedBytes::Content(pinned) => pinned.read(|version| {
                Ok(read::read_cached(version.content.as_fd(), buffer, offset).ok())
            }),
        }
    }

    fn read_extent(
        &self,
        offset: u64,
        len: usize,
        caching: Caching,
    ) -> Result<Vec<PinnedBlock>, PinError> {
        match &self.bytes {
            PinnedBytes::Memory { bytes, .. } => {
                let mut copied = vec![0; len];
                if copy_part(bytes, &mut copied, offset) < len {
                    return Err(PinError::Changed);
                }
                let blocks = copied.chunks(BLOCK_BYTES);
                Ok(blocks.map(|block| Box::new(block.to_vec()) as PinnedBlock).collect())
            }
            PinnedBytes::Content(pinned) => {
                let read = pinned.read(|version| {
                    let read = version.read_extent(offset, len, caching);
                    read.map_err(|error| extent_failed(&error))
                });
                Ok(read?.into_iter().map(|block| Box::new(block) as PinnedBlock).collect())
            }
        }
    }

    fn is_cached(&self, offset: u64, len: u64) -> bool {
        match &self.bytes {
            PinnedBytes::Memory { .. } => true,
            PinnedBytes::Content(pinned) => {
                pinned.content().is_some_and(|version| version.is_cached(offset, len))
            }
        }
    }

    fn is_changed(&self) -> bool {
        match &self.bytes {
            PinnedBytes::Memory { .. } => false,
            PinnedBytes::Content(pinned) => pinned.content().is_none(),
        }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let PinnedBytes::Content(pinned) = &self.bytes {
            self.pins.leave(self.attr.ino, pinned);
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({})", self.attr.ino)
    }
}

fn extent_failed(error: &content::Error) -> PinError {
    match error.source.kind() {
        io::ErrorKind::UnexpectedEof => PinError::Changed,
        _ => PinError::Failed(content_failed(error)),
    }
}

/// Copies bytes from `offset` on, as many as there are and the buffer has room for.
fn copy_part(bytes: &[u8], buffer: &mut [u8], offset: u64) -> usize {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    let count = buffer.len().min(bytes.len() - from);
    buffer[..count].copy_from_slice(&bytes[from..from + count]);
    count
}
