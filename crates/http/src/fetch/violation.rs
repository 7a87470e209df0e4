//! Violations of the protocol by a server whose frames are well formed.

/// A violation of the protocol by a server, in a message that is well formed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerViolation {
    /// A block that the client already has.
    #[error("the block at {offset} came although the client has it")]
    Duplicate {
        /// The offset of the block.
        offset: u64,
    },
    /// A hash of an extent that is not complete, or whose hash was received before.
    #[error("the hash of the extent at {offset} came at the wrong time")]
    UntimelyHash {
        /// The offset of the extent.
        offset: u64,
    },
    /// An end of the body although blocks are missing.
    #[error("the server has ended without the extent at {offset}")]
    LeftOut {
        /// The offset of the first extent that misses blocks.
        offset: u64,
    },
    /// Another size of the same version.
    #[error("the file has {found} bytes under a tag under which it had {expected}")]
    OtherSize {
        /// The size that the server says now.
        found: u64,
        /// The size that it said before.
        expected: u64,
    },
    /// Blocks without an entity tag, or with another one than the requested.
    #[error("the blocks have the entity tag {found:?} instead of the one of the file")]
    Tag {
        /// The entity tag; empty if there is none.
        found: String,
    },
    /// Another range of the file than the requested.
    #[error("the server sends another range than the one that begins at {expected}")]
    Range {
        /// The offset at which the requested range begins.
        expected: u64,
    },
}
