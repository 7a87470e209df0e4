//! The time of a round trip to the server, which pings measure.

use std::time::Duration;

/// The share of a new measurement in the smoothed time: one of so many.
const SHARE: u32 = 8;

/// The smoothed time of a round trip.
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    smoothed: Option<Duration>,
}

impl RoundTrip {
    /// Records the time from a ping to its pong.
    pub(super) fn note(&mut self, measured: Duration) {
        self.smoothed = Some(match self.smoothed {
            Some(smoothed) => (smoothed * (SHARE - 1) + measured) / SHARE,
            None => measured,
        });
    }

    /// Returns the smoothed time; `None` before the first pong.
    pub(super) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_pong_changes_little() {
        let mut round_trip = RoundTrip::default();
        assert_eq!(round_trip.smoothed(), None);
        round_trip.note(Duration::from_millis(80));
        assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(80)));
        round_trip.note(Duration::from_millis(880));
        assert_eq!(round_trip.smoothed(), Some(Duration::from_millis(180)));
        (0..100).for_each(|_| round_trip.note(Duration::from_millis(80)));
        let smoothed = round_trip.smoothed().unwrap();
        assert!(smoothed < Duration::from_millis(81), "{smoothed:?}");
    }
}
