//! The surroundings of a test of several machines: their network, the folder with their homes, and
//! the processes that must not outlive the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::program::until;
use crate::harness::volume::{cannot_mount, detach_all, folder, has_threads};
use crate::machines::network::{Machine, Network, cannot_network};

/// The deadline of a test. Then every process of its lab is killed, no program waits for a mount
/// any more, and the test fails with an error.
const DEADLINE: Duration = Duration::from_secs(150);

/// The surroundings of a test. Its drop kills the processes and detaches their mounts, before the
/// network and the homes are removed.
pub(crate) struct Lab {
    pub(crate) network: Network,
    /// The folder that contains the homes of all machines.
    pub(crate) root: PathBuf,
    pids: Arc<Mutex<Vec<Pid>>>,
    _watchdog: Sender<()>,
    _folder: TempDir,
}

impl Lab {
    /// Returns a network without machines; `None` if this machine cannot have one.
    pub(crate) fn new() -> Option<Self> {
        Self::lasting(Duration::ZERO)
    }

    /// Returns the same for a test that works for this time and more.
    pub(crate) fn lasting(time: Duration) -> Option<Self> {
        if let Some(reason) = cannot_mount().or_else(cannot_network) {
            println!("skipped: {reason}");
            return None;
        }
        let (folder, root) = folder();
        let network = Network::new();
        let pids = Arc::default();
        let watchdog = watch(Arc::clone(&pids), time + DEADLINE);
        Some(Self { network, root, pids, _watchdog: watchdog, _folder: folder })
    }

    /// Adds a machine, whose home has this name.
    pub(crate) fn machine(&self, number: u8, name: &str) -> Machine {
        self.network.machine(number, &self.root.join(name))
    }

    /// Makes a process end with the test, at its deadline at the latest.
    pub(crate) fn ends(&self, pid: Pid) {
        self.pids.lock().unwrap().push(pid);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for pid in self.pids.lock().unwrap().drain(..) {
            kill(pid);
        }
        detach_all(&self.root);
    }
}

/// Kills these processes after this time, unless the sender is dropped before.
fn watch(pids: Arc<Mutex<Vec<Pid>>>, deadline: Duration) -> Sender<()> {
    let (sender, dropped) = channel::<()>();
    let watching = move || {
        if dropped.recv_timeout(deadline) == Err(RecvTimeoutError::Timeout) {
            println!("the deadline of a test has passed: its processes are killed");
            for pid in pids.lock().unwrap().iter() {
                let _gone = kill_process(*pid, Signal::KILL);
            }
        }
    };
    thread::Builder::new().spawn(watching).unwrap();
    sender
}

/// Kills a daemon (`kill -9`), if it still is one.
pub(crate) fn kill(pid: Pid) {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    if name.is_ok_and(|name| name.trim_end() == "pelago") {
        let _gone = kill_process(pid, Signal::KILL);
        until("killed", || !has_threads(pid));
    }
}

/// Returns the process in a status of `pelago status --json`.
pub(crate) fn pid_of(status: &Value) -> Pid {
    status["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).unwrap()
}

/// Returns the process that holds the lock of a folder, of a volume or of a server.
pub(crate) fn lock_holder(folder: &Path) -> Pid {
    let text = fs::read_to_string(folder.join("lock")).unwrap();
    text.trim().parse().ok().and_then(Pid::from_raw).unwrap()
}
