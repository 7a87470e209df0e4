//! A volume for one test, in a folder of its own; stopped and unmounted on drop.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::program::{Ran, pelago, run, until};

/// Returns the reason to skip a test that mounts, if there is one.
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

/// Returns a folder for a test, without symbolic links in its path, on the disk of the build, not
/// in memory.
pub(crate) fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = fs::canonicalize(folder.path()).unwrap();
    (folder, path)
}

/// Returns the only value of `up --passthrough` to test, from `PELAGO_TEST_PASSTHROUGH`.
fn only_passthrough() -> Option<String> {
    std::env::var("PELAGO_TEST_PASSTHROUGH").ok().filter(|mode| !mode.is_empty())
}

/// Returns which of these values of `up --passthrough` can be tested here: only root can use more
/// than one.
pub(crate) fn passthrough_modes(all: &[&str]) -> Vec<String> {
    match only_passthrough() {
        Some(mode) => vec![mode],
        None if geteuid().is_root() => all.iter().map(|mode| (*mode).to_owned()).collect(),
        None => vec!["auto".to_owned()],
    }
}

/// A volume for one test.
pub(crate) struct Volume {
    /// A folder of the test's own; HOME of the commands.
    pub(crate) root: PathBuf,
    /// The volume's folder.
    pub(crate) dir: PathBuf,
    /// The value of `up --passthrough`; `None` for the default.
    pub(crate) passthrough: Option<String>,
    /// The value of `up --io-uring`; `None` for that of this run of the tests.
    pub(crate) io_uring: Option<&'static str>,
    // Dropped last.
    _folder: TempDir,
}

impl Volume {
    /// Returns one that is not created yet.
    pub(crate) fn new() -> Self {
        Self::in_folder(Path::new("vol"))
    }

    /// The same, in a subfolder.
    pub(crate) fn in_folder(below: &Path) -> Self {
        let (folder, root) = folder();
        let dir = root.join(below);
        fs::create_dir_all(dir.parent().unwrap()).unwrap();
        Self { root, dir, passthrough: only_passthrough(), io_uring: None, _folder: folder }
    }

    /// Returns one that is up.
    pub(crate) fn mounted() -> Self {
        let volume = Self::new();
        volume.up(&[]).expect_success();
        volume
    }

    /// Returns one that is up, with this value of `--passthrough`.
    pub(crate) fn with_passthrough(passthrough: &str) -> Self {
        let mut volume = Self::new();
        volume.passthrough = Some(passthrough.to_owned());
        volume.up(&[]).expect_success();
        volume
    }

    /// Returns its mount point.
    pub(crate) fn files(&self) -> PathBuf {
        self.dir.join("files")
    }

    /// Returns a command on this volume, not run yet.
    pub(crate) fn command(&self, verb: &str, args: &[&str]) -> Command {
        let mut command = pelago(&self.root, [verb]);
        if matches!(verb, "status" | "unmount") {
            // Enough for a loaded machine.
            command.args(["--timeout", "100", "-V"]);
        }
        command.arg(&self.dir).args(args);
        if let Some(passthrough) =
            self.passthrough.as_deref().filter(|_| verb == "up" && !args.contains(&"--passthrough"))
        {
            command.args(["--passthrough", passthrough]);
        }
        let doors = [("PELAGO_FUSE_RING", "always"), ("PELAGO_FUSE_DEVICE", "never")];
        let of_run = || doors.into_iter().filter(|(name, _)| std::env::var_os(name).is_some());
        let io_uring = self.io_uring.or_else(|| of_run().map(|(_, when)| when).next());
        if let Some(when) = io_uring.filter(|_| verb == "up") {
            command.args(["--io-uring", when]);
        }
        command
    }

    /// Starts it in the background.
    pub(crate) fn up(&self, args: &[&str]) -> Ran {
        run(self.command("up", args).arg("--detach"))
    }

    /// Starts it as a child process; waits until it is mounted.
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

    /// Waits until no file is open. The kernel sends RELEASE after `close` has returned, and a file
    /// with passthrough is checked once more before it is released.
    pub(crate) fn wait_until_closed(&self) {
        until("all files closed", || {
            let status = self.run("status", &["--json"]).expect_success().json();
            status["open_files"] == 0 && status["pending_closes"] == 0
        });
    }

    /// Returns the process that serves it. The lock is not tried: a test that starts another
    /// process at that instant would pass the lock on to it.
    pub(crate) fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.dir.join("lock")).ok()?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw)?;
        (is_ours(pid) && has_threads(pid)).then_some(pid)
    }

    /// Kills the process (`kill -9`), and waits until it has released everything.
    pub(crate) fn kill(&self) {
        let pid = self.pid().expect("the volume is up");
        kill_process(pid, Signal::KILL).unwrap();
        until("killed", || !has_threads(pid));
    }

    /// Unmounts and checks it.
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
            // The process may have ended meanwhile.
            let _gone = kill_process(pid, Signal::KILL);
            until("killed", || !has_threads(pid));
        }
        detach_all(&self.root);
    }
}

/// Returns whether a process runs our binary: process ids are reused. An exiting process runs none.
fn is_ours(pid: Pid) -> bool {
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.is_ok_and(|name| name.trim_end() == "pelago")
}

/// Returns whether a process still has its files open: its last thread closes them when it exits.
pub(crate) fn has_threads(pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero();
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default().chars().next();
        !matches!(state, None | Some('Z' | 'X'))
    })
}

/// Detaches every mount below a folder of a test, without sending it a request.
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
