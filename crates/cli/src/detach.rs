//! Continuation of a command in the background, for `--detach`.
//!
//! The command starts itself again and prints the output of the second process until that process
//! serves or has ended. If its output ends with [`READY`], it serves; it then closes the terminal
//! and the pipe.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{chdir, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::failure::{Exit, Failure, Outcome};
use crate::log;

/// The last byte that a background process prints; no text contains it.
const READY: u8 = 0;
/// The name by which this program starts itself.
pub(crate) const PROGRAM: &str = "pelago";
/// The hidden option that makes a process the background process.
const FLAG: &str = "--in-background";
/// The limit for an error message that is printed, which is the capacity of a pipe.
const ERROR_BYTES: u64 = 64 << 10;

/// Starts the same command again in the background, and waits until it serves or has ended. Returns
/// its exit code.
pub(crate) fn restart_in_background() -> Outcome<ExitCode> {
    let failed = |error: io::Error| Failure::new(Exit::Failed, StartError(error));
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    // The binary may have been found by its other name, `mount.pelago`.
    command.arg0(PROGRAM);
    // Directly after the verb, before a possible `--`.
    let mut args = std::env::args_os().skip(1);
    command.args(args.next()).arg(FLAG).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    follow(child).map_err(failed)
}

#[derive(Debug, thiserror::Error)]
#[error("the background process could not be started")]
struct StartError(#[source] io::Error);

/// Prints the child's output, then its errors. An error message fits into a pipe, so the two
/// streams can be read one after the other.
fn follow(mut child: Child) -> io::Result<ExitCode> {
    let mut printed = Vec::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_until(READY, &mut printed)?;
    }
    let is_ready = printed.pop_if(|last| *last == READY).is_some();
    write_out(&mut io::stdout().lock(), &printed)?;
    if is_ready {
        return Ok(ExitCode::SUCCESS);
    }
    let mut message = Vec::new();
    if let Some(errors) = child.stderr.take() {
        errors.take(ERROR_BYTES).read_to_end(&mut message)?;
    }
    write_out(&mut io::stderr().lock(), &message)?;
    let status = child.wait()?;
    if status.code().is_none() {
        eprintln!("pelago: the background process was killed: {status}");
        eprintln!("  data at risk: no\n  next: run the same command without --detach to see why");
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.filter(|code| *code != 0).unwrap_or(Exit::Failed as u8)))
}

fn write_out(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Starts a session of its own, so that no terminal can end this process.
pub(crate) fn leave_terminal() {
    // Fails only if the process leads a session already.
    let _session = setsid();
}

/// Reports to the waiting process that this one serves, and sends further output to the log file.
/// Changes the current folder to `/`.
pub(crate) fn report_ready(log: File) -> Outcome<()> {
    let failed = |error: io::Error| Failure::new(Exit::Failed, LogError(error));
    let file = log::to_file(log).map_err(failed)?;
    // A current folder would keep its file system from being unmounted.
    chdir("/").map_err(|error| failed(error.into()))?;
    write_out(&mut io::stdout().lock(), &[READY]).map_err(failed)?;
    let null = File::open("/dev/null").map_err(failed)?;
    let moved = dup2_stdin(&null).and_then(|()| dup2_stdout(&file));
    moved.and_then(|()| dup2_stderr(&file)).map_err(|error| failed(error.into()))
}

#[derive(Debug, thiserror::Error)]
#[error("the log file could not be opened")]
struct LogError(#[source] io::Error);
