//! An open content file, which takes one of the descriptors that the server may have.

use std::ops::Deref;
use std::sync::Arc;

use pelago_store::content::ContentFile;

use super::descriptors::Descriptor;

/// A content file with the right to have it open.
#[derive(Debug)]
pub(super) struct OpenContent {
    file: ContentFile,
    /// It is open to write too.
    writable: bool,
    descriptor: Descriptor,
}

impl OpenContent {
    /// A content file that was opened with this right.
    pub(super) fn new(file: ContentFile, descriptor: Descriptor) -> Arc<Self> {
        Arc::new(Self { file, writable: true, descriptor })
    }

    /// A content file that was opened to read only.
    pub(super) fn to_read(file: ContentFile, descriptor: Descriptor) -> Arc<Self> {
        Arc::new(Self { file, writable: false, descriptor })
    }

    /// Closes it and hands on the right to have one open.
    pub(super) fn into_descriptor(self) -> Descriptor {
        self.descriptor
    }

    /// Notes that it is about to be read or written, so that it is closed after idle ones.
    pub(super) fn note_use(&self) {
        self.descriptor.note_use();
    }

    /// Whether it is open to write too.
    pub(super) const fn is_writable(&self) -> bool {
        self.writable
    }
}

impl Deref for OpenContent {
    type Target = ContentFile;

    fn deref(&self) -> &ContentFile {
        &self.file
    }
}
