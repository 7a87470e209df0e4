//! `pelago mount`.

use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use pelago_mount::{Atime, Trusts};
use pelago_net::ServerTarget;
use pelago_net::key::address::{AddressError, ServerAddress};
use pelago_store::volume;

use super::key::own_key;
use super::serving::{Printing, ServingArgs};
use crate::data_path::RequestArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::far_mount::{FarMount, FarPlan};
use crate::{detach, locate, output};

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
    /// The server: KEY@HOST:PORT, the path of its socket, or the folder with the socket
    server: PathBuf,
    /// Mount on this empty folder
    point: PathBuf,
    /// Continue in the background
    #[arg(long)]
    detach: bool,
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
    #[command(flatten)]
    serving: ServingArgs,
    /// Print one JSON object when the volume is mounted
    #[arg(long)]
    pub(crate) json: bool,
}

/// Connects, mounts, and serves the mount until it is unmounted.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if let Some(code) = args.serving.begin(args.detach)? {
        return Ok(code);
    }
    serve(&plan(args)?, args.serving.printing(args.json))
}

/// Mounts, and serves the mount until it is unmounted.
pub(super) fn serve(plan: &FarPlan, how: Printing) -> Outcome<ExitCode> {
    let mount = FarMount::start(plan)?;
    let report = mount.report();
    if how.json {
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
    if !how.in_background {
        mount.run(output::print_error)?;
        return Ok(ExitCode::SUCCESS);
    }
    let log = mount.runtime_dir.open_log();
    detach::report_ready(log.map_err(|error| Failure::new(Exit::Failed, error))?)?;
    mount.run(|text| tracing::info!("{text}"))?;
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &Args) -> Outcome<FarPlan> {
    let (target, source) = server(&args.server, args.read_only)?;
    Ok(FarPlan {
        target,
        source,
        point: locate::absolute(&args.point)?,
        read_only: args.read_only,
        atime: if args.noatime { Atime::Never } else { Atime::Relative },
        trusts: Trusts::default(),
        give_up: args.soft.map(Duration::from_secs),
        io_uring: args.requests.io_uring,
        memory_bytes: args.serving.memory,
        guest: None,
    })
}

/// Returns the server, and its text for people. An argument with an `@` that is not a file is an
/// address.
fn server(named: &Path, read_only: bool) -> Outcome<(ServerTarget, String)> {
    match named.to_str() {
        Some(text) if text.contains('@') && !named.exists() => {
            let address: ServerAddress = text.parse().map_err(bad_address)?;
            let shown = address.to_string();
            Ok((ServerTarget::Tcp { address, key: Arc::new(own_key()?) }, shown))
        }
        _ => {
            let named = locate::absolute(named)?;
            let socket = match named.is_dir() {
                true => volume::session_socket_path(&named),
                false => named,
            };
            let folder = socket.parent().filter(|_| !read_only);
            if let Some(folder) = folder.filter(|folder| volume::is_not_primary(folder)) {
                return Err(Failure::new(Exit::Usage, OnlyRead(folder.to_owned()))
                    .hint("mount it with `--read-only`"));
            }
            expect_socket(&socket)?;
            let shown = socket.display().to_string();
            Ok((ServerTarget::Unix(socket), shown))
        }
    }
}

fn bad_address(error: AddressError) -> Failure {
    Failure::new(Exit::Usage, error).hint("`pelago up --listen` prints the address of its server")
}

/// Checks that the path is a socket, so that the error names the mistake.
fn expect_socket(path: &Path) -> Outcome<()> {
    match path.metadata() {
        Ok(meta) if meta.file_type().is_socket() => Ok(()),
        _ => Err(Failure::new(Exit::NotFound, NoSocket(path.to_owned()))
            .hint("name the file `pelago.sock` in the folder of a volume that is up")),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{} is a mirror, which only its primary changes", .0.display())]
struct OnlyRead(PathBuf);

#[derive(Debug, thiserror::Error)]
#[error("{} is not the socket of a server", .0.display())]
struct NoSocket(PathBuf);
