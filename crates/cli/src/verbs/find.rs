//! `pelago find`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_complete::ArgValueCompleter;
use pelago_find::Query;
use pelago_store::clock;
use pelago_wire::{Code, Time};
use serde_json::{Value, json};

use self::status_line::StatusLine;
use crate::control_file::{AskError, Control, Record};
use crate::failure::{Exit, Failure, Outcome};
use crate::{complete, json, output};

mod status_line;

const AFTER: &str = "\
A query has terms such as `project=apollo` (a tag), `name~*.mov`, `size>1G`, `mtime<7d`, \
`kind=dir`, `owner=ada` and `text:\"some words\"`, joined by `and`, which may be left out, `or`, \
`not` and brackets. It finds what its user may read. `ls PATH/.find/QUERY/` shows the same as a \
folder.

The exit code is 0 if a file matches, and 1 if none does.";

/// The exit code if no file matches, the same as grep's.
const NO_MATCH: u8 = 1;
/// The hint for a search of a guest that is not supported.
const NOT_SUPPORTED: &str = "in an attached folder a query has no `owner=`; of several that are \
                             attached together each folder is searched by itself";
/// The age of an answer in seconds from which on a message says that changes may be missing.
const BEHIND_SECONDS: i64 = 2;

/// Find files by tags, names, sizes, times and texts.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// What to find, as one word for the shell: `project=apollo size>1M`
    #[arg(add = ArgValueCompleter::new(complete::query))]
    query: OsString,
    /// Where to look: a folder in a mount, and all below it
    #[arg(default_value = ".")]
    path: PathBuf,
    /// End after so many files
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Print a NUL behind each path, and the path as it is
    #[arg(long, conflicts_with = "json")]
    print0: bool,
}

/// The result of a search.
struct Searched {
    count: usize,
    /// The paths, if they are printed together.
    paths: Vec<Value>,
    /// `None` if the answer was not read to its end.
    end: Option<AnswerEnd>,
}

/// The last record of an answer.
#[derive(Clone, Copy)]
struct AnswerEnd {
    /// The time up to which the answer has every change.
    as_of: Time,
    /// The number of files that were examined.
    examined: u64,
}

/// Prints the files that match.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let query = Query::parse(args.query.as_bytes()).map_err(|error| {
        Failure::new(Exit::Usage, error).hint("`pelago help find` and docs/query.md show queries")
    })?;
    let query = query.to_bytes();
    let mut control =
        Control::ask(&args.path, &query).map_err(|error| not_asked(&args.path, &error))?;
    let mut status = StatusLine::new();
    let searched = read(args, &mut control, &mut status);
    status.clear();
    let Searched { count, paths, end } = searched?;
    if args.json {
        output::print_json(&json!({
            "version": json::VERSION,
            "query": String::from_utf8_lossy(&query),
            "paths": paths,
            "as_of": end.map(|it| it.as_of.seconds as f64 + f64::from(it.as_of.nanos) / 1e9),
            "examined": end.map(|it| it.examined),
        }))?;
    }
    if let Some(behind) = end.and_then(|it| seconds_behind(it.as_of, clock::now())) {
        output::print_error(&format!(
            "pelago: what changed in the last {behind} seconds may be missing"
        ));
    }
    Ok(if count > 0 { ExitCode::SUCCESS } else { ExitCode::from(NO_MATCH) })
}

/// Reads the answer, and prints each path when it arrives, unless they are printed together.
fn read(args: &Args, control: &mut Control, status: &mut StatusLine) -> Outcome<Searched> {
    let mut searched = Searched { count: 0, paths: Vec::new(), end: None };
    while searched.count < args.limit.unwrap_or(usize::MAX) {
        let record = control.next_record().map_err(|why| failed(&args.path, &why))?;
        match record {
            Some(Record::Hit(hit)) => {
                searched.count += 1;
                let path = below(&args.path, &hit);
                if args.json {
                    searched.paths.push(json!(path.to_string_lossy()));
                    continue;
                }
                let line = match args.print0 {
                    true => [path.as_os_str().as_bytes(), b"\0"].concat(),
                    false => format!("{}\n", output::name(&path.to_string_lossy())).into_bytes(),
                };
                status.clear();
                if !output::print_bytes(&line)? {
                    break;
                }
            }
            Some(Record::Part(_)) => {}
            Some(Record::Progress(examined)) => status.draw(examined, searched.count),
            Some(Record::End { as_of, examined }) => {
                searched.end = Some(AnswerEnd { as_of, examined });
                break;
            }
            Some(Record::Error(why)) => {
                let failure = Failure::new(exit_of(&why), message(&args.path, &why));
                return Err(match why == Code::NotSupported.says() {
                    true => failure.hint(NOT_SUPPORTED),
                    false => failure,
                });
            }
            None => {
                let why = "the answer ended too early";
                return Err(Failure::new(Exit::Usage, message(&args.path, why)));
            }
        }
    }
    Ok(searched)
}

/// Returns the exit code for an answer that ended with an error of the server.
fn exit_of(why: &str) -> Exit {
    let code = Code::ALL.iter().find(|code| code.says() == why);
    match code.map_or(Exit::Usage, |code| code.kind().into()) {
        // Not 1, which means that no file matches.
        Exit::Failed => Exit::Usage,
        exit => exit,
    }
}

/// Returns the path of a hit below a folder.
fn below(folder: &Path, hit: &[u8]) -> PathBuf {
    let folder = folder.as_os_str().as_bytes();
    let between: &[u8] = if folder.ends_with(b"/") { b"" } else { b"/" };
    OsString::from_vec([folder, between, hit].concat()).into()
}

/// Returns the age of an answer in seconds, if it is worth a message.
fn seconds_behind(as_of: Time, now: Time) -> Option<i64> {
    let behind = now.seconds.saturating_sub(as_of.seconds);
    (behind > BEHIND_SECONDS).then_some(behind)
}

fn not_asked(path: &Path, error: &AskError) -> Failure {
    match error {
        AskError::NotMounted => {
            let path = output::name(&path.to_string_lossy()).into_owned();
            Failure::new(Exit::NotFound, format!("{path} is not on a mounted volume of Pelago"))
                .hint("`pelago up` or `pelago mount` mounts one")
        }
        AskError::Io(why) => failed(path, why),
    }
}

fn failed(path: &Path, why: &io::Error) -> Failure {
    let exit = match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Exit::NotFound,
        io::ErrorKind::PermissionDenied => Exit::Denied,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NotConnected => Exit::Unreachable,
        // Not 1, which means that no file matches.
        _ => Exit::Usage,
    };
    let failure = Failure::new(exit, message(path, &why.to_string()));
    match why.kind() {
        // A query is written, even if nothing changes.
        io::ErrorKind::ReadOnlyFilesystem => {
            failure.hint("on a read-only mount `ls PATH/.find/QUERY/` finds files")
        }
        _ => failure,
    }
}

fn message(path: &Path, why: &str) -> String {
    format!("cannot search {}: {why}", output::name(&path.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_the_folder_as_it_was_given() {
        let cases =
            [(".", "./a"), ("/", "/a"), ("x/", "x/a"), ("/x/y", "/x/y/a"), ("./x", "./x/a")];
        for (folder, expected) in cases {
            assert_eq!(below(Path::new(folder), b"a"), Path::new(expected));
        }
    }

    #[test]
    fn the_reason_of_the_server_has_an_exit_code_above_that_of_no_match() {
        for code in Code::ALL {
            assert!(exit_of(code.says()) as u8 > NO_MATCH, "{code:?}");
        }
        assert_eq!(exit_of(Code::Unavailable.says()), Exit::Unreachable);
        assert_eq!(exit_of(Code::AccessDenied.says()), Exit::Denied);
        assert_eq!(exit_of("unknown"), Exit::Usage);
    }

    #[test]
    fn an_answer_may_be_two_seconds_old() {
        let at = |seconds| Time { seconds, nanos: 0 };
        assert_eq!(seconds_behind(at(100), at(102)), None);
        assert_eq!(seconds_behind(at(100), at(103)), Some(3));
        assert_eq!(seconds_behind(at(100), at(1)), None, "another clock");
    }
}
