//! Going on in the background.
//!
//! `up --detach` starts itself again and shows what the second process says until that one is ready
//! or has ended: its output ends with [`READY`] where it serves, and without where it does not. The
//! second process then lets go of the terminal and of the pipe.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::process::{chdir, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::failure::{Exit, Failure, Outcome};
use crate::log;

/// The last byte that a process in the background prints: no text has it.
const READY: u8 = 0;
/// What tells the second process what it is.
const FLAG: &str = "--in-background";
/// Bytes of a failure that are shown.
const SAID_BYTES: u64 = 64 << 10;

/// Starts the same command again in the background, and waits until it serves or has ended.
pub(crate) fn start_again() -> Outcome<ExitCode> {
    let failed = |error: io::Error| Failure::new(Exit::Failed, StartError(error));
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    // Behind the verb: a `--` may stand further behind.
    let mut args = std::env::args_os().skip(1);
    command.args(args.next()).arg(FLAG).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(failed)?;
    follow(child).map_err(failed)
}

#[derive(Debug, thiserror::Error)]
#[error("the process in the background could not be started")]
struct StartError(#[source] io::Error);

/// Shows what the child says. It says at most [`SAID_BYTES`] of a failure, which a pipe holds, so
/// that one stream can be read after the other.
fn follow(mut child: Child) -> io::Result<ExitCode> {
    let mut said = Vec::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_until(READY, &mut said)?;
    }
    let is_ready = said.pop_if(|last| *last == READY).is_some();
    show(&mut io::stdout().lock(), &said)?;
    if is_ready {
        return Ok(ExitCode::SUCCESS);
    }
    let mut complaint = Vec::new();
    if let Some(errors) = child.stderr.take() {
        errors.take(SAID_BYTES).read_to_end(&mut complaint)?;
    }
    show(&mut io::stderr().lock(), &complaint)?;
    let status = child.wait()?;
    if status.code().is_none() {
        eprintln!("pelago: the process in the background ended by itself: {status}");
        eprintln!("  data at risk: no\n  next: the same command without --detach shows why");
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.filter(|code| *code != 0).unwrap_or(Exit::Failed as u8)))
}

fn show(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Becomes a session of its own, which no terminal can end, and stands where no unmount minds.
/// Paths must be absolute by now, or be made so before anything else.
pub(crate) fn leave_terminal() -> Outcome<()> {
    // Fails only where it is one already.
    let _session = setsid();
    Ok(())
}

/// Says that it serves, and sends what is said from now on to the log file.
pub(crate) fn let_go(log: File) -> Outcome<()> {
    let failed = |error: io::Error| Failure::new(Exit::Failed, LogError(error));
    let file = log::to_file(log).map_err(failed)?;
    // The volume's own file system must be free to be unmounted once the volume is not up.
    chdir("/").map_err(|error| failed(error.into()))?;
    show(&mut io::stdout().lock(), &[READY]).map_err(failed)?;
    let null = File::open("/dev/null").map_err(failed)?;
    let moved = dup2_stdin(&null).and_then(|()| dup2_stdout(&file));
    moved.and_then(|()| dup2_stderr(&file)).map_err(|error| failed(error.into()))
}

#[derive(Debug, thiserror::Error)]
#[error("the log file could not be opened")]
struct LogError(#[source] io::Error);
