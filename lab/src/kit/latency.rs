//! Latencies of operations by their kind, in buckets that are 1 % wide.

use std::time::{Duration, Instant};

/// The name of a kind of operation, as reports print it.
pub(crate) type Kind = &'static str;

/// Buckets of each power of two of nanoseconds, as a power of two.
const FINE: u32 = 7;
const BUCKETS: usize = 64 << FINE;

/// The latencies of one kind of operation.
#[derive(Debug, Clone)]
pub(crate) struct Latency {
    /// Empty until an operation is recorded.
    buckets: Vec<u64>,
    /// The number of operations.
    pub(crate) count: u64,
    /// The duration of the longest operation.
    pub(crate) longest: Duration,
    /// The time at which the longest operation began.
    pub(crate) when: Option<Instant>,
}

impl Latency {
    const fn new() -> Self {
        Self { buckets: Vec::new(), count: 0, longest: Duration::ZERO, when: None }
    }

    fn record(&mut self, start: Instant, took: Duration) {
        if self.buckets.is_empty() {
            self.buckets = vec![0; BUCKETS];
        }
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        if took > self.longest {
            self.longest = took;
            self.when = Some(start);
        }
    }

    fn add(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
                *own += more;
            }
        }
        self.count += other.count;
        if other.longest > self.longest {
            self.longest = other.longest;
            self.when = other.when;
        }
    }

    /// Returns a duration that this part of all operations did not exceed.
    pub(crate) fn quantile(&self, part: f64) -> Duration {
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

/// The latencies of all kinds of operations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies(Vec<(Kind, Latency)>);

impl Latencies {
    /// Records an operation.
    pub(super) fn record(&mut self, kind: Kind, start: Instant, took: Duration) {
        self.of_mut(kind).record(start, took);
    }

    /// Adds the operations of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        for (kind, latency) in &other.0 {
            self.of_mut(kind).add(latency);
        }
    }

    /// Returns the latencies of a kind; those of no operation if none was recorded.
    pub(crate) fn of(&self, kind: Kind) -> &Latency {
        static NONE: Latency = Latency::new();
        self.0.iter().find(|(of, _)| *of == kind).map_or(&NONE, |(_, latency)| latency)
    }

    fn of_mut(&mut self, kind: Kind) -> &mut Latency {
        let at = self.0.iter().position(|(of, _)| *of == kind).unwrap_or_else(|| {
            self.0.push((kind, Latency::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_is_in_a_bucket_that_is_at_most_1_percent_wide() {
        for nanos in (0..5000).chain([1 << 20, 123_456_789, u64::MAX >> 1, u64::MAX]) {
            let above = upper(bucket(nanos));
            assert!(above >= nanos && above - nanos <= nanos / 100, "{nanos}: {above}");
        }
    }

    #[test]
    fn one_slow_operation_of_ten_is_beyond_the_ninety_percent() {
        let now = Instant::now();
        let mut fast = Latencies::default();
        (0..9).for_each(|_| fast.record("read", now, Duration::from_millis(1)));
        let mut all = Latencies::default();
        all.record("read", now, Duration::from_secs(1));
        all.add(&fast);
        let latency = all.of("read");
        assert!(latency.quantile(0.9) < Duration::from_micros(1010));
        assert_eq!(latency.quantile(0.999), Duration::from_secs(1));
        assert_eq!((latency.count, latency.longest), (10, Duration::from_secs(1)));
        assert_eq!(all.of("write").count, 0);
    }
}
