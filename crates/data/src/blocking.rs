//! Permission of an operation to wait for the disk, and its result without it.

use pelago_wire::{Code, Error};

/// The permission of a caller to wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayBlock {
    /// It may not wait, because it serves others, as an event loop does.
    No,
    /// It may wait as long as necessary.
    Yes,
}

/// The error of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpError {
    /// It failed.
    Failed(Error),
    /// It did nothing, and must be repeated as a whole with [`MayBlock::Yes`].
    WouldBlock,
}

impl From<Error> for OpError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Code> for OpError {
    fn from(code: Code) -> Self {
        Self::Failed(code.into())
    }
}
