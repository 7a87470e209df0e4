//! The clocks of the system. No other file of this crate reads them.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the present time, in whole seconds since 1970-01-01.
pub(crate) fn seconds() -> i64 {
    // Every Linux has this clock and the one below.
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |now| now.tv_sec())
}

/// Returns the time of `CLOCK_MONOTONIC`, which never goes back.
pub(crate) fn monotonic() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from)
}
