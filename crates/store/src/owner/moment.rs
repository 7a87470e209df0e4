//! A time that threads read and set without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A time since the start of the machine ([`crate::clock::since_boot`]), to the nanosecond. The
/// greatest one, 584 years, stands for never.
#[derive(Debug)]
pub(super) struct AtomicTime(AtomicU64);

impl AtomicTime {
    /// Returns the time that never comes.
    pub(super) const fn never() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    pub(super) fn new(time: Duration) -> Self {
        Self(AtomicU64::new(nanos(time)))
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }

    pub(super) fn set(&self, time: Duration) {
        self.0.store(nanos(time), Ordering::Release);
    }

    /// Sets the time, unless it is already an earlier one.
    pub(super) fn set_earlier(&self, time: Duration) {
        self.0.fetch_min(nanos(time), Ordering::AcqRel);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_of_two_times_stays() {
        let time = AtomicTime::never();
        let second = Duration::from_secs(1);
        assert!(time.get() > Duration::from_hours(24 * 365 * 500));
        time.set_earlier(second * 5);
        time.set_earlier(second * 7);
        assert_eq!(time.get(), second * 5);
        time.set_earlier(second * 3);
        assert_eq!(time.get(), second * 3);
        time.set(second * 9);
        assert_eq!(time.get(), second * 9);
        time.set_earlier(Duration::MAX);
        assert_eq!(time.get(), second * 9);
    }
}
