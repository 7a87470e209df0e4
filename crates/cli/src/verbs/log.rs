//! `pelago log`.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_store::folder::FolderError;
use pelago_store::volume;
use rustix::fs::OFlags;
use serde_json::{Value, json};

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
    /// A folder in a mount: print what was done in it and below it; a guest needs the right `a`
    #[arg(conflicts_with = "volume")]
    path: Option<PathBuf>,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object a line
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
    // One that cannot be read hides no other one.
    let mut fault = None;
    for name in names {
        let path = folder.path().join(&name);
        let printed = match folder.open_file(&name, OFlags::RDONLY) {
            // The server has removed the oldest one meanwhile.
            Err(error) if error.is_not_found() => continue,
            Err(error) => Err(LogError::from(error)),
            Ok(file) => print(args, &path, file, keys)?,
        };
        match printed {
            Ok(true) => {}
            Ok(false) => return Ok(ExitCode::SUCCESS),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    match fault {
        Some(error) => Err(failed(error)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Prints the lines of a file. Returns whether there is still a reader.
///
/// # Errors
/// A failure to print; within it, that the file cannot be read.
fn print(args: &Args, path: &Path, file: File, keys: Keys<'_>) -> Outcome<Result<bool, LogError>> {
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => return Ok(Ok(true)),
            Ok(_) => {}
            Err(source) => return Ok(Err(LogError::Read { path: path.to_owned(), source })),
        }
        if !print_line(args, &line, keys)? {
            return Ok(Ok(false));
        }
    }
}

/// Prints a line of the log. Returns whether there is still a reader.
fn print_line(args: &Args, line: &[u8], keys: Keys<'_>) -> Outcome<bool> {
    let Some(object) = object_of(line) else { return Ok(true) };
    let text = match args.json {
        true => output::json_line(&object),
        false => format!("{}\n", words::words(&object, keys)),
    };
    output::print_bytes(text.as_bytes())
}

/// Returns the object of a line; of a damaged line one that has its text. `None` for a line that is
/// being written, or that a crash has cut.
fn object_of(line: &[u8]) -> Option<Value> {
    match serde_json::from_slice::<Value>(line) {
        Ok(object @ Value::Object(_)) => Some(object),
        _ if !line.ends_with(b"\n") || line.trim_ascii().is_empty() => None,
        _ => {
            let text = String::from_utf8_lossy(line.trim_ascii_end());
            Some(json!({ "what": "damaged", "line": text }))
        }
    }
}

fn failed(error: impl Into<LogError>) -> Failure {
    Failure::new(Exit::Failed, error.into())
        .hint("the log is for the user of the volume: check the folder `audit`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_printed_as_an_object_that_controls_no_terminal() {
        let evil = "a\u{7f}\u{9b}\u{202e}";
        let object = json!({ "what": "use", "operation": evil });
        for (line, expected) in [
            (format!("{object}\n"), Some(object.clone())),
            ("{\"cut\":".to_owned(), None),
            ("\n".to_owned(), None),
            ("7\n".to_owned(), Some(json!({ "what": "damaged", "line": "7" }))),
            (format!("[{evil}\n"), Some(json!({ "what": "damaged", "line": format!("[{evil}") }))),
        ] {
            let found = object_of(line.as_bytes());
            assert_eq!(found, expected, "{line:?}");
            let Some(found) = found else { continue };
            let printed = output::json_line(&found);
            assert!(!printed.contains(['\u{7f}', '\u{9b}', '\u{202e}']), "{printed:?}");
            assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), found);
        }
    }
}
