//! `pelago log`.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_store::folder::FolderError;
use pelago_store::volume;
use rustix::fs::OFlags;
use serde_json::Value;

use self::words::Keys;
use crate::failure::{Exit, Failure, Outcome};
use crate::key_names::KeyNames;
use crate::{locate, output};

mod in_mount;
mod words;

const AFTER: &str = "\
It has a line when a guest first comes with a credential, first uses a right, is denied something, \
and is cut off, and when a credential is taken back or the roots change. It names keys, \
credentials and inode numbers (`ls -i`), never paths. What was granted and never used is not in \
it: the server does not know of it.

With PATH, a folder in a mount of `pelago attach`, it has what others did in that folder and below \
it: first uses of rights, denials, and credentials that were issued to makers of files. That needs \
the right `a` there; folders below in which this user does not have it are left out.

The lines are in the folder `audit` of the volume's folder, a file for each day. Of a flood of \
lines some are left out, and counted. --json prints them as they are there, one object a line.";

/// The limit for a line.
const LINE_BYTES: u64 = 256 << 10;

/// Print who has used a volume as a guest, and what was refused.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// Print the audit log
    #[arg(long, required = true)]
    audit: bool,
    /// A folder in a mount: print what was done in it and below it; needs the right `a` there
    #[arg(conflicts_with = "volume")]
    path: Option<PathBuf>,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print the lines as they were written, one JSON object each
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("{} cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Prints the lines of all days, the oldest first.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if let Some(path) = &args.path {
        in_mount::print(args, path)?;
        return Ok(ExitCode::SUCCESS);
    }
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    let folder = volume::open_folder(&dir)?;
    let folder = match folder.open_folder(volume::AUDIT) {
        Err(error) if error.is_not_found() => {
            if !args.json {
                output::print("no line: no guest has come yet\n")?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        opened => opened.map_err(failed)?,
    };
    let mut names = folder.entries().map_err(failed)?;
    names.retain(|name| Path::new(name).extension().is_some_and(|end| end == "jsonl"));
    names.sort_unstable();
    // The log is shown also if a list cannot be used.
    let key_names = KeyNames::of(&dir).ok();
    let keys = Keys { names: key_names.as_ref() };
    for name in names {
        let file = match folder.open_file(&name, OFlags::RDONLY) {
            // The server has removed the oldest one meanwhile.
            Err(error) if error.is_not_found() => continue,
            opened => opened.map_err(failed)?,
        };
        if !print(args, &folder.path().join(&name), file, keys)? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the lines of a file. Returns whether there is still a reader.
fn print(args: &Args, path: &Path, file: File, keys: Keys<'_>) -> Outcome<bool> {
    let mut lines = BufReader::new(file);
    let mut line = String::new();
    loop {
        line.clear();
        let read = lines.by_ref().take(LINE_BYTES).read_line(&mut line);
        let read =
            read.map_err(|source| failed(LogError::Read { path: path.to_owned(), source }))?;
        if read == 0 {
            return Ok(true);
        }
        if !print_line(args, line.as_bytes(), keys)? {
            return Ok(false);
        }
    }
}

/// Prints a line of the log. Returns whether there is still a reader.
fn print_line(args: &Args, line: &[u8], keys: Keys<'_>) -> Outcome<bool> {
    // The last line of a day may have been cut by a crash.
    let Ok(object) = serde_json::from_slice::<Value>(line) else { return Ok(true) };
    let text = if args.json { object.to_string() } else { words::words(&object, keys) };
    output::print_bytes(format!("{text}\n").as_bytes())
}

fn failed(error: impl Into<LogError>) -> Failure {
    Failure::new(Exit::Failed, error.into())
        .hint("the log is for the user of the volume: check the folder `audit`")
}
