//! A callback that is called after a number of other callbacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pelago_wire::Then;

/// Calls a callback once a number of steps are done.
pub(crate) struct Countdown {
    left: AtomicUsize,
    then: Mutex<Option<Then>>,
}

impl Countdown {
    /// Returns a countdown of `count` steps, at least one.
    pub(crate) fn new(count: usize, then: Then) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(count), then: Mutex::new(Some(then)) })
    }

    /// Counts a step as done.
    pub(crate) fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(then) = self.then.lock().take()
        {
            then();
        }
    }
}
