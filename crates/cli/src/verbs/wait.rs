//! `pelago wait`: waits until all changes are safe here, or at the mirror too.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::json;

use super::serving::parse_seconds;
use crate::control::{AskError, ControlReply, Request, ask};
use crate::failure::{Exit, Failure, Outcome};
use crate::up_volume::mirrored;
use crate::{json, locate, output};

const AFTER: &str = "\
All that was done in the volume before the command began is then on stable storage: on this \
machine (local), or at its mirror too, which `pelago site mirror` has made (remote). While the \
mirror is cut off it waits, and ends with 8 if the time is over first; nothing is lost by that.";

/// Wait until what was done in a volume is on stable storage, here or at its mirror too.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// A file or folder of the volume, which this machine serves
    path: Option<PathBuf>,
    /// Where it is to be safe
    #[arg(long, value_enum)]
    level: Level,
    /// How long to wait
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "60")]
    timeout: u64,
    /// The folder of the volume, which is up on this machine
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The place at which a change is safe.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    /// On this machine
    Local,
    /// At the mirror of the volume too
    Remote,
}

#[derive(Debug, thiserror::Error)]
enum WaitError {
    #[error("the volume is not up")]
    NotUp,
    #[error("after {seconds} s the mirror does not have all that was done")]
    NotMirrored { seconds: u64 },
    #[error("{0}")]
    Refused(String),
    #[error("the volume's process does not answer")]
    NotAnswered(#[source] AskError),
}

/// Waits until the mirror has all changes.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let dir = locate::find(args.volume.as_deref(), args.path.as_deref())?.dir;
    let level = match args.level {
        Level::Local => {
            make_safe(&dir, Duration::from_secs(args.timeout))?;
            pelago_wire::Level::Local
        }
        Level::Remote => {
            wait_for_mirror(args, &dir)?;
            pelago_wire::Level::Remote
        }
    };
    if args.json {
        output::print_json(&json!({ "version": json::VERSION, "level": level.name() }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes all that is done safe on this machine.
fn make_safe(dir: &Path, patience: Duration) -> Outcome<()> {
    match ask(dir, Request::MakeSafe, patience) {
        Ok((ControlReply::MadeSafe, _)) => Ok(()),
        Ok(_) => Err(Failure::new(Exit::Unreachable, WaitError::NotAnswered(AskError::Garbled))),
        Err(error) => Err(not_asked(error)),
    }
}

/// Waits until the mirror has everything that is done.
fn wait_for_mirror(args: &Args, dir: &Path) -> Outcome<()> {
    let begun = Instant::now();
    let patience = Duration::from_secs(args.timeout);
    let mut commit = None;
    loop {
        let waited = mirrored(dir, commit).map_err(not_asked)?;
        if waited.done {
            return Ok(());
        }
        if begun.elapsed() >= patience {
            let seconds = args.timeout;
            return Err(Failure::new(Exit::TimedOut, WaitError::NotMirrored { seconds })
                .hint("`pelago status` says how far the mirror is"));
        }
        commit = Some(waited.commit);
    }
}

fn not_asked(error: AskError) -> Failure {
    match error {
        AskError::NotUp => {
            Failure::new(Exit::NotFound, WaitError::NotUp).hint("start it with `pelago up`")
        }
        AskError::Refused { says } => Failure::new(Exit::Failed, WaitError::Refused(says))
            .hint("run it on the machine of the volume's server; see `pelago status` there"),
        error => Failure::new(Exit::Unreachable, WaitError::NotAnswered(error)),
    }
}
