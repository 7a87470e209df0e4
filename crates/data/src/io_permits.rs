//! How many of those who serve others may wait for the medium at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Places for callers that may wait for the medium though they serve others too: while the medium
/// is quick nothing is handed over, and when it stalls only so many callers stand still.
#[derive(Debug)]
pub(crate) struct IoPermits {
    free: AtomicUsize,
}

/// One of them, given back when dropped.
#[derive(Debug)]
pub(crate) struct IoPermit<'a>(&'a IoPermits);

impl IoPermits {
    /// So many.
    pub(crate) const fn new(count: usize) -> Self {
        Self { free: AtomicUsize::new(count) }
    }

    /// Takes one, where one is free.
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
