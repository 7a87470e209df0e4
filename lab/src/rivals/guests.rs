//! The mount of a guest beside that of a machine and sshfs, and the time that a revocation takes.
//!
//! `pelago bench meta` and `io` run on the three in turn, so each round has a ratio of its own.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use pelago_testbed::{VerbResult, tools, verdict};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::discfs::{guest, machine, new_key};
use super::peers::{self, Kind, Lab};
use super::{Options, PACKAGES, Scratch};
use crate::kit::namespaces::{Namespaces, Side};
use crate::kit::report::{failed, met, millis, text};
use crate::kit::statistics::median;

/// The defaults: rounds, files of `meta`, and MiB of the large file.
pub(super) const ROUNDS: u32 = 5;
pub(super) const NAMES: u64 = 2000;
pub(super) const MIB: u64 = 128;
/// The benchmarks that run.
pub(super) const BENCHES: [&str; 2] = ["meta", "io"];
/// The file systems beside the two mounts of Pelago.
pub(super) const OTHERS: [&str; 1] = ["sshfs"];
/// Ratios are those of the first to each other one.
const KINDS: [Kind; 3] = [
    Kind { name: "guest", packages: &["fuse3"], start: guest },
    Kind { name: "machine", packages: &["fuse3"], start: machine },
    Kind { name: "sshfs", packages: &["sshfs", "openssh-server"], start: peers::sshfs },
];
/// The least speed of the guest over the machine, and the most of its CPU time for a MiB.
const SPEED: f64 = 0.95;
const CPU: f64 = 1.03;
/// The longest time of a revocation, in milliseconds: a round trip and this if the guest answers.
const REACHABLE_MS: f64 = 250.0;
const SILENT_MS: f64 = 3_200.0;

/// Measures, and prints one table of each benchmark, and that of revocations.
pub(super) fn run(options: &Options, pelago: &Path, logs: &Path) -> VerbResult {
    let is_chosen = |name: &str| name != "sshfs" || options.others.iter().any(|it| it == name);
    let kinds: Vec<_> = KINDS.iter().filter(|kind| is_chosen(kind.name)).collect();
    let packages = kinds.iter().flat_map(|kind| kind.packages).chain(&PACKAGES);
    tools::install_packages(&packages.copied().collect::<Vec<_>>(), logs)?;
    let scratch = Scratch::new()?;
    let namespaces = Namespaces::join(logs)?;
    let lab = Lab { pelago, namespaces: &namespaces, folder: &scratch.0, ends: None };
    // Dropped first: the mounts go before their processes.
    let peers = kinds.iter().map(|kind| kind.start(&lab)).collect::<Result<Vec<_>, _>>()?;
    let mut measured = json!({ "version": 1 });
    let mut good = true;
    for bench in &options.benches {
        let report = options.measure(pelago, bench, &peers)?;
        good &= print_table(&report);
        measured[bench.as_str()] = report;
    }
    for (name, is_silent, most) in
        [("answers", false, REACHABLE_MS), ("is silent", true, SILENT_MS)]
    {
        let times = (0..options.rounds).map(|round| revocation(&lab, round, is_silent));
        let times = times.collect::<Result<Vec<f64>, _>>()?;
        let middle = median(times.iter().copied()).unwrap_or(f64::NAN);
        let is_met = middle <= most;
        println!("revoke, the guest {name}: {middle:.0} ms, goal {most:.0}: {}", met(is_met));
        measured["revoke"][name] = json!(times);
        good &= is_met;
    }
    if options.json {
        println!("{measured}");
    }
    verdict(good)
}

/// Prints for each step the rates and the ratios of the guest, and returns whether all goals are
/// met.
fn print_table(report: &Value) -> bool {
    println!("{}: {}", text(report, "bench"), text(report, "setup"));
    let names = report["contenders"].as_array().map(Vec::as_slice).unwrap_or_default();
    print!("{:32}", "step");
    names.iter().for_each(|name| print!("{:>12}", name.as_str().unwrap_or_default()));
    names.iter().skip(1).for_each(|name| {
        print!("{:>22}{:>9}", format!("over {}", name.as_str().unwrap_or_default()), "CPU");
    });
    println!();
    let mut good = true;
    for row in report["rows"].as_array().into_iter().flatten() {
        let mut row_is_good = true;
        print!("{:32}", format!("{}, {}", text(row, "step"), text(row, "unit")));
        for at in 0..names.len() {
            print!("{:>12.0}", row["figures"][at]["rate"].as_f64().unwrap_or(0.0));
        }
        for (at, name) in names.iter().enumerate().skip(1) {
            let beside = Beside { row, at };
            let [middle, lower, upper] = ["median", "lower", "upper"].map(|key| beside.ratio(key));
            print!("{:>22}{:>9.2}", format!("{middle:.2} ({lower:.2}-{upper:.2})"), beside.cpu());
            row_is_good &= beside.is_met(name == "machine");
        }
        println!("  {}", met(row_is_good));
        good &= row_is_good;
    }
    good
}

/// The guest beside another file system, in one row.
struct Beside<'a> {
    row: &'a Value,
    at: usize,
}

impl Beside<'_> {
    /// Returns a part of the ratio of the speeds over the rounds.
    fn ratio(&self, key: &str) -> f64 {
        self.row["ratios"][self.at - 1][key].as_f64().unwrap_or(0.0)
    }

    /// Returns the CPU time of the guest's operation, of all processes, over that of the other.
    fn cpu(&self) -> f64 {
        let of = |at: usize| {
            let figures = &self.row["figures"][at];
            let part = |key: &str| figures[key].as_f64().unwrap_or(0.0);
            part("cpu_us_own") + part("cpu_us_daemon")
        };
        of(0) / of(self.at).max(f64::EPSILON)
    }

    /// Returns whether the goals are met. Only rows of bytes have one for the CPU time.
    fn is_met(&self, is_machine: bool) -> bool {
        let speed = self.ratio("median");
        match is_machine {
            true => speed >= SPEED && (self.row["unit"] != "MB/s" || self.cpu() <= CPU),
            false => speed >= 1.0,
        }
    }
}

/// Shares a new folder, attaches and reads it, and takes it back. Returns the milliseconds of the
/// command that does that. The process of a silent guest is stopped before.
fn revocation(lab: &Lab<'_>, round: u32, is_silent: bool) -> Result<f64, String> {
    let name = format!("revoked-{is_silent}-{round}");
    let home = lab.folder.join("guest/data");
    // A key of its own: one that has been silent is granted no lease for a while, so that it delays
    // nothing.
    let away = home.join(format!("{name}-guest"));
    let shared = home.join("volume/files").join(&name);
    let point = away.join(&name);
    for folder in [&shared, &away, &point] {
        std::fs::create_dir(folder).map_err(|why| failed(folder, &why))?;
    }
    let file = shared.join("file");
    std::fs::write(&file, "bytes").map_err(|why| failed(&file, &why))?;
    let key = new_key(lab, &away, "revoked")?;
    let credential = home.join(format!("{name}.cred")).display().to_string();
    let path = shared.display().to_string();
    let share = ["share", &path, "--to", &key, "--out", &credential];
    lab.pelago(Side::Server, "revoked-share", &home, &share)?;
    let attach = ["attach", &credential, &point.to_string_lossy(), "--detach", "--json"];
    let said = lab.pelago(Side::Client, "revoked-attach", &away, &attach)?;
    // What is read is leased.
    let read = point.join("file");
    let bytes = std::fs::read(&read).map_err(|why| failed(&read, &why))?;
    if bytes != b"bytes" {
        return Err(format!("{}: {} bytes", read.display(), bytes.len()));
    }
    let attached: Value = serde_json::from_str(&said).map_err(|why| format!("attach: {why}"))?;
    let pid = attached["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.ok_or_else(|| format!("pelago attach names no process: {said}"))?;
    let signal = |signal| kill_process(pid, signal).map_err(|why| format!("{pid:?}: {why}"));
    if is_silent {
        signal(Signal::STOP)?;
    }
    let began = Instant::now();
    let mut revoke = lab.command(Side::Server, &lab.pelago.to_string_lossy());
    revoke.args(["revoke", &credential, "-V", "volume"]).env("HOME", &home).current_dir(&home);
    revoke.env_remove("XDG_CONFIG_HOME").env_remove("PELAGO_KEY");
    let ended = revoke.output().map_err(|why| format!("pelago revoke: {why}"))?;
    let time = millis(began.elapsed());
    if is_silent {
        signal(Signal::CONT)?;
    }
    unmount(&point)?;
    match ended.status.success() {
        true => Ok(time),
        false => Err(format!("pelago revoke: {}", String::from_utf8_lossy(&ended.stderr))),
    }
}

fn unmount(point: &Path) -> Result<(), String> {
    let ended = Command::new("umount").arg("-l").arg(point).status();
    let ended = ended.map_err(|why| format!("umount: {why}"))?;
    match ended.success() {
        true => Ok(()),
        false => Err(format!("{} stays mounted", point.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(unit: &str, speed: f64, cpu: f64) -> Value {
        let figures = |cpu: f64| json!({ "cpu_us_own": cpu / 2.0, "cpu_us_daemon": cpu / 2.0 });
        json!({
            "unit": unit,
            "figures": [figures(cpu), figures(1.0)],
            "ratios": [{ "median": speed }],
        })
    }

    #[test]
    fn a_guest_has_to_be_nearly_as_fast_as_a_machine_and_ahead_of_others() {
        let is_met = |row: &Value, is_machine| Beside { row, at: 1 }.is_met(is_machine);
        assert!(is_met(&row("op/s", 0.95, 2.0), true), "CPU time counts in rows of bytes alone");
        assert!(!is_met(&row("op/s", 0.94, 1.0), true));
        assert!(is_met(&row("MB/s", 0.95, 1.03), true));
        assert!(!is_met(&row("MB/s", 0.95, 1.04), true));
        assert!(is_met(&row("MB/s", 1.0, 9.0), false));
        assert!(!is_met(&row("op/s", 0.99, 0.5), false));
    }
}
