//! `bench million`: the time until a directory of a million files is listed after a clean start and
//! after a crash, and the memory of the process.
//!
//! Each start runs this program as a user would. Its time counts from before the process exists
//! until the first names of the directory are read.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pelago_bench::fill;
use serde_json::{Value, json};

use super::volume::{TestVolume, VolumeError, failed};
use super::{Scratch, bench_failed};
use crate::failure::{Exit, Failure, Outcome};
use crate::{json, output};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A folder; a volume is created in it, and removed afterwards
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Files in the directory
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Starts of each kind
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The times of one start.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// The time until the volume is mounted.
    up: Duration,
    /// The time until the first names are read.
    first: Duration,
    /// The time until all names are read.
    all: Duration,
    /// The peak resident memory of the process, in bytes.
    resident: u64,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let scratch = Scratch::new(&args.dir, "million")?;
    // Dropped before the folder, and so unmounted.
    let volume = TestVolume::new(scratch.path.clone());
    let many = volume.files().join("many");
    volume.up()?;
    let filled = fs::create_dir(&many).map_err(|source| failed("creating a folder", source));
    let filled = filled.and_then(|()| fill(&many, args.count).map_err(bench_failed))?;
    let resident = volume.resident()?;
    volume.unmount()?;
    let mut clean = Vec::new();
    let mut crashed = Vec::new();
    for _ in 0..args.rounds {
        clean.push(start(&volume, &many, args.count)?);
        volume.kill()?;
        crashed.push(start(&volume, &many, args.count)?);
        volume.unmount()?;
    }
    if args.json {
        return output::print_json(&json!({
            "version": json::VERSION,
            "bench": "million",
            "count": args.count,
            "fill_rate": filled.rate,
            "fill_resident": resident,
            "clean": clean.iter().copied().map(Start::to_json).collect::<Vec<_>>(),
            "crashed": crashed.iter().copied().map(Start::to_json).collect::<Vec<_>>(),
        }));
    }
    let rate = filled.rate;
    let resident = output::bytes(resident);
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

/// Starts the volume and lists the directory `many` in it.
fn start(volume: &TestVolume, many: &Path, count: u64) -> Outcome<Start> {
    let started = Instant::now();
    volume.up()?;
    let up = started.elapsed();
    let mut names = fs::read_dir(many).map_err(|source| failed("listing", source))?;
    let mut found = u64::from(names.next().is_some());
    let first = started.elapsed();
    found += names.count() as u64;
    let all = started.elapsed();
    if found != count {
        let said = format!("the directory has {found} names instead of {count}");
        return Err(Failure::new(Exit::Damaged, VolumeError::Verb { verb: "up", said }));
    }
    Ok(Start { up, first, all, resident: volume.resident()? })
}
