//! Whether an operation may wait for the disk.

use pelago_wire::{Code, Error};

/// Whether a caller may wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayBlock {
    /// No: it serves others, as an event loop does.
    No,
    /// Yes, as long as that takes.
    Yes,
}

/// Why an operation was not carried out.
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
