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

/// Up to which change an index knows everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Covered {
    /// Which rows the commit was made from.
    pub origin: Origin,
    /// The epoch of the last change that the index was told of.
    pub epoch: u64,
    /// The sequence of that change.
    pub sequence: u64,
    /// When the index was as the volume was.
    pub as_of: Time,
    /// The first reading of all rows has ended; before that some files are missing.
    pub is_complete: bool,
}
