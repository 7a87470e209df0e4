//! Where the bytes of a version come from.

use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;

use crate::open_file::{OpenFile, ReadError};

/// What becomes a result later.
pub(super) type Coming<'a, T> = Pin<Box<dyn Future<Output = Result<T, ReadError>> + Send + 'a>>;

/// One version of a file, from which extents are read.
pub(super) trait ExtentSource: Send + Sync {
    /// Reads a part of an extent or all of it, as blocks. The bytes are those of this version: that
    /// is checked after they were read, and before anybody gets them.
    fn read(&self, part: Range<u64>) -> Coming<'_, Vec<Bytes>>;

    /// Checks that the file still is this version.
    fn check(&self) -> Coming<'_, ()>;
}

impl ExtentSource for OpenFile {
    fn read(&self, part: Range<u64>) -> Coming<'_, Vec<Bytes>> {
        Box::pin(async move {
            let blocks = self.read_blocks(part).await?;
            self.check_version().await?;
            Ok(blocks)
        })
    }

    fn check(&self) -> Coming<'_, ()> {
        Box::pin(self.check_version())
    }
}
