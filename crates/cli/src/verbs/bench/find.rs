//! `bench find`: searches in a volume with many files, and the costs of its index.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pelago_bench::find::{Corpus, FindOptions, FindReport, find, wait_until_indexed};
use serde_json::Value;

use super::svg_file::SvgFile;
use super::volume::{TestVolume, failed};
use super::{Scratch, bench_failed};
use crate::failure::Outcome;
use crate::output;

use costs::Costs;

mod costs;

/// The longest time until an index is complete.
const INDEX_LIMIT: Duration = Duration::from_secs(7200);
/// The number of files of a short run.
const QUICK_FILES: u64 = 5000;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A folder; volumes are created in it, and removed afterwards
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Make the corpus in DIR, which is an empty folder anywhere, and ask nothing
    #[arg(long)]
    fill: bool,
    /// Ask in DIR, which is in a mount and has the corpus
    #[arg(long, conflicts_with = "fill")]
    plain: bool,
    /// Files of the corpus
    #[arg(long, default_value_t = FindOptions::default().files)]
    files: u64,
    /// Rounds over all questions
    #[arg(long, default_value_t = FindOptions::default().rounds)]
    rounds: u32,
    /// Files that are created in each round with an index and without one
    #[arg(long, default_value_t = 30_000)]
    creates: u64,
    /// 5,000 files and one short round
    #[arg(long, conflicts_with_all = ["files", "rounds", "creates"])]
    quick: bool,
    /// The seed of names, texts and tags
    #[arg(long, default_value_t = FindOptions::default().seed)]
    seed: u64,
    /// Write charts to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Args {
    fn options(&self) -> FindOptions {
        let Self { files, rounds, seed, .. } = *self;
        let options = FindOptions { files, rounds, seed, ..FindOptions::default() };
        match self.quick {
            true => FindOptions {
                files: QUICK_FILES,
                rounds: 1,
                at_most: Duration::from_millis(100),
                ..options
            },
            false => options,
        }
    }

    fn creates(&self) -> u64 {
        if self.quick { QUICK_FILES / 10 } else { self.creates }
    }
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let options = args.options();
    if args.fill {
        let filled = Corpus::new(options.files, options.seed).fill(&args.dir);
        let filled = filled.map_err(bench_failed)?;
        let rate = filled.files as f64 / filled.seconds.max(f64::MIN_POSITIVE);
        return output::print(&format!("find: {} files at {rate:.0}/s\n", filled.files));
    }
    // Before minutes of work.
    let svg = args.svg.as_deref().map(SvgFile::create).transpose()?;
    let (report, costs) =
        if args.plain { (plain(args, &options)?, None) } else { own(args, &options)? };
    if let Some(svg) = svg {
        svg.write(&report.render_svg())?;
    }
    if args.json {
        let mut object = report.to_json();
        object["costs"] = costs.as_ref().map_or(Value::Null, Costs::to_json);
        return output::print_json(&object);
    }
    let costs = costs.as_ref().map(Costs::render_text).unwrap_or_default();
    output::print(&format!("{}{costs}", report.render_text()))
}

/// Measures searches in an existing directory.
fn plain(args: &Args, options: &FindOptions) -> Outcome<FindReport> {
    wait_until_indexed(&args.dir, INDEX_LIMIT, || ()).map_err(bench_failed)?;
    find(&args.dir, options).map_err(bench_failed)
}

/// Creates volumes, and measures searches and the costs of the index.
fn own(args: &Args, options: &FindOptions) -> Outcome<(FindReport, Option<Costs>)> {
    let scratch = Scratch::new(&args.dir, "find")?;
    // Dropped before the folder, and so unmounted.
    let volume = TestVolume::new(scratch.path.join("volume"));
    volume.up()?;
    let built = costs::build(&volume, options)?;
    let report = find(&volume.files(), options).map_err(bench_failed)?;
    volume.unmount()?;
    // Two new volumes, because the cost of a create depends on the number of files.
    let [plain, indexed] =
        ["plain", "indexed"].map(|name| TestVolume::new(scratch.path.join(name)));
    plain.up_with(&["--no-find"])?;
    indexed.up_with(&["--find"])?;
    let rounds = costs::creates([&plain, &indexed], options.rounds, args.creates())?;
    plain.unmount()?;
    indexed.unmount()?;
    Ok((report, Some(Costs { built, rounds, creates: args.creates() })))
}

/// Returns the disk space of a folder in bytes.
fn disk_bytes(folder: &Path) -> Outcome<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    let entries = fs::read_dir(folder).map_err(|source| failed("listing the index", source))?;
    for entry in entries {
        let entry = entry.map_err(|source| failed("listing the index", source))?;
        // The engine may remove a file meanwhile.
        let Ok(found) = entry.metadata() else { continue };
        bytes += found.blocks() * 512;
        if found.is_dir() {
            bytes += disk_bytes(&entry.path())?;
        }
    }
    Ok(bytes)
}
