//! The content files of a volume, with their bounds: disk space and descriptors.

use std::sync::Arc;

use pelago_store::content::{self, ContentStore};
use pelago_store::report::content_failed;
use pelago_wire::{Code, Error};

use crate::fd_budget::FdBudget;
use crate::space::Space;

/// The content files of a volume and their bounds.
pub(crate) struct Disk {
    pub(crate) content: Arc<ContentStore>,
    pub(crate) space: Arc<Space>,
    pub(crate) fd_budget: Arc<FdBudget>,
}

impl Disk {
    /// Returns the code for the caller of a failed operation on a content file. Logs the cause,
    /// unless the code says it all.
    pub(crate) fn failed(&self, error: &content::Error) -> Error {
        if error.is_too_large() {
            return Code::FileTooLarge.into();
        }
        if error.is_too_many_open() {
            return Code::TooManyOpen.into();
        }
        if error.is_no_space() {
            // The worker that watches the space logs it, once.
            self.space.note_full();
            return Code::NoSpace.into();
        }
        content_failed(error)
    }
}
