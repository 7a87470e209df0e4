//! A volume that is made for a measurement, served by this same program as a user would run it.

use std::fs;
use std::io;
use std::io::ErrorKind::TimedOut;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::dead;
use crate::failure::{Exit, Failure, Outcome};
use crate::place;

/// How long a process that was killed may take to end: what it waits for on the medium, too.
const ENDING: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(1);

/// Why a measurement with a volume of its own stopped.
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

/// The volume that is measured. When it goes, its process and its mount go.
pub(super) struct Volume {
    dir: PathBuf,
}

impl Volume {
    /// The volume in this folder, which is made when it is brought up.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where it is mounted.
    pub(super) fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    pub(super) fn up(&self) -> Outcome<()> {
        self.pelago("up", &["--detach"]).map(drop)
    }

    pub(super) fn unmount(&self) -> Outcome<()> {
        self.pelago("unmount", &[]).map(drop)
    }

    fn pid(&self) -> Option<u32> {
        pelago_store::volume::lock_holder(&self.dir)
    }

    pub(super) fn kill(&self) -> Outcome<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let killed = pid.map(|pid| kill_process(pid, Signal::KILL));
        if let Some(Err(error)) = killed {
            return Err(failed("kill -9", error.into()));
        }
        // The lock goes with the process.
        wait_until(ENDING, || self.pid().is_none())
    }

    pub(super) fn resident(&self) -> Outcome<u64> {
        let path = format!("/proc/{}/status", self.pid().unwrap_or_default());
        let status = fs::read_to_string(path).map_err(|source| failed("reading /proc", source))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.unwrap_or_default() * 1024)
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

impl Drop for Volume {
    fn drop(&mut self) {
        if self.pid().is_some() {
            // A measurement that stopped half way; after a good one nothing is up.
            let _ended = self.pelago("unmount", &["--force"]);
        }
        for point in place::dead_mounts_of(&self.dir) {
            let _detached = dead::detach(&point);
        }
    }
}

/// Waits until something is so, no longer than this.
fn wait_until(patience: Duration, mut is_so: impl FnMut() -> bool) -> Outcome<()> {
    let deadline = Instant::now() + patience;
    while !is_so() {
        if Instant::now() >= deadline {
            return Err(failed("waiting for a process that was killed", TimedOut.into()));
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// What is told where the system failed.
pub(super) fn failed(doing: &'static str, source: io::Error) -> Failure {
    Failure::new(Exit::Failed, VolumeError::Io { doing, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_ever() {
        let mut looks = 0;
        let third = || {
            looks += 1;
            looks == 3
        };
        assert!(wait_until(ENDING, third).is_ok());
        assert!(wait_until(Duration::ZERO, || false).is_err());
    }
}
