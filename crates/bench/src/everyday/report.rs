//! Seconds of each job in each directory, as numbers, text and JSON.

use serde_json::{Value, json};

use crate::JSON_VERSION;
use crate::report::{Ratio, quartiles, write_line};
use crate::timing::Sample;

/// The times of the jobs in several directories.
#[derive(Debug, Clone, PartialEq)]
pub struct EverydayReport {
    /// The options and the tree, as one needs them to repeat it.
    pub setup: String,
    /// The directories' names, in the order of each job's figures.
    pub contenders: Vec<String>,
    /// The jobs, in the order in which they ran, and then all of them together.
    pub jobs: Vec<JobTimes>,
}

/// One job in all directories.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTimes {
    /// The job's name.
    pub job: String,
    /// The figures of each directory.
    pub figures: Vec<JobFigures>,
    /// The time of the first directory over that of each other one.
    pub ratios: Vec<Ratio>,
}

/// The figures of one job in one directory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobFigures {
    /// Rounds that were measured.
    pub rounds: usize,
    /// Seconds: the lower quartile of the rounds, the median and the upper quartile.
    pub seconds: [f64; 3],
    /// Medians of CPU seconds: of the programs, and of the file system's daemon.
    pub cpu: (f64, f64),
}

impl EverydayReport {
    /// Returns a table for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = format!("everyday: {}\n", self.setup);
        let width = self.contenders.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for job in &self.jobs {
            write_line(&mut text, format_args!("{}", job.job));
            for (name, figures) in self.contenders.iter().zip(&job.figures) {
                let [lower, median, upper] = figures.seconds;
                let (programs, daemon) = figures.cpu;
                write_line(
                    &mut text,
                    format_args!(
                        "  {name:width$} {median:>8.3} s ({lower:.3} to {upper:.3})  \
                         cpu {programs:.2}+{daemon:.2} s"
                    ),
                );
            }
            for (name, ratio) in self.contenders.iter().skip(1).zip(&job.ratios) {
                let Ratio { median, lower, upper } = ratio;
                write_line(
                    &mut text,
                    format_args!(
                        "  time over that of {name}: {median:.2} ({lower:.2} to {upper:.2})"
                    ),
                );
            }
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let jobs: Vec<Value> = self.jobs.iter().map(JobTimes::to_json).collect();
        json!({
            "version": JSON_VERSION,
            "bench": "everyday",
            "setup": self.setup,
            "contenders": self.contenders,
            "jobs": jobs,
        })
    }
}

impl JobTimes {
    /// Computes the figures of a job from `samples[contender][round]`.
    pub(super) fn new(job: &str, samples: &[Vec<Sample>]) -> Self {
        let seconds = |rounds: &Vec<Sample>| -> Vec<f64> {
            rounds.iter().map(|sample| sample.elapsed.as_secs_f64()).collect()
        };
        let seconds: Vec<Vec<f64>> = samples.iter().map(seconds).collect();
        let ratios = seconds
            .split_first()
            .map(|(first, others)| others.iter().map(|other| Ratio::new(first, other)).collect());
        Self {
            job: job.to_owned(),
            figures: samples.iter().map(|rounds| JobFigures::new(rounds)).collect(),
            ratios: ratios.unwrap_or_default(),
        }
    }

    fn to_json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().copied().map(JobFigures::to_json).collect();
        let ratios: Vec<Value> = self.ratios.iter().copied().map(Ratio::to_json).collect();
        json!({ "job": self.job, "figures": figures, "ratios": ratios })
    }
}

impl JobFigures {
    fn new(rounds: &[Sample]) -> Self {
        let median = |time: fn(&Sample) -> std::time::Duration| {
            let [_, median, _] = quartiles(rounds.iter().map(|it| time(it).as_secs_f64()));
            median
        };
        Self {
            rounds: rounds.len(),
            seconds: quartiles(rounds.iter().map(|it| it.elapsed.as_secs_f64())),
            cpu: (median(|it| it.own_cpu), median(|it| it.daemon_cpu)),
        }
    }

    fn to_json(self) -> Value {
        let [lower, median, upper] = self.seconds;
        json!({
            "rounds": self.rounds,
            "seconds": { "median": median, "lower": lower, "upper": upper },
            "cpu_s_programs": self.cpu.0,
            "cpu_s_daemon": self.cpu.1,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(millis: u64) -> Sample {
        let elapsed = Duration::from_millis(millis);
        Sample { elapsed, own_cpu: elapsed / 2, daemon_cpu: elapsed / 4, ..Sample::default() }
    }

    #[test]
    fn a_ratio_is_that_of_the_times_of_a_round() {
        let slow = [250, 500, 1000].map(sample).to_vec();
        let fast = [125, 250, 500].map(sample).to_vec();
        let job = JobTimes::new("tar x", &[slow, fast]);
        assert_eq!(job.ratios, [Ratio { median: 2.0, lower: 2.0, upper: 2.0 }]);
        assert_eq!(job.figures[0].seconds, [0.375, 0.5, 0.75]);
        assert_eq!(job.figures[0].cpu, (0.25, 0.125));
        let contenders = vec!["here".to_owned(), "there".to_owned()];
        let report = EverydayReport { setup: "tiny".to_owned(), contenders, jobs: vec![job] };
        let text = "everyday: tiny\ntar x\n  \
                    here     0.500 s (0.375 to 0.750)  cpu 0.25+0.12 s\n  \
                    there    0.250 s (0.188 to 0.375)  cpu 0.12+0.06 s\n  \
                    time over that of there: 2.00 (2.00 to 2.00)\n";
        assert_eq!(report.render_text(), text);
        let json = report.to_json();
        assert_eq!(json["jobs"][0]["figures"][1]["seconds"]["upper"], 0.375);
        assert_eq!((&json["version"], &json["bench"]), (&1.into(), &"everyday".into()));
    }
}
