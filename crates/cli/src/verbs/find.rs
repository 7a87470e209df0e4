//! `pelago find`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_find::Query;
use pelago_store::clock;
use serde_json::{Value, json};

use self::walk::Walk;
use crate::failure::{Exit, Failure, Outcome};
use crate::{json, output};

mod candidate;
mod walk;

const AFTER: &str = "\
A query has terms such as `project=apollo` (a tag), `name~*.mov`, `size>1G`, `mtime<7d`, \
`kind=dir`, `owner=ada` and `text:\"some words\"`, joined by `and`, which may be left out, `or`, \
`not` and brackets. It sees what its user may see. It looks at each file: there is no index yet.

The exit code is 0 if a file matches, and 1 if none does.";

/// The exit code if no file matches, as that of grep.
const NO_MATCH: u8 = 1;

/// Find files by tags, names, sizes, times and texts.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// What to find, as one word for the shell: `project=apollo size>1M`
    query: OsString,
    /// Where to look: a folder and all below it that is on the same file system
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

/// Prints the files that match.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let query = Query::parse(args.query.as_bytes()).map_err(|error| {
        Failure::new(Exit::Usage, error).hint("`pelago help find` and docs/query.md show queries")
    })?;
    let mut walk = Walk::new(&args.path).map_err(|why| failed(&args.path, &why))?;
    let now = clock::now();
    let matching = std::iter::from_fn(|| walk.next_match(&query, now));
    let mut found: Vec<Value> = Vec::new();
    let mut count = 0;
    for path in matching.take(args.limit.unwrap_or(usize::MAX)) {
        count += 1;
        if args.json {
            found.push(json!(path.to_string_lossy()));
            continue;
        }
        let line = match args.print0 {
            true => [path.as_os_str().as_bytes(), b"\0"].concat(),
            false => format!("{}\n", output::name(&path.to_string_lossy())).into_bytes(),
        };
        if !output::print_bytes(&line)? {
            break;
        }
    }
    let unread = walk.unread();
    if args.json {
        output::print_json(&json!({
            "version": json::VERSION,
            "query": String::from_utf8_lossy(&query.to_bytes()),
            "paths": found,
            "unread": unread.count,
        }))?;
    } else if let Some((path, why)) = &unread.first {
        let path = output::name(&path.to_string_lossy()).into_owned();
        let more = match unread.count - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        output::print_error(&format!("pelago: not looked into: {path}: {why}{more}"));
    }
    Ok(if count > 0 { ExitCode::SUCCESS } else { ExitCode::from(NO_MATCH) })
}

fn failed(path: &Path, why: &io::Error) -> Failure {
    let exit = match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Exit::NotFound,
        io::ErrorKind::PermissionDenied => Exit::Denied,
        // Not 1, which means that no file matches.
        _ => Exit::Usage,
    };
    let path = output::name(&path.to_string_lossy()).into_owned();
    Failure::new(exit, format!("cannot look into {path}: {why}"))
}
