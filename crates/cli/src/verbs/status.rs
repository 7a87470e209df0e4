//! `pelago status`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use pelago_store::volume;

use crate::control::{AskError, ask_status};
use crate::failure::{Exit, Failure, Outcome};
use crate::locate::{self, VolumeRef};
use crate::status_report::{DownReport, StatusReport};
use crate::{output, runtime_dir, stale_mount};

const AFTER: &str = "\
It asks the volume's process and never touches the mount, so it works while the mount hangs. The \
exit code is 5 if the volume is not up.";

/// Print the state of a volume.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// A path in the mount or in the volume's folder
    path: Option<PathBuf>,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR", conflicts_with = "path")]
    volume: Option<PathBuf>,
    /// Seconds to wait for the answer
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    timeout: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("{} cannot be reached", .dir.display())]
struct NotReached {
    dir: PathBuf,
    #[source]
    source: AskError,
}

/// Prints the state. The exit code is that of "unreachable" if the volume is not up.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let volume = locate::find_any(args.volume.as_deref(), args.path.as_deref())?;
    // A socket accepts no timeout of zero.
    let timeout = Duration::from_secs(args.timeout.max(1));
    let unreachable = ExitCode::from(Exit::Unreachable as u8);
    // A dying process would not answer.
    let is_dying = stale_mount::server_is_dying(&volume.dir);
    let asked = if is_dying { Err(AskError::NotUp) } else { ask_status(&volume.dir, timeout) };
    let (report, code) = match asked {
        Ok(report) => (report, ExitCode::SUCCESS),
        Err(AskError::NotUp) if let Some(store) = locate::store_of(&volume.dir) => {
            (StatusReport::StoreServerDown { dir: volume.dir, store }, unreachable)
        }
        Err(AskError::NotUp) if locate::is_mirrors(&volume.dir) => {
            (StatusReport::MirrorsDown(volume.dir), unreachable)
        }
        Err(AskError::NotUp) if locate::is_relay(&volume.dir) => {
            (StatusReport::RelayDown(volume.dir), unreachable)
        }
        Err(AskError::NotUp) => (StatusReport::Down(down(volume, is_dying)), unreachable),
        Err(error) => return Err(ask_failed(error, &volume)),
    };
    if args.json {
        output::print_json(&report.to_json())?;
    } else {
        output::print(&report.to_text())?;
    }
    Ok(code)
}

/// Returns the failure of a process that did not answer, with a hint.
pub(crate) fn ask_failed(error: AskError, volume: &VolumeRef) -> Failure {
    let (exit, hint) = match &error {
        AskError::NotUp => (Exit::Unreachable, "`pelago up` starts and mounts it".to_owned()),
        AskError::Denied => {
            (Exit::Denied, "run this as the user who started it, or as root".to_owned())
        }
        AskError::Silent => {
            let pid = volume::lock_holder(&volume.dir);
            let process =
                pid.map_or_else(|| "its process".to_owned(), |pid| format!("process {pid}"));
            (Exit::Unreachable, format!("retry, or kill {process}, then `pelago up`"))
        }
        AskError::Garbled | AskError::Refused { .. } => {
            (Exit::Failed, "use the version of pelago that started it".to_owned())
        }
        AskError::Io(_) => (Exit::Unreachable, "retry".to_owned()),
    };
    Failure::new(exit, NotReached { dir: volume.dir.clone(), source: error }).hint(hint)
}

/// Returns the report on a volume that is not served, from its folder and the mount table.
fn down(volume: VolumeRef, is_dying: bool) -> DownReport {
    DownReport {
        is_far: runtime_dir::is_one(&volume.dir),
        is_dying,
        pid: volume::lock_holder(&volume.dir),
        stopped_cleanly: locate::was_stopped_cleanly(&volume.dir),
        is_not_primary: volume::is_not_primary(&volume.dir),
        dir: volume.dir,
        dead_mount: volume.mounted,
    }
}
