//! Child processes that are waited for, and figures that the kernel has of them.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pelago_testbed::process;
use rustix::process::{Pid, Signal, kill_process};

use super::report::failed;

/// The longest time in which a daemon ends by itself.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);
/// Most time of a short command.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// Runs a command to its end and returns its output.
///
/// # Errors
/// The output of the command, if it failed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let name = process::shown(command);
    let output = command.output().map_err(|why| format!("{name}: {why}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("{name}: {}", [errors.trim(), said.trim()].join("\n").trim()))
        }
    }
}

/// Runs a short command to its end and returns its output, which goes through files: a daemon that
/// it leaves behind would keep a pipe open.
///
/// # Errors
/// The output of the command, if it failed.
pub(crate) fn run_step(logs: &Path, step: &str, command: &mut Command) -> Result<String, String> {
    let log = logs.join(step);
    // A daemon that stays behind belongs to no group, so only the child itself is waited for.
    let out = log.with_extension("out");
    let err = log.with_extension("err");
    let [to, errors] = [&out, &err].map(fs::File::create);
    let to = to.map_err(|why| failed(&out, &why))?;
    let errors = errors.map_err(|why| failed(&err, &why))?;
    command.stdin(Stdio::null()).stdout(to).stderr(errors);
    let mut child = command.spawn().map_err(|why| format!("{step}: {why}"))?;
    let until = Instant::now() + STEP_LIMIT;
    let status = loop {
        match child.try_wait().map_err(|why| format!("{step}: {why}"))? {
            Some(status) => break status,
            None if Instant::now() > until => {
                return Err(format!("{step}: no end; see {}", err.display()));
            }
            None => thread::sleep(POLL),
        }
    };
    let [said, complained] = [&out, &err].map(fs::read_to_string);
    match status.success() {
        true => said.map_err(|why| failed(&out, &why)),
        false => Err(format!("{step}: {status}: {}", complained.unwrap_or_default().trim())),
    }
}

/// Starts a daemon that stays in the foreground; its output goes to a log.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn spawn_step(logs: &Path, step: &str, command: &mut Command) -> Result<Child, String> {
    let path = logs.join(step).with_extension("out");
    let log = fs::File::create(&path).map_err(|why| failed(&path, &why))?;
    let errors = log.try_clone().map_err(|why| failed(&path, &why))?;
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    command.spawn().map_err(|why| format!("{step}: {why}"))
}

/// Ends all processes that are found, by force if they take long.
pub(crate) fn end_all(find: impl Fn() -> Vec<Pid>) {
    for signal in [Signal::TERM, Signal::KILL] {
        let until = Instant::now() + PATIENCE;
        let mut left = find();
        for pid in &left {
            // It may have ended.
            let _gone = kill_process(*pid, signal);
        }
        while !left.is_empty() && Instant::now() < until {
            thread::sleep(POLL);
            left = find();
        }
    }
}

/// Waits until something is so, and returns whether it became so within this time.
pub(crate) fn wait_until(
    patience: Duration,
    poll: Duration,
    mut is_so: impl FnMut() -> bool,
) -> bool {
    let until = Instant::now() + patience;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(poll);
    }
    true
}

/// Returns a field of `/proc/PID/status` in KiB; `field` ends with its colon.
///
/// # Errors
/// If there is no such process, or no such field.
pub(crate) fn memory_kib(pid: u64, field: &str) -> Result<u64, String> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).map_err(|why| format!("{path}: {why}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    kib.ok_or_else(|| format!("{path} has no {field}"))
}
