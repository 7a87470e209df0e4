//! The result of searches, as numbers, text, JSON and a chart.

use std::time::Duration;

use pelago_chart::{Bar, Chart, Group, page};
use serde_json::{Value, json};

use super::questions::Question;
use crate::process::{own_cpu, threads_cpu};
use crate::report::{quartiles, write_line};
use crate::{Contender, JSON_VERSION};

/// The figure of Ringer's paper for the search for a tag among 100 files; it names no unit.
const RINGER: &str = "Ringer notes one value, 239, without a unit";

/// The result of [`super::find`].
#[derive(Debug, Clone, PartialEq)]
pub struct FindReport {
    /// Files of the corpus.
    pub files: u64,
    /// Rounds over all questions.
    pub rounds: u32,
    /// The seed of the corpus.
    pub seed: u64,
    /// The questions.
    pub answered: Vec<Answered>,
}

/// A question, and how long its answers took.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The question.
    pub question: Question,
    /// Milliseconds of each answer, of all rounds.
    millis: Vec<f64>,
    own: Duration,
    daemon: Duration,
}

/// The times of one question in one round.
#[derive(Debug)]
pub struct Times {
    daemons: Vec<u32>,
    own: Duration,
    daemon: Duration,
    took: Vec<Duration>,
}

impl Times {
    /// Begins to count CPU time.
    pub(super) fn begin(contender: &Contender) -> Self {
        let daemons = contender.daemons.clone();
        Self { own: own_cpu(), daemon: cpu_of(&daemons), daemons, took: Vec::new() }
    }

    /// Adds an answer.
    pub(super) fn add(&mut self, took: Duration) {
        self.took.push(took);
    }

    /// Returns the number of answers.
    pub(super) fn len(&self) -> usize {
        self.took.len()
    }
}

fn cpu_of(daemons: &[u32]) -> Duration {
    daemons.iter().flat_map(|pid| threads_cpu(*pid)).map(|(_, time)| time).sum()
}

impl Answered {
    pub(super) const fn new(question: Question) -> Self {
        Self { question, millis: Vec::new(), own: Duration::ZERO, daemon: Duration::ZERO }
    }

    pub(super) fn add(&mut self, times: &Times) {
        self.own += own_cpu().saturating_sub(times.own);
        self.daemon += cpu_of(&times.daemons).saturating_sub(times.daemon);
        self.millis.extend(times.took.iter().map(|took| took.as_secs_f64() * 1e3));
    }

    /// Returns the lower quartile, the median and the upper quartile, in milliseconds.
    #[must_use]
    pub fn quartiles(&self) -> [f64; 3] {
        quartiles(self.millis.iter().copied())
    }

    /// Returns whether the median is within the goal; `None` if there is none.
    #[must_use]
    pub fn is_met(&self) -> Option<bool> {
        Some(self.quartiles()[1] <= self.question.goal_ms?)
    }

    /// Returns CPU milliseconds of an answer, of this process and of the daemon.
    fn cpu_ms(&self) -> [f64; 2] {
        let count = self.millis.len().max(1) as f64;
        [self.own, self.daemon].map(|time| time.as_secs_f64() * 1e3 / count)
    }

    fn line(&self) -> String {
        let Question { name, hits, all, goal_ms, .. } = &self.question;
        let [lower, median, upper] = self.quartiles();
        let [own, daemon] = self.cpu_ms();
        let hits = if hits == all { hits.to_string() } else { format!("{hits} of {all}") };
        let goal = match (goal_ms, self.is_met()) {
            (Some(goal), Some(true)) => format!("  goal {goal} ms: met"),
            (Some(goal), _) => format!("  goal {goal} ms: MISSED"),
            (None, _) => String::new(),
        };
        format!(
            "  {name:42} {hits:>13}  {median:9.3} ({lower:.3} to {upper:.3}) ms  \
             cpu {own:.3}+{daemon:.3} ms{goal}"
        )
    }

    fn to_json(&self) -> Value {
        let [lower, median, upper] = self.quartiles();
        let [own, daemon] = self.cpu_ms();
        let Question { name, query, hits, all, goal_ms, .. } = &self.question;
        json!({
            "question": name,
            "query": query,
            "hits": hits,
            "all": all,
            "replies": self.millis.len(),
            // The name until 0.1.0; it goes with the release after that.
            "answers": self.millis.len(),
            "median_ms": median,
            "lower_ms": lower,
            "upper_ms": upper,
            "cpu_ms_own": own,
            "cpu_ms_daemon": daemon,
            "goal_ms": goal_ms,
        })
    }
}

impl FindReport {
    /// Returns a table for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let Self { files, rounds, seed, answered } = self;
        let mut text = String::new();
        write_line(
            &mut text,
            format_args!("find: {files} files, {rounds} rounds, seed {seed}, warm; {RINGER}"),
        );
        for answered in answered {
            write_line(&mut text, format_args!("{}", answered.line()));
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "version": JSON_VERSION,
            "bench": "find",
            "files": self.files,
            "rounds": self.rounds,
            "seed": self.seed,
            "questions": self.answered.iter().map(Answered::to_json).collect::<Vec<_>>(),
        })
    }

    /// Returns a page of SVG: the median of each question, and the CPU time of the daemon.
    #[must_use]
    pub fn render_svg(&self) -> String {
        let chart = |title: &str, figure: fn(&Answered) -> f64| {
            let group = |answered: &Answered| Group {
                label: answered.question.name.clone(),
                bars: vec![Bar { series: "pelago".to_owned(), figure: figure(answered) }],
            };
            let groups = self.answered.iter().map(group).collect();
            Chart { title: title.to_owned(), note: String::new(), groups }
        };
        let charts = [
            chart("Milliseconds of an answer, median", |answered| answered.quartiles()[1]),
            chart("Milliseconds of CPU time of the daemon", |answered| answered.cpu_ms()[1]),
        ];
        page(&format!("Searches among {} files, warm", self.files), &charts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::corpus::Corpus;
    use super::super::questions::questions;
    use super::*;

    #[test]
    fn a_goal_is_met_by_the_median() {
        let question = questions(&Corpus::new(200, 1)).remove(0);
        let answered = |millis: [f64; 3]| Answered {
            millis: millis.to_vec(),
            ..Answered::new(question.clone())
        };
        assert_eq!(answered([0.1, 1.0, 9.0]).is_met(), Some(true));
        assert_eq!(answered([0.1, 1.1, 9.0]).is_met(), Some(false));
        assert_eq!(answered([1.0, 2.0, 3.0]).quartiles(), [1.5, 2.0, 2.5]);
        let report =
            FindReport { files: 200, rounds: 1, seed: 1, answered: vec![answered([2.0; 3])] };
        assert!(report.render_text().contains("goal 1 ms: MISSED"));
        assert_eq!(report.to_json()["questions"][0]["median_ms"], 2.0);
        assert!(report.render_svg().contains("\n2.00\n"));
    }
}
