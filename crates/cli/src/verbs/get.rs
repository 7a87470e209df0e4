//! `pelago get`.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pelago_http::{FetchError, FetchEvent, FetchPlan, Fetched, fetch};
use pelago_keynote::hex;
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::{json, output};

const AFTER: &str = "\
It takes the blocks of the file in the order that costs the server least, and compares each MiB \
with its hash (BLAKE3) before the file appears as DST; a file there is replaced at once. What was \
received waits in `.DST.pelago-get` beside it: after a kill, a lost server or a full disk the same \
command goes on. From a server that is no Pelago it downloads without the comparison.";

/// The shortest time between two lines of progress.
const REDRAW: Duration = Duration::from_millis(200);

/// Download a file from `pelago up --http`, and check every MiB of it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The file: http://HOST:PORT/PATH
    url: String,
    /// The name of the new file
    #[arg(value_name = "DST")]
    dst: PathBuf,
    /// Wait until no program has the file open for writing
    #[arg(long)]
    wait: bool,
    /// Seconds without a byte after which it gives up
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The reporter of a download's progress.
struct Reporter {
    /// Only the result is printed.
    is_silent: bool,
    is_terminal: bool,
    total: Option<u64>,
    /// The time when the line was drawn, and the bytes that had been received by then.
    drawn: Option<(Instant, u64)>,
}

/// Downloads the file.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let plan = FetchPlan {
        url: args.url.clone(),
        target: args.dst.clone(),
        wait: args.wait,
        timeout: Duration::from_secs(args.timeout.max(1)),
    };
    let is_terminal = io::stderr().is_terminal();
    let mut reporter = Reporter { is_silent: args.json, is_terminal, total: None, drawn: None };
    let begun = Instant::now();
    let fetched = fetch(&plan, &mut |event| reporter.tell(event));
    reporter.clear();
    let fetched = fetched.map_err(|error| failed(error, args))?;
    if args.json {
        output::print_json(&to_json(&fetched))?;
    } else {
        output::print(&lines(&fetched, begun.elapsed()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Reporter {
    fn tell(&mut self, event: FetchEvent) {
        if self.is_silent {
            return;
        }
        match event {
            FetchEvent::Gained { have } => self.draw(have),
            FetchEvent::Began { have, total, verified } => {
                self.total = total;
                if have > 0 {
                    self.say(&format!("goes on from {}", output::bytes(have)));
                }
                if !verified {
                    self.say("the server sends no blocks: the file is not checked by hashes");
                }
            }
            FetchEvent::Mismatch { extent, offset } => self.say(&format!(
                "extent {extent} (offset {offset}) does not match its hash; it is fetched again"
            )),
            FetchEvent::Unreadable { extent, offset } => {
                self.say(&format!("the server cannot read extent {extent} (offset {offset})"));
            }
            FetchEvent::Restarted { why } => self.say(&format!("{why}: it begins from nothing")),
            FetchEvent::Waiting { why, after } => {
                self.say(&format!("{why}; the server is asked again in {} s", after.as_secs()))
            }
            FetchEvent::Retrying { why, after } => self
                .say(&format!("{why}; the server is asked again in {:.1} s", after.as_secs_f64())),
        }
    }

    /// Prints a line above the progress.
    fn say(&mut self, text: &str) {
        self.clear();
        output::print_error(&format!("pelago: {text}"));
    }

    fn draw(&mut self, have: u64) {
        if !self.is_terminal {
            return;
        }
        let rate = match self.drawn {
            Some((when, _)) if when.elapsed() < REDRAW => return,
            Some((when, before)) => {
                let rate = have.saturating_sub(before) as f64 / when.elapsed().as_secs_f64();
                format!(", {}/s", output::bytes(rate as u64))
            }
            None => String::new(),
        };
        self.drawn = Some((Instant::now(), have));
        let of = self.total.map_or_else(String::new, |total| {
            let percent = have.saturating_mul(100).checked_div(total).unwrap_or(100);
            format!(" of {} ({percent} %)", output::bytes(total))
        });
        let _drawn = write!(io::stderr(), "\r\x1b[K{}{of}{rate}", output::bytes(have));
    }

    /// Removes the line of progress.
    fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _cleared = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn lines(fetched: &Fetched, took: Duration) -> String {
    let Fetched { path, bytes, resumed, root, .. } = fetched;
    let resumed = match resumed {
        0 => String::new(),
        bytes => format!(", {} of it earlier", output::bytes(*bytes)),
    };
    let checked = match root {
        Some(root) => format!("every MiB matches its hash; the root is {}", hex::text(root)),
        None => "no: the server sends no hashes".to_owned(),
    };
    format!(
        "fetched   {}: {} in {:.1} s{resumed}\nchecked   {checked}\n",
        path.display(),
        output::bytes(*bytes),
        took.as_secs_f64()
    )
}

fn to_json(fetched: &Fetched) -> serde_json::Value {
    json!({
        "version": json::VERSION,
        "path": fetched.path.to_string_lossy(),
        "bytes": fetched.bytes,
        "received": fetched.received,
        "resumed": fetched.resumed,
        "verified": fetched.root.is_some(),
        "root": fetched.root.as_ref().map(|root| hex::text(root)),
        "root_confirmed": fetched.is_confirmed,
        "refetched": fetched.refetched,
        "restarts": fetched.restarts,
    })
}

/// Returns the failure of a download, with a hint.
fn failed(error: FetchError, args: &Args) -> Failure {
    const AGAIN: &str = "run the same command again: it goes on with what was received";
    let exit = match &error {
        FetchError::Url(_) => Exit::Usage,
        FetchError::Refused { status, .. } => match status.as_u16() {
            404 | 410 => Exit::NotFound,
            401 | 403 => Exit::Denied,
            _ => Exit::Failed,
        },
        FetchError::Beside { .. } => Exit::Denied,
        FetchError::Disk { source, .. } => match source.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::Denied,
            _ => Exit::Failed,
        },
        FetchError::Unreachable { .. } => Exit::Unreachable,
        FetchError::Mismatch { .. } | FetchError::Mismatches { .. } | FetchError::Root => {
            Exit::Damaged
        }
        _ => Exit::Failed,
    };
    let hint = match &error {
        FetchError::Url(_) => "give the URL that `pelago up --http` prints, and a path".to_owned(),
        FetchError::Directory { path } => {
            let name = args.url.rsplit('/').next().unwrap_or_default();
            format!("name the new file: {}", path.join(name).display())
        }
        FetchError::Target { .. } => "choose another DST".to_owned(),
        FetchError::Beside { .. } => "remove it, or choose another DST".to_owned(),
        FetchError::Cut { .. } => {
            "try again: only an answer that comes to its end brings the file".to_owned()
        }
        FetchError::InUse { .. } => "wait for it, or choose another DST".to_owned(),
        FetchError::Full { .. } => format!("free some space, then {AGAIN}"),
        FetchError::Moved { location } => format!("pelago get {location} DST"),
        FetchError::Busy { .. } => "add --wait, or try again later".to_owned(),
        FetchError::Unreachable { .. } | FetchError::Unreadable { .. } => AGAIN.to_owned(),
        FetchError::Changed { .. } => "try again once it is not written any more".to_owned(),
        FetchError::Mismatch { .. } | FetchError::Mismatches { .. } | FetchError::Root => {
            "the server's disk, or what is between, changes bytes: check both, then try again"
                .to_owned()
        }
        _ => return Failure::new(exit, error),
    };
    Failure::new(exit, error).hint(hint)
}
