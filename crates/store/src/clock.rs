//! The one door to the clocks.

use rustix::time::{ClockId, clock_gettime};

use pelago_wire::Time;

/// What the wall clock shows now.
#[must_use]
pub fn now() -> Time {
    let now = clock_gettime(ClockId::Realtime);
    Time { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}

/// The longest tick of the clock by which a medium stamps files.
const TICK_NANOS: i128 = 10_000_000;

/// Whether a time that a medium gave to a file is before `ours` only because the medium's clock is
/// coarse: it shows the start of a tick, while ours was taken in the middle of it.
#[must_use]
pub fn is_late(medium: Time, ours: Time) -> bool {
    let nanos = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    (1..TICK_NANOS).contains(&(nanos(ours) - nanos(medium)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_tick_is_told_from_a_time_that_was_set() {
        let at = |seconds, nanos| Time { seconds, nanos };
        assert!(is_late(at(7, 999_500_000), at(8, 100)));
        assert!(!is_late(at(8, 100), at(8, 100)));
        assert!(!is_late(at(8, 200), at(8, 100)));
        assert!(!is_late(at(7, 0), at(8, 0)));
        assert!(!is_late(at(i64::MIN, 0), at(i64::MAX, 0)));
    }
}
