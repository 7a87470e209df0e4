//! `pelago verify`: compares the mirror of a volume with the volume.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use crate::control::{AskError, ControlReply, Request, VerifiedReport, ask};
use crate::failure::{Exit, Failure, Outcome};
use crate::{locate, output};

/// The longest time that the volume's process may take to answer one request.
const ANSWER: Duration = Duration::from_secs(10);
/// The pause between two questions how far it is.
const PAUSE: Duration = Duration::from_millis(200);

const AFTER: &str = "\
All rows and all bytes are compared by hashes, while programs go on. A file that changes each time \
that it is compared is named, and is no difference. The command ends with 7 if the mirror has \
anything otherwise; with --apply that is sent again.";

/// Compare the mirror of a volume with the volume.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// A file or folder of the volume, which this machine serves; all of the volume is compared
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
    #[error("the volume's process does not answer")]
    NotAnswered(#[source] AskError),
    #[error("the comparison has ended without a result: the volume was stopped, or has no mirror")]
    Ended,
}

/// Compares, and prints what differs.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let dir = locate::find(args.volume.as_deref(), args.path.as_deref())?.dir;
    verified(&dir, Request::Verify { begin: true, apply: args.apply })?;
    let report = loop {
        let report = verified(&dir, Request::Verify { begin: false, apply: args.apply })?;
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
