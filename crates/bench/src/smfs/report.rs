//! The result of the measurements of SMFS's paper, as numbers, text, JSON and a chart.

use pelago_chart::{Bar, Chart, Group, page};
use serde_json::{Value, json};

use super::{SmfsFolder, SmfsOptions, Turn};
use crate::JSON_VERSION;
use crate::report::{Ratio, quantile, quartiles, write_line};

/// The percentiles of the text and the chart.
const SHOWN: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// Points of a distribution, evenly spaced, besides the last thousandths.
const POINTS: u32 = 100;

/// The result of [`super::smfs`].
#[derive(Debug, Clone, PartialEq)]
pub struct SmfsReport {
    /// The options, as one needs them to repeat it.
    pub setup: String,
    /// The names of the folders.
    pub folders: Vec<String>,
    /// The levels, in the order in which they were asked for.
    pub levels: Vec<SmfsLevel>,
}

/// One level.
#[derive(Debug, Clone, PartialEq)]
pub struct SmfsLevel {
    /// Its name.
    pub level: &'static str,
    /// The reason for which it was not measured.
    pub refused: Option<String>,
    /// Its figures, if it was measured.
    pub figures: Option<SmfsFigures>,
}

/// The figures of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct SmfsFigures {
    /// Rounds.
    pub rounds: usize,
    /// Messages that were answered in all of them.
    pub messages: u64,
    /// Messages that began in their time and were answered after it.
    pub late: u64,
    /// Messages per second: the lower quartile of the rounds, the median and the upper quartile.
    pub per_second: [f64; 3],
    /// Megabits of messages per second, the same quartiles.
    pub mbit_s: [f64; 3],
    /// Milliseconds of a message, at parts of all of them from 0 to 1.
    pub distribution: Vec<(f64, f64)>,
    /// Seconds after a round until the mirrors had all, quartiles; `None` if they never had.
    pub drained_seconds: Option<[f64; 3]>,
    /// CPU microseconds of a message, of this process and of those that serve the folders.
    pub cpu_us: (f64, f64),
    /// Messages per second of each round.
    rates: Vec<f64>,
    shown: [f64; SHOWN.len()],
    worst: f64,
}

impl SmfsReport {
    pub(super) fn new(
        folders: &[SmfsFolder],
        options: &SmfsOptions,
        levels: Vec<SmfsLevel>,
    ) -> Self {
        let SmfsOptions { testers, bytes, warm_up, time, rounds, seed, .. } = options;
        Self {
            setup: format!(
                "{testers} testers, {bytes} bytes a message, {rounds} rounds of {} s after {} s, \
                 seed {seed}",
                time.as_secs_f64(),
                warm_up.as_secs_f64(),
            ),
            folders: folders.iter().map(|folder| folder.contender.name.clone()).collect(),
            levels,
        }
    }

    /// Returns a table for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = format!("smfs: {}\n", self.setup);
        for level in &self.levels {
            let name = level.level;
            if let Some(why) = &level.refused {
                write_line(&mut text, format_args!("{name:8} not measured: {why}"));
            }
            if let Some(figures) = &level.figures {
                write_line(&mut text, format_args!("{name:8} {}", figures.render_text()));
            }
        }
        for (level, ratio) in self.ratios() {
            let Ratio { median, lower, upper } = ratio;
            write_line(
                &mut text,
                format_args!(
                    "messages over those of {}: {level} {median:.3} ({lower:.3} to {upper:.3})",
                    self.first().map_or("", |level| level.level)
                ),
            );
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let of = |level: &SmfsLevel| {
            let ratio = self.ratios().find(|(name, _)| *name == level.level);
            json!({
                "level": level.level,
                "refused": level.refused,
                "figures": level.figures.as_ref().map(SmfsFigures::to_json),
                "ratio": ratio.map(|(_, ratio)| ratio.to_json()),
            })
        };
        json!({
            "version": JSON_VERSION,
            "bench": "smfs",
            "setup": self.setup,
            "folders": self.folders,
            "levels": self.levels.iter().map(of).collect::<Vec<_>>(),
        })
    }

    /// Returns a page of SVG: the rate of each level, and the percentiles of its latency.
    #[must_use]
    pub fn render_svg(&self) -> String {
        let measured =
            || self.levels.iter().filter_map(|it| Some((it.level, it.figures.as_ref()?)));
        let bar = |series: &str, figure: f64| Bar { series: series.to_owned(), figure };
        let rate =
            |(level, figures): (&'static str, &SmfsFigures)| bar(level, figures.per_second[1]);
        let rates = Group { label: "messages".to_owned(), bars: measured().map(rate).collect() };
        let percentile = |at: usize| Group {
            label: SHOWN[at].0.to_owned(),
            bars: measured().map(|(level, figures)| bar(level, figures.shown[at])).collect(),
        };
        let chart = |title: &str, groups: Vec<Group>| Chart {
            title: title.to_owned(),
            note: String::new(),
            groups,
        };
        let charts = [
            chart("Messages per second, median of rounds", vec![rates]),
            chart("Milliseconds of a message", (0..SHOWN.len()).map(percentile).collect()),
        ];
        page(&format!("Synced appends by level: {}", self.setup), &charts)
    }

    /// Returns the first level that was measured.
    fn first(&self) -> Option<&SmfsLevel> {
        self.levels.iter().find(|level| level.figures.is_some())
    }

    /// Returns the messages of each other level over those of the first one in the same round.
    fn ratios(&self) -> impl Iterator<Item = (&'static str, Ratio)> {
        let first = self.first().and_then(|level| level.figures.as_ref());
        let measured = self.levels.iter().filter(|level| level.figures.is_some()).skip(1);
        measured.filter_map(move |level| {
            let rates = &level.figures.as_ref()?.rates;
            Some((level.level, Ratio::new(rates, &first?.rates)))
        })
    }
}

impl SmfsFigures {
    pub(super) fn new(turns: &[Turn], options: &SmfsOptions) -> Self {
        let seconds = options.time.as_secs_f64().max(f64::MIN_POSITIVE);
        let rates: Vec<f64> = turns.iter().map(|turn| turn.answered as f64 / seconds).collect();
        let megabits = f64::from(options.bytes) * 8.0 / 1e6;
        let messages: u64 = turns.iter().map(|turn| turn.answered).sum();
        let mut millis: Vec<f64> =
            turns.iter().flat_map(|turn| turn.millis.iter().copied()).collect();
        millis.sort_by(f64::total_cmp);
        let drained: Option<Vec<f64>> =
            turns.iter().map(|turn| Some(turn.drained?.as_secs_f64())).collect();
        let began = millis.len().max(1) as f64;
        let cpu = |time: fn(&Turn) -> std::time::Duration| {
            turns.iter().map(time).sum::<std::time::Duration>().as_secs_f64() * 1e6 / began
        };
        let even = (0..POINTS).map(|point| f64::from(point) / f64::from(POINTS));
        let parts = even.chain([0.995, 0.999, 1.0]);
        Self {
            rounds: turns.len(),
            messages,
            late: turns.iter().map(|turn| turn.late).sum(),
            per_second: quartiles(rates.iter().copied()),
            mbit_s: quartiles(rates.iter().map(|rate| rate * megabits)),
            distribution: parts.map(|part| (part, quantile(&millis, part))).collect(),
            drained_seconds: drained.map(|seconds| quartiles(seconds.into_iter())),
            cpu_us: (cpu(|turn| turn.own_cpu), cpu(|turn| turn.daemon_cpu)),
            rates,
            shown: SHOWN.map(|(_, part)| quantile(&millis, part)),
            worst: millis.last().copied().unwrap_or(0.0),
        }
    }

    fn render_text(&self) -> String {
        let [lower, median, upper] = self.per_second;
        let mbit = self.mbit_s[1];
        let times = SHOWN.iter().zip(self.shown);
        let times: Vec<String> =
            times.map(|((name, _), millis)| format!("{name} {millis:.1}")).collect();
        let drained = self
            .drained_seconds
            .map_or_else(String::new, |[_, median, _]| format!(", mirrored after {median:.1} s"));
        let (own, daemon) = self.cpu_us;
        format!(
            "{median:.0}/s ({lower:.0} to {upper:.0}), {mbit:.2} Mbit/s; {} worst {:.0} ms; \
             {} unanswered at the end{drained}; cpu {own:.0}+{daemon:.0} µs",
            times.join(" "),
            self.worst,
            self.late,
        )
    }

    fn to_json(&self) -> Value {
        json!({
            "rounds": self.rounds,
            "messages": self.messages,
            "unanswered": self.late,
            "per_s": spread(self.per_second),
            "mbit_s": spread(self.mbit_s),
            "p50_ms": self.shown[0],
            "p90_ms": self.shown[1],
            "p99_ms": self.shown[2],
            "p999_ms": self.shown[3],
            "worst_ms": self.worst,
            "distribution_ms": self.distribution,
            "mirrored_after_s": self.drained_seconds.map(spread),
            "cpu_us_own": self.cpu_us.0,
            "cpu_us_daemon": self.cpu_us.1,
        })
    }
}

fn spread([lower, median, upper]: [f64; 3]) -> Value {
    json!({ "median": median, "lower": lower, "upper": upper })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn figures(answered: [u64; 2]) -> SmfsFigures {
        let turn = |answered: u64| Turn {
            millis: vec![1.0, 2.0, 3.0],
            answered,
            late: 1,
            drained: Some(Duration::from_secs(2)),
            ..Turn::default()
        };
        SmfsFigures::new(&answered.map(turn), &SmfsOptions::default())
    }

    fn report() -> SmfsReport {
        let level = |level, figures| SmfsLevel { level, refused: None, figures };
        let refused = Some("x: no relay".to_owned());
        SmfsReport {
            setup: "tiny".to_owned(),
            folders: vec!["x".to_owned()],
            levels: vec![
                level("local", Some(figures([1000, 2000]))),
                SmfsLevel { level: "network", refused, figures: None },
                level("remote", Some(figures([100, 400]))),
            ],
        }
    }

    /// 4,000 bytes are 0.032 Mbit.
    #[test]
    fn rates_are_in_seconds_and_megabits() {
        let figures = figures([1000, 2000]);
        assert_eq!(figures.per_second, [125.0, 150.0, 175.0]);
        assert!((figures.mbit_s[1] - 4.8).abs() < 1e-9, "{figures:?}");
        assert_eq!((figures.messages, figures.late, figures.shown[0]), (3000, 2, 2.0));
        assert_eq!(figures.distribution.len(), POINTS as usize + 3);
        assert_eq!(figures.distribution.last(), Some(&(1.0, 3.0)));
    }

    #[test]
    fn a_level_that_was_not_measured_says_why() {
        let text = report().render_text();
        let network = "network  not measured: x: no relay\n";
        assert!(text.contains(network), "{text}");
        assert!(text.contains("local    150/s (125 to 175), 4.80 Mbit/s; p50 2.0 "), "{text}");
        assert!(text.contains("over those of local: remote 0.150 (0.125 to 0.175)"), "{text}");
        let json = report().to_json();
        assert_eq!(json["levels"][1]["refused"], "x: no relay");
        assert!(json["levels"][1]["figures"].is_null() && json["levels"][0]["ratio"].is_null());
        let ratio = &json["levels"][2]["ratio"]["median"];
        assert!(ratio.as_f64().is_some_and(|ratio| (ratio - 0.15).abs() < 1e-9), "{ratio}");
        assert_eq!(json["levels"][0]["figures"]["mirrored_after_s"]["median"], 2.0);
        assert!(report().render_svg().contains("\n150\n"));
    }
}
