//! The best delivery rate of the last round trips, and the least round trip.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes per second before anything has arrived: ten datagrams in a tenth of a second.
const INITIAL_RATE: u64 = 120_000;
/// Round trips whose delivery rates count.
const ROUNDS: usize = 10;
/// The time after which a least round trip is forgotten, or up to twice as long: the path may have
/// become longer.
const LEAST_TIME: Duration = Duration::from_secs(30);
/// Round trips that are recent.
const RECENT: usize = 4;
/// What is left of the rate after losses of a full queue.
const LOWERED: (u64, u64) = (2, 3);

/// Delivery rates, in bytes per second.
#[derive(Debug, Default)]
pub(super) struct BestRate {
    rates: VecDeque<u64>,
}

impl BestRate {
    /// Adds the rate of a round trip. One without a backlog says only that the link delivers as
    /// much, so it does not count if it is below the best one.
    pub(super) fn add(&mut self, rate: u64, has_backlog: bool) {
        if !has_backlog && rate < self.best() {
            return;
        }
        if self.rates.len() == ROUNDS {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
    }

    /// Lowers the rate by a third.
    pub(super) fn lower(&mut self) {
        for rate in &mut self.rates {
            *rate = *rate / LOWERED.1 * LOWERED.0;
        }
    }

    /// Returns the best rate.
    pub(super) fn best(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(INITIAL_RATE).max(INITIAL_RATE / 10)
    }
}

/// The least round trip of the last half minute.
#[derive(Debug, Default)]
pub(super) struct LeastTrip {
    /// Of this half minute, and of the one before.
    least: [Option<Duration>; 2],
    began: Duration,
}

impl LeastTrip {
    /// Adds a round trip.
    pub(super) fn add(&mut self, now: Duration, trip: Duration) {
        let [this, before] = self.least;
        if now.saturating_sub(self.began) >= LEAST_TIME {
            self.began = now;
            self.least = [Some(trip), this];
        } else {
            self.least = [Some(this.map_or(trip, |least| least.min(trip))), before];
        }
    }

    /// Returns the least one; `None` if there is none.
    pub(super) fn get(&self) -> Option<Duration> {
        self.least.into_iter().flatten().min()
    }
}

/// The least round trip of the last few, by which a longer path is known soon.
#[derive(Debug, Default)]
pub(super) struct RecentTrip {
    trips: VecDeque<Duration>,
}

impl RecentTrip {
    /// Adds the least time of a round trip; `None` if no report told it.
    pub(super) fn add(&mut self, trip: Option<Duration>) {
        let Some(trip) = trip else { return };
        if self.trips.len() == RECENT {
            self.trips.pop_front();
        }
        self.trips.push_back(trip);
    }

    /// Returns the least one; `None` if there is none.
    pub(super) fn get(&self) -> Option<Duration> {
        self.trips.iter().copied().min()
    }
}
