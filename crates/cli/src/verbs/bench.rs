//! `pelago bench`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use pelago_bench::{
    BenchError, Contender, IoOptions, LibOptions, MetaOptions, Report, io, lib, meta,
};
use pelago_client::ServiceFiles;
use pelago_server::{Options, Server};
use pelago_wire::Name;

use crate::failure::{Exit, Failure, Outcome};
use crate::{output, size};

mod million;
mod tree;
mod volume;

/// Measure any directory, or the file system without a mount.
///
/// Several directories alternate, step by step, and the ratio is taken in each round, because a
/// machine is not the same from minute to minute.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

/// What is measured.
#[derive(Debug, Subcommand)]
enum Kind {
    /// Operations on names: create, stat, list, rename, unlink
    Meta(MetaArgs),
    /// Bytes of one large file: write and fsync, cold read, rewrite, random writes
    Io(IoArgs),
    /// Creates in a volume without a mount
    Lib(LibArgs),
    /// A directory of a million files: how soon it can be listed after a start and after a crash
    Million(million::Args),
    /// Large folders: `find` and `ls` over many names, and many small files read cold
    Tree(tree::Args),
}

/// The directories.
#[derive(Debug, clap::Args)]
struct Directories {
    /// Directories to measure; ratios are the first one's over each other's
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// The process behind each DIR in turn, whose CPU time counts; found out for FUSE mounts
    #[arg(long, value_name = "PID")]
    daemon_pid: Vec<u32>,
    /// Rounds over all directories
    #[arg(long)]
    rounds: Option<u32>,
    /// What random orders follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct MetaArgs {
    #[command(flatten)]
    on: Directories,
    /// Names of each step
    #[arg(long)]
    names: Option<u32>,
    /// Seconds that a step may take at most
    #[arg(long, value_name = "SECONDS")]
    at_most: Option<u64>,
    /// Drop the kernel's caches before what is called cold; needs root
    #[arg(long)]
    cold: bool,
}

#[derive(Debug, clap::Args)]
struct IoArgs {
    #[command(flatten)]
    on: Directories,
    /// Size of the file [default: 1GiB]
    #[arg(long, value_parser = size::parse)]
    size: Option<u64>,
    /// Writes of 4 KiB at random places
    #[arg(long, value_name = "COUNT")]
    random_writes: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct LibArgs {
    /// A folder; a volume is made in it for this, and removed again
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Files of all callers together
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Threads that create at once
    #[arg(long, default_value_t = 1)]
    callers: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether an object is wanted.
    pub(crate) const fn json(&self) -> bool {
        match &self.kind {
            Kind::Meta(args) => args.on.json,
            Kind::Io(args) => args.on.json,
            Kind::Lib(args) => args.json,
            Kind::Million(args) => args.json,
            Kind::Tree(args) => args.json,
        }
    }
}

/// Measures.
pub(crate) fn run(args: Args) -> Outcome<ExitCode> {
    match args.kind {
        Kind::Meta(args) => {
            let mut options = MetaOptions { seed: args.on.seed, ..MetaOptions::default() };
            options.cold = args.cold;
            options.names = args.names.unwrap_or(options.names);
            options.rounds = args.on.rounds.unwrap_or(options.rounds);
            options.at_most = args.at_most.map_or(options.at_most, Duration::from_secs);
            report(&args.on, meta(&contenders(&args.on), &options))?;
        }
        Kind::Io(args) => {
            let mut options = IoOptions { seed: args.on.seed, ..IoOptions::default() };
            options.bytes = args.size.unwrap_or(options.bytes);
            options.random_writes = args.random_writes.unwrap_or(options.random_writes);
            options.rounds = args.on.rounds.unwrap_or(options.rounds);
            report(&args.on, io(&contenders(&args.on), &options))?;
        }
        Kind::Lib(args) => without_mount(&args)?,
        Kind::Million(args) => million::run(&args)?,
        Kind::Tree(args) => tree::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn contenders(on: &Directories) -> Vec<Contender> {
    let mut contenders: Vec<_> = on.dirs.iter().map(|dir| Contender::new(dir)).collect();
    for (contender, pid) in contenders.iter_mut().zip(&on.daemon_pid) {
        contender.daemon = Some(*pid);
    }
    contenders
}

fn report(on: &Directories, measured: Result<Report, BenchError>) -> Outcome<()> {
    let report = measured.map_err(bench_failed)?;
    if on.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

fn without_mount(args: &LibArgs) -> Outcome<()> {
    let scratch = Scratch::new(&args.dir, "lib")?;
    let server = Server::start(&scratch.path, Options::default())
        .map_err(|error| crate::daemon::start_failed(error, &scratch.path))?;
    let files = ServiceFiles::new(server.service());
    let options = LibOptions {
        dir: Name::new(b"bench").expect("a plain word is a name"),
        callers: args.callers,
        count: args.count,
    };
    let report = lib(&files, &options).map_err(bench_failed)?;
    drop(files);
    server.stop().map_err(|error| Failure::new(Exit::Failed, error))?;
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

fn bench_failed(error: BenchError) -> Failure {
    Failure::new(Exit::Failed, error)
}

/// A folder that is made for a measurement and removed after it.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(dir: &Path, what: &str) -> Outcome<Self> {
        let dir = crate::place::absolute(dir)?;
        let path = dir.join(format!("pelago-bench-{what}-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self { path }),
            Err(source) => {
                let error = ScratchError { path, source };
                Err(Failure::new(Exit::Failed, error).hint("name a folder that can be written to"))
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            output::tell(&format!("{} stays behind: {error}", self.path.display()));
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{} cannot be made", .path.display())]
struct ScratchError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}
