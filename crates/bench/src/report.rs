//! The result of a comparison, as numbers, text and JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::JSON_VERSION;
use crate::timing::Sample;

/// Rates of several directories, step by step.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The measurement: `meta`, `io` or `tree`.
    pub bench: &'static str,
    /// The options, as one needs them to repeat it.
    pub setup: String,
    /// The directories' names, in the order of each row's figures.
    pub contenders: Vec<String>,
    /// The steps, in the order in which they ran.
    pub rows: Vec<Row>,
}

/// One step on all directories.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The step's name.
    pub step: String,
    /// The unit of its rates: `op/s` or `MB/s` (10⁶ bytes).
    pub unit: &'static str,
    /// The figures of each directory.
    pub figures: Vec<Figures>,
    /// The rate of the first directory over that of each other one.
    pub ratios: Vec<Ratio>,
}

/// The figures of one step on one directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// Rounds that were measured.
    pub rounds: usize,
    /// Operations in all rounds.
    pub count: u64,
    /// The median rate of the rounds, in the row's unit.
    pub rate: f64,
    /// Half the difference of the fastest and slowest round, over the median.
    pub spread: f64,
    /// CPU microseconds per operation: of this process, and of the file system's daemon.
    pub cpu_us: (f64, f64),
    /// The median latency, in microseconds.
    pub p50_us: f64,
    /// The 99.9th percentile of the latency, in microseconds.
    pub p999_us: f64,
    /// The longest operation, in milliseconds.
    pub worst_ms: f64,
}

/// The ratio of two rates, taken in each round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median of the rounds.
    pub median: f64,
    /// The lower quartile.
    pub lower: f64,
    /// The upper quartile.
    pub upper: f64,
}

impl Report {
    /// Returns a table for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = format!("{}: {}\n", self.bench, self.setup);
        let width = self.contenders.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            write_line(&mut text, format_args!("{} ({})", row.step, row.unit));
            for (name, figures) in self.contenders.iter().zip(&row.figures) {
                write_line(&mut text, format_args!("  {name:width$} {}", figures.render_text()));
            }
            for (name, ratio) in self.contenders.iter().skip(1).zip(&row.ratios) {
                let Ratio { median, lower, upper } = ratio;
                write_line(
                    &mut text,
                    format_args!("  ratio to {name}: {median:.2} ({lower:.2} to {upper:.2})"),
                );
            }
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(Row::to_json).collect();
        json!({
            "version": JSON_VERSION,
            "bench": self.bench,
            "setup": self.setup,
            "contenders": self.contenders,
            "rows": rows,
        })
    }
}

impl Row {
    /// Computes a row from `samples[contender][round]`. With `bytes` per operation the rates are in
    /// MB/s.
    pub(crate) fn new(step: &str, bytes: Option<u64>, samples: &[Vec<Sample>]) -> Self {
        let scale = bytes.map_or(1.0, |bytes| bytes as f64 / 1e6);
        let rates: Vec<Vec<f64>> = samples
            .iter()
            .map(|rounds| rounds.iter().map(|sample| scale * rate_of(sample)).collect())
            .collect();
        let figures = samples.iter().zip(&rates);
        let figures = figures.map(|(rounds, rates)| Figures::new(rounds, rates)).collect();
        let ratios = rates
            .split_first()
            .map(|(first, others)| others.iter().map(|other| Ratio::new(first, other)).collect());
        Self {
            step: step.to_owned(),
            unit: if bytes.is_some() { "MB/s" } else { "op/s" },
            figures,
            ratios: ratios.unwrap_or_default(),
        }
    }

    fn to_json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(Figures::to_json).collect();
        let ratios: Vec<Value> = self.ratios.iter().copied().map(Ratio::to_json).collect();
        json!({ "step": self.step, "unit": self.unit, "figures": figures, "ratios": ratios })
    }
}

impl Figures {
    fn new(rounds: &[Sample], rates: &[f64]) -> Self {
        let count: u64 = rounds.iter().map(|sample| sample.count).sum();
        let each = |time: fn(&Sample) -> Duration| {
            let all: Duration = rounds.iter().map(time).sum();
            all.as_secs_f64() * 1e6 / count.max(1) as f64
        };
        let mut latencies: Vec<f64> = Vec::new();
        for sample in rounds {
            latencies.extend(sample.latencies.iter().map(|nanos| f64::from(*nanos) / 1e3));
        }
        latencies.sort_by(f64::total_cmp);
        let sorted = sorted(rates);
        let rate = quantile(&sorted, 0.5);
        let width = quantile(&sorted, 1.0) - quantile(&sorted, 0.0);
        let worst = rounds.iter().map(|sample| sample.worst).max().unwrap_or_default();
        Self {
            rounds: rounds.len(),
            count,
            rate,
            spread: if rate > 0.0 { width / 2.0 / rate } else { 0.0 },
            cpu_us: (each(|sample| sample.own_cpu), each(|sample| sample.daemon_cpu)),
            p50_us: quantile(&latencies, 0.5),
            p999_us: quantile(&latencies, 0.999),
            worst_ms: worst.as_secs_f64() * 1e3,
        }
    }

    fn render_text(&self) -> String {
        let Self { rate, p50_us, p999_us, worst_ms, .. } = self;
        let (own, daemon) = self.cpu_us;
        let spread = self.spread * 100.0;
        let times = format!("p50 {p50_us:.1} p99.9 {p999_us:.1} µs, worst {worst_ms:.1} ms");
        format!("{rate:>10.0} ±{spread:.0}%  cpu {own:.1}+{daemon:.1} µs  {times}")
    }

    fn to_json(&self) -> Value {
        json!({
            "rounds": self.rounds,
            "count": self.count,
            "rate": self.rate,
            "spread": self.spread,
            "cpu_us_own": self.cpu_us.0,
            "cpu_us_daemon": self.cpu_us.1,
            "p50_us": self.p50_us,
            "p999_us": self.p999_us,
            "worst_ms": self.worst_ms,
        })
    }
}

impl Ratio {
    /// Computes the ratios of `first[round]` and `other[round]`.
    pub(crate) fn new(first: &[f64], other: &[f64]) -> Self {
        let both = first.iter().zip(other).filter(|(_, other)| **other > 0.0);
        let ratios = sorted(&both.map(|(first, other)| first / other).collect::<Vec<_>>());
        Self {
            median: quantile(&ratios, 0.5),
            lower: quantile(&ratios, 0.25),
            upper: quantile(&ratios, 0.75),
        }
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "median": self.median, "lower": self.lower, "upper": self.upper })
    }
}

pub(crate) fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

fn rate_of(sample: &Sample) -> f64 {
    let seconds = sample.elapsed.as_secs_f64();
    if seconds > 0.0 { sample.count as f64 / seconds } else { 0.0 }
}

/// Returns the lower quartile, the median and the upper quartile; 0 if there are no values.
#[must_use]
pub fn quartiles(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let sorted = sorted(&values.collect::<Vec<_>>());
    [0.25, 0.5, 0.75].map(|fraction| quantile(&sorted, fraction))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the quantile of sorted values, interpolated linearly; 0 if there are none.
pub(crate) fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let at = fraction * sorted.len().saturating_sub(1) as f64;
    let value = |index: f64| sorted.get(index as usize).copied().unwrap_or(0.0);
    let below = value(at.floor());
    let above = value(at.ceil());
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(count: u64, millis: u64) -> Sample {
        let elapsed = Duration::from_millis(millis);
        let latencies = vec![1000; count as usize];
        Sample { count, elapsed, own_cpu: elapsed / 2, latencies, ..Sample::default() }
    }

    #[test]
    fn quantiles_are_interpolated() {
        let values = [1.0, 2.0, 3.0, 4.0];
        let found = [0.0, 0.25, 0.5, 1.0].map(|part| quantile(&values, part));
        assert_eq!(found, [1.0, 1.75, 2.5, 4.0]);
        assert_eq!(quantile(&[], 0.5), 0.0);
        assert_eq!(quantile(&[7.0], 0.999), 7.0);
    }

    /// A machine that gets slower does not change the ratios.
    #[test]
    fn a_ratio_is_taken_in_each_round() {
        let fast = [100, 200, 400].map(|millis| sample(100, millis));
        let slow = [200, 400, 800].map(|millis| sample(100, millis));
        let row = Row::new("create", None, &[fast.to_vec(), slow.to_vec()]);
        assert_eq!(row.ratios, [Ratio { median: 2.0, lower: 2.0, upper: 2.0 }]);
        let figures = &row.figures[0];
        assert_eq!((figures.rounds, figures.count, figures.rate), (3, 300, 500.0));
        assert_eq!((figures.p50_us, figures.p999_us), (1.0, 1.0));
        assert!((figures.cpu_us.0 - 1166.666).abs() < 0.01, "{figures:?}");
    }

    #[test]
    fn bytes_are_printed_in_megabytes() {
        let row = Row::new("write", Some(1_000_000), &[vec![sample(100, 500)]]);
        assert_eq!((row.unit, row.figures[0].rate), ("MB/s", 200.0));
        let report = Report {
            bench: "io",
            setup: "tiny".to_owned(),
            contenders: vec!["here".to_owned()],
            rows: vec![row],
        };
        assert!(report.render_text().contains("write (MB/s)"));
        assert_eq!(report.to_json()["rows"][0]["figures"][0]["rate"], 200.0);
        assert_eq!(report.to_json()["version"], 1);
    }
}
