//! The pace of a client: the bytes that its rate has allowed and that it has not taken.

use std::time::Duration;

/// Bytes that are not taken lapse after this time: a link that was idle has saved nothing up.
const LAPSES_AFTER: f64 = 0.05;

/// A rate, and the bytes that it allows now.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Option<f64>,
    earned: f64,
    last: Duration,
}

impl Pace {
    /// Returns a pace that has earned nothing at this time.
    pub(super) const fn new(rate: Option<f64>, now: Duration) -> Self {
        Self { rate, earned: 0.0, last: now }
    }

    /// Returns how many bytes may be taken.
    pub(super) fn allowance(&mut self, now: Duration) -> usize {
        let Some(rate) = self.rate else { return usize::MAX };
        let earned = self.earned + rate * now.saturating_sub(self.last).as_secs_f64();
        self.last = now;
        self.earned = earned.min(rate * LAPSES_AFTER);
        self.earned as usize
    }

    /// Subtracts bytes that were taken.
    pub(super) fn take(&mut self, bytes: usize) {
        self.earned -= bytes as f64;
    }

    /// Returns the size of the receive buffer with which the server notices the rate; `None` for
    /// the kernel's own choice.
    pub(super) fn receive_buffer(rate: Option<f64>) -> Option<usize> {
        rate.map(|rate| (rate * LAPSES_AFTER) as usize).map(|bytes| bytes.max(32 << 10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_idle_time_saves_little() {
        let at = Duration::from_millis;
        let mut pace = Pace::new(Some(1_000_000.0), at(100));
        assert_eq!(pace.allowance(at(110)), 10_000);
        pace.take(4_000);
        assert_eq!(pace.allowance(at(120)), 16_000);
        assert_eq!(pace.allowance(at(9_000)), 50_000);
        assert_eq!(Pace::new(None, at(0)).allowance(at(0)), usize::MAX);
    }
}
