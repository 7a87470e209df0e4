//! Several callbacks of which the last one goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pelago_wire::Then;

/// Counts what is done, and calls a callback once all of it is.
pub(crate) struct Countdown {
    left: AtomicUsize,
    then: Mutex<Option<Then>>,
}

impl Countdown {
    /// Returns a countdown of so many, at least one.
    pub(crate) fn new(count: usize, then: Then) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(count), then: Mutex::new(Some(then)) })
    }

    /// One more is done.
    pub(crate) fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(then) = self.then.lock().take()
        {
            then();
        }
    }
}
