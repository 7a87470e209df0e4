//! Whether an operation may wait for the disk.

use pelago_wire::{Code, Error};

/// How long a caller may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayBlock {
    /// It serves others: not for the medium.
    No,
    /// As long as it takes.
    Yes,
}

/// Why an operation did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpError {
    /// It cannot be done.
    Failed(Error),
    /// It must be repeated, as a whole, by somebody with [`MayBlock::Yes`].
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
