//! Until when the kernel may keep names that it was answered under leases.
//!
//! To invalidate a name the kernel takes the lock of its directory. A program may hold that until
//! the server has answered it, and the server may wait for this very recall. So a name is
//! invalidated only if the kernel may have it with a lifetime, and a directory in which others
//! change names gets none for a while: what its names lead to is then answered again and again, in
//! this process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Slots; things that share one seem to have the later time of both.
const SLOTS: usize = 1024;
/// How long a directory gets no lifetimes after a change by others.
const COOL: Duration = Duration::from_secs(1);
/// The kernel counts lifetimes in ticks, and from when it has the reply.
const SLACK: Duration = Duration::from_millis(50);

/// Times of names and directories, by their 64-bit keys.
pub(crate) struct NameTimes {
    start: Instant,
    /// Until when a name may be kept, in nanoseconds since the start.
    kept: Box<[AtomicU64]>,
    /// Until when a directory gets no lifetimes.
    cool: Box<[AtomicU64]>,
}

impl NameTimes {
    pub(crate) fn new() -> Self {
        let slots = || (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { start: Instant::now(), kept: slots(), cool: slots() }
    }

    /// Others change a name in this directory.
    pub(crate) fn changed(&self, dir: u64) {
        self.cool[slot(dir)].fetch_max(self.after(COOL), Ordering::AcqRel);
    }

    /// Returns the lifetime that a name gets, which is at most `ttl`.
    pub(crate) fn give(&self, dir: u64, name: u64, ttl: Duration) -> Duration {
        let now = self.after(Duration::ZERO);
        if ttl.is_zero() || now < self.cool[slot(dir)].load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        self.kept[slot(name)].fetch_max(self.after(ttl + SLACK), Ordering::AcqRel);
        ttl
    }

    /// Returns whether the kernel may keep a name.
    pub(crate) fn may_be_kept(&self, name: u64) -> bool {
        self.after(Duration::ZERO) < self.kept[slot(name)].load(Ordering::Acquire)
    }

    /// The kernel has moved what it keeps of one name to another one.
    pub(crate) fn moved(&self, from: u64, to: u64) {
        let until = self.kept[slot(from)].load(Ordering::Acquire);
        self.kept[slot(to)].fetch_max(until, Ordering::AcqRel);
    }

    fn after(&self, time: Duration) -> u64 {
        let nanos = (self.start.elapsed() + time).as_nanos();
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }
}

const fn slot(key: u64) -> usize {
    let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    // The remainder is below SLOTS.
    (spread % SLOTS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    #[test]
    fn a_name_is_kept_once_it_got_a_lifetime_and_moves_with_it() {
        let times = NameTimes::new();
        assert!(!times.may_be_kept(1));
        assert_eq!(times.give(9, 1, Duration::ZERO), Duration::ZERO);
        assert!(!times.may_be_kept(1));
        assert_eq!(times.give(9, 1, TTL), TTL);
        assert!(times.may_be_kept(1) && !times.may_be_kept(2));
        times.moved(1, 2);
        assert!(times.may_be_kept(2));
    }

    #[test]
    fn a_directory_that_others_change_gets_no_lifetimes_for_a_while() {
        let times = NameTimes::new();
        times.changed(9);
        assert_eq!(times.give(9, 1, TTL), Duration::ZERO);
        assert!(!times.may_be_kept(1));
        assert_eq!(times.give(8, 1, TTL), TTL);
    }
}
