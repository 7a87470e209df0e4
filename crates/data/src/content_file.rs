//! An open content file, which takes one of the descriptors that the server may have.

use std::ops::Deref;
use std::sync::Arc;

use pelago_store::content::ContentFile;

use crate::fd_budget::FdPermit;

/// A content file with the right to have it open.
#[derive(Debug)]
pub(crate) struct OpenContent {
    file: ContentFile,
    /// It is open to write too.
    writable: bool,
    descriptor: FdPermit,
}

impl OpenContent {
    /// A content file that was opened with this right.
    pub(crate) fn new(file: ContentFile, descriptor: FdPermit) -> Arc<Self> {
        Arc::new(Self { file, writable: true, descriptor })
    }

    /// A content file that was opened to read only.
    pub(crate) fn to_read(file: ContentFile, descriptor: FdPermit) -> Arc<Self> {
        Arc::new(Self { file, writable: false, descriptor })
    }

    /// Closes it and hands on the right to have one open.
    pub(crate) fn into_descriptor(self) -> FdPermit {
        self.descriptor
    }

    /// Notes that it is about to be read or written, so that it is closed after idle ones.
    pub(crate) fn note_use(&self) {
        self.descriptor.note_use();
    }

    /// Whether it is open to write too.
    pub(crate) const fn is_writable(&self) -> bool {
        self.writable
    }
}

impl Deref for OpenContent {
    type Target = ContentFile;

    fn deref(&self) -> &ContentFile {
        &self.file
    }
}
