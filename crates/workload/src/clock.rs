//! The crate's one access to the clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the time since 1970, for records that people read.
pub(crate) fn wall() -> Duration {
    let time = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
