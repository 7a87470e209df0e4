//! What all objects of `--json` have in common.

/// The version of every object that `--json` prints. It grows when a field changes its meaning or
/// goes; new fields may come without.
pub(crate) const VERSION: u32 = 1;
