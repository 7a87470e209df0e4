//! `pelago unmount`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use pelago_mount::busy::{MountUser, mount_users};
use pelago_mount::mountinfo::{self, Liveness};
use pelago_store::volume;
use serde_json::json;

use crate::control::{AskError, ControlReply, Conversation, Request, ask};
use crate::failure::{Exit, Failure, Outcome};
use crate::locate::{self, VolumeRef};
use crate::{json, output, runtime_dir, stale_mount};

const AFTER: &str = "\
When this returns, the process has ended and everything is safe on disk. If processes use the \
mount, they are named and nothing is changed. A stale mount, whose process is gone, is detached.";

/// Unmount a volume and stop its process.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// A path in the mount or in the volume's folder
    path: Option<PathBuf>,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR", conflicts_with = "path")]
    volume: Option<PathBuf>,
    /// Unmount even if the mount is in use; the processes that use it then get errors
    #[arg(long)]
    force: bool,
    /// Seconds to wait until the process has ended
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum UnmountError {
    #[error("{} is in use{}", .point.display(), by(.holders, .mounts))]
    Busy { point: PathBuf, holders: Vec<MountUser>, mounts: Vec<PathBuf> },
    #[error("process {pid} holds the volume and does not answer: it is starting or stopping")]
    Between { pid: u32 },
    #[error("the volume is unmounted, but its process has not ended after {seconds} s")]
    NotEnded { seconds: u64 },
    #[error("the volume is unmounted, but was not stopped cleanly")]
    Unclean,
    #[error("the dead mount on {} cannot be detached", .point.display())]
    NotDetached {
        point: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Unmounts the volume and stops its process.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let volume = locate::find_any(args.volume.as_deref(), args.path.as_deref())?;
    let timeout = Duration::from_secs(args.timeout.max(1));
    let end = end(&volume, args.force, timeout)?;
    if args.json {
        let dir = volume.dir.to_string_lossy();
        output::print_json(&json!({
            "version": json::VERSION,
            "volume": { "dir": dir },
            "state": end.state(),
        }))?;
    } else {
        let named = volume.mounted.as_ref().filter(|_| runtime_dir::is_one(&volume.dir));
        output::print(&end.line(named.unwrap_or(&volume.dir)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Requests the process to unmount and stop, or cleans up if the process is gone or dying.
fn end(volume: &VolumeRef, force: bool, timeout: Duration) -> Outcome<End> {
    if stale_mount::server_is_dying(&volume.dir) {
        return clean_up(volume, timeout);
    }
    match ask(&volume.dir, Request::Unmount { force }, timeout) {
        Ok((ControlReply::Busy(point), _)) => Err(busy(point)),
        Ok((ControlReply::Unmounted(_), conversation)) => wait(volume, conversation, timeout),
        Ok(_) => Err(super::status::ask_failed(AskError::Garbled, volume)),
        Err(AskError::NotUp) => clean_up(volume, timeout),
        // It was killed after the request.
        Err(AskError::Silent) if stale_mount::server_is_dying(&volume.dir) => {
            clean_up(volume, timeout)
        }
        Err(error) => Err(super::status::ask_failed(error, volume)),
    }
}

/// The result of a successful `unmount`.
enum End {
    /// The volume was unmounted and its process has ended.
    Unmounted,
    /// The process was gone already; its mount was detached.
    DeadMountRemoved {
        /// The text that names the command to mount it again.
        next: &'static str,
    },
    /// The volume was down already.
    WasDown,
}

impl End {
    const fn state(&self) -> &'static str {
        match self {
            Self::Unmounted => "unmounted",
            Self::DeadMountRemoved { .. } => "dead-mount-removed",
            Self::WasDown => "was-down",
        }
    }

    fn line(&self, dir: &Path) -> String {
        let dir = dir.display();
        match self {
            Self::Unmounted => format!("unmounted {dir}: everything is safe\n"),
            Self::DeadMountRemoved { next } => {
                format!("unmounted {dir}: its process was gone; {next}\n")
            }
            Self::WasDown => format!("{dir} is not up: nothing to do\n"),
        }
    }
}

/// Waits until the process that unmounted the volume has ended.
fn wait(volume: &VolumeRef, conversation: Conversation, timeout: Duration) -> Outcome<End> {
    if !conversation.wait_for_end(timeout) {
        let error = UnmountError::NotEnded { seconds: timeout.as_secs() };
        return Err(Failure::new(Exit::TimedOut, error).hint("`pelago status` prints its state"));
    }
    let has_no_mark = runtime_dir::is_one(&volume.dir)
        || locate::is_mirrors(&volume.dir)
        || locate::is_relay(&volume.dir)
        || locate::store_of(&volume.dir).is_some();
    if has_no_mark || locate::was_stopped_cleanly(&volume.dir) {
        return Ok(End::Unmounted);
    }
    // Another process may have started the volume since.
    if volume::lock_holder(&volume.dir).is_some() {
        return Ok(End::Unmounted);
    }
    Err(Failure::new(Exit::Failed, UnmountError::Unclean)
        .hint("`pelago up` recovers it; the volume's log says what went wrong"))
}

fn busy(point: PathBuf) -> Failure {
    let holders = mount_users(&point).unwrap_or_default();
    let below = mountinfo::below(&point).unwrap_or_default();
    let mounts = below.into_iter().map(|mount| mount.point).collect();
    Failure::new(Exit::Failed, UnmountError::Busy { point, holders, mounts })
        .hint("end these processes or leave the folder, then run `pelago unmount` again")
        .hint("`pelago unmount --force` unmounts it anyway: processes that use it get errors")
}

/// Waits for a process that holds the volume without answering, then removes a mount that was left
/// behind.
fn clean_up(volume: &VolumeRef, timeout: Duration) -> Outcome<End> {
    let deadline = Instant::now() + timeout;
    if stale_mount::server_is_dying(&volume.dir) {
        stale_mount::free(&volume.dir);
    }
    while let Some(pid) = volume::lock_holder(&volume.dir) {
        if Instant::now() >= deadline {
            let error = UnmountError::Between { pid };
            return Err(Failure::new(Exit::Unreachable, error)
                .hint(format!("wait, or find out what process {pid} does")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let is_far = runtime_dir::is_one(&volume.dir);
    let dead =
        if is_far { locate::mounts_of(&volume.dir) } else { locate::dead_mounts_of(&volume.dir) };
    let Some(mount) = dead.into_iter().next() else { return Ok(End::WasDown) };
    // If the process is alive and only its control socket is gone, its connection must not be
    // ended.
    let is_alive = is_far && mountinfo::probe(&mount.point) == Liveness::Alive;
    let removed =
        if is_alive { stale_mount::detach(&mount.point) } else { stale_mount::remove(&mount) };
    match removed {
        Ok(()) => {
            runtime_dir::remove_stale();
            let next =
                if is_far { "`pelago mount` mounts it again" } else { "`pelago up` recovers it" };
            Ok(End::DeadMountRemoved { next })
        }
        Err(source) => {
            let error = UnmountError::NotDetached { point: mount.point, source };
            Err(Failure::new(Exit::Denied, error)
                .hint("run this as the user who mounted it, or as root"))
        }
    }
}

/// Returns the users of a mount, as a text after "is in use".
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
