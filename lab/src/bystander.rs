//! `bystander`: waiting times of one user while another puts the heaviest load on a volume that an
//! ordinary user can.
//!
//! Each load of [`load::ALL`] runs as one user, in turns on a volume and on a file system in memory
//! that does nothing (the example `nullfs`). Meanwhile another user creates and removes files in a
//! folder of its own. Neither user may get `EAGAIN`, the bystander may get no error, and on a quiet
//! machine it waits at most [`WORSE`] times as long as on the other file system.

mod load;

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pelago_testbed::mounted::{self, Mounted};
use pelago_testbed::run_as::RunAs;
use pelago_testbed::{VerbResult, arguments, machine, process, verdict, workspace};

use crate::kit::latency::Kind;
use crate::kit::load::{Failures, Load};
use crate::kit::report::millis;

/// User ids of the load and of the bystander. They need no entry in `/etc/passwd`.
const LOADER: u32 = 65_534;
const BYSTANDER: u32 = 65_533;
/// Most times that the bystander's p99 may be that on a file system that does nothing.
const WORSE: f64 = 3.0;
/// Seconds of each turn, by default.
const SECONDS: f64 = 10.0;
/// Turns on each file system.
const ROUNDS: u32 = 2;
/// `--small` divides every size by this.
const SMALL: u64 = 50;
/// Pause between two operations of the bystander.
const PAUSE: Duration = Duration::from_millis(2);
/// The operation of the bystander.
const CREATE_AND_UNLINK: Kind = "create and unlink";

/// Waiting times and errors of a bystander.
#[derive(Clone, Copy, Default)]
struct Waited {
    /// The median of a create and an unlink, in milliseconds.
    median: f64,
    /// The 99th percentile, in milliseconds.
    p99: f64,
    /// The maximum, in milliseconds.
    most: f64,
    errors: u64,
    /// Number of `EAGAIN`, of both users.
    again: u64,
}

/// Runs all loads, or the named ones. The verb starts itself with `--load` and `--look` as other
/// users.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    match arguments {
        [mode, name, folder, divisor, seconds] if mode == "--load" => {
            let divisor = arguments::number(divisor, "as a divisor")?;
            load::run(name, Path::new(folder), divisor, arguments::number(seconds, "seconds")?)?;
            return verdict(true);
        }
        [mode, folder, seconds] if mode == "--look" => {
            look(Path::new(folder), arguments::number(seconds, "seconds")?)?;
            return verdict(true);
        }
        _ => {}
    }
    if !machine::is_root() {
        return Err("needs root, to become two other users".to_owned());
    }
    let mut divisor = 1;
    let mut seconds = SECONDS;
    let mut names = Vec::new();
    for word in arguments {
        match word.as_str() {
            "--small" => divisor = SMALL,
            word if word.parse::<f64>().is_ok() => seconds = arguments::number(word, "seconds")?,
            word if load::ALL.iter().any(|load| load.name == word) => names.push(word),
            word => return Err(format!("no load `{word}`")),
        }
    }
    if names.is_empty() {
        names = load::ALL.iter().map(|load| load.name).collect();
    }
    compare(&names, divisor, seconds)
}

/// Runs each load on both file systems and prints the waiting times.
fn compare(names: &[&str], divisor: u64, seconds: f64) -> VerbResult {
    let pelago = mounted::build()?;
    let null = build_null()?;
    let logs = mounted::log_folder("bystander")?;
    // A build may replace the file at the program's path.
    let program = Path::new("/proc/self/exe");
    let mut failed = false;
    println!("a create and an unlink, in ms       p50      p99     most   errors   EAGAIN");
    for name in names {
        let mut ours = Waited::default();
        let mut theirs = Waited::default();
        for round in 0..ROUNDS {
            let volume = Mounted::start(&pelago, &logs, name, &RunAs::default())?;
            let turn = Turn { program, name, divisor, seconds, logs: &logs };
            ours = ours.worse(turn.run(&volume.point())?);
            volume.finish()?;
            let other = Null::mount(&null, round)?;
            theirs = theirs.worse(turn.run(&other.point)?);
        }
        ours.print(name, "volume");
        theirs.print(name, "null");
        let slow = ours.p99 > WORSE * theirs.p99;
        let wrong = ours.errors + ours.again > 0;
        if slow || wrong {
            println!("{name}: {}", if wrong { "errors" } else { "the bystander waits too long" });
        }
        failed |= slow || wrong;
    }
    verdict(!failed)
}

/// A turn of one load on one file system.
struct Turn<'a> {
    /// The binary of the laboratories.
    program: &'a Path,
    name: &'a str,
    divisor: u64,
    seconds: f64,
    logs: &'a Path,
}

impl Turn<'_> {
    fn run(&self, point: &Path) -> Result<Waited, String> {
        let said = |why: std::io::Error| format!("{}: {why}", point.display());
        let theirs = point.join("load");
        let own = point.join("bystander");
        for (folder, user) in [(&theirs, LOADER), (&own, BYSTANDER)] {
            fs::create_dir(folder).map_err(said)?;
            chown(folder, Some(user), Some(user)).map_err(said)?;
        }
        let program = self.bring_program()?;
        // The load ends by itself, after the bystander.
        let longer = (self.seconds + 1.0).to_string();
        let mut load = Command::new(&program);
        load.args(["bystander", "--load", self.name]).arg(&theirs);
        load.args([&self.divisor.to_string(), &longer]).uid(LOADER).gid(LOADER).current_dir("/");
        let mut load = load.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(said)?;
        let mut heard = BufReader::new(load.stdout.take().ok_or("no pipe")?).lines();
        let ready = heard.by_ref().map_while(Result::ok).find(|line| line == "ready");
        let mut bystander = Command::new(&program);
        bystander.args(["bystander", "--look"]).arg(&own).arg(self.seconds.to_string());
        bystander.uid(BYSTANDER).gid(BYSTANDER).current_dir("/");
        let log = self.logs.join(format!("{}-look", self.name));
        let looked = process::run_limited(&mut bystander, &log, mounted::STEP_LIMIT);
        let rest: Vec<String> = heard.map_while(Result::ok).collect();
        let ended = wait(&mut load);
        drop(fs::remove_file(&program));
        if ready.is_none() || !ended {
            return Err(format!("the load `{}` did not start or failed: {rest:?}", self.name));
        }
        let mut waited = Waited::parse(&looked?.stdout)?;
        let again = rest.iter().find_map(|line| line.strip_prefix("again ")?.parse::<u64>().ok());
        waited.again += again.unwrap_or(0);
        Ok(waited)
    }

    /// Copies the program to where both users can run it.
    fn bring_program(&self) -> Result<PathBuf, String> {
        let copy = std::env::temp_dir().join(format!("pelago-bystander-{}", std::process::id()));
        let copied = fs::copy(self.program, &copy)
            .and_then(|_| fs::set_permissions(&copy, Permissions::from_mode(0o755)));
        copied.map(|()| copy.clone()).map_err(|why| format!("{}: {why}", copy.display()))
    }
}

/// Creates and removes files, and prints the times of that, the errors and the `EAGAIN`.
fn look(folder: &Path, seconds: f64) -> Result<(), String> {
    let mut load = Load::new(0, PAUSE);
    load.start("bystander", folder, |worker| {
        for number in 0.. {
            let path = worker.folder.join(format!("by{number}"));
            let done = worker.timed(CREATE_AND_UNLINK, || {
                File::create(&path).and_then(|file| {
                    drop(file);
                    fs::remove_file(&path)
                })
            });
            worker.value_of(done);
            if !worker.goes_on() {
                break;
            }
            worker.rest();
        }
        Ok(())
    })?;
    let outcome = load.finish(Duration::from_secs_f64(seconds))?;
    let times = outcome.latencies.of(CREATE_AND_UNLINK);
    let [median, p99] = [0.5, 0.99].map(|part| millis(times.quantile(part)));
    let Failures { errors, again } = outcome.failures;
    println!("{median} {p99} {} {errors} {again}", millis(times.longest));
    Ok(())
}

impl Waited {
    fn parse(said: &str) -> Result<Self, String> {
        let words: Option<Vec<f64>> =
            said.split_whitespace().map(|word| word.parse().ok()).collect();
        match words.as_deref() {
            Some(&[median, p99, most, errors, again]) => {
                Ok(Self { median, p99, most, errors: errors as u64, again: again as u64 })
            }
            _ => Err(format!("the bystander said: {said}")),
        }
    }

    /// Returns the larger value of each time, and the sums of errors.
    fn worse(self, other: Self) -> Self {
        Self {
            median: self.median.max(other.median),
            p99: self.p99.max(other.p99),
            most: self.most.max(other.most),
            errors: self.errors + other.errors,
            again: self.again + other.again,
        }
    }

    fn print(&self, load: &str, on: &str) {
        let Self { median, p99, most, errors, again } = self;
        println!("{load:<14}{on:<14}{median:>11.2}{p99:>9.2}{most:>9.1}{errors:>9}{again:>9}");
    }
}

/// A mount of `nullfs`.
struct Null {
    point: PathBuf,
    server: Child,
}

impl Null {
    fn mount(program: &Path, round: u32) -> Result<Self, String> {
        let name = format!("pelago-null-{}-{round}", std::process::id());
        let point = std::env::temp_dir().join(name);
        let said = |why: std::io::Error| format!("{}: {why}", point.display());
        fs::create_dir(&point).map_err(said)?;
        let mut null = Command::new(program);
        null.arg(&point).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = null.spawn().map_err(said)?;
        let heard = server.stdout.take().ok_or("no pipe")?;
        let mut line = String::new();
        BufReader::new(heard).read_line(&mut line).map_err(said)?;
        let mounted = Self { point, server };
        if line.trim() == "mounted" { Ok(mounted) } else { Err("nullfs is not mounted".to_owned()) }
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        let pid = self.server.id().to_string();
        if let Err(why) = process::run_foreground(Command::new("kill").args(["-TERM", &pid])) {
            println!("{why}");
        }
        wait(&mut self.server);
        if let Err(why) = fs::remove_dir(&self.point) {
            println!("left behind: {}: {why}", self.point.display());
        }
    }
}

fn build_null() -> Result<PathBuf, String> {
    workspace::build(&["--example", "nullfs"], "examples/nullfs")
}

/// Waits for a child and returns whether it succeeded.
fn wait(child: &mut Child) -> bool {
    child.wait().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT_SECONDS: f64 = 0.5;

    #[test]
    fn the_worse_of_two_turns_counts() {
        let one = Waited::parse("1 2.5 9 0 1\n").unwrap();
        let other = Waited::parse("2 2 10 1 0").unwrap();
        let worse = one.worse(other);
        assert_eq!((worse.median, worse.p99, worse.most), (2.0, 2.5, 10.0));
        assert_eq!((worse.errors, worse.again), (1, 1));
        assert!(Waited::parse("1 2 3").is_err());
    }

    /// The waiting times depend on the machine, so this checks errors only.
    #[test]
    fn no_load_causes_an_error() {
        if !machine::is_root() {
            println!("skipped: needs root, to be two other users");
            return;
        }
        let pelago = mounted::build().unwrap();
        // The tests are another program, without verbs.
        let build = ["build", "--release", "--package", workspace::LAB];
        assert!(workspace::cargo(&build).status().unwrap().success());
        let program = workspace::target_folder().unwrap().join("release/lab");
        let logs = mounted::log_folder("bystander-short").unwrap();
        for load in load::ALL {
            let volume = Mounted::start(&pelago, &logs, load.name, &RunAs::default()).unwrap();
            let turn = Turn {
                program: &program,
                name: load.name,
                divisor: SMALL,
                seconds: SHORT_SECONDS,
                logs: &logs,
            };
            let waited = turn.run(&volume.point()).unwrap();
            volume.finish().unwrap();
            assert_eq!((waited.errors, waited.again), (0, 0), "{}", load.name);
        }
    }
}
