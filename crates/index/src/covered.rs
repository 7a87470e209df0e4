//! The changes that an index covers.

use pelago_wire::Time;

#[cfg(feature = "search")]
mod text;

/// The rows from which a commit of an index was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// The number of the commit, which a row of the volume has too; never 0.
    pub commit: u64,
}

/// The changes that an index covers: all changes up to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Covered {
    /// The rows from which the commit was made.
    pub origin: Origin,
    /// The epoch of the last change that the index covers.
    pub epoch: u64,
    /// The sequence of that change.
    pub sequence: u64,
    /// The time at which the index had the state of the volume.
    pub as_of: Time,
    /// True once all rows were read; before that some files are missing.
    pub is_complete: bool,
}
