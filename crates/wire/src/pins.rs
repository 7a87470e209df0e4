//! Pins: a delivery reads one version of a file, also while programs write the file.

use std::fmt;
use std::sync::Arc;

use crate::attr::Attr;
use crate::error::Error;
use crate::id::Handle;

/// The server of files that can be pinned.
pub trait Pins: Send + Sync {
    /// Pins the present bytes of an ordinary file. The rights of the caller are not checked. Blocks
    /// on the disk.
    ///
    /// # Errors
    /// [`PinError::Written`]; `TooManyOpen` if there is no room for one more pin; `Stale`,
    /// `IsDirectory`, `Invalid`; if the table or the disk fails.
    fn pin(&self, node: Handle) -> Result<Arc<dyn Pinned>, PinError>;
}

/// The bytes of a file at one version, until dropped. They outlive each change of the file, its
/// removal too, unless [`Pinned::is_changed`].
pub trait Pinned: Send + Sync {
    /// Returns the attributes of this version, the size of the bytes among them.
    fn attr(&self) -> &Attr;

    /// Reads bytes from `offset` on and returns their number. It fills the buffer unless the bytes
    /// end before. Blocks on the disk.
    ///
    /// # Errors
    /// [`PinError::Changed`]; if the disk fails.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, PinError>;

    /// Does the same without blocking. Returns `None` if the bytes are not in memory.
    ///
    /// # Errors
    /// [`PinError::Changed`].
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<Option<usize>, PinError>;

    /// Reads `len` bytes from `offset` on, a multiple of a block, as blocks of which all but the
    /// last are whole. Blocks on the disk.
    ///
    /// # Errors
    /// [`PinError::Changed`], also if the bytes end before; if the disk fails.
    fn read_extent(
        &self,
        offset: u64,
        len: usize,
        caching: Caching,
    ) -> Result<Vec<PinnedBlock>, PinError>;

    /// Returns whether `len` bytes from `offset` on are in the page cache, as far as the kernel
    /// says. It does not wait for the disk.
    fn is_cached(&self, offset: u64, len: u64) -> bool;

    /// Returns whether the bytes are no longer there: the file was changed, and they could not be
    /// kept.
    fn is_changed(&self) -> bool;
}

/// The treatment of bytes that are not in the page cache when they are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// It reads them into the page cache, and they stay there.
    Keep,
    /// It reads past the page cache, or drops them from it, if the disk can do that.
    Bypass,
}

/// A block of pinned bytes, in memory of its own.
pub type PinnedBlock = Box<dyn AsRef<[u8]> + Send>;

/// The reason for which bytes are not pinned, or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinError {
    /// A program has the file open for writing.
    Written,
    /// The file was changed, and the pinned bytes could not be kept.
    Changed,
    /// The operation has failed.
    Failed(Error),
}

impl From<Error> for PinError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for PinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written => f.write_str("the file is being written"),
            Self::Changed => f.write_str("the file was changed"),
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for PinError {}
