//! A time that threads read without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A time since the start of the machine ([`crate::clock::since_boot`]), to the nanosecond.
#[derive(Debug)]
pub(super) struct AtomicTime(AtomicU64);

impl AtomicTime {
    pub(super) fn new(time: Duration) -> Self {
        Self(AtomicU64::new(nanos(time)))
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    pub(super) fn set(&self, time: Duration) {
        self.0.store(nanos(time), Ordering::Release);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
