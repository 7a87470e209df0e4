//! Reasons for which a download fails.

use std::io;

use pelago_wire::blocks::BlocksError;

/// The reason for which a download ends without all bytes, or with wrong ones.
#[derive(Debug, thiserror::Error)]
pub enum DownloadFailure {
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    /// The bytes are no head of a response.
    #[error("the response has no head that can be understood")]
    Head,
    /// The server sends no file.
    #[error("the server replied {0}")]
    Status(u16),
    /// The server sends the file in the other form.
    #[error("the server sends another form")]
    Form,
    /// The body ends early, or is too long.
    #[error("{got} bytes came of {size}")]
    Size {
        /// Bytes that came.
        got: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// The bytes are no blocks.
    #[error(transparent)]
    Blocks(#[from] BlocksError),
    /// A block came twice.
    #[error("block {0} came twice")]
    Repeated(u64),
    /// A block did not come.
    #[error("{0} blocks did not come")]
    Lacking(u64),
    /// An extent does not match its hash, or has none.
    #[error("extent {0} does not match its hash")]
    Hash(u64),
    /// The hashes do not match the root that the server names.
    #[error("the root is another one")]
    Root,
    /// The server has ended the blocks early.
    #[error("the server gave up: {0}")]
    GaveUp(&'static str),
    /// The crowd has ended before.
    #[error("the crowd has ended before")]
    Late,
}
