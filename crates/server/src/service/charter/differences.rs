//! The times at which a site compares its revocations with those of the first one again, although
//! the last comparison has not made them equal: the first one refuses some.

use std::time::Duration;

use pelago_wire::limits;

/// The pause before the first repetition; each is followed by one that is twice as long.
const SHORTEST: Duration = limits::CHARTER_PAUSE.saturating_mul(2);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// The hash of the revocations of the first site, and of the own ones.
pub(super) type Hashes = [[u8; 32]; 2];

/// The decision whether two sets of revocations are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// One of them has changed since the last one.
    Due,
    /// They are as the last one has left them, and it is time to try again.
    Repeated,
    NotDue,
}

/// The last comparison. A state machine without a clock of its own.
#[derive(Debug, Default)]
pub(super) struct Differences {
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    hashes: Hashes,
    pause: Duration,
    /// The time of the repetition.
    next: Duration,
}

impl Differences {
    /// Returns whether sets with these hashes, which differ, are compared now.
    pub(super) fn decide(&self, hashes: Hashes, now: Duration) -> Comparison {
        match &self.last {
            Some(last) if last.hashes != hashes => Comparison::Due,
            Some(last) if now >= last.next => Comparison::Repeated,
            Some(_) => Comparison::NotDue,
            None => Comparison::Due,
        }
    }

    /// Records that they were compared.
    pub(super) fn record(&mut self, hashes: Hashes, now: Duration) {
        let same = self.last.as_ref().filter(|last| last.hashes == hashes);
        let pause = same.map_or(SHORTEST, |last| last.pause.saturating_mul(2).min(LONGEST));
        self.last = Some(Last { hashes, pause, next: now.saturating_add(pause) });
    }

    /// Forgets the last comparison: the sets are equal, or the line was cut.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_different_is_compared_less_and_less_often() {
        let mut differences = Differences::default();
        let hashes = [[1; 32], [2; 32]];
        let mut compared = Vec::new();
        // Each two seconds of a day.
        for tick in 0..12 * 60 * 60 {
            let now = limits::CHARTER_PAUSE * tick;
            if differences.decide(hashes, now) != Comparison::NotDue {
                differences.record(hashes, now);
                compared.push(now);
            }
        }
        assert_eq!(compared[..3], [0, 4, 12].map(Duration::from_secs));
        assert!(compared.len() < 40, "{compared:?}");
        assert!(compared.windows(2).all(|two| two[1] - two[0] <= LONGEST));
        let now = compared[2];
        for changed in [[[3; 32], [2; 32]], [[1; 32], [3; 32]]] {
            assert_eq!(differences.decide(changed, now), Comparison::Due);
        }
        assert_eq!(differences.decide(hashes, now), Comparison::NotDue);
        differences.forget();
        assert_eq!(differences.decide(hashes, now), Comparison::Due);
        // A change begins with the shortest pause again.
        differences.record(hashes, now);
        assert_eq!(differences.decide(hashes, now + SHORTEST), Comparison::Repeated);
    }
}
