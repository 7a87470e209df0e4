//! A volume that is up, and a far mount of it.

use std::fs;
use std::path::PathBuf;

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::program::{Ran, pelago, run, until};
use crate::harness::volume::{Volume, has_threads};
use crate::notices::work::Program;

/// Programs in each mount.
const PROGRAMS: u64 = 3;

/// A volume that is up, and a far mount of it.
pub(crate) struct World {
    pub(crate) volume: Volume,
    pub(crate) server: Served,
    pub(crate) far: Served,
}

/// A mount and its two processes.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) point: PathBuf,
    pub(crate) pid: Pid,
    pub(crate) guard: Option<Pid>,
    /// The reason why there is no guard.
    why_not: Option<String>,
}

impl World {
    pub(crate) fn new() -> Self {
        let volume = Volume::new();
        let server = served(&volume.up(&["--json"]).expect_success().json());
        fs::create_dir(volume.root.join("far")).unwrap();
        let far = served(&mount(&volume).expect_success().json());
        fs::create_dir(server.point.join("d")).unwrap();
        Self { volume, server, far }
    }

    /// Returns why the mounts have no guard.
    pub(crate) fn has_no_guard(&self) -> Option<String> {
        self.server.why_not.clone().or_else(|| self.far.why_not.clone())
    }

    /// Starts the server again, by the same command.
    pub(crate) fn up(&mut self) {
        self.server = served(&self.volume.up(&["--json"]).expect_success().json());
    }

    /// Mounts again, by the same command.
    pub(crate) fn mount(&mut self) {
        self.far = served(&mount(&self.volume).expect_success().json());
    }

    /// Asks for the processes of both mounts.
    pub(crate) fn ask(&mut self) {
        self.server = served(&self.volume.run("status", &["--json"]).expect_success().json());
        let point = self.far.point.to_str().unwrap();
        let asked = run(&mut pelago(&self.volume.root, ["status", "--json", point]));
        self.far = served(&asked.expect_success().json());
    }

    /// Starts programs in a mount, and waits until they work.
    pub(crate) fn programs(&self, mount: &Served, round: u64) -> Vec<Program> {
        let first = if mount.point == self.far.point { PROGRAMS } else { 0 };
        let numbers = first..first + PROGRAMS;
        let dir = mount.point.join("d");
        let start = |number| Program::start(&dir, &self.volume.root, round * 100 + number);
        numbers.map(start).collect()
    }

    /// Asserts that a file which is made in one mount is there in the other.
    pub(crate) fn assert_serves(&self, round: u64) {
        for (one, other) in [(&self.server, &self.far), (&self.far, &self.server)] {
            let name = format!("round{round}.{}", one.pid.as_raw_nonzero());
            fs::write(one.point.join(&name), &name).unwrap();
            assert_eq!(fs::read_to_string(other.point.join(&name)).unwrap(), name);
        }
    }

    /// Unmounts both, and checks the volume.
    pub(crate) fn finish(self) {
        let point = self.far.point.to_str().unwrap();
        run(&mut pelago(&self.volume.root, ["unmount", point])).expect_success();
        self.volume.run("unmount", &[]).expect_success();
        let log = fs::read_to_string(self.volume.dir.join("log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
        self.volume.check_whole();
    }
}

impl Drop for World {
    /// After a failure something may hang; the end of the connections ends it.
    fn drop(&mut self) {
        for served in [&self.far, &self.server] {
            let _gone = kill_process(served.pid, Signal::KILL);
            let _gone = unmount(&served.point, UnmountFlags::FORCE);
            until("killed", || !has_threads(served.pid));
        }
    }
}

fn mount(volume: &Volume) -> Ran {
    let socket = volume.dir.join("pelago.sock");
    let mut command = pelago(&volume.root, ["mount", socket.to_str().unwrap(), "far"]);
    for (variable, when) in [("PELAGO_FUSE_RING", "always"), ("PELAGO_FUSE_DEVICE", "never")] {
        if std::env::var_os(variable).is_some() {
            command.args(["--io-uring", when]);
        }
    }
    run(command.args(["--detach", "--json"]))
}

fn served(status: &Value) -> Served {
    let process = |key: &str| status[key].as_i64().and_then(|pid| Pid::from_raw(pid as i32));
    Served {
        point: status["mounted"].as_str().unwrap().into(),
        pid: process("pid").unwrap(),
        guard: process("guard"),
        why_not: status["no_guard"].as_str().map(str::to_owned),
    }
}
