//! The backlog of the mirror: how much may be done that it does not have, before callers are held
//! back.
//!
//! The limit is a time, `--lag`. A line that carries R bytes in a second is that far behind if
//! R times that time is under way, so the limit in bytes follows the rate at which the last groups
//! went.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The least limit in bytes: small changes are never held back because of their number.
const LEAST_BYTES: u64 = 1 << 20;
/// The least bytes of a group that tells the rate of the line; a smaller one tells its delay.
const TELLING_BYTES: u64 = 256 << 10;
/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// The backlog, as requests see it. Without a limit a request pays for one load.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The most bytes that may be done and not mirrored.
    limit: AtomicU64,
    /// The bytes that were not mirrored when they were counted last, and those done since.
    bytes: AtomicU64,
    /// The bytes in a second that the last groups had; 0 if none has told it.
    rate: AtomicU64,
}

impl Backlog {
    /// Returns the backlog of a volume without a limit.
    pub(super) const fn new() -> Self {
        Self { limit: AtomicU64::new(UNLIMITED), bytes: AtomicU64::new(0), rate: AtomicU64::new(0) }
    }

    /// Counts a change of about so many bytes. Returns whether its caller must be held back.
    #[inline]
    pub(super) fn is_exceeded_by(&self, bytes: u64) -> bool {
        match self.limit.load(Ordering::Relaxed) {
            UNLIMITED => false,
            limit => self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > limit,
        }
    }

    /// Sets the limit. `None`: there is none.
    pub(super) fn set_lag(&self, lag: Option<Duration>) {
        let limit = lag.map_or(UNLIMITED, |lag| self.bytes_of(lag));
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns the bytes that the line carries in this time, as far as that is known.
    fn bytes_of(&self, lag: Duration) -> u64 {
        let rate = self.rate.load(Ordering::Relaxed) as f64;
        ((rate * lag.as_secs_f64()) as u64).max(LEAST_BYTES)
    }

    /// Returns whether so many bytes that the mirror does not have, of which the oldest has this
    /// age, are more than this limit.
    pub(super) fn exceeds(&self, bytes: u64, age: Duration, lag: Duration) -> bool {
        age > lag || bytes > self.bytes_of(lag)
    }

    /// Records the counted bytes that the mirror does not have, and whether they exceed the limit:
    /// then the next change is held back.
    pub(super) fn count(&self, bytes: u64, is_behind: bool, lag: Option<Duration>) {
        // A change of a moment ago may be missing in the count: it is in the next one.
        self.bytes.store(bytes, Ordering::Relaxed);
        self.set_lag(lag);
        if is_behind && lag.is_some() {
            self.limit.store(0, Ordering::Relaxed);
        }
    }

    /// Records that a group of so many bytes took this time until the mirror had it.
    pub(super) fn sent(&self, bytes: u64, took: Duration) {
        if bytes < TELLING_BYTES {
            return;
        }
        let rate = bytes as f64 / took.as_secs_f64().max(1e-3);
        let before = self.rate.load(Ordering::Relaxed) as f64;
        let next = if before == 0.0 { rate } else { f64::midpoint(before, rate) };
        self.rate.store(next as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_secs(2);
    const MIB: u64 = 1 << 20;

    fn count(backlog: &Backlog, bytes: u64, age: Duration) -> bool {
        let is_behind = backlog.exceeds(bytes, age, LAG);
        backlog.count(bytes, is_behind, Some(LAG));
        is_behind
    }

    #[test]
    fn nobody_is_held_back_without_a_limit() {
        let backlog = Backlog::new();
        backlog.count(1 << 40, true, None);
        assert!(!backlog.is_exceeded_by(1 << 40));
    }

    #[test]
    fn the_limit_follows_the_rate_of_the_line() {
        let backlog = Backlog::new();
        assert!(!count(&backlog, 0, Duration::ZERO));
        assert!(!backlog.is_exceeded_by(MIB), "nothing is known of the line");
        assert!(backlog.is_exceeded_by(1));
        backlog.sent(12 * MIB, Duration::from_secs(1));
        backlog.sent(4096, Duration::from_secs(1));
        assert!(!count(&backlog, 23 * MIB, Duration::ZERO), "small groups tell no rate");
        assert!(!backlog.is_exceeded_by(MIB));
        assert!(backlog.is_exceeded_by(1), "two seconds of the line are under way");
        assert!(count(&backlog, 25 * MIB, Duration::ZERO));
    }

    #[test]
    fn what_is_too_old_holds_back_however_small_it_is() {
        let backlog = Backlog::new();
        assert!(count(&backlog, 1, Duration::from_secs(3)));
        assert!(backlog.is_exceeded_by(1));
        assert!(!count(&backlog, 1, Duration::from_secs(1)));
        assert!(!backlog.is_exceeded_by(1));
    }
}
