//! `pelago unmount`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use pelago_mount::busy::{MountUser, mount_users};
use pelago_mount::mountinfo;
use pelago_store::volume;
use serde_json::{Value, json};

use crate::control::{AskError, Conversation, Request, ask};
use crate::failure::{Exit, Failure, Outcome};
use crate::json;
use crate::place::{self, Place};
use crate::{dead, output};

/// Unmount a volume and stop it. When this returns, its process has ended and all is safe.
///
/// Where somebody uses the mount, it says who, and nothing happens. A mount whose process is gone
/// is taken out of the tree.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A path in the mount or in the volume's folder
    path: Option<PathBuf>,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR", conflicts_with = "path")]
    volume: Option<PathBuf>,
    /// Unmount it even if somebody uses it: what they do with it fails from then on
    #[arg(long)]
    force: bool,
    /// Seconds to wait for the end
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who keeps a mount busy, as people are told.
#[derive(Debug, thiserror::Error)]
enum UnmountError {
    #[error("{} is in use{}", .point.display(), by(.holders, .mounts))]
    Busy { point: PathBuf, holders: Vec<MountUser>, mounts: Vec<PathBuf> },
    #[error("process {pid} has the volume open and does not answer: it is starting or stopping")]
    Between { pid: u32 },
    #[error("the volume is unmounted, and its process has not ended after {seconds} s")]
    NotEnded { seconds: u64 },
    #[error("the volume is unmounted, but was not stopped cleanly")]
    Unclean,
    #[error("{} is dead and cannot be taken out of the tree", .point.display())]
    Dead {
        point: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Unmounts it.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let place = place::find(args.volume.as_deref(), args.path.as_deref())?;
    let patience = Duration::from_secs(args.timeout.max(1));
    let says = match ask(&place.dir, Request::Unmount { force: args.force }, patience) {
        Ok((answer, conversation)) => finish(&place, &answer, conversation, patience)?,
        Err(AskError::NotUp) => unserved(&place, patience)?,
        Err(error) => return Err(super::status::ask_failed(error, &place)),
    };
    if args.json {
        let dir = place.dir.to_string_lossy();
        output::print_json(&json!({
            "version": json::VERSION,
            "volume": { "dir": dir },
            "state": says.state(),
        }))?;
    } else {
        output::print(&says.line(&place.dir))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What came of it.
enum Says {
    /// It was up, and is not any more.
    Unmounted,
    /// Its process was gone, its mount was not.
    DeadMount,
    /// There was nothing to do.
    WasDown,
}

impl Says {
    const fn state(&self) -> &'static str {
        match self {
            Self::Unmounted => "unmounted",
            Self::DeadMount => "dead-mount-removed",
            Self::WasDown => "was-down",
        }
    }

    fn line(&self, dir: &Path) -> String {
        let dir = dir.display();
        match self {
            Self::Unmounted => format!("unmounted {dir}: everything is safe\n"),
            Self::DeadMount => {
                format!("unmounted {dir}: its process was gone; `pelago up` brings it up again\n")
            }
            Self::WasDown => format!("{dir} is not up: nothing to do\n"),
        }
    }
}

/// The process said that it unmounted, or why not.
fn finish(
    place: &Place,
    answer: &Value,
    conversation: Conversation,
    patience: Duration,
) -> Outcome<Says> {
    if let Some(point) = answer.get("busy").and_then(Value::as_str) {
        return Err(busy(Path::new(point)));
    }
    if !conversation.wait_for_end(patience) {
        let error = UnmountError::NotEnded { seconds: patience.as_secs() };
        return Err(Failure::new(Exit::TimedOut, error).hint("`pelago status` says what it does"));
    }
    if place::was_stopped_cleanly(&place.dir) {
        return Ok(Says::Unmounted);
    }
    // Somebody may have brought it up again in this instant.
    if volume::lock_holder(&place.dir).is_some() {
        return Ok(Says::Unmounted);
    }
    Err(Failure::new(Exit::Failed, UnmountError::Unclean)
        .hint("`pelago up` recovers it; what went wrong is in the volume's log"))
}

fn busy(point: &Path) -> Failure {
    let holders = mount_users(point).unwrap_or_default();
    let below = mountinfo::below(point).unwrap_or_default();
    let mounts = below.into_iter().map(|mount| mount.point).collect();
    let error = UnmountError::Busy { point: point.to_owned(), holders, mounts };
    Failure::new(Exit::Failed, error)
        .hint("end what uses it, or leave the folder, then `pelago unmount` again")
        .hint("`pelago unmount --force` unmounts it anyway: what uses it gets errors")
}

/// Nobody answers for this volume: a dead mount, a process between two states, or nothing at all.
fn unserved(place: &Place, patience: Duration) -> Outcome<Says> {
    let until = Instant::now() + patience;
    while let Some(pid) = volume::lock_holder(&place.dir) {
        if Instant::now() >= until {
            let error = UnmountError::Between { pid };
            return Err(Failure::new(Exit::Unreachable, error)
                .hint(format!("wait, or look at process {pid}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let Some(point) = place::dead_mounts_of(&place.dir).into_iter().next() else {
        return Ok(Says::WasDown);
    };
    match dead::detach(&point) {
        Ok(()) => Ok(Says::DeadMount),
        Err(source) => Err(Failure::new(Exit::Denied, UnmountError::Dead { point, source })
            .hint("run this as the user who brought it up, or as root")),
    }
}

fn by(holders: &[MountUser], mounts: &[PathBuf]) -> String {
    let named = |holder: &MountUser| format!("{} ({})", holder.pid, output::name(&holder.command));
    let processes = holders.iter().map(named);
    let mounts = mounts.iter().map(|mount| mount.to_string_lossy());
    let mounts = mounts.map(|mount| format!("the mount {}", output::name(&mount)));
    let all: Vec<String> = processes.chain(mounts).collect();
    match all.as_slice() {
        [] => " by a process of another user".to_owned(),
        all => format!(" by {}", all.join(", ")),
    }
}
