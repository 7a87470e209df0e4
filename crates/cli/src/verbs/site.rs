//! `pelago site`: the offices of a volume, and its mirror.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_store::clock;
use pelago_store::volume::VolumeId;
use serde_json::json;

use crate::control::{AskError, ControlReply, Request, SitesReport, ask};
use crate::failure::{Exit, Failure, Outcome};
use crate::ticket::Ticket;
use crate::up_volume::{PATIENCE, listen, volume_id};
use crate::{json, locate, mirrors, output};

/// The time for which an invitation is valid.
const INVITED_SECONDS: u64 = 24 * 60 * 60;

const INVITE: &str = "\
It prints a ticket. At the other office `pelago join TICKET DIR` makes DIR a site of the volume: \
one tree in both, in which each office makes folders that are its own. The ticket works once, \
for 24 hours, and whoever has it can read and write the whole tree: send it as a secret.";

const LEAVE: &str = "\
It is for an office that has joined. Move its folders into one of another office before (`mv` \
copies them), or remove them. If this office has folders, they are named, and nothing happens. \
Else the volume is unmounted here, and the folder of the office can be removed.";

const MIRROR: &str = "\
There, `pelago serve DIR --mirrors` keeps the mirror, and `pelago key allow KEY -V DIR` lets this \
volume's server in. All of the volume is copied, then each change follows. The volume must be \
served with `--passthrough never`, now; later starts see to that themselves. If this site is lost, \
`pelago site promote` makes the mirror the volume.";

const PROMOTE: &str = "\
Without PATH, on the machine of a volume that is up: its mirror gets the last changes and becomes \
the primary, and this one stops. Nothing is lost. To go back, make this site the mirror of the \
other one (`pelago serve DIR --mirrors --adopt FOLDER` takes the folder that is left), and do the \
same there.

With PATH and --force, at the mirror: for when the primary is gone. What it did after the last \
group that the mirror has is lost, and if it lives, there are two primaries until it hears of the \
promotion. Stop it first, if that is possible. Once its machine is back, `pelago serve DIR \
--mirrors --adopt FOLDER` there makes its folder the mirror, and keeps what only it had.";

/// The longest time of a departure, for which the first office may have to wait for its disk.
const DEPARTURE: Duration = Duration::from_secs(60);

/// The longest time of a promotion, which executes the groups that the primary has sent.
const PROMOTION: Duration = Duration::from_secs(600);

/// Invite another office to a volume, list the offices, leave, give it a mirror and promote that.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: SiteVerb,
}

#[derive(Debug, Subcommand)]
enum SiteVerb {
    /// Print a ticket by which another office joins the volume
    #[command(after_help = INVITE)]
    Invite(InviteArgs),
    /// List the other offices of a volume
    List(ListArgs),
    /// Leave the volume: this office must have no folders any more
    #[command(after_help = LEAVE)]
    Leave(ListArgs),
    /// Give a volume a mirror, which gets each change
    #[command(after_help = MIRROR)]
    Mirror(MirrorArgs),
    /// Make a mirror the primary of its volume
    #[command(after_help = PROMOTE)]
    Promote(PromoteArgs),
}

#[derive(Debug, clap::Args)]
struct InviteArgs {
    /// The name of the office: letters, digits, `-` and `_`
    name: String,
    /// A folder below which the office may act for users; not built yet
    #[arg(hide = true)]
    path: Option<PathBuf>,
    /// The address of this machine for the other office, HOST:PORT, if it differs from the one it
    /// listens at
    #[arg(long, value_name = "ADDR")]
    address: Option<String>,
    /// Where to listen, HOST:PORT, if the volume does not listen yet
    /// [default: all addresses, port 7440]
    #[arg(long, value_name = "ADDR")]
    at: Option<String>,
    /// The folder of the volume, which is up on this machine
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// The folder of the volume, which is up on this machine
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct MirrorArgs {
    /// The address that `pelago serve DIR --mirrors` has printed there, KEY@HOST:PORT
    #[arg(required_unless_present = "stop")]
    address: Option<ServerAddress>,
    /// Send through the relay at this address, which `pelago relay` has printed, KEY@HOST:PORT;
    /// without it a relay that was set is given up
    #[arg(long, value_name = "ADDRESS", conflicts_with = "stop")]
    relay: Option<ServerAddress>,
    /// Give the mirror up: it keeps the state that it has, and gets nothing any more
    #[arg(long, conflicts_with = "address")]
    stop: bool,
    /// The folder of the volume, which is up on this machine
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct PromoteArgs {
    /// The folder of the mirror, DIR/mirrors/VOLUME
    path: Option<PathBuf>,
    /// Promote the mirror although its primary may live, and may have done more
    #[arg(long, requires = "path")]
    force: bool,
    /// Hand the volume over although programs or other mounts use it
    #[arg(long, conflicts_with = "path")]
    busy: bool,
    /// The folder of the volume, which is up on this machine
    #[arg(short = 'V', long, value_name = "DIR", conflicts_with = "path")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns whether `--json` was given.
    pub(crate) const fn json(&self) -> bool {
        match &self.verb {
            SiteVerb::Invite(args) => args.json,
            SiteVerb::List(args) | SiteVerb::Leave(args) => args.json,
            SiteVerb::Mirror(args) => args.json,
            SiteVerb::Promote(args) => args.json,
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum SiteError {
    #[error("an invitation for one folder is not built")]
    PathNotBuilt,
    #[error("{0:?} is no address")]
    Address(String),
    #[error("the volume is not up")]
    NotUp,
    #[error("no site was invited: {0}")]
    NotInvited(String),
    #[error("the volume's process does not say which sites there are: {0}")]
    NotListed(String),
    #[error("the office has not left: {0}")]
    NotLeft(String),
    #[error("the mirror of the volume stays as it is: {0}")]
    NoMirrorSet(String),
    #[error("{} is not the folder of a mirror", .0.display())]
    NoMirror(PathBuf),
    #[error(
        "what the primary of this volume did after the last group here is lost by a promotion, and \
         there are two primaries until the old one hears of it"
    )]
    NeedsForce,
    #[error("the mirror was not promoted: {0}")]
    NotPromoted(String),
}

/// Runs the second word of the command.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    match &args.verb {
        SiteVerb::Invite(args) => invite(args),
        SiteVerb::List(args) => list(args),
        SiteVerb::Leave(args) => leave(args),
        SiteVerb::Mirror(args) => mirror(args),
        SiteVerb::Promote(args) => promote(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn invite(args: &InviteArgs) -> Outcome<()> {
    if args.path.is_some() {
        return Err(Failure::new(Exit::Usage, SiteError::PathNotBuilt).hint(
            "share the folder (`pelago share`), or leave it out: an office has the whole tree",
        ));
    }
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    // Before the volume listens: if this fails, no office is invited.
    sites_of(&dir)?;
    let listening = listen(&dir, args.at.as_deref())?;
    let founder = match &args.address {
        None => listening,
        Some(address) => address_of(&listening, address)?,
    };
    let key = PrivateKey::generate().map_err(|error| Failure::new(Exit::Failed, error))?;
    let until = clock::now().seconds.cast_unsigned() + INVITED_SECONDS;
    let request = Request::Invite { name: args.name.clone(), key: key.public().to_string(), until };
    let site = match ask(&dir, request, PATIENCE) {
        Ok((ControlReply::Invited(site), _)) => site,
        Ok(_) => return Err(not_invited("its process gives another answer".to_owned())),
        Err(AskError::Refused { says }) => return Err(not_invited(says)),
        Err(error) => return Err(not_invited(error.to_string())),
    };
    let volume = volume_id(&dir)?;
    let ticket = Ticket { site, until, volume, name: args.name.clone(), key, founder };
    if args.json {
        return output::print_json(&json!({
            "version": json::VERSION,
            "ticket": ticket.to_string(),
            "site": site,
            "address": ticket.founder.to_string(),
        }));
    }
    output::print_error(&format!(
        "invited   {} as site {site}, for 24 hours; the ticket is a secret until it is used\n\
         listening {}\n\
         next      there: `pelago join TICKET DIR --mount POINT`",
        args.name, ticket.founder
    ));
    output::print(&format!("{ticket}\n"))
}

fn not_invited(why: String) -> Failure {
    Failure::new(Exit::Failed, SiteError::NotInvited(why)).hint("see `pelago site list`")
}

fn address_of(listening: &ServerAddress, address: &str) -> Outcome<ServerAddress> {
    format!("{}@{address}", listening.key()).parse().map_err(|_| {
        Failure::new(Exit::Usage, SiteError::Address(address.to_owned())).hint("give HOST:PORT")
    })
}

fn list(args: &ListArgs) -> Outcome<()> {
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    let report = sites_of(&dir)?;
    if args.json {
        let mut object = report.to_json();
        object["version"] = json::VERSION.into();
        return output::print_json(&object);
    }
    output::print(&report.to_string())
}

fn leave(args: &ListArgs) -> Outcome<()> {
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    let not_left = |why: String| {
        Failure::new(Exit::Failed, SiteError::NotLeft(why))
            .hint("move its folders to another office, or remove them; then the same command again")
    };
    match ask(&dir, Request::Leave, DEPARTURE) {
        Ok((ControlReply::Left, _)) => {}
        Ok(_) => return Err(not_left("its process gives another answer".to_owned())),
        Err(AskError::NotUp) => {
            return Err(
                Failure::new(Exit::NotFound, SiteError::NotUp).hint("start it with `pelago up`")
            );
        }
        Err(AskError::Refused { says }) => return Err(not_left(says)),
        Err(error) => return Err(not_left(error.to_string())),
    }
    if args.json {
        return output::print_json(&json!({ "version": json::VERSION, "left": true }));
    }
    output::print(&format!("left      the volume; {} can be removed\n", dir.display()))
}

fn mirror(args: &MirrorArgs) -> Outcome<()> {
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    let not_set = |why: String| {
        let hint = match why.contains('`') {
            true => "do that, and type this command again",
            false => "see `pelago site mirror --help`",
        };
        Failure::new(Exit::Failed, SiteError::NoMirrorSet(why)).hint(hint)
    };
    let address = args.address.as_ref().map(ToString::to_string);
    let relay = args.relay.as_ref().map(ToString::to_string);
    let request = match &address {
        Some(peer) => Request::Mirror { peer: peer.clone(), relay: relay.clone() },
        None => Request::EndMirror,
    };
    match ask(&dir, request, PATIENCE) {
        Ok((ControlReply::MirrorSet, _)) => {}
        Ok(_) => return Err(not_set("its process gives another answer".to_owned())),
        Err(AskError::NotUp) => {
            return Err(
                Failure::new(Exit::NotFound, SiteError::NotUp).hint("start it with `pelago up`")
            );
        }
        Err(AskError::Refused { says }) => return Err(not_set(says)),
        Err(error) => return Err(not_set(error.to_string())),
    }
    if args.json {
        return output::print_json(&json!({
            "version": json::VERSION, "mirror": address, "relay": relay
        }));
    }
    output::print(&match address {
        Some(address) => format!(
            "mirror    {address}\n{}\
             next      `pelago wait --level remote` waits until it has all\n",
            relay.map(|relay| format!("relay     {relay}\n")).unwrap_or_default()
        ),
        None => "mirror    none any more\n".to_owned(),
    })
}

fn promote(args: &PromoteArgs) -> Outcome<()> {
    match &args.path {
        Some(path) => promote_mirror(args, path),
        None => hand_over(args),
    }
}

/// Makes the mirror of a volume that is up its primary.
fn hand_over(args: &PromoteArgs) -> Outcome<()> {
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    let failed = |exit, why| Failure::new(exit, SiteError::NotPromoted(why));
    let reign = match ask(&dir, Request::HandOver { force: args.busy }, PROMOTION) {
        Ok((ControlReply::HandedOver { reign }, _)) => reign,
        Ok((ControlReply::Busy(point), _)) => {
            let why = format!("{} is in use", point.display());
            return Err(failed(Exit::Failed, why).hint("close its files, or add --busy"));
        }
        Ok(_) => return Err(failed(Exit::Failed, "its process gives another answer".to_owned())),
        Err(AskError::NotUp) => {
            return Err(Failure::new(Exit::NotFound, SiteError::NotUp)
                .hint("start it with `pelago up`, or name the folder of a mirror"));
        }
        Err(AskError::Refused { says }) => return Err(failed(Exit::Failed, says)),
        Err(error) => return Err(failed(Exit::Unreachable, error.to_string())),
    };
    match args.json {
        true => output::print_json(&json!({
            "version": json::VERSION, "handed_over": dir.to_string_lossy(), "reign": reign
        })),
        false => output::print(&format!(
            "handed    {} to its mirror (reign {reign}), which has everything\n\
             next      there: `pelago up DIR/mirrors/VOLUME`; with `--passthrough never` it can \
             have a mirror\n",
            dir.display()
        )),
    }
}

fn promote_mirror(args: &PromoteArgs, path: &Path) -> Outcome<()> {
    let path = locate::absolute(path)?;
    let no_mirror = || {
        Failure::new(Exit::NotFound, SiteError::NoMirror(path.clone()))
            .hint("name DIR/mirrors/VOLUME; `pelago status DIR` lists the volumes")
    };
    let volume = path.file_name().and_then(|name| VolumeId::parse(name.to_str()?));
    let volume = volume.ok_or_else(no_mirror)?;
    let dir = path.parent().and_then(Path::parent).filter(|dir| locate::is_mirrors(dir));
    let dir = dir.ok_or_else(no_mirror)?;
    if !locate::is_volume(&path) {
        return Err(no_mirror());
    }
    if !args.force {
        return Err(Failure::new(Exit::Usage, SiteError::NeedsForce).hint(
            "if the primary lives, run `pelago site promote` there, and nothing is lost; if \
                   it is gone, the same command with --force",
        ));
    }
    let not_promoted = |exit, why| Failure::new(exit, SiteError::NotPromoted(why));
    let report = match ask(dir, Request::Promote { volume: volume.to_string() }, PROMOTION) {
        Ok((ControlReply::Promoted(report), _)) => report,
        Ok(_) => {
            let why = "its process gives another answer".to_owned();
            return Err(not_promoted(Exit::Failed, why));
        }
        Err(AskError::NotUp) => mirrors::promote(dir, volume)?.into(),
        Err(AskError::Refused { says }) => return Err(not_promoted(Exit::Failed, says)),
        Err(error) => return Err(not_promoted(Exit::Unreachable, error.to_string())),
    };
    match args.json {
        true => output::print_json(&report.to_json()),
        false => output::print(&report.to_text()),
    }
}

/// Returns the sites of the volume in `dir`, as the process that serves it knows them.
pub(super) fn sites_of(dir: &Path) -> Outcome<SitesReport> {
    match ask(dir, Request::Sites, PATIENCE) {
        Ok((ControlReply::Sites(report), _)) => Ok(report),
        Ok(_) => Err(Failure::new(
            Exit::Unreachable,
            SiteError::NotListed("it gives another answer".to_owned()),
        )),
        Err(AskError::NotUp) => {
            Err(Failure::new(Exit::NotFound, SiteError::NotUp).hint("start it with `pelago up`"))
        }
        Err(error) => Err(Failure::new(Exit::Unreachable, SiteError::NotListed(error.to_string()))),
    }
}
