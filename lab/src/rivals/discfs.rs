//! DisCFS's measurements on Pelago's two kinds of far mounts, on sshfs and on the disk itself, with
//! 256 MiB of memory for each end of each file system.
//!
//! A machine mounts a volume by its key, which the server lists. A guest attaches a folder of
//! another volume by a credential, and the server does not know it. The programs run in the group
//! of the client's end, so their pages of files count too.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use pelago_testbed::{VerbResult, tools, verdict};
use serde_json::{Value, json};

use super::peers::{self, Ends, Kind, Lab, Peer, listening};
use super::{Options, PACKAGES, Scratch};
use crate::kit::group::Group;
use crate::kit::namespaces::{Namespaces, Side};
use crate::kit::report::{failed, met, text};

/// The defaults: rounds, and MiB of the large file, which is twice the memory.
pub(super) const ROUNDS: u32 = 5;
pub(super) const MIB: u64 = 512;
/// The file systems beside the machine's mount.
pub(super) const OTHERS: [&str; 3] = ["guest", "sshfs", "ext4"];
/// Memory of each end.
const END_BYTES: u64 = 256 << 20;
/// The programs of the measurement.
const PROGRAMS: [&str; 3] = ["bonnie++", "make", "gcc"];
const MACHINE_PORT: &str = "7441";
const GUEST_PORT: &str = "7442";
/// All that a guest needs to work in a folder.
const GUEST_RIGHTS: &str = "rwxcd";
/// Ratios are those of the first to each other one.
const KINDS: [Kind; 4] = [
    Kind { name: "guest", packages: &["fuse3"], start: guest },
    Kind { name: "machine", packages: &["fuse3"], start: machine },
    Kind { name: "sshfs", packages: &["sshfs", "openssh-server"], start: peers::sshfs },
    Kind { name: "ext4", packages: &[], start: local },
];
/// The names of the groups of both ends, for each of [`KINDS`].
const GROUPS: [[&str; 2]; 4] = [
    ["guest-server", "guest-client"],
    ["machine-server", "machine-client"],
    ["sshfs-server", "sshfs-client"],
    ["ext4-server", "ext4-client"],
];
/// The least speed of the first file system over that of another, and the most of its CPU time.
const GOALS: [Goal; 2] = [
    Goal { first: "guest", other: "machine", speed: 0.95, cpu: Some(1.03) },
    Goal { first: "guest", other: "sshfs", speed: 1.0, cpu: None },
];

struct Goal {
    first: &'static str,
    other: &'static str,
    speed: f64,
    /// Of the CPU time of a MiB.
    cpu: Option<f64>,
}

/// A file system that is not measured, with the reason.
struct Absent {
    name: &'static str,
    why: String,
}

/// Measures, and prints tables and goals. A guest that cannot write is left out, with the reason;
/// its goals are missed then.
pub(super) fn run(options: &Options, pelago: &Path, logs: &Path) -> VerbResult {
    let is_chosen =
        |name: &str| name == "machine" || options.others.iter().any(|other| other == name);
    let kinds: Vec<_> = KINDS.iter().zip(GROUPS).filter(|kind| is_chosen(kind.0.name)).collect();
    let packages = kinds.iter().flat_map(|kind| kind.0.packages).chain(&PACKAGES).chain(&PROGRAMS);
    tools::install_packages(&packages.copied().collect::<Vec<_>>(), logs)?;
    let scratch = Scratch::new()?;
    let ends = kinds.iter().map(|kind| Ends::new(kind.1)).collect::<Result<Vec<_>, _>>()?;
    let namespaces = Namespaces::join(logs)?;
    // Dropped first: the mounts go before their processes, and these before their groups.
    let mut peers = Vec::new();
    let mut absent = Vec::new();
    for (kind, ends) in kinds.iter().zip(&ends) {
        let lab = Lab { pelago, namespaces: &namespaces, folder: &scratch.0, ends: Some(ends) };
        match kind.0.start(&lab).and_then(writable) {
            Ok(peer) => peers.push((peer, ends)),
            Err(why) if kind.0.name == "guest" => absent.push(Absent { name: kind.0.name, why }),
            Err(why) => return Err(why),
        }
    }
    for Absent { name, why } in &absent {
        println!("{name} is not measured: {why}");
    }
    let before = load();
    let mut report = bench(options, pelago, &peers)?;
    println!("load of the machine: {before} before, {} after", load());
    let killed = ends.iter().map(Ends::killed).sum::<Result<u64, String>>()?;
    println!("{killed} processes killed for their memory, of {} MiB an end", END_BYTES >> 20);
    let mut good = killed == 0;
    for goal in GOALS.iter().filter(|goal| is_chosen(goal.first) && is_chosen(goal.other)) {
        good &= goal.check(&report);
    }
    let absent = absent.iter().map(|it| json!({ "name": it.name, "why": it.why }));
    report["absent"] = absent.collect();
    if options.json {
        println!("{report}");
    }
    verdict(good)
}

impl Ends {
    fn new(names: [&'static str; 2]) -> Result<Self, String> {
        let [server, client] = names;
        let server = Group::new(server, END_BYTES)?;
        Ok(Self { server, client: Group::new(client, END_BYTES)? })
    }

    fn killed(&self) -> Result<u64, String> {
        Ok(self.server.killed()? + self.client.killed()?)
    }
}

/// Returns how many processes wanted a processor in the last minute, five and fifteen, on average.
fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Returns the file system if its mount takes a file.
fn writable(peer: Peer) -> Result<Peer, String> {
    let path = peer.point.join("probe");
    let probed = fs::write(&path, "probe").and_then(|()| fs::remove_file(&path));
    match probed {
        Ok(()) => Ok(peer),
        Err(why) => Err(format!("it cannot write: {}", failed(&path, &why))),
    }
}

/// Runs `pelago bench discfs` on all mounts, and prints its table.
fn bench(options: &Options, pelago: &Path, peers: &[(Peer, &Ends)]) -> Result<Value, String> {
    let mut command = Command::new(pelago);
    command.args(["bench", "discfs", "--json", "--rounds", &options.rounds.to_string()]);
    command.args(["--size", &(options.mib << 20).to_string()]);
    for (peer, ends) in peers {
        command.arg(&peer.point).arg("--memory-group").arg(ends.client.folder("memory")?);
        // A process that does not exist has no CPU time: the disk has no daemon.
        let processes = peer.processes.join(",");
        let processes = if processes.is_empty() { "0" } else { &processes };
        command.arg("--daemon-pid").arg(processes);
    }
    let output = command.output().map_err(|why| format!("pelago bench: {why}"))?;
    if !output.status.success() {
        // With `--json` the failure is an object on standard output.
        let said = [output.stdout, output.stderr]
            .map(|said| String::from_utf8_lossy(&said).trim_end().to_owned());
        return Err(format!("pelago bench discfs: {}", said.join("\n")));
    }
    let mut report: Value = serde_json::from_slice(&output.stdout)
        .map_err(|why| format!("pelago bench discfs: {why}"))?;
    report["contenders"] = peers.iter().map(|peer| peer.0.name).collect();
    print_table(&report);
    Ok(report)
}

/// Prints medians with quartiles, CPU time of all processes, the speed of the first over that of
/// each other, and what the paper says.
fn print_table(report: &Value) {
    println!("discfs: {}", text(report, "setup"));
    for row in rows(report) {
        println!("{} ({})", text(row, "step"), text(row, "unit"));
        let names = report["contenders"].as_array().into_iter().flatten();
        for (at, name) in names.enumerate() {
            let figures = Figures { row, at };
            let speed = at.checked_sub(1).map_or_else(String::new, |at| {
                let part = |key: &str| row["speeds"][at][key].as_f64().unwrap_or(0.0);
                let [median, lower, upper] = ["median", "lower", "upper"].map(part);
                format!("  first over it {median:.2} ({lower:.2} to {upper:.2})")
            });
            println!(
                "  {:8} {:>9.2} ({:.2} to {:.2}) ±{:.0}%  cpu {:.2}{speed}",
                name.as_str().unwrap_or_default(),
                figures.number("median"),
                figures.number("lower"),
                figures.number("upper"),
                figures.number("spread") * 100.0,
                figures.cpu(),
            );
        }
        let paper = &row["paper"];
        let rate = paper["nfs_v3_mbit_s"].as_f64();
        let rate = rate.map_or_else(String::new, |rate| format!("NFSv3 {rate} Mbit/s; "));
        println!("  paper: {rate}{}", text(paper, "others"));
    }
}

fn rows(report: &Value) -> impl Iterator<Item = &Value> {
    report["rows"].as_array().into_iter().flatten()
}

/// The figures of one file system in a row.
struct Figures<'a> {
    row: &'a Value,
    at: usize,
}

impl Figures<'_> {
    fn number(&self, key: &str) -> f64 {
        self.row["figures"][self.at][key].as_f64().unwrap_or(0.0)
    }

    /// Returns the CPU time of programs and daemons: milliseconds a MiB, or seconds.
    fn cpu(&self) -> f64 {
        let keys = ["cpu_ms_mib_programs", "cpu_ms_mib_daemon", "cpu_s_programs", "cpu_s_daemon"];
        keys.iter().map(|key| self.number(key)).sum()
    }
}

impl Goal {
    /// Prints whether each row meets the goal, and returns whether all do.
    fn check(&self, report: &Value) -> bool {
        let Self { first, other, .. } = self;
        let names = report["contenders"].as_array().map(Vec::as_slice).unwrap_or_default();
        let at = |sought: &str| names.iter().position(|name| name == sought);
        let (Some(0), Some(at)) = (at(first), at(other)) else {
            println!("{first} beside {other}: not measured, so the goal is {}", met(false));
            return false;
        };
        let mut good = true;
        for row in rows(report) {
            let speed = row["speeds"][at - 1]["median"].as_f64().unwrap_or(0.0);
            let cpu = Figures { row, at: 0 }.cpu() / Figures { row, at }.cpu().max(f64::EPSILON);
            let most = self.cpu.filter(|_| row["unit"] == "MiB/s");
            let is_met = speed >= self.speed && most.is_none_or(|most| cpu <= most);
            println!(
                "{}: {first} has {speed:.2} of the speed of {other}, and {cpu:.2} of its CPU \
                 time: {}",
                text(row, "step"),
                met(is_met)
            );
            good &= is_met;
        }
        good
    }
}

/// Serves a volume that is mounted there too, and mounts it by a key that its server lists.
pub(super) fn machine(lab: &Lab<'_>, home: &Path, point: &Path) -> Result<Vec<Child>, String> {
    let address = up(lab, home, "machine", MACHINE_PORT)?;
    let key = new_key(lab, home, "machine")?;
    let allow = ["key", "allow", &key, "-V", "volume"];
    lab.pelago(Side::Server, "machine-allow", home, &allow)?;
    let mount = ["mount", &address, &point.to_string_lossy(), "--detach"];
    lab.pelago(Side::Client, "machine-mount", home, &mount)?;
    Ok(Vec::new())
}

/// Shares a folder of a volume with a key that its server does not list, and attaches it.
pub(super) fn guest(lab: &Lab<'_>, home: &Path, point: &Path) -> Result<Vec<Child>, String> {
    let away = home.join("guest");
    fs::create_dir(&away).map_err(|why| failed(&away, &why))?;
    // The owner's key is a root of the volume.
    new_key_at(lab, Side::Server, home, "owner")?;
    up(lab, home, "guest", GUEST_PORT)?;
    let key = new_key(lab, &away, "guest")?;
    let shared = home.join("volume/files/shared");
    fs::create_dir(&shared).map_err(|why| failed(&shared, &why))?;
    let [shared, credential] = [shared, home.join("credential")];
    let [shared, credential] = [shared, credential].map(|path| path.display().to_string());
    let share = ["share", &shared, "--to", &key, "--rights", GUEST_RIGHTS, "--out", &credential];
    lab.pelago(Side::Server, "guest-share", home, &share)?;
    let attach = ["attach", &credential, &point.to_string_lossy(), "--detach"];
    lab.pelago(Side::Client, "guest-attach", &away, &attach)?;
    Ok(Vec::new())
}

/// Binds a folder of the disk.
fn local(lab: &Lab<'_>, home: &Path, point: &Path) -> Result<Vec<Child>, String> {
    let mut bind = Command::new("mount");
    lab.namespaces.run("ext4-bind", bind.arg("--bind").arg(home).arg(point))?;
    Ok(Vec::new())
}

/// Makes and mounts a volume that listens, and returns its address.
fn up(lab: &Lab<'_>, home: &Path, step: &str, port: &str) -> Result<String, String> {
    let listen = format!("{}:{port}", Side::Server.address());
    let up = ["up", "volume", "--listen", &listen, "--detach", "--json"];
    listening(&lab.pelago(Side::Server, &format!("{step}-up"), home, &up)?)
}

pub(super) fn new_key(lab: &Lab<'_>, home: &Path, step: &str) -> Result<String, String> {
    new_key_at(lab, Side::Client, home, step)
}

/// Makes a key and returns its public half.
fn new_key_at(lab: &Lab<'_>, side: Side, home: &Path, step: &str) -> Result<String, String> {
    lab.pelago(side, &format!("{step}-key-new"), home, &["key", "new"])?;
    let key = lab.pelago(side, &format!("{step}-key"), home, &["key", "show"])?;
    Ok(key.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(speed: f64, cpu: f64) -> Value {
        let figures =
            |cpu: f64| json!({ "cpu_ms_mib_programs": 1.0, "cpu_ms_mib_daemon": cpu - 1.0 });
        let row = json!({
            "step": "block write",
            "unit": "MiB/s",
            "figures": [figures(cpu), figures(2.0)],
            "speeds": [{ "median": speed }],
        });
        json!({ "contenders": ["guest", "machine"], "rows": [row] })
    }

    #[test]
    fn a_guest_is_nearly_as_fast_as_a_machine_and_costs_no_more() {
        assert!(GOALS[0].check(&report(0.95, 2.06)));
        assert!(!GOALS[0].check(&report(0.94, 2.0)));
        assert!(!GOALS[0].check(&report(1.2, 2.07)));
    }

    #[test]
    fn what_was_not_measured_meets_no_goal() {
        assert!(!GOALS[1].check(&report(2.0, 2.0)));
        let mut other = report(2.0, 2.0);
        other["contenders"] = json!(["machine", "sshfs"]);
        assert!(!GOALS.iter().any(|goal| goal.check(&other)));
    }

    /// A table whose columns are missing is printed with zeros.
    #[test]
    fn each_kind_has_its_groups() {
        for (kind, groups) in KINDS.iter().zip(GROUPS) {
            assert!(groups.iter().all(|group| group.starts_with(kind.name)), "{groups:?}");
        }
        assert!(OTHERS.iter().all(|name| KINDS.iter().any(|kind| kind.name == *name)));
    }
}
