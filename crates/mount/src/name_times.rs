//! Until when the kernel may keep names that it was answered under leases.
//!
//! To invalidate a name the kernel takes the lock of its directory. A program may hold that until
//! the server has answered it, and the server may wait for this very recall. So a name is
//! invalidated only if the kernel may have it with a lifetime, and a directory in which others
//! change names gets none for a while: what its names lead to is then answered again and again, in
//! this process.
//!
//! Once all names were invalidated at once, those that were answered before have no lifetime any
//! more. That does not hold for names of a listing: the kernel notes when it installs one of these
//! that it is as new as that moment, not as new as its question (`fuse_direntplus_link`).

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
    /// When it was answered last; [`LISTED`] if a listing had it since.
    given: Box<[AtomicU64]>,
    /// When all names were invalidated last.
    epoch: AtomicU64,
    /// Until when a directory gets no lifetimes.
    cool: Box<[AtomicU64]>,
}

/// A time behind all others.
const LISTED: u64 = u64::MAX;

impl NameTimes {
    pub(crate) fn new() -> Self {
        let slots = || (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        let epoch = AtomicU64::new(0);
        Self { start: Instant::now(), kept: slots(), given: slots(), epoch, cool: slots() }
    }

    /// Others change a name in this directory.
    pub(crate) fn changed(&self, dir: u64) {
        self.cool[slot(dir)].fetch_max(self.after(COOL), Ordering::AcqRel);
    }

    /// Returns the lifetime that a name gets, which is at most `ttl`; `is_listed` if it is one of a
    /// listing.
    pub(crate) fn give(&self, dir: u64, name: u64, ttl: Duration, is_listed: bool) -> Duration {
        let now = self.after(Duration::ZERO);
        if ttl.is_zero() || now < self.cool[slot(dir)].load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        self.given[slot(name)].fetch_max(if is_listed { LISTED } else { now }, Ordering::AcqRel);
        self.kept[slot(name)].fetch_max(self.after(ttl + SLACK), Ordering::AcqRel);
        ttl
    }

    /// Returns whether the kernel may keep a name.
    pub(crate) fn may_be_kept(&self, name: u64) -> bool {
        let now = self.after(Duration::ZERO);
        now < self.kept[slot(name)].load(Ordering::Acquire)
            && self.given[slot(name)].load(Ordering::Acquire) >= self.epoch.load(Ordering::Acquire)
    }

    /// Returns the present time, before all names are invalidated.
    pub(crate) fn now(&self) -> u64 {
        self.after(Duration::ZERO)
    }

    /// All names that were answered before `time`, except those of listings, are invalid.
    pub(crate) fn invalidated(&self, time: u64) {
        self.epoch.fetch_max(time, Ordering::AcqRel);
    }

    /// The kernel has moved what it keeps of one name to another one.
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
