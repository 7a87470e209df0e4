//! Counts of the tag changes in a batch: those of extended attributes, and those of the rows of
//! tags. The two are equal (I-12).

use pelago_wire::xattr::tag_key;

/// The numbers of tag changes in one batch.
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

    /// Counts the change of the row of a tag, if the extended attribute of this name is a tag.
    pub(super) fn note_row(&mut self, name: &[u8]) {
        self.rows += u32::from(tag_key(name).is_some());
    }

    /// Returns whether as many rows of tags change as tags.
    pub(super) const fn is_complete(self) -> bool {
        self.attributes == self.rows
    }
}
