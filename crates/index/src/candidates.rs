//! Answers of an index to a query.

use pelago_wire::Handle;

/// Files that may match a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Candidates {
    /// Any file may: the index knows nothing of the query's terms.
    Any,
    /// Only these files may: ascending by inode, directory and hash, each once.
    These(Vec<Handle>),
}

/// A file whose text has all words of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextHit {
    /// The file, with the hint that the index has.
    pub handle: Handle,
    /// Occurrences of each word in the text, in the order of the query.
    pub frequencies: Vec<u32>,
    /// Number of words in the text.
    pub length: u32,
}
