//! Child processes with a time limit, each in its own process group.
//!
//! Their output goes to files: a daemon that a test leaves behind would keep a pipe open, and its
//! reader would wait for ever.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Pause between two checks whether a child has ended.
const POLL: Duration = Duration::from_millis(10);

/// The end of a child.
pub struct Ending {
    /// Exit code or signal; `SIGKILL` after a time-out.
    pub status: ExitStatus,
    /// The limit passed, and the process group was killed.
    pub timed_out: bool,
    /// The process group had members after the child's end; they were killed.
    pub left_processes: bool,
    /// The time from spawn to end.
    pub duration: Duration,
    /// The whole stdout, invalid UTF-8 replaced.
    pub stdout: String,
    /// The whole stderr, invalid UTF-8 replaced.
    pub stderr: String,
}

impl Ending {
    /// Returns whether the child ended by itself, with exit code 0.
    pub fn is_success(&self) -> bool {
        !self.timed_out && self.status.success()
    }

    /// Returns exit code, signal or time-out, and the seconds, in words.
    pub fn describe(&self) -> String {
        let seconds = self.duration.as_secs_f64();
        if self.timed_out {
            return format!("killed: ran past its limit, {seconds:.1} s");
        }
        describe_status(self.status, seconds)
    }
}

/// Runs `command` with stdin closed and in its own process group, at most for `limit`. The output
/// is kept in `LOG.out` and `LOG.err`.
pub fn run_limited(command: &mut Command, log: &Path, limit: Duration) -> Result<Ending, String> {
    let out = log_path(log, "out");
    let err = log_path(log, "err");
    let result = spawn_and_wait(command, &out, &err, limit);
    let (status, timed_out, left_processes, duration) =
        result.map_err(|why| format!("cannot run {}: {why}", shown(command)))?;
    let stdout = read_lossy(&out);
    let stderr = read_lossy(&err);
    Ok(Ending { status, timed_out, left_processes, duration, stdout, stderr })
}

/// Runs `command` in the foreground with our own stdout and stderr, and stdin closed.
pub fn run_foreground(command: &mut Command) -> Result<ExitStatus, String> {
    let status = command.stdin(Stdio::null()).status();
    status.map_err(|why| format!("cannot run {}: {why}", shown(command)))
}

/// Returns stdout of a short command, or `None` if it fails.
pub fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns exit code or signal, and the seconds, in words.
pub fn describe_status(status: ExitStatus, seconds: f64) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}, {seconds:.1} s"),
        (None, Some(signal)) => format!("killed by signal {signal}, {seconds:.1} s"),
        (None, None) => format!("no exit code, {seconds:.1} s"),
    }
}

/// Returns the program and its arguments in one line.
pub fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

fn spawn_and_wait(
    command: &mut Command,
    out: &Path,
    err: &Path,
    limit: Duration,
) -> io::Result<(ExitStatus, bool, bool, Duration)> {
    command.stdin(Stdio::null()).stdout(File::create(out)?).stderr(File::create(err)?);
    command.process_group(0);
    let start = Instant::now();
    let mut child = command.spawn()?;
    let group = child.id();
    let mut timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > limit {
            timed_out = true;
            signal_group(group, "KILL");
            break child.wait()?;
        }
        std::thread::sleep(POLL);
    };
    let duration = start.elapsed();
    // Signal 0 only checks whether the group has members.
    let left_processes = signal_group(group, "0");
    if left_processes {
        signal_group(group, "KILL");
    }
    Ok((status, timed_out, left_processes && !timed_out, duration))
}

/// Sends a signal to a process group; returns whether it had members.
fn signal_group(group: u32, signal: &str) -> bool {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{signal}")).arg("--").arg(format!("-{group}"));
    let quiet = kill.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn log_path(log: &Path, extension: &str) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    PathBuf::from(name)
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log name of its own for each test.
    fn log(name: &str) -> PathBuf {
        let name = format!("pelago-xtask-{}-{name}", std::process::id());
        std::env::temp_dir().join(name)
    }

    fn shell(name: &str, script: &str, limit: Duration) -> Ending {
        let log = log(name);
        let mut command = Command::new("sh");
        let ending = run_limited(command.arg("-c").arg(script), &log, limit);
        for extension in ["out", "err"] {
            fs::remove_file(log_path(&log, extension)).unwrap();
        }
        ending.unwrap()
    }

    #[test]
    fn output_and_exit_code_are_returned() {
        let ending = shell("code", "echo out; echo err >&2; exit 3", Duration::from_secs(600));
        assert_eq!(ending.stdout, "out\n");
        assert_eq!(ending.stderr, "err\n");
        assert_eq!(ending.status.code(), Some(3));
        assert!(!ending.is_success() && !ending.timed_out && !ending.left_processes);
    }

    /// The child and its own child both end at the limit.
    #[test]
    fn a_hanging_group_is_killed() {
        let ending = shell("hang", "sleep 100000 & sleep 100000", Duration::from_millis(50));
        assert!(ending.timed_out && !ending.is_success());
        assert_eq!(ending.status.signal(), Some(9));
    }

    /// A background process does not delay the step, and does not outlive it.
    #[test]
    fn processes_that_are_left_behind_are_reported() {
        let ending = shell("left", "sleep 100000 & exit 0", Duration::from_secs(600));
        assert!(ending.is_success() && ending.left_processes);
    }
}
