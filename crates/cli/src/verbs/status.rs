//! `pelago status`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use pelago_store::volume;
use serde_json::{Value, json};

use crate::control::{AskError, Request, ask};
use crate::daemon::way;
use crate::failure::{Exit, Failure, Outcome};
use crate::json;
use crate::output;
use crate::place::{self, Place};

/// Say how a volume is. It asks the volume's process and never touches the mount, so it answers
/// when the mount does not.
#[derive(Debug, clap::Args)]
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

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be asked", .dir.display())]
struct StatusError {
    dir: PathBuf,
    #[source]
    source: AskError,
}

/// Says it; with the code of "unreachable" where the volume is not up.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let place = place::find(args.volume.as_deref(), args.path.as_deref())?;
    // A socket takes no deadline of nothing.
    let patience = Duration::from_secs(args.timeout.max(1));
    let (object, code) = match ask(&place.dir, Request::Status, patience) {
        Ok((answer, _)) => (answer, ExitCode::SUCCESS),
        Err(AskError::NotUp) => (down(&place), ExitCode::from(Exit::Unreachable as u8)),
        Err(error) => return Err(ask_failed(error, &place)),
    };
    if args.json {
        output::print_json(&object)?;
    } else if object["state"] == "up" {
        output::print(&up_lines(&object))?;
    } else {
        output::print(&down_lines(&object))?;
    }
    Ok(code)
}

/// Why a volume's process could not be asked, with what to do about it.
pub(crate) fn ask_failed(error: AskError, place: &Place) -> Failure {
    let (exit, hint) = match &error {
        AskError::NotUp => (Exit::Unreachable, "`pelago up` brings it up".to_owned()),
        AskError::Denied => {
            (Exit::Denied, "run this as the user who brought it up, or as root".to_owned())
        }
        AskError::Silent => {
            let pid = volume::lock_holder(&place.dir);
            let which =
                pid.map_or_else(|| "its process".to_owned(), |pid| format!("process {pid}"));
            (Exit::Unreachable, format!("try again, or end {which} and then `pelago up`"))
        }
        AskError::Garbled | AskError::Refused { .. } => {
            (Exit::Failed, "use the pelago that brought it up".to_owned())
        }
        AskError::Io(_) => (Exit::Unreachable, "try again".to_owned()),
    };
    Failure::new(exit, StatusError { dir: place.dir.clone(), source: error }).hint(hint)
}

/// What can be seen of a volume that nobody serves.
fn down(place: &Place) -> Value {
    let dead_mount = place.mounted.as_ref().map(|point| point.to_string_lossy().into_owned());
    json!({
        "version": json::VERSION,
        "state": if volume::lock_holder(&place.dir).is_some() { "between" } else { "down" },
        "volume": {
            "dir": place.dir.to_string_lossy(),
            "stopped_cleanly": place::was_stopped_cleanly(&place.dir),
        },
        "pid": volume::lock_holder(&place.dir),
        "dead_mount": dead_mount,
    })
}

fn down_lines(object: &Value) -> String {
    let dir = text(&object["volume"]["dir"]);
    if object["state"] == "between" {
        let pid = &object["pid"];
        return format!("volume    {dir}\nstate     process {pid} is starting or stopping it\n");
    }
    let how = if object["volume"]["stopped_cleanly"] == true {
        "stopped cleanly"
    } else {
        "not stopped cleanly: the next start recovers it"
    };
    let mut lines = format!("volume    {dir}\nstate     down, {how}\n");
    if let Some(point) = object["dead_mount"].as_str() {
        lines.push_str(&format!("mounted   {point}, dead: `pelago up` or `unmount` removes it\n"));
    }
    lines.push_str("next      `pelago up` brings it up\n");
    lines
}

fn up_lines(object: &Value) -> String {
    let progress = &object["progress"];
    let (done, safe) = (&progress["done"], &progress["safe"]);
    let waits = if done == safe {
        "everything".to_owned()
    } else {
        format!("all but the last {} ms", progress["unsafe_for_ms"])
    };
    let mode = if object["read_only"] == true { ", read-only" } else { "" };
    let mut lines = format!(
        "volume    {} ({})\nstate     up, process {}{mode}, {}\nmounted   {}\n\
         safe      {waits} ({safe} of {done} batches)\n",
        text(&object["volume"]["dir"]),
        text(&object["volume"]["id"]),
        object["pid"],
        files(object),
        text(&object["mounted"]),
    );
    lines.push_str(&way::line(object));
    lines.push_str(&space_line(&object["space"]));
    let used = object["memory"].as_array().into_iter().flatten();
    let (used, limit) = used.fold((0, 0), |(used, limit), each| {
        (used + number(&each["used"]), limit + number(&each["limit"]))
    });
    let table = number(&object["table"]["disk_bytes"]);
    lines.push_str(&format!(
        "memory    {} of {}; table on disk {}\n",
        output::bytes(used),
        output::bytes(limit),
        output::bytes(table)
    ));
    for worker in object["workers"].as_array().into_iter().flatten() {
        lines.push_str(&worker_line(worker));
    }
    lines
}

fn files(object: &Value) -> String {
    let open = &object["open_files"];
    match number(&object["lingering_files"]) {
        0 => format!("{open} files open"),
        closed => format!("{open} files open, {closed} closed but still in use"),
    }
}

fn space_line(space: &Value) -> String {
    if space.is_null() {
        return "space     unknown: the medium does not say\n".to_owned();
    }
    let (free, all) = (number(&space["available_bytes"]), number(&space["bytes"]));
    let short = if space["is_short"] == true { "; short: new data is refused" } else { "" };
    format!("space     {} free of {}{short}\n", output::bytes(free), output::bytes(all))
}

fn worker_line(worker: &Value) -> String {
    let (name, doing) = (text(&worker["name"]), text(&worker["doing"]));
    let failed = worker["last_error"].as_str().map(|error| format!("; failed last: {error}"));
    format!("worker    {name}: {doing}, {} done{}\n", worker["items"], failed.unwrap_or_default())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_files_that_somebody_still_has_are_named() {
        let none = json!({ "open_files": 2, "lingering_files": 0 });
        assert_eq!(files(&none), "2 files open");
        let some = json!({ "open_files": 0, "lingering_files": 3 });
        assert_eq!(files(&some), "0 files open, 3 closed but still in use");
    }
}
