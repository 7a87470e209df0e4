//! A server on one machine, and mounts of its volume on two others, as README.md says.

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
use crate::machines::hands::Hands;
use crate::machines::network::{Machine, Network, cannot_network};

/// The deadline of a test: then every process of its world is killed, no program waits for a mount
/// any more, and the test fails with an error.
const WATCH: Duration = Duration::from_secs(150);

/// README's commands, without their comments. Its machines are one, and listen on 127.0.0.1.
const UP: &str = "pelago up ~/pelago --listen 127.0.0.1:7440 --detach";
const KEY_NEW: &str = "pelago key new";
const ALLOW: &str = "pelago key allow $(pelago key show) -V ~/pelago";
const MKDIR: &str = "mkdir ~/far";
const MOUNT: &str = "pelago mount $(pelago key show -V ~/pelago)@127.0.0.1:7440 ~/far --detach";
const UNMOUNT: &str = "pelago unmount ~/far";
const DOWN: &str = "pelago unmount -V ~/pelago";

/// Three machines: a server and two clients.
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) server: Machine,
    pub(crate) clients: [Machine; 2],
    root: PathBuf,
    pids: Arc<Mutex<Vec<Pid>>>,
    _watchdog: Sender<()>,
    _folder: TempDir,
}

impl World {
    /// Returns a world that is up and mounted; `None` if this machine cannot have one.
    pub(crate) fn new() -> Option<Self> {
        Self::with("", "")
    }

    /// The same; the server and the first client are started by these commands.
    pub(crate) fn with(server_by: &str, client_by: &str) -> Option<Self> {
        if let Some(reason) = cannot_mount().or_else(cannot_network) {
            println!("skipped: {reason}");
            return None;
        }
        let (folder, root) = folder();
        let network = Network::new();
        let machine = |number, name: &str| network.machine(number, &root.join(name));
        let server = machine(1, "server");
        let clients = [machine(2, "one"), machine(3, "other")];
        let pids = Arc::default();
        let _watchdog = watch(Arc::clone(&pids));
        let world = Self { network, server, clients, root, pids, _watchdog, _folder: folder };
        world.up_by(server_by);
        for (client, by) in world.clients.iter().zip([client_by, ""]) {
            world.mount(client, by);
        }
        Some(world)
    }

    /// Brings the server up, for the first time and after its end.
    pub(crate) fn up(&self) {
        self.up_by("");
    }

    fn up_by(&self, by: &str) {
        self.server.types(&format!("{by}{}", typed(UP).replace("127.0.0.1", "")));
        let pid = self.server_pid();
        self.pids.lock().unwrap().push(pid);
    }

    /// Makes the key of a machine, lists it at the server, and mounts the volume there.
    fn mount(&self, client: &Machine, by: &str) {
        client.types(typed(KEY_NEW));
        let own = client.types("pelago key show").out;
        self.server.types(&typed(ALLOW).replace("$(pelago key show)", own.trim()));
        client.types(typed(MKDIR));
        let key = self.server.types("pelago key show -V ~/pelago").out;
        let line = typed(MOUNT).replace("$(pelago key show -V ~/pelago)", key.trim());
        client.types(&format!("{by}{}", line.replace("127.0.0.1", &self.server.address)));
        let pid = far_pid(client);
        self.pids.lock().unwrap().push(pid);
    }

    /// Returns a program on the server, and one on each of the other machines.
    pub(crate) fn hands(&self) -> [Hands; 3] {
        let [one, other] = &self.clients;
        [&self.server_files(), &far(one), &far(other)].map(|root| Hands::on(root))
    }

    pub(crate) fn server_files(&self) -> PathBuf {
        self.server.home.join("pelago/files")
    }

    pub(crate) fn server_pid(&self) -> Pid {
        let text = fs::read_to_string(self.server.home.join("pelago/lock")).unwrap();
        text.trim().parse().ok().and_then(Pid::from_raw).unwrap()
    }

    /// Returns the status of the server.
    pub(crate) fn status(&self) -> Value {
        let status = "pelago status ~/pelago --json --timeout 100";
        self.server.types(status).json()
    }

    /// Returns how many sessions the server has.
    pub(crate) fn sessions(&self) -> usize {
        self.status()["sessions"].as_array().unwrap().len()
    }

    /// Unmounts everything, and checks the volume.
    pub(crate) fn finish(self) {
        for client in &self.clients {
            // A killed client has no mount any more.
            if is_mounted(&far(client)) {
                client.types(&format!("{} --timeout 100", typed(UNMOUNT)));
            }
        }
        self.server.types(&format!("{} --timeout 100", typed(DOWN)));
        let log = fs::read_to_string(self.server.home.join("pelago/log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
        assert_eq!(self.server.types("pelago check ~/pelago --json").json()["whole"], true);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for pid in self.pids.lock().unwrap().drain(..) {
            kill(pid);
        }
        detach_all(&self.root);
    }
}

pub(crate) fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().filter_map(|line| line.split(' ').nth(4)).any(|path| Path::new(path) == point)
}

/// Returns the mount point of a client.
pub(crate) fn far(client: &Machine) -> PathBuf {
    client.home.join("far")
}

/// Returns the state of a client's mount.
pub(crate) fn far_status(client: &Machine) -> Value {
    client.types("pelago status ~/far --json --timeout 100").json()
}

/// Returns the process of a client's mount.
pub(crate) fn far_pid(client: &Machine) -> Pid {
    far_status(client)["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).unwrap()
}

/// Kills a daemon (`kill -9`), if it is one still.
pub(crate) fn kill(pid: Pid) {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    if name.is_ok_and(|name| name.trim_end() == "pelago") {
        let _gone = kill_process(pid, Signal::KILL);
        until("killed", || !has_threads(pid));
    }
}

/// Returns a line of README.md.
pub(crate) fn typed(line: &'static str) -> &'static str {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(" #").next().unwrap_or(line).trim_end());
    assert!(lines.any(|read| read == line), "README.md has no line `{line}` any more");
    line
}

/// Kills these processes at the deadline, unless the sender is dropped before.
pub(crate) fn watch(pids: Arc<Mutex<Vec<Pid>>>) -> Sender<()> {
    let (sender, dropped) = channel::<()>();
    let watching = move || {
        if dropped.recv_timeout(WATCH) == Err(RecvTimeoutError::Timeout) {
            println!("the deadline of a test has passed: its processes are killed");
            for pid in pids.lock().unwrap().iter() {
                let _gone = kill_process(*pid, Signal::KILL);
            }
        }
    };
    thread::Builder::new().spawn(watching).unwrap();
    sender
}
