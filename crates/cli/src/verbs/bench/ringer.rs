//! `bench ringer`: the measurements of Ringer's paper.

use std::path::{Path, PathBuf};

use pelago_bench::{RequestCounter, RingerFolder, RingerOptions, ringer};

use super::bench_failed;
use crate::failure::Outcome;
use crate::verbs::site;
use crate::{locate, output, size};

const AFTER: &str = "\
The six calls of the paper are `put rnode` (a file is created and closed, its mode is set), `get \
rnode` (stat), `get read lease` and `get write lease` (open), and `end read` and `end write` \
(close, after a byte was read or written). Then files of each size are written, read for the first \
time, and read again. Each row has medians with quartiles, the mean, as the paper has it, and its \
figure. If DIR is in a volume of several offices, the requests that its office sends to others are \
counted, for two more calls of each kind, as `pelago site list` counts them.

Files are made in DIR itself, and removed afterwards: a new folder would have its home in the \
office that makes it. Those that DIR sees for the first time are made in its OTHER, which is DIR \
itself unless it is given; then root drops the kernel's caches before.";

#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(super) struct Args {
    /// Folders to measure; ratios are those of the first one to each other one
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Each DIR in turn by another mount, such as that of another office
    #[arg(long, value_name = "OTHER")]
    other: Vec<PathBuf>,
    /// Calls of each kind
    #[arg(long, default_value_t = RingerOptions::default().calls)]
    calls: u32,
    /// Runs of each transfer
    #[arg(long, default_value_t = RingerOptions::default().runs)]
    runs: u32,
    /// Bytes of the transfers, divided by commas [default: powers of two from 2 to 2MiB]
    #[arg(long, value_name = "SIZE,...", value_parser = size::parse, value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Most bytes of all runs of a size together; three runs are done even so
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    most: Option<u64>,
    /// The seed of the bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let report = ringer(&args.folders(), &args.options()).map_err(bench_failed)?;
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

impl Args {
    fn options(&self) -> RingerOptions {
        let default = RingerOptions::default();
        let sizes = if self.sizes.is_empty() { default.sizes } else { self.sizes.clone() };
        RingerOptions {
            calls: self.calls,
            runs: self.runs,
            sizes,
            most: self.most,
            seed: self.seed,
            quiet: default.quiet,
        }
    }

    fn folders(&self) -> Vec<RingerFolder> {
        let others = self.other.iter().map(Some).chain(std::iter::repeat(None));
        let folders = self.dirs.iter().zip(others).map(|(dir, other)| RingerFolder {
            name: dir.display().to_string(),
            path: dir.clone(),
            other: other.unwrap_or(dir).clone(),
            requests: counter_of(dir),
        });
        folders.collect()
    }
}

/// Returns a counter of what the office of a folder sends to others. It knows nothing if the folder
/// is in no volume that is up here, or in one of a single office.
fn counter_of(dir: &Path) -> RequestCounter {
    let volume = locate::find(None, Some(dir)).ok().map(|volume| volume.dir);
    Box::new(move || {
        let report = site::sites_of(volume.as_ref()?).ok()?;
        let requests = report.others.iter().map(|site| site.requests);
        (!report.others.is_empty()).then(|| requests.sum())
    })
}
