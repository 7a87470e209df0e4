//! How many callers that serve others may wait for the disk at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Permits for callers with [`MayBlock::No`](crate::MayBlock::No) to wait for the disk all the
/// same: while the disk is quick no request changes its thread, and if it stalls only so many
/// callers do.
#[derive(Debug)]
pub(crate) struct IoPermits {
    free: AtomicUsize,
}

/// A permit, returned when dropped.
#[derive(Debug)]
pub(crate) struct IoPermit<'a>(&'a IoPermits);

impl IoPermits {
    /// `count` permits.
    pub(crate) const fn new(count: usize) -> Self {
        Self { free: AtomicUsize::new(count) }
    }

    /// Takes a permit if one is free.
    pub(crate) fn take(&self) -> Option<IoPermit<'_>> {
        let less = |free: usize| free.checked_sub(1);
        match self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, less) {
            Ok(_) => Some(IoPermit(self)),
            Err(_) => None,
        }
    }
}

impl Drop for IoPermit<'_> {
    fn drop(&mut self) {
        self.0.free.fetch_add(1, Ordering::AcqRel);
    }
}
