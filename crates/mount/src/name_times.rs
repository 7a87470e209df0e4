//! Expiry times of names that the kernel caches under leases.
//!
//! To invalidate a name, Linux takes the lock of its directory. A program may hold that lock until
//! its request has a reply, and the server may wait for this very recall before it replies. So a
//! name is invalidated only if the kernel may have it with a lifetime. A directory in which others
//! change names gets no lifetimes for a while: the kernel then looks its names up again each time,
//! in this process.
//!
//! An invalidation of all names (FUSE_NOTIFY_INC_EPOCH) ends the lifetime of the names that were
//! sent before it, except those in listings: Linux marks a name of READDIRPLUS with the epoch in
//! which it installs it, not with that of the request (`fuse_direntplus_link`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Count of slots. Names or directories that share one get the later time of both.
const SLOTS: usize = 1024;
/// Time for which a directory gets no lifetimes after a change by others.
const COOL: Duration = Duration::from_secs(1);
/// Time by which the kernel may end a lifetime later than this file: it counts in ticks, from the
/// arrival of the reply.
const SLACK: Duration = Duration::from_millis(50);

/// Times of names and directories, by their 64-bit keys.
pub(crate) struct NameTimes {
    start: Instant,
    /// End of the lifetime of each name, in nanoseconds since the start.
    kept: Box<[AtomicU64]>,
    /// Time at which the name was sent last; [`LISTED`] if a listing had it since.
    given: Box<[AtomicU64]>,
    /// Time of the last invalidation of all names.
    epoch: AtomicU64,
    /// Time until which a directory gets no lifetimes.
    cool: Box<[AtomicU64]>,
}

/// A time later than all others.
const LISTED: u64 = u64::MAX;

impl NameTimes {
    pub(crate) fn new() -> Self {
        let slots = || (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        let epoch = AtomicU64::new(0);
        Self { start: Instant::now(), kept: slots(), given: slots(), epoch, cool: slots() }
    }

    /// Records that others change a name in this directory.
    pub(crate) fn changed(&self, dir: u64) {
        self.cool[slot(dir)].fetch_max(self.after(COOL), Ordering::AcqRel);
    }

    /// Returns the lifetime that a name gets, at most `ttl`, and records it. `is_listed` is true
    /// for a name in a listing.
    pub(crate) fn give(&self, dir: u64, name: u64, ttl: Duration, is_listed: bool) -> Duration {
        let now = self.after(Duration::ZERO);
        if ttl.is_zero() || now < self.cool[slot(dir)].load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        self.given[slot(name)].fetch_max(if is_listed { LISTED } else { now }, Ordering::AcqRel);
        self.kept[slot(name)].fetch_max(self.after(ttl + SLACK), Ordering::AcqRel);
        ttl
    }

    /// Returns whether the kernel may have a name with a lifetime.
    pub(crate) fn may_be_kept(&self, name: u64) -> bool {
        let now = self.after(Duration::ZERO);
        now < self.kept[slot(name)].load(Ordering::Acquire)
            && self.given[slot(name)].load(Ordering::Acquire) >= self.epoch.load(Ordering::Acquire)
    }

    /// Returns the present time, before all names are invalidated.
    pub(crate) fn now(&self) -> u64 {
        self.after(Duration::ZERO)
    }

    /// Records that names which were sent before `time` are invalid, except those of listings.
    pub(crate) fn invalidated(&self, time: u64) {
        self.epoch.fetch_max(time, Ordering::AcqRel);
    }

    /// Records that the kernel has moved a cached name to another one, with its lifetime.
    pub(crate) fn moved(&self, from: u64, to: u64) {
        for times in [&self.given, &self.kept] {
            let time = times[slot(from)].load(Ordering::Acquire);
            times[slot(to)].fetch_max(time, Ordering::AcqRel);
        }
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
        assert_eq!(times.give(9, 1, Duration::ZERO, false), Duration::ZERO);
        assert!(!times.may_be_kept(1));
        assert_eq!(times.give(9, 1, TTL, false), TTL);
        assert!(times.may_be_kept(1) && !times.may_be_kept(2));
        times.moved(1, 2);
        assert!(times.may_be_kept(2));
    }

    #[test]
    fn a_directory_that_others_change_gets_no_lifetimes_for_a_while() {
        let times = NameTimes::new();
        times.changed(9);
        assert_eq!(times.give(9, 1, TTL, false), Duration::ZERO);
        assert!(!times.may_be_kept(1));
        assert_eq!(times.give(8, 1, TTL, false), TTL);
    }

    #[test]
    fn names_are_not_kept_once_all_were_invalidated_except_listed_ones() {
        let times = NameTimes::new();
        assert_eq!(times.give(9, 1, TTL, false), TTL);
        assert_eq!(times.give(9, 2, TTL, true), TTL);
        // Names are compared by the clock, which must have moved on.
        std::thread::sleep(Duration::from_millis(1));
        let now = times.now();
        assert_eq!(times.give(9, 3, TTL, false), TTL);
        times.invalidated(now);
        assert!(!times.may_be_kept(1) && times.may_be_kept(2) && times.may_be_kept(3));
        times.moved(2, 1);
        assert!(times.may_be_kept(1));
        assert_eq!(times.give(9, 4, TTL, false), TTL);
        assert!(times.may_be_kept(4));
    }
}
