//! The clocks of sessions and leases.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the time since the machine started, suspended time included (`CLOCK_BOOTTIME`): a term
/// that passes while a laptop sleeps has passed.
pub(crate) fn boot_time() -> Duration {
    // Linux has this clock since 2.6.39.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}

/// Returns the time since 1970 (`CLOCK_REALTIME`), by which credentials end.
pub(crate) fn real_time() -> Duration {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The clock on the wall can be set, and the monotonic one stands still while a machine sleeps;
    /// `/proc/uptime` counts neither.
    #[test]
    fn sessions_count_the_time_since_the_machine_started() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            text.split(' ').next().unwrap().parse().map(Duration::from_secs_f64).unwrap()
        };
        let before = uptime();
        let now = boot_time();
        let after = uptime();
        let rounding = Duration::from_millis(20);
        assert!(
            before <= now + rounding && now <= after + rounding,
            "{before:?} {now:?} {after:?}"
        );
    }
}
