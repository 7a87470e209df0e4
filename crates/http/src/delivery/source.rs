//! The source of a version's bytes: a pinned file, or memory in tests.

use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;
use pelago_wire::Caching;

use crate::pinned::{PinnedFile, ReadError};

/// A result that comes later.
pub(super) type Coming<'a, T> = Pin<Box<dyn Future<Output = Result<T, ReadError>> + Send + 'a>>;

/// One version of a file, from which extents are read.
pub(super) trait ExtentSource: Send + Sync {
    /// Reads a part of an extent or all of it, as blocks. After the read, and before a client gets
    /// the bytes, it is checked that they are bytes of this version.
    fn read(&self, part: Range<u64>, caching: Caching) -> Coming<'_, Vec<Bytes>>;

    /// Fills a buffer from the page cache, without waiting for the disk. Returns whether the whole
    /// buffer was filled. The bytes are checked in the same way.
    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool;

    /// Returns whether all bytes of a part are in the page cache.
    fn is_cached(&self, part: Range<u64>) -> bool;

    /// Returns whether the bytes of this version are gone.
    fn is_changed(&self) -> bool;
}

impl ExtentSource for PinnedFile {
    fn read(&self, part: Range<u64>, caching: Caching) -> Coming<'_, Vec<Bytes>> {
        Box::pin(self.read_blocks(part, caching))
    }

    fn read_cached(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.read_cached(buffer, offset)
    }

    fn is_cached(&self, part: Range<u64>) -> bool {
        self.is_cached(part)
    }

    fn is_changed(&self) -> bool {
        self.is_changed()
    }
}
