//! The version of the output of `--json`.

/// The version of every object that `--json` prints. It increases when a field is removed or
/// changes its meaning; new fields may appear without that.
pub(crate) const VERSION: u32 = 1;
