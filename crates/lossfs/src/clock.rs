//! The wall clock; no other file of this crate reads it.

use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

/// Returns the present time.
pub(crate) fn now() -> SystemTime {
    let now = clock_gettime(ClockId::Realtime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos)
}
