//! The own folder of an office whose other one is 100 ms away, or away altogether: its creates and
//! whole programs beside those of a machine without offices, and the requests that it sends.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::Offices;
use super::programs::{self, Sources};
use crate::kit::process::{output, wait_until};
use crate::kit::report::{failed, met, text};
use crate::rivals::Options;

/// A round trip of 100 ms.
const FAR: &str = "delay=50000 rate=0";
/// The other office does not answer.
const AWAY: &str = "cut=1";
const BACK: &str = "cut=0";
/// The rounds and names of `pelago bench meta`.
const ROUNDS: &str = "9";
const NAMES: &str = "5000";
const AT_MOST: &str = "3";
/// Files that are created, renamed and removed while requests are counted.
const COUNTED: u32 = 20_000;
/// The least part of the creates of a machine without offices.
const WANTED: f64 = 0.9;
/// The silence after which an office counts as away, with a margin.
const SILENT_MS: u64 = 12_000;
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

/// Measures with the other office far and away, prints both, and returns whether the goals are met.
pub(super) fn measure(
    options: &Options,
    pelago: &Path,
    offices: &mut Offices,
) -> Result<(Value, bool), String> {
    let mut report = json!({});
    let mut good = true;
    let sources = Sources::make(&offices.disk_below("sources")?)?;
    offices.shape(FAR)?;
    for (name, line) in [("far", FAR), ("away", AWAY)] {
        offices.shape(line)?;
        if line == AWAY {
            let is_away = || offices.silence_ms().is_ok_and(|silence| silence >= SILENT_MS);
            if !wait_until(PATIENCE, POLL, is_away) {
                return Err("the first office does not count as silent".to_owned());
            }
        }
        let (measured, is_good) = beside_a_machine(name, options, pelago, offices)?;
        report[name] = measured;
        let [own, machine] = ["own", "machine"].map(|folder| offices.folder(folder).path);
        let (programs, are_good) = programs::beside_a_machine(pelago, &sources, &own, &machine)?;
        report[name]["programs"] = programs;
        good &= is_good && are_good;
    }
    offices.shape(BACK)?;
    Ok((report, good))
}

/// Measures names in an own folder beside a machine's, and counts requests.
fn beside_a_machine(
    name: &str,
    options: &Options,
    pelago: &Path,
    offices: &Offices,
) -> Result<(Value, bool), String> {
    let [own, machine] = ["own", "machine"].map(|folder| offices.folder(folder).path);
    let rounds = options.rounds.to_string();
    let rounds = if options.rounds < super::RUNS { rounds.as_str() } else { ROUNDS };
    let mut command = Command::new(pelago);
    command.args(["bench", "meta", "--json", "--rounds", rounds, "--names", NAMES]);
    command.args(["--at-most", AT_MOST]).arg(&own).arg(&machine);
    let before = offices.requests()?;
    let said = output(&mut command)?;
    let while_benched = offices.requests()? - before;
    let bench: Value =
        serde_json::from_str(&said).map_err(|why| format!("pelago bench meta: {why}"))?;
    println!("the other office is {name}: {}", text(&bench, "setup"));
    for row in bench["rows"].as_array().into_iter().flatten() {
        let rate = |at: usize| row["figures"][at]["rate"].as_f64().unwrap_or(0.0);
        let part = |key: &str| row["ratios"][0][key].as_f64().unwrap_or(0.0);
        let [median, lower, upper] = ["median", "lower", "upper"].map(part);
        println!(
            "  {:22} own {:>9.0}  machine {:>9.0}  of the machine {median:.2} ({lower:.2} to \
             {upper:.2})",
            text(row, "step"),
            rate(0),
            rate(1),
        );
    }
    let creates = creates_of(&bench);
    println!("  creates {creates:.2} of the machine, goal {WANTED}: {}", met(creates >= WANTED));
    println!("  {while_benched} requests in all rounds, which walk paths");
    let (requests, seconds) = requests_of_work(&own, offices)?;
    println!(
        "  {requests} requests for {COUNTED} creates, renames and unlinks in {seconds:.1} s, goal \
         0: {}",
        met(requests == 0)
    );
    let report = json!({
        "bench": bench,
        "requests_of_bench": while_benched,
        "operations": 3 * COUNTED,
        "requests": requests,
        "seconds": seconds,
    });
    Ok((report, creates >= WANTED && requests == 0))
}

/// Returns the creates of the own folder over those of the machine.
fn creates_of(bench: &Value) -> f64 {
    let mut rows = bench["rows"].as_array().into_iter().flatten();
    let creates = rows.find(|row| row["step"] == "create");
    creates.and_then(|row| row["ratios"][0]["median"].as_f64()).unwrap_or(0.0)
}

/// Returns the requests that are sent while files are created, renamed and removed in a folder that
/// was entered before, and the seconds.
fn requests_of_work(folder: &Path, offices: &Offices) -> Result<(u64, f64), String> {
    let dir = File::open(folder).map_err(|why| failed(folder, &why))?;
    let before = offices.requests()?;
    let began = Instant::now();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let work = || -> Result<(), Errno> {
        for number in 0..COUNTED {
            drop(fs::openat(&dir, format!("f{number}"), flags, Mode::RUSR | Mode::WUSR)?);
        }
        for number in 0..COUNTED {
            fs::renameat(&dir, format!("f{number}"), &dir, format!("r{number}"))?;
        }
        for number in 0..COUNTED {
            fs::unlinkat(&dir, format!("r{number}"), AtFlags::empty())?;
        }
        Ok(())
    };
    work().map_err(|why| format!("{}: {why}", folder.display()))?;
    let seconds = began.elapsed().as_secs_f64();
    // What is sent late counts, too.
    thread::sleep(Duration::from_secs(1));
    Ok((offices.requests()? - before, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_creates() {
        let row =
            |step: &str, median: f64| json!({ "step": step, "ratios": [{ "median": median }] });
        assert_eq!(
            creates_of(&json!({ "rows": [row("stat warm", 2.0), row("create", 0.95)] })),
            0.95
        );
        assert_eq!(creates_of(&json!({ "rows": [] })), 0.0);
    }
}
