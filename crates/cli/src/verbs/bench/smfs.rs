//! `bench smfs`: the measurements of SMFS's paper.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pelago_bench::{Contender, MirrorWait, SmfsFolder, SmfsOptions, smfs};
use pelago_wire::Level;

use super::bench_failed;
use super::svg_file::SvgFile;
use crate::failure::Outcome;
use crate::up_volume::mirrored;
use crate::{locate, output, size};

/// The longest time until a mirror has what a turn has left.
const PATIENCE: Duration = Duration::from_secs(600);

const AFTER: &str = "\
Each tester appends a message to a file of its own, calls `fsync`, and goes on with the next one. \
For each level a folder is made in each DIR, which gets it as `user.pelago.level`, so that its \
`fsync` means it. The levels alternate in rounds; after each turn the mirrors get all that was \
done. A message counts in the time in which it is answered, and its milliseconds are from before \
the write until `fsync` returns. All is removed afterwards.

`network` is measured if the volume of each DIR has a relay. What a level costs depends on the \
volume's `--lag`: without it, what is done at async and local piles up for the mirror.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(super) struct Args {
    /// Folders of one or several mirrored volumes, which are measured together
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Levels, divided by commas: async, local, network, remote
    #[arg(
        long = "level",
        value_name = "LEVEL,...",
        value_parser = parse_level,
        value_delimiter = ',',
        default_value = "local,network,remote"
    )]
    levels: Vec<Level>,
    /// Testers, divided over the folders; each waits for its own message
    #[arg(long, default_value_t = SmfsOptions::default().testers,
        value_parser = clap::value_parser!(u32).range(1..))]
    testers: u32,
    /// Bytes of a message
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4000")]
    bytes: u32,
    /// Seconds of a turn in which messages count
    #[arg(long, default_value_t = SmfsOptions::default().time.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Seconds of a turn before that
    #[arg(long, value_name = "SECONDS", default_value_t = SmfsOptions::default().warm_up.as_secs())]
    warm_up: u64,
    /// Rounds over all levels
    #[arg(long, default_value_t = SmfsOptions::default().rounds,
        value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The seed of the bytes
    #[arg(long, default_value_t = SmfsOptions::default().seed)]
    seed: u64,
    /// Write charts to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    // Before minutes of work.
    let svg = args.svg.as_deref().map(SvgFile::create).transpose()?;
    let folders: Vec<SmfsFolder> = args.dirs.iter().map(|dir| folder(dir)).collect();
    let report = smfs(&folders, &args.options()).map_err(bench_failed)?;
    if let Some(svg) = svg {
        svg.write(&report.render_svg())?;
    }
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

impl Args {
    fn options(&self) -> SmfsOptions {
        SmfsOptions {
            levels: self.levels.clone(),
            testers: self.testers,
            bytes: self.bytes,
            warm_up: Duration::from_secs(self.warm_up),
            time: Duration::from_secs(self.seconds),
            rounds: self.rounds,
            seed: self.seed,
        }
    }
}

fn folder(dir: &Path) -> SmfsFolder {
    SmfsFolder { contender: Contender::new(dir), mirrored: wait_of(dir) }
}

/// Returns the wait for the mirror of a folder's volume. It fails if the folder is in no volume
/// that is up here, or in one without a mirror.
fn wait_of(dir: &Path) -> MirrorWait {
    let volume = locate::find(None, Some(dir)).ok().map(|volume| volume.dir);
    Box::new(move || {
        let Some(volume) = &volume else { return false };
        let begun = Instant::now();
        let mut commit = None;
        while begun.elapsed() < PATIENCE {
            match mirrored(volume, commit) {
                Ok(waited) if waited.done => return true,
                Ok(waited) => commit = Some(waited.commit),
                Err(_) => return false,
            }
        }
        false
    })
}

fn parse_level(text: &str) -> Result<Level, String> {
    Level::named(text.as_bytes())
        .ok_or_else(|| "a level is async, local, network or remote".to_owned())
}

fn parse_bytes(text: &str) -> Result<u32, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "a message has at least one byte, and less than 4 GiB".to_owned())
}
