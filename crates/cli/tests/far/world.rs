//! A volume that is up, its address, and mounts of it by other processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::program::{Ran, pelago, run, until};
use crate::harness::volume::{Volume, has_threads};

/// The deadline of a test. Behind it every process of its world is killed, and with a process its
/// mount: no program waits for it any more, and the test fails with an error.
const WATCH: Duration = Duration::from_secs(100);

/// A volume that is up and listens to other machines, and mounts of it by other processes.
pub(crate) struct World {
    mounts: Mutex<Vec<FarMount>>,
    pub(crate) volume: Volume,
    /// `KEY@HOST:PORT` of the server.
    pub(crate) address: String,
    /// The processes that the watchdog kills. Its thread ends when the sender is dropped.
    pids: Arc<Mutex<Vec<Pid>>>,
    _watchdog: Sender<()>,
}

/// A mount by another process.
#[derive(Clone)]
pub(crate) struct FarMount {
    pub(crate) point: PathBuf,
    pub(crate) pid: Pid,
}

impl World {
    /// Returns a volume that is up with this value of `--passthrough`. The test's own key is in the
    /// list of its clients.
    pub(crate) fn new(passthrough: &str) -> Self {
        Self::with_deadline(passthrough, WATCH)
    }

    /// The same, once `prepare` has prepared the place of the volume.
    pub(crate) fn prepared(
        passthrough: &str,
        deadline: Duration,
        prepare: impl FnOnce(&mut Volume),
    ) -> Self {
        Self::start(passthrough, deadline, prepare)
    }

    /// The same, with a deadline of its own.
    pub(crate) fn with_deadline(passthrough: &str, deadline: Duration) -> Self {
        Self::start(passthrough, deadline, |_| {})
    }

    fn start(passthrough: &str, deadline: Duration, prepare: impl FnOnce(&mut Volume)) -> Self {
        let mut volume = Volume::new();
        volume.passthrough = Some(passthrough.to_owned());
        prepare(&mut volume);
        let up = volume.up(&["--listen", "127.0.0.1:0", "--json"]).expect_success().json();
        let address = up["listening"].as_str().unwrap().to_owned();
        let pids = Arc::new(Mutex::new(vec![volume.pid().unwrap()]));
        let world = Self {
            mounts: Mutex::default(),
            volume,
            address,
            _watchdog: watch(Arc::clone(&pids), deadline),
            pids,
        };
        world.pelago(&["key", "new"]).expect_success();
        world.allow(&world.own_key());
        world
    }

    /// Runs the binary.
    pub(crate) fn pelago(&self, args: &[&str]) -> Ran {
        run(&mut pelago(&self.volume.root, args))
    }

    pub(crate) fn own_key(&self) -> String {
        self.pelago(&["key", "show"]).expect_success().out.trim().to_owned()
    }

    pub(crate) fn allow(&self, key: &str) {
        self.pelago(&["key", "allow", key, "-V", "vol"]).expect_success();
    }

    pub(crate) fn remove_key(&self, key: &str) {
        self.pelago(&["key", "remove", key, "-V", "vol"]).expect_success();
    }

    /// Returns the path of the server's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.volume.dir.join("pelago.sock")
    }

    /// Returns where the server listens, without its key.
    pub(crate) fn tcp(&self) -> &str {
        self.address.split_once('@').unwrap().1
    }

    /// Returns the server's address with another port.
    pub(crate) fn address_at(&self, port: u16) -> String {
        format!("{}@127.0.0.1:{port}", self.address.split_once('@').unwrap().0)
    }

    /// Returns the command that mounts `server` on a folder of this name.
    pub(crate) fn mount_command(&self, server: &str, name: &str, args: &[&str]) -> Command {
        let point = self.volume.root.join(name);
        fs::create_dir_all(&point).unwrap();
        let mut command = pelago(&self.volume.root, ["mount", server]);
        command.arg(point).args(args).args(["--detach", "--json"]);
        for (variable, when) in [("PELAGO_FUSE_RING", "always"), ("PELAGO_FUSE_DEVICE", "never")] {
            if std::env::var_os(variable).is_some() {
                command.args(["--io-uring", when]);
            }
        }
        command
    }

    /// Mounts `server` on a folder of this name.
    pub(crate) fn mount(&self, server: &str, name: &str, args: &[&str]) -> FarMount {
        self.mounted(&mut self.mount_command(server, name, args), name)
    }

    /// Shares the new folder `shared` of the volume with a key that the server does not know, and
    /// attaches it as that guest, with all that it needs to work there, on a folder of this name.
    pub(crate) fn attach(&self, name: &str) -> FarMount {
        let key = self.volume.root.join("guest.key");
        let as_guest = |args: &[&str]| {
            let mut command = pelago(&self.volume.root, args);
            command.env("PELAGO_KEY", &key);
            command
        };
        run(&mut as_guest(&["key", "new"])).expect_success();
        let guest = run(&mut as_guest(&["key", "show"])).expect_success().out;
        let shared = self.volume.files().join("shared");
        fs::create_dir(&shared).unwrap();
        let shared = shared.to_str().unwrap();
        let share = ["share", shared, "--to", guest.trim(), "--rights", "rwxcd", "--at"];
        self.pelago(&[&share[..], &[self.tcp(), "--out", "cred"]].concat()).expect_success();
        fs::create_dir_all(self.volume.root.join(name)).unwrap();
        let attach = ["attach", "cred", name, "--detach", "--json"];
        self.mounted(&mut as_guest(&attach), name)
    }

    fn mounted(&self, command: &mut Command, name: &str) -> FarMount {
        let said = run(command).expect_success().json();
        let pid = said["pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).unwrap();
        self.pids.lock().unwrap().push(pid);
        let mount = FarMount { point: self.volume.root.join(name), pid };
        self.mounts.lock().unwrap().push(mount.clone());
        mount
    }

    pub(crate) fn mount_unix(&self, name: &str) -> FarMount {
        self.mount(self.socket().to_str().unwrap(), name, &[])
    }

    pub(crate) fn mount_tls(&self, name: &str) -> FarMount {
        self.mount(&self.address, name, &[])
    }

    /// Mounts the volume by its Unix socket, and by TLS.
    pub(crate) fn mount_both(&self) -> [FarMount; 2] {
        [self.mount_unix("unix"), self.mount_tls("tls")]
    }

    fn take_mounts(&self) -> Vec<FarMount> {
        std::mem::take(&mut *self.mounts.lock().unwrap())
    }

    /// Returns the roots of all mounts, the server's own first.
    pub(crate) fn roots(&self) -> Vec<PathBuf> {
        let mounts = self.mounts.lock().unwrap();
        let own = std::iter::once(self.volume.files());
        own.chain(mounts.iter().map(|mount| mount.point.clone())).collect()
    }

    /// Calls `work` with each mount as the one that changes, the others, and a name for the round.
    pub(crate) fn each_side(&self, work: impl Fn(&Path, &[PathBuf], &str)) {
        let roots = self.roots();
        for turn in 0..roots.len() {
            let mut others = roots.clone();
            let side = others.remove(turn);
            work(&side, &others, &format!("turn{turn}"));
        }
    }

    /// Returns the status of the server.
    pub(crate) fn status(&self) -> Value {
        self.volume.run("status", &["--json"]).expect_success().json()
    }

    /// Returns the bytes of memory that the server's process has.
    pub(crate) fn memory(&self) -> u64 {
        let pid = self.volume.pid().unwrap().as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
    }

    /// Kills the process of a mount (`kill -9`).
    pub(crate) fn kill(&self, mount: &FarMount) {
        self.mounts.lock().unwrap().retain(|other| other.pid != mount.pid);
        mount.kill();
    }

    /// Unmounts a mount.
    pub(crate) fn unmount(&self, mount: &FarMount) {
        self.mounts.lock().unwrap().retain(|other| other.pid != mount.pid);
        self.pelago(&["unmount", mount.point.to_str().unwrap()]).expect_success();
    }

    /// Unmounts everything, looks for a panic in the log, and checks the volume.
    pub(crate) fn finish(self) {
        for mount in self.take_mounts() {
            let point = mount.point.to_str().unwrap();
            self.pelago(&["unmount", point, "--timeout", "100"]).expect_success();
        }
        // Only the first part: the drop of a volume kills what is still up.
        self.volume.run("unmount", &[]).expect_success();
        let log = fs::read_to_string(self.volume.dir.join("log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
        self.volume.check_whole();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.take_mounts().iter().for_each(FarMount::kill);
    }
}

impl FarMount {
    /// Sends a signal to its process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    fn kill(&self) {
        // The process may have ended.
        let _gone = kill_process(self.pid, Signal::KILL);
        until("killed", || !has_threads(self.pid));
    }
}

/// Kills these processes at the deadline, unless the sender is dropped before.
fn watch(pids: Arc<Mutex<Vec<Pid>>>, deadline: Duration) -> Sender<()> {
    let (sender, dropped) = channel::<()>();
    let watching = move || {
        if dropped.recv_timeout(deadline) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            println!("the deadline of a test has passed: its processes are killed");
            for pid in pids.lock().unwrap().iter() {
                let _gone = kill_process(*pid, Signal::KILL);
            }
        }
    };
    thread::Builder::new().spawn(watching).unwrap();
    sender
}
