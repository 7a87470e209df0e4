//! An open content file, with a permit for one of the server's descriptors.

use std::ops::Deref;
use std::sync::Arc;

use pelago_store::content::{ContentFile, FileAccess};

use crate::fd_budget::FdPermit;

/// A content file with the permit to have it open.
#[derive(Debug)]
pub(crate) struct OpenContent {
    file: ContentFile,
    access: FileAccess,
    permit: FdPermit,
}

impl OpenContent {
    /// Returns an open content file.
    pub(crate) fn new(file: ContentFile, access: FileAccess, permit: FdPermit) -> Arc<Self> {
        Arc::new(Self { file, access, permit })
    }

    /// Closes the file and returns its permit.
    pub(crate) fn into_permit(self) -> FdPermit {
        self.permit
    }

    /// Takes the permit for one more descriptor of the file, if there is one left.
    pub(crate) fn another_permit(&self) -> Option<FdPermit> {
        self.permit.another()
    }

    /// Records a use, so that idle content files are closed before this one.
    pub(crate) fn note_use(&self) {
        self.permit.note_use();
    }

    /// Returns the operations for which the file is open.
    pub(crate) const fn access(&self) -> FileAccess {
        self.access
    }

    /// Returns whether the file is open to write too.
    pub(crate) fn is_writable(&self) -> bool {
        self.access == FileAccess::ReadWrite
    }
}

impl Deref for OpenContent {
    type Target = ContentFile;

    fn deref(&self) -> &ContentFile {
        &self.file
    }
}
