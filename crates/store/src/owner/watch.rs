//! The watch for an owner that no longer renames its files, without any input or output.

use std::time::Duration;

use super::DEAD;
use super::names::{BatonName, BeatName};

/// The pause between two looks after which the watcher begins to wait anew: the store, or the whole
/// machine, may have stood still, and the owner with it.
const OWN_PAUSE: Duration = Duration::from_secs(2);

/// The names that an owner changes while it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Evidence {
    pub(super) baton: BatonName,
    /// The newest name of the owner's file in `alive/`; `None` if it has no file.
    pub(super) beat: Option<BeatName>,
}

/// The time for which an owner has changed no name.
#[derive(Debug)]
pub(super) struct Watch {
    patience: Duration,
    /// The end of the last look.
    last: Option<Duration>,
    /// The names that were seen last, and the time after which they were first seen.
    seen: Option<(Evidence, Duration)>,
}

impl Watch {
    /// Returns a watch that waits for the time after which a process is dead, with the margin for
    /// the watcher's clock.
    pub(super) const fn new() -> Self {
        Self::with_patience(dead_for_others(DEAD))
    }

    pub(super) const fn with_patience(patience: Duration) -> Self {
        Self { patience, last: None, seen: None }
    }

    /// Records the names that a look has found, which began and ended at these times since the
    /// start of the machine. Returns whether the owner is dead.
    pub(super) fn see(&mut self, began: Duration, ended: Duration, evidence: Evidence) -> bool {
        let paused = |last| began.saturating_sub(last) > OWN_PAUSE;
        let is_slow = ended.saturating_sub(began) > self.patience.max(OWN_PAUSE);
        if self.last.is_some_and(paused) || is_slow {
            self.seen = None;
        }
        self.last = Some(ended);
        match self.seen {
            // Counted from the end of the first look to the beginning of this one: the names stood
            // still at least so long.
            Some((seen, since)) if seen == evidence => began.saturating_sub(since) >= self.patience,
            _ => {
                self.seen = Some((evidence, ended));
                false
            }
        }
    }
}

/// Returns the time after which others take a process for dead: their clocks may be faster.
const fn dead_for_others(dead: Duration) -> Duration {
    Duration::from_nanos((dead.as_nanos() * 65 / 64) as u64)
}

/// Returns the time for which a process may rely on its last beat: its clock may be slower.
pub(super) const fn alive_for_itself(dead: Duration) -> Duration {
    Duration::from_nanos((dead.as_nanos() * 63 / 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::super::ProcessId;
    use super::*;

    fn at(turn: u64, number: u64) -> Evidence {
        let process = ProcessId::parse("00000000000000aa");
        let beat = process.map(|process| BeatName { process, number });
        Evidence { baton: BatonName { epoch: 1, process, turn }, beat }
    }

    /// Looks each second from `from` on; returns the second at which the owner is dead.
    fn dead_at(watch: &mut Watch, from: u64, evidence: impl Fn(u64) -> Evidence) -> Option<u64> {
        (from..from + 40).find(|second| {
            let began = Duration::from_secs(*second);
            watch.see(began, began + Duration::from_millis(10), evidence(*second))
        })
    }

    #[test]
    fn dead_is_what_does_not_move_for_six_seconds_and_a_margin() {
        assert_eq!(dead_at(&mut Watch::new(), 100, |_| at(1, 1)), Some(107));
        assert_eq!(dead_for_others(DEAD), Duration::from_micros(6_093_750));
        assert_eq!(alive_for_itself(DEAD), Duration::from_micros(5_906_250));
    }

    #[test]
    fn what_moves_its_beat_or_its_baton_lives() {
        assert_eq!(dead_at(&mut Watch::new(), 0, |second| at(1, second / 6)), None);
        assert_eq!(dead_at(&mut Watch::new(), 0, |second| at(second / 6, 1)), None);
        assert_eq!(dead_at(&mut Watch::new(), 0, |second| at(1, second / 8)), Some(7));
    }

    #[test]
    fn without_a_beat_the_wait_is_the_same_and_a_removed_one_begins_it_anew() {
        let none = Evidence { beat: None, ..at(1, 1) };
        assert_eq!(dead_at(&mut Watch::new(), 0, |_| none), Some(7));
        let gone = |second| if second < 5 { at(1, 1) } else { none };
        assert_eq!(dead_at(&mut Watch::new(), 0, gone), Some(12));
    }

    /// The watcher was stopped, or hung in a call: the owner may have been, too.
    #[test]
    fn a_pause_of_the_watcher_begins_the_wait_anew() {
        let second = Duration::from_secs(1);
        let mut watch = Watch::new();
        assert_eq!(dead_at(&mut watch, 0, |_| at(1, 1)), Some(7));
        assert!(!watch.see(second * 10, second * 10, at(1, 1)), "three seconds without a look");
        assert_eq!(dead_at(&mut watch, 11, |_| at(1, 1)), Some(17));
        assert!(!watch.see(second * 18, second * 28, at(1, 1)), "a look of ten seconds");
        assert_eq!(dead_at(&mut watch, 29, |_| at(1, 1)), Some(35));
    }
}
