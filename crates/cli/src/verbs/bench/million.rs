//! A directory of a million files: how soon a volume can be listed after a clean start and after a
//! crash, and how much memory its process takes.
//!
//! Each start is this same program as a user would run it, and its time is counted from before the
//! process exists until the directory's first names are there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pelago_bench::fill;
use serde_json::{Value, json};

use super::volume::{Volume, VolumeError, failed};
use super::{Scratch, bench_failed};
use crate::failure::{Exit, Failure, Outcome};
use crate::json;
use crate::output;

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
    let volume = Volume::new(scratch.path.clone());
    let many = volume.files().join("many");
    volume.up()?;
    let filled = fs::create_dir(&many).map_err(|source| failed("making a folder", source));
    let filled = filled.and_then(|()| fill(&many, args.count).map_err(bench_failed))?;
    let resident = volume.resident()?;
    volume.unmount()?;
    let (mut clean, mut crashed) = (Vec::new(), Vec::new());
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

/// Brings the volume up and lists the directory `many` in it.
fn start(volume: &Volume, many: &Path, count: u64) -> Outcome<Start> {
    let begun = Instant::now();
    volume.up()?;
    let up = begun.elapsed();
    let mut names = fs::read_dir(many).map_err(|source| failed("listing", source))?;
    let mut found = u64::from(names.next().is_some());
    let first = begun.elapsed();
    found += names.count() as u64;
    let all = begun.elapsed();
    if found != count {
        let said = format!("{found} names are there instead of {count}");
        return Err(Failure::new(Exit::Damaged, VolumeError::Verb { verb: "up", said }));
    }
    Ok(Start { up, first, all, resident: volume.resident()? })
}
