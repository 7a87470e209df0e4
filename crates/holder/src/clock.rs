//! The wall clock; no other file of this crate reads it.

use rustix::time::{ClockId, clock_gettime};

/// Returns the present time, in whole seconds since 1970-01-01.
pub(crate) fn seconds() -> i64 {
    clock_gettime(ClockId::Realtime).tv_sec
}
