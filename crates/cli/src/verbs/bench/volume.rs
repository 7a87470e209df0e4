//! A volume for one measurement, served by this program as a user would run it.

use std::io::ErrorKind::TimedOut;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::failure::{Exit, Failure, Outcome};
use crate::{locate, stale_mount};

/// The longest time that a killed process may take to end; it may be waiting for the disk.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);

/// The reason why a measurement with a volume of its own failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum VolumeError {
    #[error("`pelago {verb}` failed: {said}")]
    Verb { verb: &'static str, said: String },
    #[error("{doing} failed")]
    Io {
        doing: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Resident memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resident {
    /// Memory of its own.
    pub(super) own: u64,
    /// Pages of files that it has mapped, which the system can drop.
    pub(super) of_files: u64,
}

/// The volume that is measured; unmounted on drop.
pub(super) struct TestVolume {
    dir: PathBuf,
}

impl TestVolume {
    /// Returns the volume in this folder. [`TestVolume::up`] creates it.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Returns its folder.
    pub(super) fn folder(&self) -> &Path {
        &self.dir
    }

    /// Returns its mount point.
    pub(super) fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// Starts and mounts the volume, with the process in the background.
    pub(super) fn up(&self) -> Outcome<()> {
        self.up_with(&[])
    }

    /// Starts and mounts the volume with further options.
    pub(super) fn up_with(&self, options: &[&str]) -> Outcome<()> {
        self.pelago("up", &[&["--detach"], options].concat()).map(drop)
    }

    /// Unmounts the volume and waits for the process to end.
    pub(super) fn unmount(&self) -> Outcome<()> {
        self.pelago("unmount", &[]).map(drop)
    }

    fn pid(&self) -> Option<u32> {
        pelago_store::volume::lock_holder(&self.dir)
    }

    /// Kills the process and waits until it has released the volume's lock.
    pub(super) fn kill(&self) -> Outcome<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let killed = pid.map(|pid| kill_process(pid, Signal::KILL));
        if let Some(Err(error)) = killed {
            return Err(failed("kill -9", error.into()));
        }
        wait_until(KILL_TIMEOUT, || self.pid().is_none())
    }

    /// Returns the peak resident memory of the process, in bytes.
    pub(super) fn resident(&self) -> Outcome<u64> {
        Ok(status_bytes(&self.status()?, "VmHWM:"))
    }

    /// Returns the resident memory of the process now.
    pub(super) fn resident_now(&self) -> Outcome<Resident> {
        let status = self.status()?;
        let [own, of_files] = ["RssAnon:", "RssFile:"].map(|key| status_bytes(&status, key));
        Ok(Resident { own, of_files })
    }

    fn status(&self) -> Outcome<String> {
        let path = format!("/proc/{}/status", self.pid().unwrap_or_default());
        fs::read_to_string(path).map_err(|source| failed("reading /proc", source))
    }

    fn pelago(&self, verb: &'static str, more: &[&str]) -> Outcome<Output> {
        let run = |program: &Path| {
            let mut command = Command::new(program);
            command.arg(verb).args(more);
            if verb == "unmount" {
                command.arg("-V");
            }
            command.arg(&self.dir).stdin(Stdio::null()).output()
        };
        let output = std::env::current_exe().and_then(|program| run(&program));
        let output = output.map_err(|source| failed("starting pelago", source))?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::new(Exit::Failed, VolumeError::Verb { verb, said }))
    }
}

impl Drop for TestVolume {
    fn drop(&mut self) {
        if self.pid().is_some() {
            // The measurement has failed; after a successful one the volume is down.
            let _unmounted = self.pelago("unmount", &["--force"]);
        }
        for mount in locate::dead_mounts_of(&self.dir) {
            let _removed = stale_mount::remove(&mount);
        }
    }
}

/// Returns a value of `/proc/PID/status` in bytes.
fn status_bytes(status: &str, key: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

/// Waits until `condition` holds, for at most `timeout`.
fn wait_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> Outcome<()> {
    let deadline = Instant::now() + timeout;
    while !condition() {
        if Instant::now() >= deadline {
            return Err(failed("waiting for a killed process", TimedOut.into()));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns the failure of a system call.
pub(super) fn failed(doing: &'static str, source: io::Error) -> Failure {
    Failure::new(Exit::Failed, VolumeError::Io { doing, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_the_condition_holds() {
        let mut calls = 0;
        let at_third_call = || {
            calls += 1;
            calls == 3
        };
        assert!(wait_until(KILL_TIMEOUT, at_third_call).is_ok());
    }

    #[test]
    fn waiting_ends_at_the_deadline() {
        assert!(wait_until(Duration::ZERO, || false).is_err());
    }
}
