//! The clocks; no other file of this crate reads them.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the present time, in whole seconds since 1970-01-01.
pub(crate) fn seconds() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}

/// Returns a time that only grows.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is negative.
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}
