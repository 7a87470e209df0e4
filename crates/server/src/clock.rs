//! The one door to the clocks.

use rustix::time::{ClockId, clock_gettime};

use pelago_wire::Time;

/// What the wall clock shows now.
#[must_use]
pub(crate) fn now() -> Time {
    let now = clock_gettime(ClockId::Realtime);
    Time { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
}
