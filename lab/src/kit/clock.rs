//! Gaps in the time of a thread that only reads the clock: the delays of the machine itself.

use std::fs;
use std::time::{Duration, Instant};

/// The readings of such a thread.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gaps {
    /// The longest time between two readings.
    pub(crate) longest: Duration,
    /// Readings per second.
    pub(crate) rate: f64,
    /// The part of the time of all processors, meanwhile, that no program used.
    pub(crate) idle: f64,
}

/// Reads the clock until it is over.
pub(super) fn spin(is_over: impl Fn() -> bool) -> Gaps {
    let start = Instant::now();
    let before = Ticks::read();
    let mut last = start;
    let mut longest = Duration::ZERO;
    let mut readings = 0_u64;
    while !is_over() {
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
        readings += 1;
    }
    let after = Ticks::read();
    let idle = (after.idle - before.idle) / (after.all - before.all).max(1.0);
    Gaps { longest, rate: readings as f64 / start.elapsed().as_secs_f64(), idle }
}

/// The time of all processors since the start of the machine, in ticks.
struct Ticks {
    idle: f64,
    all: f64,
}

impl Ticks {
    fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let ticks: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        // The fourth is idle, the fifth waits for a disk.
        Self { idle: ticks.iter().skip(3).take(2).sum(), all: ticks.iter().sum() }
    }
}
