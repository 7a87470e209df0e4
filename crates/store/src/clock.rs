//! The clocks of the machine. No other module of the server reads the wall clock.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use pelago_wire::{Context, Time};

/// Returns the time of the wall clock.
#[must_use]
pub fn now() -> Time {
    time_of(ClockId::CLOCK_REALTIME)
}

/// Returns the time of the wall clock at the kernel's last tick, some milliseconds ago. It does not
/// read the clock of the hardware.
#[must_use]
pub fn coarse_now() -> Time {
    time_of(ClockId::CLOCK_REALTIME_COARSE)
}

fn time_of(clock: ClockId) -> Time {
    // Every Linux has these clocks.
    let now = clock_gettime(clock);
    now.map(|now| (now.tv_sec(), u32::try_from(now.tv_nsec()).unwrap_or(0)))
        .map_or(Time { seconds: 0, nanos: 0 }, |(seconds, nanos)| Time { seconds, nanos })
}

/// Returns the time since the machine started, suspended time included (`CLOCK_BOOTTIME`): beats
/// and patience go on while the machine sleeps. Every Linux has this clock.
#[must_use]
pub fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// Returns the time that a change by this request shows: that of its answer, if it is repeated
/// because it was lost.
#[must_use]
pub fn of_request(context: &Context) -> Time {
    context.replayed.and_then(|replayed| replayed.time).unwrap_or_else(now)
}

/// The longest tick of the clock by which a file system stamps files.
const TICK_NANOS: i128 = 10_000_000;

/// Returns whether `stamped`, a time that the disk's file system gave to a file, is before `ours`
/// only because its clock is coarse: it shows the start of a tick, while ours was read in the
/// middle.
#[must_use]
pub fn is_late(stamped: Time, ours: Time) -> bool {
    let nanos = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
    (1..TICK_NANOS).contains(&(nanos(ours) - nanos(stamped)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_a_tick_is_late_and_a_time_that_was_set_is_not() {
        let at = |seconds, nanos| Time { seconds, nanos };
        assert!(is_late(at(7, 999_500_000), at(8, 100)));
        assert!(!is_late(at(8, 100), at(8, 100)));
        assert!(!is_late(at(8, 200), at(8, 100)));
        assert!(!is_late(at(7, 0), at(8, 0)));
        assert!(!is_late(at(i64::MIN, 0), at(i64::MAX, 0)));
    }
}
