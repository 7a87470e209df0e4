//! `pelago mount`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use pelago_mount::{Atime, Trusts};
use pelago_net::Target;
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::far_mount::{FarMount, FarPlan};
use crate::{json, locate, log, output};

const AFTER: &str = "\
The server is a process of `pelago up`, which has the socket `pelago.sock` in its volume's folder. \
This mount keeps nothing: each operation asks the server, so all mounts agree at once. If the \
connection is lost, it is made again, and programs wait. Ctrl-C, SIGTERM, SIGHUP and `umount` end \
the mount.";

/// Mount a volume that another process serves.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The server: the path of its socket
    server: PathBuf,
    /// Mount on this empty folder
    point: PathBuf,
    /// Mount read-only
    #[arg(long)]
    read_only: bool,
    /// Do not update access times when files are read
    #[arg(long)]
    noatime: bool,
    /// Fail operations after this many seconds without the server, instead of waiting for it
    #[arg(long, value_name = "SECONDS")]
    soft: Option<u64>,
    /// Memory for caches and tables, at least 20MiB
    #[arg(long, value_name = "SIZE", value_parser = super::up::parse_memory, default_value = "160MiB")]
    memory: u64,
    /// Print one JSON object when the volume is mounted
    #[arg(long)]
    pub(crate) json: bool,
}

/// Connects, mounts, and serves the mount until it is unmounted.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    log::to_terminal();
    let plan = plan(args)?;
    let mount = FarMount::start(&plan)?;
    let point = mount.point().display();
    if args.json {
        output::print_json(&json!({
            "version": json::VERSION,
            "server": plan.source,
            "mounted": point.to_string(),
            "process": std::process::id(),
        }))?;
    } else {
        let pid = std::process::id();
        output::print(&format!("server    {}\nmounted   {point} (process {pid})\n", plan.source))?;
    }
    mount.run(output::print_error)?;
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &Args) -> Outcome<FarPlan> {
    let socket = locate::absolute(&args.server)?;
    expect_socket(&socket)?;
    Ok(FarPlan {
        source: socket.display().to_string(),
        target: Target::Unix(socket),
        point: locate::absolute(&args.point)?,
        read_only: args.read_only,
        atime: if args.noatime { Atime::Never } else { Atime::Relative },
        trusts: Trusts::default(),
        give_up: args.soft.map(Duration::from_secs),
        memory_bytes: args.memory,
    })
}

/// Checks that there is a socket, for an error that names the mistake.
fn expect_socket(path: &Path) -> Outcome<()> {
    use std::os::unix::fs::FileTypeExt as _;
    match path.metadata() {
        Ok(meta) if meta.file_type().is_socket() => Ok(()),
        _ => Err(Failure::new(Exit::NotFound, NoSocket(path.to_owned()))
            .hint("name the file `pelago.sock` in the folder of a volume that is up")),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{} is not the socket of a server", .0.display())]
struct NoSocket(PathBuf);
