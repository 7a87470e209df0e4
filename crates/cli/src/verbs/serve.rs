//! `pelago serve`.

use std::path::PathBuf;
use std::process::ExitCode;

use pelago_mount::{Atime, Trusts};

use super::level_args::LevelArgs;
use super::serving::{ServingArgs, parse_seconds};
use super::up::serve;
use crate::daemon::store::{self, StorePlan};
use crate::daemon::{Plan, PointPlan};
use crate::data_path::{IoUring, Passthrough};
use crate::failure::{Exit, Failure, Outcome};
use crate::indexing::Indexing;
use crate::{locate, mirrors};

const AFTER: &str = "\
The volume is not mounted here. Processes of this machine mount it by the socket `pelago.sock` in \
its folder, and with --listen the machines that `pelago key allow` lists. Ctrl-C, SIGTERM, SIGHUP \
and `pelago unmount` stop it cleanly. With --mirrors DIR keeps mirrors: `pelago status DIR` lists \
them, and `pelago site promote` makes one of them a volume that can be served. With --adopt FOLDER \
a primary that was replaced by force is one of them: the new primary, once `pelago site mirror` \
there names this server, sends it what differs, and `pelago conflicts -V DIR` lists what only \
FOLDER had, which is kept. With --store the \
volume is in FOLDER, which other servers reach too, and DIR has the key, the log and the socket of \
this one: it serves the volume, or stands by until the server that does is gone.";

/// Serve a volume without mounting it; create it if it does not exist.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The volume's folder; created if it does not exist [default: ~/pelago]
    dir: Option<PathBuf>,
    /// Let listed machines connect to this address of this machine, HOST:PORT; the port is 7440
    /// unless given. `pelago key allow` lists a machine
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Continue in the background; the log is DIR/log
    #[arg(long)]
    detach: bool,
    /// Keep mirrors of volumes that are elsewhere, in a folder that is no volume; `pelago key
    /// allow` lists the servers that may send here
    #[arg(long, conflicts_with_all = ["read_only", "memory", "find", "no_find", "remote_timeout"])]
    mirrors: bool,
    /// Make this folder a mirror too: a volume that was the primary until its mirror was promoted.
    /// It is moved to the other mirrors
    #[arg(long, value_name = "FOLDER", requires = "mirrors")]
    adopt: Option<PathBuf>,
    /// Serve the volume in this folder, which several servers share, and stand by while another one
    /// does; DIR has what is this server's own
    #[arg(long, value_name = "FOLDER")]
    #[arg(conflicts_with_all = ["mirrors", "read_only", "find", "no_find", "remote_timeout"])]
    store: Option<PathBuf>,
    /// The number of shards of a new volume in such a folder: 1, until more are built
    #[arg(long, value_name = "NUMBER", requires = "store")]
    shards: Option<u16>,
    /// Refuse changes
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    indexing: Indexing,
    /// How long a program waits for another office if that is silent
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "10")]
    remote_timeout: u64,
    #[command(flatten)]
    levels: LevelArgs,
    /// Print one JSON object when the volume is served
    #[arg(long)]
    pub(crate) json: bool,
}

/// The error of a request for a volume of several shards.
#[derive(Debug, thiserror::Error)]
#[error("a volume of {0} shards is not built yet: it has 1")]
struct Shards(u16);

/// Serves the volume until it is stopped.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if let Some(shards) = args.shards.filter(|shards| *shards != 1) {
        return Err(Failure::new(Exit::Usage, Shards(shards))
            .hint("leave `--shards` out: one server at a time serves all of the volume"));
    }
    let dir = args.dir.clone().map_or_else(locate::default_dir, Ok)?;
    let dir = locate::absolute(&dir)?;
    if let Some(code) = args.serving.begin(args.detach)? {
        return Ok(code);
    }
    let how = args.serving.printing(args.json);
    if args.mirrors {
        let adopt = args.adopt.as_deref().map(locate::absolute).transpose()?;
        return mirrors::serve(&dir, args.listen.as_deref(), adopt.as_deref(), how);
    }
    if let Some(store) = &args.store {
        return store::serve(
            StorePlan {
                dir,
                store: locate::absolute(store)?,
                listen: args.listen.clone(),
                memory_bytes: args.serving.memory,
            },
            how,
        );
    }
    let plan = Plan {
        dir,
        point: PointPlan::Nowhere,
        listen: args.listen.clone(),
        http: None,
        read_only: args.read_only,
        atime: Atime::default(),
        trusts: Trusts::default(),
        passthrough: Passthrough::Never,
        lag: args.levels.lag(),
        when_cut: args.levels.when_cut(),
        repair: args.levels.repair(),
        io_uring: IoUring::Never,
        inline_bytes: None,
        memory_bytes: args.serving.memory,
        indexing: args.indexing.into(),
        remote_seconds: args.remote_timeout,
        copy_bytes: pelago_server::COPY_BYTES,
        joining: None,
        listens_never: false,
        site_address: None,
    };
    serve(&plan, how)
}
