//! What a server may not say, although its frames are well formed.

/// What a server said that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Lie {
    /// A block that the client has.
    #[error("the block at {offset} came although the client has it")]
    Duplicate {
        /// Where the block begins.
        offset: u64,
    },
    /// A hash of an extent that is not complete, or that came before.
    #[error("the hash of the extent at {offset} came at the wrong time")]
    UntimelyHash {
        /// Where the extent begins.
        offset: u64,
    },
    /// The end came, and blocks are missing.
    #[error("the server has ended without the extent at {offset}")]
    LeftOut {
        /// Where the first such extent begins.
        offset: u64,
    },
    /// The size of the same version is another one.
    #[error("the file has {found} bytes under a tag under which it had {expected}")]
    OtherSize {
        /// The size that the server says.
        found: u64,
        /// The size that it said before.
        expected: u64,
    },
    /// The blocks have no entity tag, or not that which was asked for.
    #[error("the blocks have the entity tag {found:?} instead of the one of the file")]
    Tag {
        /// The tag; empty if there is none.
        found: String,
    },
    /// A part of the file is not the one that was asked for.
    #[error("the server sends another range than the one that begins at {expected}")]
    Range {
        /// Where the range was to begin.
        expected: u64,
    },
}
