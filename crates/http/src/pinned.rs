//! A pinned file: the bytes of one version, even if the file changes while they are sent.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use pelago_client::Opened;
use pelago_wire::{Caching, Code, Error, Handle, OpenFlags, OpenId, PinError, Pinned, PinnedBlock};
use tokio::runtime::Handle as Runtime;
use tokio::task::spawn_blocking;

use crate::conditions::Version;
use crate::tree::{Tree, wait};

/// A pinned file. Its drop ends the pin.
pub(crate) struct PinnedFile {
    /// `None` only during the drop.
    pinned: Option<Arc<dyn Pinned>>,
    pub(crate) version: Version,
}

/// The reason why bytes of a version cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The file was changed, and the bytes of this version are gone.
    Changed,
    /// These bytes cannot be read; other bytes may be readable.
    Unreadable(Error),
    /// Nothing can be read.
    Failed(Error),
}

/// A block of a pinned file.
struct OwnedBlock(PinnedBlock);

/// An open file. Its drop releases it.
struct OpenFile<'a> {
    tree: &'a Tree,
    open: OpenId,
}

impl PinnedFile {
    /// Pins a file.
    ///
    /// # Errors
    /// Those of [`pelago_wire::Pins::pin`], and of an open for reading.
    pub(crate) async fn of(tree: &Tree, node: Handle) -> Result<Self, PinError> {
        // Like every open, this one recalls the leases of clients on the file. It ends at once,
        // because opens by others must not depend on it.
        let opening = tree.files.open(&tree.context(), node, OpenFlags::READ);
        let Opened { open, .. } = wait(opening).await?;
        let _open = OpenFile { tree, open };
        let pins = Arc::clone(&tree.pins);
        let pinned = blocking(move || pins.pin(node)).await?;
        let version = Version::of(pinned.attr());
        Ok(Self { pinned: Some(pinned), version })
    }

    /// Returns the pin.
    fn pinned(&self) -> &Arc<dyn Pinned> {
        self.pinned.as_ref().expect("it is there until the end")
    }

    /// Returns the size of this version in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.pinned().attr().size
    }

    /// Returns whether the bytes of this version are gone.
    pub(crate) fn is_changed(&self) -> bool {
        self.pinned().is_changed()
    }

    /// Fills a buffer from the file.
    pub(crate) async fn read(
        &self,
        mut buffer: Vec<u8>,
        offset: u64,
    ) -> Result<Vec<u8>, ReadError> {
        let pinned = Arc::clone(self.pinned());
        let (buffer, read) = blocking(move || {
            let read = pinned.read_at(&mut buffer, offset)?;
            Ok((buffer, read))
        })
        .await?;
        if read < buffer.len() { Err(ReadError::Changed) } else { Ok(buffer) }
    }

    /// Fills a buffer from the page cache. Returns whether the whole buffer was filled.
    pub(crate) fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool {
        // A change of the file is found by the next read that waits for the disk.
        self.pinned().read_cached(buffer, offset).is_ok_and(|read| read == Some(buffer.len()))
    }

    /// Returns whether a part of the file is in the page cache.
    pub(crate) fn is_cached(&self, part: Range<u64>) -> bool {
        self.pinned().is_cached(part.start, part.end - part.start)
    }

    /// Reads a whole part of the file, as blocks with memory of their own.
    pub(crate) async fn read_blocks(
        &self,
        part: Range<u64>,
        caching: Caching,
    ) -> Result<Vec<Bytes>, ReadError> {
        let pinned = Arc::clone(self.pinned());
        let length = length(&part)?;
        let blocks = blocking(move || pinned.read_extent(part.start, length, caching)).await?;
        Ok(blocks.into_iter().map(|block| Bytes::from_owner(OwnedBlock(block))).collect())
    }
}

impl AsRef<[u8]> for OwnedBlock {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl From<PinError> for ReadError {
    fn from(error: PinError) -> Self {
        match error {
            PinError::Written | PinError::Changed => Self::Changed,
            PinError::Failed(error) => match error.code {
                Code::Io | Code::Corrupt => Self::Unreadable(error),
                _ => Self::Failed(error),
            },
        }
    }
}

impl Drop for PinnedFile {
    fn drop(&mut self) {
        let pinned = self.pinned.take();
        // If the file is unlinked, closing its last descriptor frees its blocks, which can take
        // long.
        if let Ok(runtime) = Runtime::try_current() {
            drop(runtime.spawn_blocking(move || drop(pinned)));
        }
    }
}

impl Drop for OpenFile<'_> {
    fn drop(&mut self) {
        let released = self.tree.files.release(&self.tree.context(), self.open);
        released.then(|released| {
            if let Err(Error { code }) = released
                && code != Code::Unavailable
            {
                tracing::debug!(why = code.says(), "a file that was pinned is not released");
            }
        });
    }
}

fn length(part: &Range<u64>) -> Result<usize, ReadError> {
    let length = usize::try_from(part.end - part.start);
    length.map_err(|_large| ReadError::Failed(Code::Bug.into()))
}

/// Runs work that waits for the disk on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PinError> + Send + 'static,
) -> Result<T, PinError> {
    // The join fails if the server ends, or if the work has panicked.
    spawn_blocking(work).await.unwrap_or_else(|_ended| Err(Error::from(Code::Unavailable).into()))
}
