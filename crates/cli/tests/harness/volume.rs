//! A volume of its own for a test, in a folder of its own; when it goes, its process and mount go.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::program::{Ran, pelago, run, until};

/// Why nothing can be mounted here, if so.
pub(crate) fn cannot_mount() -> Option<String> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    let helper = || Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status();
    match device {
        Ok(_) if geteuid().is_root() => None,
        Ok(_) if helper().is_ok_and(|status| status.success()) => None,
        Ok(_) => Some("fusermount3 is not installed, and this is not root".to_owned()),
        Err(error) => Some(format!("not here: /dev/fuse cannot be opened: {error}")),
    }
}

/// A folder for tests, resolved: on the disk that holds the build, not in memory.
pub(crate) fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = fs::canonicalize(folder.path()).unwrap();
    (folder, path)
}

/// What `PELAGO_TEST_PASSTHROUGH` says: the only way of bytes that is tested.
fn only_way() -> Option<String> {
    std::env::var("PELAGO_TEST_PASSTHROUGH").ok().filter(|way| !way.is_empty())
}

/// Those of the ways that bytes can go (`up --passthrough`) which can be tested here: only root has
/// more than one.
pub(crate) fn ways(all: &[&str]) -> Vec<String> {
    match only_way() {
        Some(way) => vec![way],
        None if geteuid().is_root() => all.iter().map(|way| (*way).to_owned()).collect(),
        None => vec!["auto".to_owned()],
    }
}

/// A volume.
pub(crate) struct Volume {
    /// Where nothing else is; HOME of what is run.
    pub(crate) root: PathBuf,
    /// Its folder.
    pub(crate) dir: PathBuf,
    /// The way of its bytes, each time it is brought up.
    pub(crate) way: Option<String>,
    // Goes last.
    _folder: TempDir,
}

impl Volume {
    /// One that is not there yet.
    pub(crate) fn new() -> Self {
        Self::in_folder(Path::new("vol"))
    }

    /// The same, in a folder below.
    pub(crate) fn in_folder(below: &Path) -> Self {
        let (folder, root) = folder();
        let dir = root.join(below);
        fs::create_dir_all(dir.parent().unwrap()).unwrap();
        Self { root, dir, way: only_way(), _folder: folder }
    }

    /// One that is up.
    pub(crate) fn mounted() -> Self {
        let volume = Self::new();
        volume.up(&[]).expect_success();
        volume
    }

    /// One that is up, whose bytes go this way.
    pub(crate) fn on_way(way: &str) -> Self {
        let mut volume = Self::new();
        volume.way = Some(way.to_owned());
        volume.up(&[]).expect_success();
        volume
    }

    /// Its mount.
    pub(crate) fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// A command on this volume, not run yet.
    pub(crate) fn command(&self, verb: &str, args: &[&str]) -> Command {
        let mut command = pelago(&self.root, [verb]);
        if matches!(verb, "status" | "unmount") {
            // As long as a loaded machine may need.
            command.args(["--timeout", "100", "-V"]);
        }
        command.arg(&self.dir).args(args);
        if let Some(way) =
            self.way.as_deref().filter(|_| verb == "up" && !args.contains(&"--passthrough"))
        {
            command.args(["--passthrough", way]);
        }
        command
    }

    /// Brings it up in the background.
    pub(crate) fn up(&self, args: &[&str]) -> Ran {
        run(self.command("up", args).arg("--detach"))
    }

    /// Brings it up as a child; waits until it is mounted.
    pub(crate) fn up_as_child(&self) -> Child {
        let mut command = self.command("up", &[]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        until("up", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("ended before it was up: {status}");
            }
            self.run("status", &[]).code == Some(0)
        });
        child
    }

    pub(crate) fn run(&self, verb: &str, args: &[&str]) -> Ran {
        run(&mut self.command(verb, args))
    }

    /// Waits until nobody has a file open. The kernel tells of a close after the program has gone
    /// on, and a file with a descriptor in the kernel is looked at once more before it is let go.
    pub(crate) fn wait_until_closed(&self) {
        until("all files closed", || {
            let status = self.run("status", &["--json"]).expect_success().json();
            status["open_files"] == 0 && status["lingering_files"] == 0
        });
    }

    /// The process that serves it. Its lock is not tried: a test that starts another process in
    /// that instant would hand the lock on to it.
    pub(crate) fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.dir.join("lock")).ok()?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw)?;
        (is_ours(pid) && has_threads(pid)).then_some(pid)
    }

    /// `kill -9`; the process has let go of everything when this returns.
    pub(crate) fn kill(&self) {
        let pid = self.pid().expect("the volume is up");
        kill_process(pid, Signal::KILL).unwrap();
        until("killed", || !has_threads(pid));
    }

    /// Unmounts it and looks it over.
    pub(crate) fn finish(self) {
        self.run("unmount", &[]).expect_success();
        self.check_whole();
    }

    pub(crate) fn check_whole(&self) {
        let checked = self.run("check", &["--json"]).expect_success().json();
        assert_eq!(checked["whole"], true, "{checked}");
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            // It may have ended by itself in between.
            let _gone = kill_process(pid, Signal::KILL);
            until("killed", || !has_threads(pid));
        }
        detach_all(&self.root);
    }
}

/// Whether a process runs our binary: numbers are used again. One that is ending runs nothing.
fn is_ours(pid: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.is_ok_and(|name| name.trim_end() == "pelago")
}

/// Whether a process still has what it had open: its last thread lets go of it, and is dead then.
fn has_threads(pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default().chars().next();
        !matches!(state, None | Some('Z' | 'X'))
    })
}

/// Detaches every mount below a folder of ours, without asking any of them.
pub(crate) fn detach_all(root: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let fields = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points = fields.map(|point| PathBuf::from(point.replace("\\040", " ")));
    for point in points.filter(|point| point.starts_with(root)) {
        if geteuid().is_root() {
            let _gone = unmount(&point, UnmountFlags::DETACH);
        } else {
            let _gone = Command::new("fusermount3").args(["-u", "-z"]).arg(&point).status();
        }
    }
}
