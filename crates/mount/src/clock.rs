//! The one reply to the clocks.

use pelago_wire::Time;
use rustix::time::{ClockId, clock_gettime};

/// What the wall clock shows now.
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Realtime);
    Time { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}
