//! Permits to wait for the disk, for a bounded number of callers that serve others.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Permits for callers with [`MayBlock::No`](crate::MayBlock::No) to wait for the disk
/// nevertheless. While the disk is fast, no request needs another thread; if it stalls, only this
/// number of callers stall.
#[derive(Debug)]
pub(crate) struct IoPermits {
    free: AtomicUsize,
}

/// A permit, returned when dropped.
#[derive(Debug)]
pub(crate) struct IoPermit<'a>(&'a IoPermits);

impl IoPermits {
    /// Returns `count` permits.
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
