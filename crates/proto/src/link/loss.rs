//! The losses of a link without a queue: their share, and how many come one after the other.

use std::collections::VecDeque;

use super::LinkQuality;

/// Datagrams that count as sent without a loss before anything is known. The upper bound of that
/// is 1 %.
const ASSUMED: f64 = 400.0;
/// Datagrams after which the older ones count half: ten round trips of 100 ms at 800 Mbit/s, and
/// enough for a bound of 0.01 %.
const REMEMBERED: f64 = 65_536.0;
/// Standard deviations between the share seen and its upper bound: 97.5 of 100 shares are below.
const DEVIATIONS: f64 = 2.0;
/// The least upper bound.
const LEAST: f64 = 1e-4;
/// Runs of losses whose lengths are remembered.
const RUNS: usize = 128;
/// Runs below which nothing is known of their lengths.
const FEW_RUNS: usize = 20;
/// The length that is assumed then.
const ASSUMED_BURST: u32 = 4;

/// Counts of datagrams of round trips without a queue.
#[derive(Debug)]
pub(super) struct Loss {
    sent: f64,
    lost: f64,
    /// Lengths of runs, oldest first.
    runs: VecDeque<u32>,
}

impl Loss {
    pub(super) const fn new() -> Self {
        Self { sent: ASSUMED, lost: 0.0, runs: VecDeque::new() }
    }

    /// Adds a round trip: how many datagrams were settled in it, how many of them were lost, and
    /// the lengths of the runs of these.
    pub(super) fn add(&mut self, sent: u64, lost: u64, runs: &[u32]) {
        self.sent += sent as f64;
        self.lost += lost.min(sent) as f64;
        if self.sent > REMEMBERED {
            self.lost *= REMEMBERED / 2.0 / self.sent;
            self.sent = REMEMBERED / 2.0;
        }
        for &run in runs {
            if self.runs.len() == RUNS {
                self.runs.pop_front();
            }
            self.runs.push_back(run);
        }
    }

    /// Returns whether so many lost datagrams are more than a link loses that has no queue: by
    /// three standard deviations and two runs.
    pub(super) fn is_more(&self, sent: u64, lost: u64) -> bool {
        let expected = sent as f64 * self.lost / self.sent;
        let run = self.mean_run();
        lost as f64 > expected + 3.0 * (run * (expected + run)).sqrt() + 2.0 * run
    }

    /// Returns what is known of the link, which delivers so many bytes per second.
    pub(super) fn quality(&self, rate: u64) -> LinkQuality {
        LinkQuality { rate, loss: self.upper_bound(), burst: self.burst() }
    }

    /// Returns the upper bound of the share of losses (Wilson, JASA 22, 1927), which is right for
    /// few of them too. Losses that come in runs are as uncertain as a run for each of them.
    fn upper_bound(&self) -> f64 {
        let n = self.sent / self.mean_run();
        let z = DEVIATIONS;
        let share = self.lost / self.sent;
        let spread = (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
        let bound = (share + z * z / (2.0 * n) + z * spread) / (1.0 + z * z / n);
        bound.clamp(LEAST, 1.0)
    }

    /// Returns the mean length of runs; 1 if too few are known.
    fn mean_run(&self) -> f64 {
        if self.runs.len() < FEW_RUNS {
            return 1.0;
        }
        let sum: f64 = self.runs.iter().map(|run| f64::from(*run)).sum();
        (sum / self.runs.len() as f64).max(1.0)
    }

    /// Returns the 95th percentile of the lengths of runs.
    fn burst(&self) -> u32 {
        if self.runs.len() < FEW_RUNS {
            return ASSUMED_BURST;
        }
        let mut lengths: Vec<u32> = self.runs.iter().copied().collect();
        lengths.sort_unstable();
        let at = lengths.len() * 95 / 100;
        lengths.get(at).copied().unwrap_or(ASSUMED_BURST).max(1)
    }
}
