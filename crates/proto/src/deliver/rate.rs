//! Rates, as exponential moving averages.

use std::time::Duration;

/// The factor by which an event reduces the weight of those before it.
const REMEMBERED: f64 = 15.0 / 16.0;

/// An amount in a time, each over about the last sixteen events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    amount: f64,
    seconds: f64,
}

impl Rate {
    /// Adds an event.
    pub(super) fn add(&mut self, amount: f64, time: Duration) {
        self.amount = self.amount * REMEMBERED + amount;
        self.seconds = self.seconds * REMEMBERED + time.as_secs_f64();
    }

    /// Returns the amount in a second; 0 before the first event.
    pub(super) fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.amount / self.seconds } else { 0.0 }
    }

    /// Returns the seconds of one unit of the amount; 0 before the first event.
    pub(super) fn seconds_each(&self) -> f64 {
        if self.amount > 0.0 { self.seconds / self.amount } else { 0.0 }
    }
}
