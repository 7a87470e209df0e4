//! The rights of a guest that searches.

use pelago_wire::{Error, Handle};

/// The rights of a guest that searches, beside those of the user as whom it acts.
///
/// A guest is shown files of directories that it may list, and must learn nothing of others. An
/// index is of the whole volume: which plan it proposes, and so the order of the answer, depends on
/// files that are not granted. So the search of a guest walks the directory, and asks no index.
pub struct GuestView<'a> {
    /// Returns whether the guest may list a directory, or read a file.
    pub may_read: &'a dyn Fn(Handle) -> Result<bool, Error>,
    /// The work of one such decision, in names that are compared with a query.
    pub decision_names: u32,
}
