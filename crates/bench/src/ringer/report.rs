//! Times and requests of each call and transfer in each folder, beside those of the paper.

use serde_json::{Value, json};

use super::job::{RingerPaper, RowHead};
use crate::JSON_VERSION;
use crate::report::{Ratio, quartiles, write_line};

/// The figures of several folders.
#[derive(Debug, Clone, PartialEq)]
pub struct RingerReport {
    /// The options, as one needs them to repeat it.
    pub setup: String,
    /// The folders' names, in the order of each row's figures.
    pub folders: Vec<String>,
    /// The calls and transfers, in the order in which they ran.
    pub rows: Vec<RingerRow>,
}

/// One call or transfer in all folders.
#[derive(Debug, Clone, PartialEq)]
pub struct RingerRow {
    /// Its name.
    pub step: String,
    /// Its figures in the paper.
    pub paper: RingerPaper,
    /// The figures of each folder.
    pub figures: Vec<RingerFigures>,
    /// The speed of the first folder over that of each other one.
    pub speeds: Vec<Ratio>,
}

/// The figures of one row in one folder.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RingerFigures {
    /// Calls or transfers that were timed.
    pub runs: usize,
    /// Microseconds: the lower quartile, the median and the upper quartile.
    pub micros: [f64; 3],
    /// The mean, in microseconds: the paper has means.
    pub mean: f64,
    /// The longest, in microseconds.
    pub worst: f64,
    /// Requests to other offices for one of them, on average; `None` if they are not known.
    pub requests: Option<f64>,
}

impl RingerReport {
    /// Returns a table for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = format!("ringer: {}\n", self.setup);
        let width = self.folders.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            write_line(&mut text, format_args!("{} (µs)", row.step));
            for (name, figures) in self.folders.iter().zip(&row.figures) {
                write_line(&mut text, format_args!("  {name:width$} {}", figures.render_text()));
            }
            for (name, ratio) in self.folders.iter().skip(1).zip(&row.speeds) {
                let Ratio { median, lower, upper } = ratio;
                write_line(
                    &mut text,
                    format_args!(
                        "  speed over that of {name}: {median:.2} ({lower:.2} to {upper:.2})"
                    ),
                );
            }
            write_line(&mut text, format_args!("  paper: {}", row.paper.render_text()));
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(RingerRow::to_json).collect();
        json!({
            "version": JSON_VERSION,
            "bench": "ringer",
            "setup": self.setup,
            "contenders": self.folders,
            "rows": rows,
        })
    }
}

impl RingerRow {
    /// Computes a row from `times[folder][run]`, in microseconds, and `requests[folder][run]`. The
    /// folders have alternated after `block` runs, so a ratio is one of medians of so many.
    pub(super) fn new(
        head: RowHead,
        times: &[Vec<f64>],
        requests: &[Vec<Option<u64>>],
        block: u32,
    ) -> Self {
        let medians = times.iter().map(|times| {
            let blocks = times.chunks(block.max(1) as usize);
            blocks.map(|block| quartiles(block.iter().copied())[1]).collect::<Vec<f64>>()
        });
        let medians: Vec<Vec<f64>> = medians.collect();
        // Both do the same work, so the ratio of speeds is the inverse one of times.
        let speeds = medians
            .split_first()
            .map(|(first, others)| others.iter().map(|other| Ratio::new(other, first)).collect());
        let figures = times.iter().zip(requests);
        Self {
            step: head.step,
            paper: head.paper,
            figures: figures.map(|(times, sent)| RingerFigures::new(times, sent)).collect(),
            speeds: speeds.unwrap_or_default(),
        }
    }

    fn to_json(&self) -> Value {
        let figures: Vec<Value> =
            self.figures.iter().copied().map(RingerFigures::to_json).collect();
        let speeds: Vec<Value> = self.speeds.iter().copied().map(Ratio::to_json).collect();
        json!({
            "step": self.step,
            "unit": "us",
            "paper": self.paper.to_json(),
            "figures": figures,
            "speeds": speeds,
        })
    }
}

impl RingerPaper {
    fn render_text(self) -> String {
        match self {
            Self::Micros { local, gige, dsl, mixed } => {
                let mixed = mixed.map_or_else(String::new, |mixed| format!(", mixed {mixed}"));
                format!("local {local}, GigE {gige}, DSL {dsl}{mixed} µs")
            }
            Self::Words(words) => words.to_owned(),
        }
    }

    fn to_json(self) -> Value {
        match self {
            Self::Micros { local, gige, dsl, mixed } => {
                json!({ "local_us": local, "gige_us": gige, "dsl_us": dsl, "mixed_us": mixed })
            }
            Self::Words(words) => json!({ "words": words }),
        }
    }
}

impl RingerFigures {
    fn new(times: &[f64], requests: &[Option<u64>]) -> Self {
        let sent: Option<u64> = requests.iter().copied().sum();
        let sent = sent.filter(|_| !requests.is_empty());
        Self {
            runs: times.len(),
            micros: quartiles(times.iter().copied()),
            mean: times.iter().sum::<f64>() / times.len().max(1) as f64,
            worst: times.iter().copied().fold(0.0, f64::max),
            requests: sent.map(|sent| sent as f64 / requests.len() as f64),
        }
    }

    fn render_text(&self) -> String {
        let Self { micros: [lower, median, upper], mean, worst, .. } = self;
        let requests =
            self.requests.map_or_else(String::new, |requests| format!("  requests {requests:.1}"));
        format!(
            "{median:>10.1} ({lower:.1} to {upper:.1})  mean {mean:.1}  worst {worst:.0}{requests}"
        )
    }

    fn to_json(self) -> Value {
        let Self { runs, micros: [lower, median, upper], mean, worst, requests } = self;
        json!({
            "runs": runs,
            "median": median,
            "lower": lower,
            "upper": upper,
            "mean": mean,
            "worst": worst,
            "requests": requests,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(paper: RingerPaper) -> RowHead {
        RowHead { step: "get rnode, first".to_owned(), paper }
    }

    const PAPER: RingerPaper = RingerPaper::Micros { local: 1, gige: 2, dsl: 3, mixed: Some(4) };

    /// Two turns of two calls each: the medians of a turn are 20 and 60, and 40 and 60.
    #[test]
    fn a_ratio_is_taken_in_each_turn() {
        let fast = vec![10.0, 30.0, 50.0, 70.0];
        let slow = vec![40.0, 40.0, 60.0, 60.0];
        let sent = [vec![Some(1), Some(2)], vec![None, Some(1)]];
        let row = RingerRow::new(head(PAPER), &[fast, slow], &sent, 2);
        let [ours, theirs] = row.figures[..] else { panic!("{row:?}") };
        assert_eq!(
            (ours.runs, ours.micros, ours.mean, ours.worst),
            (4, [25.0, 40.0, 55.0], 40.0, 70.0)
        );
        assert_eq!((ours.requests, theirs.requests), (Some(1.5), None));
        assert_eq!(row.speeds, [Ratio { median: 1.5, lower: 1.25, upper: 1.75 }]);
    }

    #[test]
    fn a_row_has_the_figures_of_the_paper_beside_it() {
        let times = [vec![100.0, 100.0], vec![250.0, 250.0]];
        let sent = [vec![Some(2)], vec![None]];
        let rows = vec![RingerRow::new(head(PAPER), &times, &sent, 1)];
        let folders = vec!["here".to_owned(), "there".to_owned()];
        let report = RingerReport { setup: "tiny".to_owned(), folders, rows };
        let text = "ringer: tiny\nget rnode, first (µs)\n  \
                    here       100.0 (100.0 to 100.0)  mean 100.0  worst 100  requests 2.0\n  \
                    there      250.0 (250.0 to 250.0)  mean 250.0  worst 250\n  \
                    speed over that of there: 2.50 (2.50 to 2.50)\n  \
                    paper: local 1, GigE 2, DSL 3, mixed 4 µs\n";
        assert_eq!(report.render_text(), text);
        let json = report.to_json();
        assert_eq!((&json["version"], &json["bench"]), (&1.into(), &"ringer".into()));
        let row = &json["rows"][0];
        assert_eq!((&row["unit"], &row["paper"]["dsl_us"]), (&"us".into(), &3.into()));
        assert_eq!(
            (&row["figures"][0]["requests"], &row["figures"][1]["median"]),
            (&2.0.into(), &250.0.into())
        );
        assert!(row["figures"][1]["requests"].is_null());
        assert_eq!(row["speeds"][0]["median"], 2.5);
    }

    #[test]
    fn a_transfer_has_words_of_the_paper() {
        let row = RingerRow::new(head(RingerPaper::Words("flat")), &[vec![1.0]], &[vec![]], 1);
        assert_eq!(row.paper.render_text(), "flat");
        assert_eq!(row.to_json()["paper"], json!({ "words": "flat" }));
        assert_eq!((row.speeds, row.figures[0].requests), (vec![], None));
    }
}
