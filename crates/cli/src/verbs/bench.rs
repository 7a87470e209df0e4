//! `pelago bench`.

use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Subcommand;
use pelago_bench::{
    BenchError, Contender, DirectOptions, IoOptions, MetaOptions, Report, direct, io, meta,
};
use pelago_client::Files;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_server::{Options, Server};
use pelago_wire::Name;

use crate::failure::{Exit, Failure, Outcome};
use crate::{daemon, output, size};

use scratch::Scratch;

mod circus;
mod discfs;
mod everyday;
mod find;
mod leases;
mod million;
mod ringer;
mod scratch;
mod smfs;
mod svg_file;
mod tree;
mod volume;

const AFTER: &str = "\
Directories alternate, step by step, and ratios are taken within a round, because the speed of a \
machine changes from minute to minute.";

/// Benchmark directories, or a volume without a mount.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    #[command(subcommand)]
    benchmark: Benchmark,
}

/// A benchmark with its arguments.
#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Metadata: create, stat, list, rename, unlink
    Meta(MetaArgs),
    /// Bandwidth of one large file: write and fsync, cold read, rewrite, random writes
    Io(IoArgs),
    /// Creating files in a volume without a mount
    Lib(LibArgs),
    /// Leases between two clients: getting one, using it, its end, by Unix socket and by TLS
    Leases(leases::Args),
    /// A directory of a million files: time until it is listed after a start and after a crash
    Million(million::Args),
    /// Crowds that download the same files: passes over the disk, and the time of a download
    Circus(circus::Args),
    /// Large folders: `find` and `ls` over many names, and cold reads of many small files
    Tree(tree::Args),
    /// Everyday jobs with the real programs: `tar x`, `cp -r`, `grep -r`, `git`, `rm -rf`
    Everyday(everyday::Args),
    /// DisCFS's measurements: bonnie++, a search of a tree, and a build, in little memory
    Discfs(discfs::Args),
    /// Ringer's measurements: six calls for metadata, and transfers of 2 B to 2 MiB
    Ringer(ringer::Args),
    /// SMFS's measurements: synced appends by their levels of safety, in mirrored volumes
    Smfs(smfs::Args),
    /// Searches among a million files by tags, names, sizes and texts; what their index costs
    Find(find::Args),
}

/// The directories to compare.
#[derive(Debug, clap::Args)]
struct Directories {
    /// Directories to measure; ratios are those of the first one to each other one
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// The processes that serve each DIR in turn, for their CPU time; detected for FUSE mounts
    #[arg(long, value_name = "PID,...")]
    daemon_pid: Vec<Pids>,
    /// Rounds over all directories
    #[arg(long)]
    rounds: Option<u32>,
    /// The seed of random orders and bytes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The processes of one file system.
#[derive(Debug, Clone)]
struct Pids(Vec<u32>);

impl FromStr for Pids {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

#[derive(Debug, clap::Args)]
struct MetaArgs {
    #[command(flatten)]
    on: Directories,
    /// Names in each step
    #[arg(long)]
    names: Option<u32>,
    /// The longest time of a step, in seconds
    #[arg(long, value_name = "SECONDS")]
    at_most: Option<u64>,
    /// Drop the kernel's caches before cold steps; needs root
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
    /// Writes of 4 KiB at random offsets
    #[arg(long, value_name = "COUNT")]
    random_writes: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct LibArgs {
    /// A folder; a volume is created in it, and removed afterwards
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Files of all threads together
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Threads that create concurrently
    #[arg(long, default_value_t = 1)]
    callers: u64,
    /// Listen meanwhile, and have so many idle sessions
    #[arg(long, value_name = "COUNT")]
    sessions: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns whether `--json` was given.
    pub(crate) const fn json(&self) -> bool {
        match &self.benchmark {
            Benchmark::Meta(args) => args.on.json,
            Benchmark::Io(args) => args.on.json,
            Benchmark::Lib(args) => args.json,
            Benchmark::Leases(args) => args.json,
            Benchmark::Million(args) => args.json,
            Benchmark::Circus(args) => args.json,
            Benchmark::Tree(args) => args.json,
            Benchmark::Everyday(args) => args.on.json,
            Benchmark::Discfs(args) => args.on.json,
            Benchmark::Ringer(args) => args.json,
            Benchmark::Smfs(args) => args.json,
            Benchmark::Find(args) => args.json,
        }
    }
}

/// Runs the benchmark and prints its report.
pub(crate) fn run(args: Args) -> Outcome<ExitCode> {
    match args.benchmark {
        Benchmark::Meta(args) => {
            let mut options = MetaOptions { seed: args.on.seed, ..MetaOptions::default() };
            options.cold = args.cold;
            options.names = args.names.unwrap_or(options.names);
            options.rounds = args.on.rounds.unwrap_or(options.rounds);
            options.at_most = args.at_most.map_or(options.at_most, Duration::from_secs);
            print_report(&args.on, meta(&contenders(&args.on), &options))?;
        }
        Benchmark::Io(args) => {
            let mut options = IoOptions { seed: args.on.seed, ..IoOptions::default() };
            options.bytes = args.size.unwrap_or(options.bytes);
            options.random_writes = args.random_writes.unwrap_or(options.random_writes);
            options.rounds = args.on.rounds.unwrap_or(options.rounds);
            print_report(&args.on, io(&contenders(&args.on), &options))?;
        }
        Benchmark::Lib(args) => run_lib(&args)?,
        Benchmark::Leases(args) => leases::run(&args)?,
        Benchmark::Million(args) => million::run(&args)?,
        Benchmark::Circus(args) => circus::run(&args)?,
        Benchmark::Tree(args) => tree::run(&args)?,
        Benchmark::Everyday(args) => everyday::run(&args)?,
        Benchmark::Discfs(args) => discfs::run(&args)?,
        Benchmark::Ringer(args) => ringer::run(&args)?,
        Benchmark::Smfs(args) => smfs::run(&args)?,
        Benchmark::Find(args) => find::run(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn contenders(on: &Directories) -> Vec<Contender> {
    let mut contenders: Vec<_> = on.dirs.iter().map(|dir| Contender::new(dir)).collect();
    for (contender, pids) in contenders.iter_mut().zip(&on.daemon_pid) {
        contender.daemons.clone_from(&pids.0);
    }
    contenders
}

fn print_report(on: &Directories, measured: Result<Report, BenchError>) -> Outcome<()> {
    let report = measured.map_err(bench_failed)?;
    if on.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

fn run_lib(args: &LibArgs) -> Outcome<()> {
    let scratch = Scratch::new(&args.dir, "lib")?;
    let server = Server::start(&scratch.path, Options::default())
        .map_err(|error| daemon::start_failed(error, &scratch.path))?;
    let files = Files::new(server.service());
    let idle = args.sessions.map(|count| IdleSessions::begin(&server, &scratch.path, count));
    let idle = idle.transpose()?;
    let options = DirectOptions {
        dir: Name::new(b"bench").expect("a word is a name"),
        callers: args.callers,
        count: args.count,
    };
    let report = direct(&files, &options).map_err(bench_failed)?;
    drop((files, idle));
    server.stop().map_err(|error| Failure::new(Exit::Failed, error))?;
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

/// A volume that listens, and sessions that send no requests.
struct IdleSessions {
    /// Dropped first, so that the server is informed of their ends.
    _remotes: Vec<Remote>,
    _server: SessionServer,
}

impl IdleSessions {
    fn begin(server: &Server, dir: &Path, count: u32) -> Outcome<Self> {
        let socket = dir.join("pelago.sock");
        let listened = SessionServer::start(server.session_service()).and_then(|sessions| {
            sessions.listen_unix(&socket)?;
            Ok(sessions)
        });
        let sessions = listened.map_err(|error| Failure::new(Exit::Failed, error))?;
        let options = || RemoteOptions {
            target: ServerTarget::Unix(socket.clone()),
            read_only: false,
            role: ClientRole::Client,
            give_up: None,
        };
        let remotes = (0..count).map(|_| Remote::connect(options(), Duration::from_secs(5)));
        let remotes = remotes.collect::<Result<_, _>>();
        let remotes = remotes.map_err(|error| Failure::new(Exit::Failed, error))?;
        Ok(Self { _remotes: remotes, _server: sessions })
    }
}

fn bench_failed(error: BenchError) -> Failure {
    let package = match &error {
        BenchError::NoProgram { package, .. } => Some(*package),
        _ => None,
    };
    let failure = Failure::new(Exit::Failed, error);
    match package {
        Some(package) => failure.hint(format!("`apt install {package}`")),
        None => failure,
    }
}
