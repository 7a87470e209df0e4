//! How long operations took, in buckets, and the gaps that a thread saw which only reads the clock.

use std::fs;
use std::time::{Duration, Instant};

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Write,
    Rename,
    Read,
    Unlink,
    Append,
    Tail,
    Stat,
    Change,
    /// A write and a sync of the disk below, beside the volume.
    Disk,
}

/// All kinds, with their names, in the order of [`Kind`].
pub(super) const KINDS: [(Kind, &str); 10] = [
    (Kind::Create, "create"),
    (Kind::Write, "write+close"),
    (Kind::Rename, "rename"),
    (Kind::Read, "open+read"),
    (Kind::Unlink, "unlink"),
    (Kind::Append, "append"),
    (Kind::Tail, "read of log"),
    (Kind::Stat, "stat"),
    (Kind::Change, "own change"),
    (Kind::Disk, "disk below"),
];

/// Buckets of each power of two of nanoseconds.
const FINE: u32 = 5;
const BUCKETS: usize = 64 << FINE;

/// Durations of one kind, to 3 %.
#[derive(Debug, Clone)]
pub(super) struct Latency {
    buckets: Vec<u64>,
    pub(super) count: u64,
    pub(super) longest: Duration,
    /// When the longest one began.
    pub(super) when: Option<Instant>,
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, longest: Duration::ZERO, when: None }
    }
}

impl Latency {
    fn note(&mut self, start: Instant, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        if took > self.longest {
            self.longest = took;
            self.when = Some(start);
        }
    }

    fn add(&mut self, other: &Self) {
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += more;
        }
        self.count += other.count;
        if other.longest > self.longest {
            self.longest = other.longest;
            self.when = other.when;
        }
    }

    /// Returns a duration that this part of all operations did not exceed.
    pub(super) fn quantile(&self, part: f64) -> Duration {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return Duration::from_nanos(upper(at)).min(self.longest);
            }
        }
        self.longest
    }
}

/// Returns the bucket of a duration: its highest bit, and the bits after it.
fn bucket(nanos: u64) -> usize {
    let high = nanos.max(1).ilog2();
    if high <= FINE {
        return nanos as usize;
    }
    let fine = (nanos >> (high - FINE)) as usize;
    ((high - FINE) as usize) * (1 << FINE) + fine
}

/// Returns the largest duration of a bucket.
fn upper(bucket: usize) -> u64 {
    if bucket < 2 << FINE {
        return bucket as u64;
    }
    let shift = bucket / (1 << FINE) - 1;
    let fine = (bucket - shift * (1 << FINE)) as u64;
    (fine << shift) | ((1 << shift) - 1)
}

/// Durations of all kinds.
#[derive(Debug, Clone, Default)]
pub(super) struct Times([Latency; KINDS.len()]);

impl Times {
    pub(super) fn note(&mut self, kind: Kind, start: Instant, took: Duration) {
        self.0[kind as usize].note(start, took);
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            own.add(more);
        }
    }

    pub(super) fn of(&self, kind: Kind) -> &Latency {
        &self.0[kind as usize]
    }
}

/// What a thread saw that only reads the clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gaps {
    /// The longest time between two looks.
    pub(super) longest: Duration,
    /// Looks a second.
    pub(super) rate: f64,
    /// The part of the time of all processors, meanwhile, that no program used.
    pub(super) idle: f64,
}

/// Reads the clock until it is over.
pub(super) fn spin(is_over: impl Fn() -> bool) -> Gaps {
    let start = Instant::now();
    let before = processors();
    let mut last = start;
    let mut longest = Duration::ZERO;
    let mut looks = 0_u64;
    while !is_over() {
        let now = Instant::now();
        longest = longest.max(now - last);
        last = now;
        looks += 1;
    }
    let (idle, all) = processors();
    let idle = (idle - before.0) / (all - before.1).max(1.0);
    Gaps { longest, rate: looks as f64 / start.elapsed().as_secs_f64(), idle }
}

/// Returns the time that all processors had nothing to do, and all their time, in ticks.
fn processors() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let words = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
    // The fourth is idle, the fifth waits for a disk.
    (ticks.iter().skip(3).take(2).sum(), ticks.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_the_order_of_their_numbers() {
        for (at, (kind, _)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, at);
        }
    }

    #[test]
    fn each_duration_is_in_a_bucket_that_is_at_most_3_percent_wide() {
        for nanos in (0..5000).chain([1 << 20, 123_456_789, u64::MAX >> 1, u64::MAX]) {
            let above = upper(bucket(nanos));
            assert!(above >= nanos && above - nanos <= nanos / 32, "{nanos}: {above}");
        }
    }

    #[test]
    fn one_slow_operation_of_ten_is_beyond_the_ninety_percent() {
        let mut latency = Latency::default();
        let now = Instant::now();
        (0..9).for_each(|_| latency.note(now, Duration::from_millis(1)));
        latency.note(now, Duration::from_secs(1));
        assert!(latency.quantile(0.9) < Duration::from_micros(1040));
        assert_eq!(latency.quantile(0.999), Duration::from_secs(1));
        assert_eq!((latency.count, latency.longest), (10, Duration::from_secs(1)));
    }
}
