//! The crate's one door to clocks.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Time since 1970, for records that people read.
pub(crate) fn wall() -> Duration {
    duration(clock_gettime(ClockId::Realtime))
}

/// Time on a processor that this process has taken, all threads together.
pub(crate) fn own_cpu() -> Duration {
    duration(clock_gettime(ClockId::ProcessCPUTime))
}

fn duration(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
