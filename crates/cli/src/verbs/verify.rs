//! `pelago verify`: compares the mirror of a volume with the volume.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io, thread};

use crate::control::{AskError, ControlReply, Request, VerifiedReport, ask};
use crate::failure::{Exit, Failure, Outcome};
use crate::{locate, output};

/// The longest time that the volume's process may take to answer one request.
const ANSWER: Duration = Duration::from_secs(10);
/// The pause between two questions how far it is.
const PAUSE: Duration = Duration::from_millis(200);

const AFTER: &str = "\
Rows and bytes are compared by hashes, while programs go on: those of the file, of all in the \
folder, or of the volume if PATH is its root or is left out. A file that changes each time that it \
is compared is named, and is no difference. The command ends with 7 if the mirror has anything \
otherwise; with --apply that is sent again.";

/// Compare the mirror of a volume with the volume.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// A file or folder of the volume, which this machine serves
    path: Option<PathBuf>,
    /// Send what differs to the mirror again
    #[arg(long)]
    apply: bool,
    /// The folder of the volume, which is up on this machine
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error("the volume is not up")]
    NotUp,
    #[error("{0}")]
    Refused(String),
    #[error("{} cannot be examined", .path.display())]
    Examined {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is in another mount", .0.display())]
    OtherMount(PathBuf),
    #[error("the volume's process does not answer")]
    NotAnswered(#[source] AskError),
    #[error("the comparison has ended without a result: the volume was stopped, or has no mirror")]
    Ended,
}

/// Compares, and prints what differs.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let found = locate::find(args.volume.as_deref(), args.path.as_deref())?;
    let inode = match (&found.mounted, &args.path) {
        (Some(point), Some(path)) => below(point, path)?,
        (None, _) | (_, None) => None,
    };
    let dir = found.dir;
    let ask = |begin| verified(&dir, Request::Verify { begin, apply: args.apply, inode });
    ask(true)?;
    let report = loop {
        let report = ask(false)?;
        if report.has_finished {
            break report;
        }
        thread::sleep(PAUSE);
    };
    match args.json {
        true => output::print_json(&report.to_json())?,
        false => output::print(&report.to_text(args.apply))?,
    }
    match report.differences {
        0 => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::from(Exit::Damaged as u8)),
    }
}

/// Returns the inode number of a file or folder in the mount at `point`; `None` if it is the root,
/// or is not in the mount.
fn below(point: &Path, path: &Path) -> Outcome<Option<u64>> {
    let path = locate::absolute(path)?;
    if !path.starts_with(point) {
        return Ok(None);
    }
    let failed = |source| {
        Failure::new(Exit::NotFound, VerifyError::Examined { path: path.clone(), source })
            .hint("name a file or folder in the mount")
    };
    let root = fs::metadata(point).map_err(failed)?;
    let meta = fs::metadata(&path).map_err(failed)?;
    if meta.dev() != root.dev() {
        return Err(Failure::new(Exit::NotFound, VerifyError::OtherMount(path))
            .hint("name a file or folder in the mount"));
    }
    Ok((meta.ino() != root.ino()).then_some(meta.ino()))
}

fn verified(dir: &Path, request: Request) -> Outcome<VerifiedReport> {
    let not_answered = |error| Failure::new(Exit::Unreachable, VerifyError::NotAnswered(error));
    match ask(dir, request, ANSWER) {
        Ok((ControlReply::Verified(Some(report)), _)) => Ok(report),
        Ok((ControlReply::Verified(None), _)) => {
            Err(Failure::new(Exit::Failed, VerifyError::Ended).hint("type it again"))
        }
        Ok(_) => Err(not_answered(AskError::Garbled)),
        Err(AskError::NotUp) => {
            Err(Failure::new(Exit::NotFound, VerifyError::NotUp).hint("start it with `pelago up`"))
        }
        Err(AskError::Refused { says }) => {
            Err(Failure::new(Exit::Failed, VerifyError::Refused(says))
                .hint("run it on the machine of the volume's server; see `pelago status` there"))
        }
        Err(error) => Err(not_answered(error)),
    }
}
