//! Child processes that are waited for, and figures that the kernel has of them.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pelago_testbed::process;

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
