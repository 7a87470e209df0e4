//! A directory of a million files: how soon a volume can be listed after a clean start and after a
//! crash, and how much memory its process takes.
//!
//! Each start is this same program as a user would run it, and its time is counted from before the
//! process exists until the directory's first names are there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pelago_workload::bench::fill;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Scratch, bench_failed};
use crate::dead;
use crate::failure::{Exit, Failure, Outcome};
use crate::{output, place};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A folder; a volume is made in it for this, and removed again
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Files
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Starts of each kind
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Why it stopped.
#[derive(Debug, thiserror::Error)]
enum MillionError {
    #[error("`pelago {verb}` failed: {said}")]
    Verb { verb: &'static str, said: String },
    #[error("{doing} failed")]
    Io {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
}

/// One start.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// Until it is mounted.
    up: Duration,
    /// Until the first names are there.
    first: Duration,
    /// Until all names are there.
    all: Duration,
    /// The most memory that the process had resident, in bytes.
    resident: u64,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let scratch = Scratch::new(&args.dir, "million")?;
    // Goes before the folder does.
    let volume = Volume { dir: scratch.path.clone(), many: scratch.path.join("files/many") };
    volume.up()?;
    let filled = fs::create_dir(&volume.many).map_err(|source| failed("making a folder", source));
    let filled = filled.and_then(|()| fill(&volume.many, args.count).map_err(bench_failed))?;
    let resident = volume.resident()?;
    volume.unmount()?;
    let (mut clean, mut crashed) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        clean.push(volume.start(args.count)?);
        volume.kill()?;
        crashed.push(volume.start(args.count)?);
        volume.unmount()?;
    }
    if args.json {
        return output::print_json(&json!({
            "version": output::JSON_VERSION,
            "bench": "million",
            "count": args.count,
            "fill_rate": filled.rate,
            "fill_resident": resident,
            "clean": clean.iter().copied().map(Start::to_json).collect::<Vec<_>>(),
            "crashed": crashed.iter().copied().map(Start::to_json).collect::<Vec<_>>(),
        }));
    }
    let (rate, resident) = (filled.rate, output::bytes(resident));
    let mut text = format!("million: {} files at {rate:.0}/s, {resident} resident\n", args.count);
    for (kind, starts) in [("clean", &clean), ("crash", &crashed)] {
        for start in starts {
            text.push_str(&start.line(kind));
        }
    }
    output::print(&text)
}

impl Start {
    fn to_json(self) -> Value {
        json!({
            "up_ms": self.up.as_secs_f64() * 1e3,
            "first_ms": self.first.as_secs_f64() * 1e3,
            "all_ms": self.all.as_secs_f64() * 1e3,
            "resident": self.resident,
        })
    }

    fn line(&self, kind: &str) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "  {kind}: up {:.0} ms, first names {:.0} ms, all names {:.0} ms, {} resident\n",
            ms(self.up),
            ms(self.first),
            ms(self.all),
            output::bytes(self.resident)
        )
    }
}

/// The volume that is measured. When it goes, its process and its mount go.
struct Volume {
    dir: PathBuf,
    many: PathBuf,
}

impl Volume {
    fn start(&self, count: u64) -> Outcome<Start> {
        let begun = Instant::now();
        self.up()?;
        let up = begun.elapsed();
        let mut names = fs::read_dir(&self.many).map_err(|source| failed("listing", source))?;
        let mut found = u64::from(names.next().is_some());
        let first = begun.elapsed();
        found += names.count() as u64;
        let all = begun.elapsed();
        if found != count {
            let said = format!("{found} names are there instead of {count}");
            return Err(Failure::new(Exit::Damaged, MillionError::Verb { verb: "up", said }));
        }
        Ok(Start { up, first, all, resident: self.resident()? })
    }

    fn up(&self) -> Outcome<()> {
        self.pelago("up", &["--detach"]).map(drop)
    }

    fn unmount(&self) -> Outcome<()> {
        self.pelago("unmount", &[]).map(drop)
    }

    fn pid(&self) -> Option<u32> {
        pelago_store::volume::holder(&self.dir)
    }

    fn kill(&self) -> Outcome<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let killed = pid.map(|pid| kill_process(pid, Signal::KILL));
        if let Some(Err(error)) = killed {
            return Err(failed("kill -9", error.into()));
        }
        // The lock goes with the process.
        while self.pid().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn resident(&self) -> Outcome<u64> {
        let path = format!("/proc/{}/status", self.pid().unwrap_or_default());
        let status = fs::read_to_string(path).map_err(|source| failed("reading /proc", source))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.unwrap_or_default() * 1024)
    }

    fn pelago(&self, verb: &'static str, more: &[&str]) -> Outcome<Output> {
        let run = |program: &Path| {
            let mut command = Command::new(program);
            command.arg(verb).args(more);
            if verb == "unmount" {
                command.arg("-V");
            }
            command.arg(&self.dir).stdin(Stdio::null()).output()
        };
        let output = std::env::current_exe().and_then(|program| run(&program));
        let output = output.map_err(|source| failed("starting pelago", source))?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::new(Exit::Failed, MillionError::Verb { verb, said }))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.pid().is_some() {
            // A measurement that stopped half way; after a good one nothing is up.
            let _ended = self.pelago("unmount", &["--force"]);
        }
        for point in place::dead_mounts_of(&self.dir) {
            let _detached = dead::detach(&point);
        }
    }
}

fn failed(doing: &'static str, source: std::io::Error) -> Failure {
    Failure::new(Exit::Failed, MillionError::Io { doing, source })
}
