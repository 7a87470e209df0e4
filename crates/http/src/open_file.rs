//! One version of a file, open for reading.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use pelago_wire::limits::BLOCK_BYTES;
use pelago_wire::{Buffer, Code, Error, Handle, OpenId};

use crate::conditions::Version;
use crate::tree::{Tree, wait};

/// An open file. Its end releases it.
pub(crate) struct OpenFile {
    pub(crate) tree: Arc<Tree>,
    pub(crate) node: Handle,
    pub(crate) open: OpenId,
    pub(crate) version: Version,
}

/// Why bytes of a version cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The file is being changed, or is another version by now.
    Changed,
    /// These bytes cannot be read; others may.
    Unreadable(Error),
    /// Nothing can be read.
    Failed(Error),
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        match error.code {
            Code::Io | Code::Corrupt => Self::Unreadable(error),
            Code::NotFound | Code::Stale => Self::Changed,
            _ => Self::Failed(error),
        }
    }
}

impl OpenFile {
    /// Reads a part of the file of at most [`pelago_wire::limits::IO_BYTES`], all of it.
    pub(crate) async fn read(&self, part: Range<u64>) -> Result<Buffer, ReadError> {
        let (files, context) = (&self.tree.files, self.tree.context());
        let size = |at: u64| u32::try_from(part.end - at).unwrap_or(u32::MAX);
        let first = wait(files.read(&context, self.open, part.start, size(part.start))).await?;
        let mut at = part.start + first.as_bytes().len() as u64;
        if at == part.end {
            return Ok(first);
        }
        let mut all = first.into_bytes();
        while at < part.end {
            let piece = wait(files.read(&context, self.open, at, size(at))).await?;
            if piece.as_bytes().is_empty() {
                return Err(ReadError::Changed);
            }
            at += piece.as_bytes().len() as u64;
            all.extend_from_slice(piece.as_bytes());
        }
        Ok(Buffer::new(all))
    }

    /// Reads a part of the file, all of it, as blocks with memory of their own.
    pub(crate) async fn read_blocks(&self, part: Range<u64>) -> Result<Vec<Bytes>, ReadError> {
        let buffer = self.read(part).await?;
        Ok(buffer.as_bytes().chunks(BLOCK_BYTES).map(Bytes::copy_from_slice).collect())
    }

    /// Checks that the bytes are still those of the version that was asked for.
    pub(crate) async fn check_version(&self) -> Result<(), ReadError> {
        let Self { tree, node, version, .. } = self;
        let attr = wait(tree.files.get_attr(&tree.context(), *node)).await;
        let attr = attr.map_err(|error| match ReadError::from(error) {
            ReadError::Unreadable(error) => ReadError::Failed(error),
            other => other,
        })?;
        let is_same = Version::of(&attr) == *version && !(tree.is_written)(attr.ino);
        if is_same { Ok(()) } else { Err(ReadError::Changed) }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let released = self.tree.files.release(&self.tree.context(), self.open);
        released.then(|released| {
            if let Err(Error { code }) = released
                && code != Code::Unavailable
            {
                tracing::debug!(why = code.says(), "a file that was read is not released");
            }
        });
    }
}
