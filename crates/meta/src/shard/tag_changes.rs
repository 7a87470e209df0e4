//! The changes of tags in a batch, counted where extended attributes change and where the rows of
//! tags do: the numbers are equal (I-12).

use pelago_wire::xattr::tag_key;

/// Numbers of changes in one batch.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct TagChanges {
    attributes: u32,
    rows: u32,
}

impl TagChanges {
    /// Counts the change of an extended attribute, if it is a tag.
    pub(super) fn note_attribute(&mut self, name: &[u8]) {
        self.attributes += u32::from(tag_key(name).is_some());
    }

    /// Counts the change of the row of a tag, for the extended attribute of this name if it is one.
    pub(super) fn note_row(&mut self, name: &[u8]) {
        self.rows += u32::from(tag_key(name).is_some());
    }

    /// Returns whether each tag that changes has its row changed.
    pub(super) const fn is_complete(self) -> bool {
        self.attributes == self.rows
    }
}
