//! `rivals`: Pelago's far mount beside sshfs and gluster, each over the same cable.
//!
//! The servers are in one network namespace and the mounts in another, joined by a pair of virtual
//! network devices. `pelago bench` runs on the mounts in turn; its CPU times are those of all
//! processes of a file system, at both ends.

mod bulk;
mod discfs;
mod guests;
mod peers;
mod ringer;

use std::fs;
use std::path::Path;
use std::process::Command;

use pelago_testbed::{VerbResult, arguments, machine, mounted, tools, verdict};
use serde_json::{Value, json};

use self::peers::{KINDS, Lab, Peer};
use crate::kit::namespaces::Namespaces;
use crate::kit::report::{failed, text};

/// The least ratio of creates to those of sshfs.
const WANTED: f64 = 3.0;
/// The benchmarks of `pelago bench` that run on mounts.
const BENCHES: [&str; 3] = ["meta", "io", "tree"];
/// The file systems beside Pelago.
const OTHERS: [&str; 2] = ["sshfs", "gluster"];
/// Packages that every measurement needs.
const PACKAGES: [&str; 2] = ["iproute2", "iperf3"];

/// The options of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    /// The other file systems.
    others: Vec<String>,
    benches: Vec<String>,
    rounds: u32,
    names: u64,
    /// The longest time of a step of `meta`, in seconds.
    at_most: u64,
    /// Bytes of the large file.
    mib: u64,
    bulk: bool,
    /// DisCFS's measurements alone, with all memory limited.
    discfs: bool,
    /// A guest's mount beside a machine's, and revocations.
    guests: bool,
    /// Ringer's measurements on several offices.
    ringer: bool,
    json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            others: OTHERS.map(str::to_owned).to_vec(),
            benches: BENCHES.map(str::to_owned).to_vec(),
            rounds: 3,
            names: 4000,
            at_most: 1,
            mib: 256,
            bulk: false,
            discfs: false,
            guests: false,
            ringer: false,
            json: false,
        }
    }
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--bulk" => {
                    options.bulk = true;
                    options.mib = 1024;
                    options.others.clear();
                    options.benches.clear();
                }
                "--discfs" => {
                    options.discfs = true;
                    options.rounds = discfs::ROUNDS;
                    options.mib = discfs::MIB;
                    options.others = discfs::OTHERS.map(str::to_owned).to_vec();
                }
                "--guests" => {
                    options.guests = true;
                    options.rounds = guests::ROUNDS;
                    options.names = guests::NAMES;
                    options.mib = guests::MIB;
                    options.others = guests::OTHERS.map(str::to_owned).to_vec();
                    options.benches = guests::BENCHES.map(str::to_owned).to_vec();
                }
                "--ringer" => {
                    options.ringer = true;
                    options.rounds = ringer::RUNS;
                    options.names = ringer::CALLS;
                    options.others = ringer::OTHERS.map(str::to_owned).to_vec();
                    options.benches = ringer::PARTS.map(str::to_owned).to_vec();
                }
                "--json" => options.json = true,
                "--rounds" => options.rounds = arguments::number(value()?, "rounds")?,
                "--names" => options.names = arguments::number(value()?, "names")?,
                "--at-most" => options.at_most = arguments::number(value()?, "seconds")?,
                "--mib" => options.mib = arguments::number(value()?, "MiB")?,
                "--others" => options.others = list(value()?, options.known())?,
                "--benches" => options.benches = list(value()?, options.known_benches())?,
                other => return Err(format!("no option `{other}`")),
            }
        }
        Ok(options)
    }
}

impl Options {
    /// Returns the file systems that can be chosen.
    const fn known(&self) -> &'static [&'static str] {
        match () {
            () if self.discfs => &discfs::OTHERS,
            () if self.guests => &guests::OTHERS,
            () if self.ringer => &ringer::OTHERS,
            () => &OTHERS,
        }
    }

    /// Returns the benchmarks that can be chosen.
    const fn known_benches(&self) -> &'static [&'static str] {
        if self.ringer { &ringer::PARTS } else { &BENCHES }
    }
}

/// Reads words that are divided by commas; none at all is an empty list.
fn list(words: &str, known: &[&str]) -> Result<Vec<String>, String> {
    let words = words.split(',').filter(|word| !word.is_empty());
    words
        .map(|word| match known.contains(&word) {
            true => Ok(word.to_owned()),
            false => Err(format!("`{word}` is none of {}", known.join(", "))),
        })
        .collect()
}

/// Measures, prints tables, and ends everything that it has started, also after an error.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let options = Options::parse(arguments)?;
    if !machine::is_root() {
        return Err("needs root, for network namespaces".to_owned());
    }
    let logs = mounted::log_folder("rivals")?;
    let pelago = mounted::build()?;
    if options.discfs {
        return discfs::run(&options, &pelago, &logs);
    }
    if options.guests {
        return guests::run(&options, &pelago, &logs);
    }
    if options.ringer {
        return ringer::run(&options, &pelago, &logs);
    }
    let is_chosen = |name: &str| name == "pelago" || options.others.iter().any(|it| it == name);
    let kinds: Vec<_> = KINDS.iter().filter(|kind| is_chosen(kind.name)).collect();
    let packages = kinds.iter().flat_map(|kind| kind.packages).chain(&PACKAGES);
    tools::install_packages(&packages.copied().collect::<Vec<_>>(), &logs)?;
    let scratch = Scratch::new()?;
    let namespaces = Namespaces::join(&logs)?;
    let lab = Lab { pelago: &pelago, namespaces: &namespaces, folder: &scratch.0, ends: None };
    // Dropped first: the mounts go before their processes.
    let peers = kinds.iter().map(|kind| kind.start(&lab)).collect::<Result<Vec<_>, _>>()?;
    let mut measured = json!({ "version": 1 });
    let mut good = true;
    for bench in &options.benches {
        let report = options.measure(&pelago, bench, &peers)?;
        print_table(&report);
        good &= creates_are_fast(&report);
        measured[bench.as_str()] = report;
    }
    if options.bulk {
        namespaces.limit_rate(bulk::RATE)?;
        let bytes = options.mib << 20;
        let (report, is_good) = bulk::measure(&namespaces, &peers[0].point, options.rounds, bytes)?;
        good &= is_good;
        measured["bulk"] = report;
    }
    if options.json {
        println!("{measured}");
    }
    verdict(good)
}

impl Options {
    /// Runs `pelago bench` on all mounts.
    fn measure(&self, pelago: &Path, bench: &str, peers: &[Peer]) -> Result<Value, String> {
        let mut command = Command::new(pelago);
        command.args(["bench", bench, "--json", "--rounds", &self.rounds.to_string()]);
        let names = self.names.to_string();
        let bytes = (self.mib << 20).to_string();
        match bench {
            "meta" => {
                command.args(["--names", &names, "--at-most", &self.at_most.to_string()]);
                command.arg("--cold")
            }
            "io" => command.args(["--size", &bytes, "--random-writes", &names]),
            _ => command.args(["--plain", "--names", &names, "--small", &names]),
        };
        for peer in peers {
            command.arg(&peer.point).arg("--daemon-pid").arg(peer.processes.join(","));
        }
        let output = command.output().map_err(|why| format!("pelago bench: {why}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("pelago bench {bench}: {said}"));
        }
        let mut report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|why| format!("pelago bench {bench}: {why}"))?;
        report["contenders"] = peers.iter().map(|peer| peer.name).collect();
        Ok(report)
    }
}

/// Prints rates with half their spread, CPU time of all processes, and ratios with quartiles.
fn print_table(report: &Value) {
    println!("{}: {}", text(report, "bench"), text(report, "setup"));
    let none = Vec::new();
    let rows = |value: &Value| value.as_array().unwrap_or(&none).clone();
    for row in rows(&report["rows"]) {
        println!("{} ({})", text(&row, "step"), text(&row, "unit"));
        let mut ratios = rows(&row["ratios"]).into_iter();
        let contenders = rows(&report["contenders"]);
        for (at, (figures, name)) in rows(&row["figures"]).iter().zip(&contenders).enumerate() {
            let number = |key: &str| figures[key].as_f64().unwrap_or(0.0);
            let cpu = number("cpu_us_own") + number("cpu_us_daemon");
            let ratio = if at == 0 { None } else { ratios.next() };
            let ratio = ratio.map_or_else(String::new, |ratio| {
                let part = |key: &str| ratio[key].as_f64().unwrap_or(0.0);
                format!(
                    "  ratio {:.2} ({:.2} to {:.2})",
                    part("median"),
                    part("lower"),
                    part("upper")
                )
            });
            println!(
                "  {:8} {:>10.0} ±{:.0}%  cpu {cpu:.1} µs  p50 {:.1} µs{ratio}",
                name.as_str().unwrap_or_default(),
                number("rate"),
                number("spread") * 100.0,
                number("p50_us"),
            );
        }
    }
}

/// Returns whether the goal is met for creates; a report without them meets it.
fn creates_are_fast(report: &Value) -> bool {
    let of_sshfs = report["contenders"].as_array().and_then(|names| {
        let at = names.iter().position(|name| name == "sshfs")?;
        let rows = report["rows"].as_array()?;
        let row = rows.iter().find(|row| row["step"] == "create")?;
        row["ratios"][at.checked_sub(1)?]["median"].as_f64()
    });
    let Some(ratio) = of_sshfs else { return true };
    let is_met = ratio >= WANTED;
    let said = if is_met { "met" } else { "missed" };
    println!("create, of sshfs: {ratio:.2}; the goal of {WANTED} is {said}");
    is_met
}

/// The folder of all servers and mount points; removed on drop.
struct Scratch(std::path::PathBuf);

impl Scratch {
    /// Makes the folder. The mounts and files of a killed run are removed before.
    fn new() -> Result<Self, String> {
        let folder = std::env::temp_dir().join("pelago-rivals");
        peers::unmount_below(&folder);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|why| failed(&folder, &why))?;
        }
        fs::create_dir(&folder).map_err(|why| failed(&folder, &why))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        peers::unmount_below(&self.0);
        if let Err(why) = fs::remove_dir_all(&self.0) {
            println!("left behind: {}", failed(&self.0, &why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn options_are_read_and_unknown_words_refused() {
        let options = Options::parse(&words(&["--rounds", "5", "--others", "sshfs"])).unwrap();
        assert_eq!((options.rounds, options.others), (5, words(&["sshfs"])));
        let bulk = Options::parse(&words(&["--bulk", "--mib", "64"])).unwrap();
        assert_eq!((bulk.mib, bulk.benches.len(), bulk.others.len()), (64, 0, 0));
        let discfs = Options::parse(&words(&["--discfs", "--others", "guest,ext4"])).unwrap();
        assert_eq!((discfs.mib, discfs.others), (512, words(&["guest", "ext4"])));
        let guests = Options::parse(&words(&["--guests", "--rounds", "1"])).unwrap();
        assert_eq!((guests.rounds, guests.others), (1, words(&["sshfs"])));
        let ringer = Options::parse(&words(&["--ringer", "--benches", "own,adsl"])).unwrap();
        assert_eq!((ringer.rounds, ringer.benches), (50, words(&["own", "adsl"])));
        for wrong in [
            &["--others", "nfs"][..],
            &["--ringer", "--benches", "meta"],
            &["--benches", "own"],
            &["--guests", "--others", "ext4"],
            &["--discfs", "--others", "gluster"],
            &["--rounds"],
            &["meta"],
        ] {
            assert!(Options::parse(&words(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_goal_is_missed_below_three_times_sshfs() {
        let report = |ratio: f64| {
            let row = json!({ "step": "create", "ratios": [{ "median": ratio }] });
            json!({ "contenders": ["pelago", "sshfs"], "rows": [row] })
        };
        assert!(creates_are_fast(&report(3.0)) && !creates_are_fast(&report(2.9)));
        assert!(creates_are_fast(&json!({})));
    }
}
