//! A server on one machine, and mounts of its volume on two others, set up as README.md says.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde_json::Value;

use crate::machines::hands::Hands;
use crate::machines::lab::{Lab, lock_holder, pid_of};
use crate::machines::network::Machine;

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
    pub(crate) lab: Lab,
    pub(crate) server: Machine,
    pub(crate) clients: [Machine; 2],
}

impl World {
    /// Returns a world that is up and mounted; `None` if this machine cannot have one.
    pub(crate) fn new() -> Option<Self> {
        Self::with("", "")
    }

    /// Does the same as [`Self::new`]; these commands start the server and the first client.
    pub(crate) fn with(server_by: &str, client_by: &str) -> Option<Self> {
        let lab = Lab::new()?;
        let server = lab.machine(1, "server");
        let clients = [lab.machine(2, "one"), lab.machine(3, "other")];
        let world = Self { lab, server, clients };
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
        self.lab.ends(self.server_pid());
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
        self.lab.ends(far_pid(client));
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
        lock_holder(&self.server.home.join("pelago"))
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
    pid_of(&far_status(client))
}

/// Returns a line of README.md.
pub(crate) fn typed(line: &'static str) -> &'static str {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().map(|line| line.split(" #").next().unwrap_or(line).trim_end());
    assert!(lines.any(|read| read == line), "README.md has no line `{line}` any more");
    line
}
