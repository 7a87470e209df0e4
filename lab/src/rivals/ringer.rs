//! Ringer's measurements in its four placements, beside sshfs over the same lines, and the own
//! folder of an office whose other office is far, or away.
//!
//! `pelago bench ringer` runs on folders that alternate: of one machine without offices; of an
//! office, and of another one over a line; of another one, written by a third; and of sshfs.

mod fetch;
mod offices;
mod own;
mod programs;

use std::path::Path;
use std::process::Command;

use pelago_testbed::{VerbResult, tools, verdict};
use serde_json::{Value, json};

use super::{Options, PACKAGES, Scratch};
use crate::kit::process::output;
use crate::kit::report::text;

use offices::Offices;

/// The defaults: runs of each transfer, and calls of each kind, as in the paper.
pub(super) const RUNS: u32 = 50;
pub(super) const CALLS: u64 = 1000;
/// The file systems beside Pelago.
pub(super) const OTHERS: [&str; 2] = ["sshfs", "sshfs-nocache"];
/// The parts of the measurement: [`PLACEMENTS`], [`OWN`] and [`FETCH`].
pub(super) const PARTS: [&str; 5] = ["here", "gige", "adsl", OWN, FETCH];
/// The part that measures the own folder of an office.
const OWN: &str = "own";
/// The part that measures reads of a large file.
const FETCH: &str = "fetch";

/// A line, and the folders that are measured over it.
struct Placement {
    name: &'static str,
    line: &'static str,
    /// The folders, with the paper's placement that each is.
    folders: &'static [(&'static str, &'static str)],
    /// Over a slow line the calls are divided by this.
    fewer: u64,
    /// Most bytes of the runs of a size.
    most: Option<&'static str>,
}

/// A round trip of 30 ms, 8 Mbit/s to this office and 1 Mbit/s from it.
const ADSL: &str = "queue=65536 delay=15000 ab.rate=1000000 ba.rate=125000";
/// A switch of 1 Gbit/s, whose ports hold a thousand packets.
const GIGE: &str = "delay=50 rate=125000000 queue=1500000";

const PLACEMENTS: [Placement; 3] = [
    Placement {
        name: "here",
        line: ADSL,
        folders: &[("own", "mixed_us"), ("machine", "local_us")],
        fewer: 1,
        most: None,
    },
    Placement {
        name: "gige",
        line: GIGE,
        folders: &[
            ("office", "gige_us"),
            ("third", "gige_us"),
            ("sshfs", "gige_us"),
            ("sshfs-nocache", "gige_us"),
        ],
        fewer: 1,
        most: None,
    },
    Placement {
        name: "adsl",
        line: ADSL,
        folders: &[("office", "dsl_us"), ("sshfs", "dsl_us"), ("sshfs-nocache", "dsl_us")],
        fewer: 5,
        most: Some("2MiB"),
    },
];

/// Measures all parts that are chosen, and prints their tables.
pub(super) fn run(options: &Options, pelago: &Path, logs: &Path) -> VerbResult {
    let mut packages = vec!["fuse3", "sshfs", "openssh-server", "iperf3", "procps", "git"];
    packages.extend(PACKAGES);
    tools::install_packages(&packages, logs)?;
    let scratch = Scratch::new()?;
    let mut offices = Offices::start(pelago, logs, &scratch.0, &options.others)?;
    let is_chosen = |name: &str| options.benches.iter().any(|part| part == name);
    let mut measured = json!({ "version": 1 });
    for placement in PLACEMENTS.iter().filter(|placement| is_chosen(placement.name)) {
        offices.shape(placement.line)?;
        let report = placement.bench(options, pelago, &offices)?;
        placement.print_table(&report);
        measured[placement.name] = report;
    }
    let mut good = true;
    if is_chosen(OWN) {
        let (report, is_good) = own::measure(options, pelago, &mut offices)?;
        measured[OWN] = report;
        good = is_good;
    }
    if is_chosen(FETCH) {
        let (report, is_good) = fetch::measure(options, &mut offices)?;
        measured[FETCH] = report;
        good &= is_good;
    }
    if options.json {
        println!("{measured}");
    }
    verdict(good)
}

impl Placement {
    /// Runs `pelago bench ringer` on the folders of which there are some.
    fn bench(&self, options: &Options, pelago: &Path, offices: &Offices) -> Result<Value, String> {
        let is_there = |name: &str| {
            offices::PELAGO.contains(&name) || options.others.iter().any(|other| other == name)
        };
        let names = self.folders.iter().map(|(name, _)| *name).filter(|name| is_there(name));
        let names: Vec<&str> = names.collect();
        let mut command = Command::new(pelago);
        command.args(["bench", "ringer", "--json", "--runs", &options.rounds.to_string()]);
        command.args(["--calls", &(options.names / self.fewer).max(1).to_string()]);
        if let Some(most) = self.most {
            command.args(["--most", most]);
        }
        for name in &names {
            let folder = offices.folder(name);
            command.arg(&folder.path).arg("--other").arg(&folder.other);
        }
        let said = output(&mut command)?;
        let mut report: Value =
            serde_json::from_str(&said).map_err(|why| format!("pelago bench ringer: {why}"))?;
        report["contenders"] = names.into();
        report["line"] = self.line.into();
        Ok(report)
    }

    /// Prints medians with quartiles, requests, the speed of the first folder over that of each
    /// other one, and the paper's figure with the part of it that the median is.
    fn print_table(&self, report: &Value) {
        println!("{} ({}): {}", self.name, self.line, text(report, "setup"));
        let names = report["contenders"].as_array().map(Vec::as_slice).unwrap_or_default();
        for row in report["rows"].as_array().into_iter().flatten() {
            println!("{} (µs){}", text(row, "step"), words_of(row));
            for (at, name) in names.iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                let folder = self.folders.iter().find(|(known, _)| *known == name);
                let paper = folder.and_then(|(_, key)| row["paper"][key].as_f64());
                println!("  {}", Figures { row, at }.line(name, paper));
            }
        }
    }
}

/// Returns what the paper says of a row without figures.
fn words_of(row: &Value) -> String {
    let words = row["paper"]["words"].as_str();
    words.map_or_else(String::new, |words| format!("; paper: {words}"))
}

/// The figures of one folder in a row.
struct Figures<'a> {
    row: &'a Value,
    at: usize,
}

impl Figures<'_> {
    fn number(&self, key: &str) -> f64 {
        self.row["figures"][self.at][key].as_f64().unwrap_or(0.0)
    }

    fn line(&self, name: &str, paper: Option<f64>) -> String {
        let [median, lower, upper, mean] =
            ["median", "lower", "upper", "mean"].map(|key| self.number(key));
        let requests = self.row["figures"][self.at]["requests"].as_f64();
        let requests = requests.map_or_else(String::new, |sent| format!("  requests {sent:.1}"));
        let speed = self.at.checked_sub(1).map_or_else(String::new, |at| {
            let speed = self.row["speeds"][at]["median"].as_f64().unwrap_or(0.0);
            format!("  first over it {speed:.2}")
        });
        let paper = paper.map_or_else(String::new, |paper| {
            format!("  paper {paper:.0}, of it {:.3}", median / paper)
        });
        format!(
            "{name:14} {median:>11.1} ({lower:.1} to {upper:.1})  mean \
             {mean:.1}{requests}{speed}{paper}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placement_is_a_part_and_its_folders_are_known() {
        for placement in &PLACEMENTS {
            assert!(PARTS.contains(&placement.name), "{}", placement.name);
            for (name, _) in placement.folders {
                let is_known = OTHERS.contains(name) || offices::PELAGO.contains(name);
                assert!(is_known, "{name}");
            }
        }
        assert_eq!(PLACEMENTS.len() + 2, PARTS.len());
    }

    #[test]
    fn a_line_has_the_ratios_of_a_folder() {
        let figures =
            |median: f64| json!({ "median": median, "lower": 1.0, "upper": 9.0, "mean": 50.0 });
        let mut row = json!({
            "paper": { "gige_us": 500 },
            "figures": [figures(4.0), figures(8.0)],
            "speeds": [{ "median": 2.0 }],
        });
        row["figures"][0]["requests"] = 1.5.into();
        let line = Figures { row: &row, at: 0 }.line("office", Some(500.0));
        let expected = "office                 4.0 (1.0 to 9.0)  mean 50.0  requests 1.5  paper \
                        500, of it 0.008";
        assert_eq!(line, expected);
        let line = Figures { row: &row, at: 1 }.line("sshfs", None);
        assert_eq!(line, "sshfs                  8.0 (1.0 to 9.0)  mean 50.0  first over it 2.00");
        assert_eq!(words_of(&json!({ "paper": { "words": "flat" } })), "; paper: flat");
    }
}
