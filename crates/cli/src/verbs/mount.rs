//! `pelago mount`.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pelago_mount::{Atime, Trusts};
use pelago_net::ServerTarget;
use pelago_net::key::address::{AddressError, ServerAddress};

use super::key::own_key;
use super::up::parse_memory;
use crate::data_path::RequestArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::far_mount::{FarMount, FarPlan};
use crate::{detach, locate, log, output};

const AFTER: &str = "\
The server is the socket `pelago.sock` in the folder of a volume that is up here, or the address \
that `pelago up --listen` printed on another machine, which must have this machine's key (`pelago \
key new`) in its list (`pelago key allow`). The mount keeps what it has seen until another \
mount is about to change it, so all mounts agree at once. If the connection is lost, it is made \
again, and programs wait. Ctrl-C, SIGTERM, SIGHUP and `pelago unmount` end the mount.";

/// Mount a volume that another process serves.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The server: KEY@HOST:PORT, or the path of its socket
    server: PathBuf,
    /// Mount on this empty folder
    point: PathBuf,
    /// Continue in the background
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    log: log::LogArgs,
    /// Mount read-only
    #[arg(long)]
    read_only: bool,
    /// Do not update access times when files are read
    #[arg(long)]
    noatime: bool,
    /// Fail operations after this many seconds without the server, instead of waiting for it
    #[arg(long, value_name = "SECONDS")]
    soft: Option<u64>,
    #[command(flatten)]
    requests: RequestArgs,
    /// Memory for caches and tables, at least 20MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, default_value = "160MiB")]
    memory: u64,
    /// Print one JSON object when the volume is mounted
    #[arg(long)]
    pub(crate) json: bool,
    /// Be the background process of `--detach`
    #[arg(long, hide = true)]
    in_background: bool,
}

/// Connects, mounts, and serves the mount until it is unmounted.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if args.detach && !args.in_background {
        return detach::restart_in_background();
    }
    if args.in_background {
        detach::leave_terminal();
    }
    log::begin(args.log, args.in_background);
    serve(&plan(args)?, args.json, args.in_background)
}

/// Mounts, and serves the mount until it is unmounted.
pub(super) fn serve(plan: &FarPlan, json: bool, in_background: bool) -> Outcome<ExitCode> {
    let mount = FarMount::start(plan)?;
    let report = mount.report();
    if json {
        output::print_json(&report.to_json())?;
    } else {
        let point = report.mounted.display();
        let pid = report.pid;
        output::print(&format!(
            "server    {}\n\
             mounted   {point} (process {pid})\n\
             next      `pelago status {point}` prints its state, `pelago unmount` ends it\n",
            report.server,
        ))?;
    }
    if !in_background {
        mount.run(output::print_error)?;
        return Ok(ExitCode::SUCCESS);
    }
    let log = mount.runtime_dir.open_log();
    detach::report_ready(log.map_err(|error| Failure::new(Exit::Failed, error))?)?;
    mount.run(|text| tracing::info!("{text}"))?;
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &Args) -> Outcome<FarPlan> {
    let (target, source) = server(&args.server)?;
    Ok(FarPlan {
        target,
        source,
        point: locate::absolute(&args.point)?,
        read_only: args.read_only,
        atime: if args.noatime { Atime::Never } else { Atime::Relative },
        trusts: Trusts::default(),
        give_up: args.soft.map(Duration::from_secs),
        io_uring: args.requests.io_uring,
        memory_bytes: args.memory,
        guest: None,
    })
}

/// Returns the server, and how it is shown. What has an `@` and is no file is an address.
fn server(named: &Path) -> Outcome<(ServerTarget, String)> {
    match named.to_str() {
        Some(text) if text.contains('@') && !named.exists() => {
            let address: ServerAddress = text.parse().map_err(bad_address)?;
            let shown = address.to_string();
            Ok((ServerTarget::Tcp { address, key: Arc::new(own_key()?) }, shown))
        }
        _ => {
            let socket = locate::absolute(named)?;
            expect_socket(&socket)?;
            let shown = socket.display().to_string();
            Ok((ServerTarget::Unix(socket), shown))
        }
    }
}

fn bad_address(error: AddressError) -> Failure {
    Failure::new(Exit::Usage, error).hint("`pelago up --listen` prints the address of its server")
}

/// Checks that there is a socket, for an error that names the mistake.
fn expect_socket(path: &Path) -> Outcome<()> {
    match path.metadata() {
        Ok(meta) if meta.file_type().is_socket() => Ok(()),
        _ => Err(Failure::new(Exit::NotFound, NoSocket(path.to_owned()))
            .hint("name the file `pelago.sock` in the folder of a volume that is up")),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{} is not the socket of a server", .0.display())]
struct NoSocket(PathBuf);
