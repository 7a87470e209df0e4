//! The wall clock; no other file of this crate reads it.

use pelago_wire::Time;
use rustix::time::{ClockId, clock_gettime};

/// Returns the present time.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Realtime);
    Time { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}
