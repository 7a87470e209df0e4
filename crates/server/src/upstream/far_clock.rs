//! The clock of another site's server, which it is asked for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_store::clock;
use pelago_wire::{Bulk, Context, Done, Reply, Request, Then, Time};

use super::Upstream;

/// The clock of another site's server, and the version of its program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarClock {
    /// Milliseconds by which it is ahead of the clock here; negative if it is behind. It is known
    /// to half a round trip.
    pub ahead_ms: i64,
    /// The version of the program there, as that puts it.
    pub program: String,
}

impl Upstream {
    /// Returns what the other server has told of its clock last.
    pub(crate) fn clock(&self) -> Option<FarClock> {
        self.clock.lock().clone()
    }

    /// Asks the other server for its clock, and calls `then` once it has answered, or has not.
    pub(crate) fn ask_clock(self: &Arc<Self>, then: Then) {
        let this = Arc::clone(self);
        let asked = clock::now();
        let since = Instant::now();
        let answered: Done = Box::new(move |result| {
            // A server of an earlier version does not know the request.
            if let Ok(Reply::Clock { now, program }) = result {
                let ahead_ms = ahead_ms(now, asked, since.elapsed());
                *this.clock.lock() = Some(FarClock { ahead_ms, program });
            }
            then();
        });
        self.ask(&Context::direct(0, 0), Request::Clock, Bulk::None, answered);
    }
}

/// Returns the milliseconds by which another clock is ahead. It was read in the middle of a round
/// trip, which began when it was `asked` here.
fn ahead_ms(there: Time, asked: Time, round_trip: Duration) -> i64 {
    let [there, asked] = [there, asked].map(milliseconds);
    let middle = i64::try_from(round_trip.as_millis() / 2).unwrap_or(i64::MAX);
    there.saturating_sub(asked).saturating_sub(middle)
}

fn milliseconds(time: Time) -> i64 {
    time.seconds.saturating_mul(1000).saturating_add(i64::from(time.nanos) / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, milliseconds: u32) -> Time {
        Time { seconds, nanos: milliseconds * 1_000_000 }
    }

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_round_trip() {
        let trip = Duration::from_millis(80);
        assert_eq!(ahead_ms(at(10, 40), at(10, 0), trip), 0);
        assert_eq!(ahead_ms(at(13, 240), at(10, 0), trip), 3200);
        assert_eq!(ahead_ms(at(9, 0), at(10, 0), trip), -1040);
    }

    #[test]
    fn no_answer_of_another_site_overflows() {
        assert_eq!(ahead_ms(at(i64::MAX, 0), at(10, 0), Duration::MAX), -10_000);
        assert_eq!(ahead_ms(at(i64::MIN, 0), at(10, 0), Duration::ZERO), i64::MIN);
    }
}
