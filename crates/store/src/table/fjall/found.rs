//! Rows that are found in the files of a damaged table, and losses.

/// A version of a row.
#[derive(Debug, Clone, Copy)]
pub struct FoundRow<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value; `None` if the row was deleted.
    pub value: Option<&'a [u8]>,
    /// Counts changes of the table: the version with the highest number is the newest.
    pub number: u64,
}

/// A range of keys in which versions of rows are lost. Older ones may have been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRows {
    /// The key before the first lost one, if it is not empty.
    pub after: Vec<u8>,
    /// The first key after the last lost one, which may be that one; `None`: the end of the table.
    pub before: Option<Vec<u8>>,
}

impl LostRows {
    /// All rows.
    pub const ALL: Self = Self { after: Vec::new(), before: None };
}
