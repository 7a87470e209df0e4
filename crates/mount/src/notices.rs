//! Counts of what the kernel is told.

use std::sync::atomic::AtomicU64;

/// Notices that were sent to the kernel because others changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Notices {
    /// Names that were invalidated one by one.
    pub names: u64,
    /// How often all names were invalidated at once.
    pub epochs: u64,
}

/// The same, while they are counted.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) names: AtomicU64,
    pub(crate) epochs: AtomicU64,
}
