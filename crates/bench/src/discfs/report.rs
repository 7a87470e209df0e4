//! Rates and seconds of each step in each directory, beside those of the paper.

use serde_json::{Value, json};

use super::job::{Paper, Step};
use crate::JSON_VERSION;
use crate::report::{Ratio, quartiles, write_line};
use crate::timing::Sample;

/// The figures of several directories.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscfsReport {
    /// The options, as one needs them to repeat it.
    pub setup: String,
    /// The directories' names, in the order of each row's figures.
    pub contenders: Vec<String>,
    /// The steps, in the order in which they ran.
    pub rows: Vec<DiscfsRow>,
}

/// One step in all directories.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscfsRow {
    /// The step's name.
    pub step: &'static str,
    /// True if the figures are rates; otherwise they are times.
    pub is_rate: bool,
    /// The figures of the paper.
    pub paper: Paper,
    /// The figures of each directory.
    pub figures: Vec<DiscfsFigures>,
    /// The speed of the first directory over that of each other one.
    pub speeds: Vec<Ratio>,
}

/// The figures of one step in one directory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiscfsFigures {
    /// Rounds that were measured.
    pub rounds: usize,
    /// MiB/s or seconds: the lower quartile of the rounds, the median and the upper quartile.
    pub median: [f64; 3],
    /// Half the difference of the greatest and the least one, over the median.
    pub spread: f64,
    /// Medians of CPU milliseconds for a MiB, or CPU seconds: of the programs, and of the
    /// processes that serve the directory.
    pub cpu: (f64, f64),
}

impl DiscfsReport {
    /// Returns a table for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = format!("discfs: {}\n", self.setup);
        let width = self.contenders.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            let unit = if row.is_rate { "MiB/s" } else { "s" };
            write_line(&mut text, format_args!("{} ({unit})", row.step));
            for (name, figures) in self.contenders.iter().zip(&row.figures) {
                let figures = figures.render_text(row.is_rate);
                write_line(&mut text, format_args!("  {name:width$} {figures}"));
            }
            for (name, ratio) in self.contenders.iter().skip(1).zip(&row.speeds) {
                let Ratio { median, lower, upper } = ratio;
                write_line(
                    &mut text,
                    format_args!(
                        "  speed over that of {name}: {median:.2} ({lower:.2} to {upper:.2})"
                    ),
                );
            }
            write_line(&mut text, format_args!("  {}", row.paper.render_text()));
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(DiscfsRow::to_json).collect();
        json!({
            "version": JSON_VERSION,
            "bench": "discfs",
            "setup": self.setup,
            "contenders": self.contenders,
            "rows": rows,
        })
    }
}

impl DiscfsRow {
    /// Computes the row of a step from `samples[contender][round]`.
    pub(super) fn new(step: Step, samples: &[Vec<Sample>]) -> Self {
        let is_rate = step.is_bandwidth();
        let seconds = samples.iter().map(|rounds| {
            let each = rounds.iter().map(|sample| sample.elapsed.as_secs_f64());
            each.collect::<Vec<f64>>()
        });
        let seconds: Vec<Vec<f64>> = seconds.collect();
        // Both do the same work, so the ratio of speeds is the inverse one of times.
        let speeds = seconds
            .split_first()
            .map(|(first, others)| others.iter().map(|other| Ratio::new(other, first)).collect());
        Self {
            step: step.name(),
            is_rate,
            paper: step.paper(),
            figures: samples.iter().map(|rounds| DiscfsFigures::new(rounds, is_rate)).collect(),
            speeds: speeds.unwrap_or_default(),
        }
    }

    fn to_json(&self) -> Value {
        let figures = self.figures.iter().map(|figures| figures.to_json(self.is_rate));
        let speeds: Vec<Value> = self.speeds.iter().copied().map(Ratio::to_json).collect();
        json!({
            "step": self.step,
            "unit": if self.is_rate { "MiB/s" } else { "s" },
            "paper": { "nfs_v3_mbit_s": self.paper.nfs_v3, "others": self.paper.others },
            "figures": figures.collect::<Vec<Value>>(),
            "speeds": speeds,
        })
    }
}

impl Paper {
    fn render_text(self) -> String {
        match self.nfs_v3 {
            Some(rate) => format!("paper, Mbit/s: NFSv3 {rate}; {}", self.others),
            None => format!("paper: {}", self.others),
        }
    }
}

impl DiscfsFigures {
    fn new(rounds: &[Sample], is_rate: bool) -> Self {
        let figure = |sample: &Sample| {
            let seconds = sample.elapsed.as_secs_f64();
            match is_rate {
                true if seconds > 0.0 => sample.count as f64 / seconds,
                true => 0.0,
                false => seconds,
            }
        };
        let median = quartiles(rounds.iter().map(figure));
        let greatest = rounds.iter().map(figure).fold(0.0, f64::max);
        let least = rounds.iter().map(figure).fold(greatest, f64::min);
        let cpu = |time: fn(&Sample) -> std::time::Duration| {
            let scale = |sample: &Sample| match is_rate {
                true => 1e3 / sample.count.max(1) as f64,
                false => 1.0,
            };
            let [_, median, _] =
                quartiles(rounds.iter().map(|it| time(it).as_secs_f64() * scale(it)));
            median
        };
        Self {
            rounds: rounds.len(),
            median,
            spread: if median[1] > 0.0 { (greatest - least) / 2.0 / median[1] } else { 0.0 },
            cpu: (cpu(|it| it.own_cpu), cpu(|it| it.daemon_cpu)),
        }
    }

    fn render_text(&self, is_rate: bool) -> String {
        let [lower, median, upper] = self.median;
        let (programs, daemons) = self.cpu;
        let spread = self.spread * 100.0;
        match is_rate {
            true => format!(
                "{median:>8.0} ({lower:.0} to {upper:.0}) ±{spread:.0}%  \
                 cpu {programs:.2}+{daemons:.2} ms/MiB"
            ),
            false => format!(
                "{median:>8.3} ({lower:.3} to {upper:.3}) ±{spread:.0}%  \
                 cpu {programs:.2}+{daemons:.2} s"
            ),
        }
    }

    fn to_json(self, is_rate: bool) -> Value {
        let [lower, median, upper] = self.median;
        let keys = match is_rate {
            true => ["cpu_ms_mib_programs", "cpu_ms_mib_daemon"],
            false => ["cpu_s_programs", "cpu_s_daemon"],
        };
        json!({
            "rounds": self.rounds,
            "median": median,
            "lower": lower,
            "upper": upper,
            "spread": self.spread,
            keys[0]: self.cpu.0,
            keys[1]: self.cpu.1,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(millis: u64) -> Sample {
        let elapsed = Duration::from_millis(millis);
        Sample {
            count: 100,
            elapsed,
            own_cpu: elapsed / 2,
            daemon_cpu: elapsed / 4,
            ..Sample::default()
        }
    }

    fn report(step: Step) -> DiscfsReport {
        let fast = [125, 250, 500].map(sample).to_vec();
        let slow = [250, 500, 1000].map(sample).to_vec();
        DiscfsReport {
            setup: "tiny".to_owned(),
            contenders: vec!["here".to_owned(), "there".to_owned()],
            rows: vec![DiscfsRow::new(step, &[fast, slow])],
        }
    }

    #[test]
    fn a_rate_has_the_figures_of_the_paper_beside_it() {
        let report = report(Step::Write);
        let text = "discfs: tiny\nblock write (MiB/s)\n  \
                    here       400 (300 to 600) ±75%  cpu 1.25+0.62 ms/MiB\n  \
                    there      200 (150 to 300) ±75%  cpu 2.50+1.25 ms/MiB\n  \
                    speed over that of there: 2.00 (2.00 to 2.00)\n  \
                    paper, Mbit/s: NFSv3 19.77; \
                    DisCFS as NFSv2; bars of FFS, NFSv2 and DisCFS lost\n";
        assert_eq!(report.render_text(), text);
        let row = &report.to_json()["rows"][0];
        assert_eq!((&row["unit"], &row["figures"][1]["upper"]), (&"MiB/s".into(), &300.0.into()));
        assert_eq!(row["figures"][0]["cpu_ms_mib_daemon"], 0.625);
        assert_eq!(row["paper"]["nfs_v3_mbit_s"], 19.77);
    }

    #[test]
    fn the_speed_of_a_time_is_the_inverse_one() {
        let report = report(Step::Build);
        let text = report.render_text();
        assert!(text.contains("build (s)\n  here     0.250 (0.188 to 0.375) ±75%"), "{text}");
        assert!(text.contains("cpu 0.12+0.06 s\n  there    0.500"), "{text}");
        assert!(text.contains("over that of there: 2.00"), "{text}");
        let json = report.to_json();
        assert_eq!((&json["version"], &json["bench"]), (&1.into(), &"discfs".into()));
        assert_eq!(json["rows"][0]["figures"][0]["cpu_s_programs"], 0.125);
        assert_eq!(json["rows"][0]["speeds"][0]["median"], 2.0);
        assert!(json["rows"][0]["paper"]["nfs_v3_mbit_s"].is_null());
    }
}
