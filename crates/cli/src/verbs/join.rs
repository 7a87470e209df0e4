//! `pelago join`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use pelago_keynote::is_site_address;
use pelago_mount::{Atime, Trusts};
use pelago_server::{Indexing, WhenCut};
use pelago_store::clock;
use pelago_store::volume::Volume;

use super::serving::{ServingArgs, parse_seconds};
use super::up::serve;
use crate::daemon::{Plan, PointPlan};
use crate::data_path::{IoUring, Passthrough};
use crate::failure::{Exit, Failure, Outcome};
use crate::ticket::Ticket;
use crate::{locate, size};

const AFTER: &str = "\
DIR becomes the folder of this office: one tree with the office that has invited, mounted on \
DIR/files or on POINT. A folder that is made here belongs to this office, wherever it is in the \
tree; what is in it is on this disk, and does not wait for the other office. All else is asked \
there. Later starts are `pelago up DIR`.";

/// Join a volume of another office, by the ticket that it has printed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The ticket, which `pelago site invite` has printed
    ticket: String,
    /// The folder of this office: missing or empty
    dir: PathBuf,
    /// Mount on this empty folder instead of DIR/files
    #[arg(long, value_name = "POINT")]
    mount: Option<PathBuf>,
    /// Listen for the other office at this address of this machine, HOST:PORT
    /// [default: all addresses, port 7440]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The address of this machine for the other office, HOST:PORT, if it differs from the one it
    /// listens at
    #[arg(long, value_name = "ADDR")]
    address: Option<String>,
    /// Do not listen: the other offices cannot connect to this machine, which is behind NAT or a
    /// firewall. It connects to them, and they ask over its connections
    #[arg(long, conflicts_with_all = ["listen", "address"])]
    no_listen: bool,
    /// How long a program waits for the other office if that is silent
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "10")]
    remote_timeout: u64,
    /// Bytes of this disk that copies of other offices' files may take; 0 removes them
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "8GiB")]
    cache: u64,
    /// Continue in the background; the log is DIR/log
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    serving: ServingArgs,
    /// Print one JSON object when the volume is mounted
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum JoinError {
    #[error("the ticket has expired")]
    Expired,
    #[error("{0:?} is no address")]
    Address(String),
    #[error("{} has another volume, or another site of this one", .0.display())]
    OtherVolume(PathBuf),
}

/// Joins the volume, and serves it until it is unmounted.
pub(crate) fn run(args: Args) -> Outcome<ExitCode> {
    let ticket: Ticket = args.ticket.parse().map_err(|error| {
        Failure::new(Exit::Usage, error).hint("copy all of it, from `pelago-ticket` to the end")
    })?;
    if let Some(address) = args.address.as_deref().filter(|address| !is_site_address(address)) {
        let error = JoinError::Address(address.to_owned());
        return Err(Failure::new(Exit::Usage, error).hint("give HOST:PORT"));
    }
    let dir = locate::absolute(&args.dir)?;
    if locate::is_volume(&dir) {
        expect_same(&dir, &ticket)?;
    } else if clock::now().seconds.cast_unsigned() >= ticket.until {
        return Err(Failure::new(Exit::Failed, JoinError::Expired)
            .hint("ask for another one: `pelago site invite` prints it"));
    }
    if let Some(code) = args.serving.begin(args.detach)? {
        return Ok(code);
    }
    let plan = Plan {
        dir,
        point: match args.mount.as_deref().map(locate::absolute).transpose()? {
            Some(point) => PointPlan::At(point),
            None => PointPlan::Default,
        },
        listen: args.listen,
        http: None,
        read_only: false,
        atime: Atime::default(),
        trusts: Trusts::default(),
        passthrough: Passthrough::Auto,
        lag: None,
        when_cut: WhenCut::GoOn,
        repair: None,
        io_uring: IoUring::Never,
        inline_bytes: None,
        memory_bytes: args.serving.memory,
        indexing: Indexing::Auto,
        remote_seconds: args.remote_timeout,
        copy_bytes: args.cache,
        joining: Some(Arc::new(ticket)),
        listens_never: args.no_listen,
        site_address: args.address,
    };
    serve(&plan, args.serving.printing(args.json))
}

/// Checks that an existing volume is the volume and the site of the ticket, for a join that was
/// interrupted and is repeated.
fn expect_same(dir: &Path, ticket: &Ticket) -> Outcome<()> {
    let volume = Volume::open(dir)
        .map_err(|error| Failure::new(Exit::Failed, error).hint("join with an empty folder"))?;
    let is_same = volume.id().0 == ticket.volume && volume.format().site == ticket.site;
    match is_same {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, JoinError::OtherVolume(dir.to_owned()))
            .hint("join with an empty folder")),
    }
}
