//! The paths in system calls, recorded by `strace`: each path that a verb or the server opens,
//! creates or removes in a folder that other users may write goes through the opener, and has its
//! row in the table of planted files.
//!
//! `stat` and `readlink` are not counted: they read, write or remove no file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::{NOBODY, Scene, is_planted};
use crate::harness::program::{pelago, run, until, wait};
use crate::harness::volume::cannot_mount;

/// Calls that open, make, change or remove what a path names.
const CALLS: &str = "open,openat,openat2,creat,mkdir,mkdirat,unlink,unlinkat,rmdir,rename,renameat,\
                     renameat2,link,linkat,mknod,mknodat,truncate,chmod,fchmodat,chown,lchown,\
                     fchownat,setxattr,lsetxattr";

/// One path of a call.
#[derive(Debug)]
struct Seen {
    /// The whole line of `strace`.
    line: String,
    /// The folder below whose descriptor the path was looked up, or the current folder.
    at: PathBuf,
    by_descriptor: bool,
    path: PathBuf,
}

impl Seen {
    /// Returns the path that was meant, without `.` and `..`.
    fn meant(&self) -> PathBuf {
        let mut meant = PathBuf::new();
        for part in self.at.join(&self.path).components() {
            match part {
                Component::ParentDir => {
                    meant.pop();
                }
                Component::CurDir => {}
                part => meant.push(part),
            }
        }
        meant
    }

    /// Returns whether it was opened as a name below the descriptor of a folder, without following
    /// a link.
    fn is_by_opener(&self) -> bool {
        let is_open = self.line.contains("open");
        self.by_descriptor
            && self.path.components().count() == 1
            && self.path.is_relative()
            && (!is_open || self.line.contains("O_NOFOLLOW"))
    }
}

/// Returns a command that is run under `strace`, whose lines go to a file.
fn traced(command: &Command, log: &Path) -> Command {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-qq", "-s", "4096", "-o"]).arg(log).arg("-e");
    strace.arg(format!("trace={CALLS}")).arg("--").arg(command.get_program());
    strace.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        strace.current_dir(dir);
    }
    strace
}

/// Reads the paths of a log of `strace`.
fn paths(log: &Path) -> Vec<Seen> {
    fs::read_to_string(log).unwrap().lines().flat_map(paths_of).collect()
}

/// Returns the paths of one line: `PID call(5</folder>, "name", ...`.
fn paths_of(line: &str) -> Vec<Seen> {
    let mut seen = Vec::new();
    let Some((_, arguments)) = line.split_once('(') else { return seen };
    let mut rest = arguments;
    while let Some(begin) = rest.find('"') {
        let before = &rest[..begin];
        let Some(length) = rest[begin + 1..].find('"') else { break };
        let path = PathBuf::from(&rest[begin + 1..begin + 1 + length]);
        let at = before.rsplit_once('<').and_then(|(fd, at)| {
            let at = at.split_once(">, ").filter(|(_, rest)| rest.is_empty())?.0;
            Some((!fd.ends_with("AT_FDCWD"), PathBuf::from(at)))
        });
        let (by_descriptor, at) = at.unwrap_or_default();
        seen.push(Seen { line: line.to_owned(), at, by_descriptor, path });
        rest = &rest[begin + 2 + length..];
    }
    seen
}

/// Fails for a path below a folder that did not go through the opener. Returns the names in the
/// folder itself.
fn names_in(shared: &Path, seen: &[Seen], is_ours: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for seen in seen {
        let meant = seen.meant();
        // A path by way of a descriptor follows a link in its last part all the same.
        let changes = ["chmod(", "chmodat(", "chown(", "chownat(", "truncate("];
        let is_change = changes.iter().any(|call| seen.line.contains(call));
        assert!(
            !is_change || !meant.starts_with("/proc/self/fd"),
            "past the opener: {}",
            seen.line
        );
        let Ok(below) = meant.strip_prefix(shared) else { continue };
        let Some(first) = below.components().next() else { continue };
        // Folders of ours have mode 0700: below the descriptor of one there is nothing of others.
        let is_below_ours = seen.by_descriptor
            && seen.path.is_relative()
            && seen.at != shared
            && seen.at.starts_with(shared);
        if is_ours(below) || is_below_ours {
            continue;
        }
        assert!(seen.is_by_opener(), "past the opener: {}", seen.line);
        names.insert(first.as_os_str().to_str().unwrap().to_owned());
    }
    names
}

fn no_strace() -> Option<String> {
    let found = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    (!found).then(|| "not here: strace is not installed".to_owned())
}

#[test]
fn what_is_opened_in_the_folder_of_a_volume_goes_through_the_opener() {
    if let Some(reason) = cannot_mount().or_else(no_strace) {
        return println!("skipped: {reason}");
    }
    let scene = Scene::new();
    let dir = &scene.volume.dir;
    let root = &scene.volume.root;
    let mut seen = Vec::new();
    for round in 0..2 {
        let log = root.join(format!("up.{round}"));
        let up = scene.volume.command("up", &["--find", "--listen", "127.0.0.1:0"]);
        let mut child =
            traced(&up, &log).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        until("up", || scene.volume.run("status", &[]).code == Some(0));
        let files = scene.volume.files();
        fs::write(files.join("large"), vec![7; 300_000]).unwrap();
        fs::write(files.join(format!("bluewhale{round}")), "some words").unwrap();
        let query = ["find", "text:words", files.to_str().unwrap()];
        run(&mut pelago(root, query)).expect_success();
        until("the index is there", || dir.join("index/texts/meta.json").exists());
        scene.volume.run("unmount", &[]).expect_success();
        wait(&mut child);
        seen.extend(paths(&log));
    }
    let volume = dir.to_str().unwrap();
    let key = "a".repeat(43);
    let verbs: [&[&str]; 9] = [
        &["status", "-V", volume],
        &["check", volume],
        &["check", "--apply", volume],
        &["key", "show", "-V", volume],
        &["key", "allow", &key, "-V", volume],
        &["key", "list", "-V", volume],
        &["key", "remove", &key, "-V", volume],
        &["unmount", "-V", volume],
        &["find", "name=x", volume],
    ];
    for (number, verb) in verbs.iter().enumerate() {
        let log = root.join(format!("verb.{number}"));
        run(&mut traced(&pelago(root, *verb), &log));
        seen.extend(paths(&log));
    }
    // Below the mount are the files of the volume.
    let names =
        names_in(dir, &seen, |below| below.starts_with("files") && below != Path::new("files"));
    for name in ["format", "table", "content", "index", "lock", "clients", "clean"] {
        assert!(names.contains(name), "{name} was not seen: {names:?}");
    }
    // A key is written under a name that is made new (`O_EXCL`), `.key.PROCESS.NUMBER`.
    let is_known = |name: &str| is_planted(name) || name.starts_with(".key.");
    let unknown: Vec<&String> = names.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty(), "not planted by any test: {unknown:?}");
}

/// The folder of mounts without a volume, of a user without `XDG_RUNTIME_DIR`.
#[test]
fn another_users_link_in_place_of_the_folder_of_mounts_is_not_followed() {
    if let Some(reason) = cannot_mount().or_else(no_strace) {
        return println!("skipped: {reason}");
    }
    if !geteuid().is_root() {
        return println!("skipped: only root runs as several users");
    }
    // The user `uucp`: one with a name, under which nothing runs here.
    const USER: u32 = 10;
    let scene = Scene::used();
    let root = &scene.volume.root;
    let link = PathBuf::from(format!("/tmp/pelago-{USER}"));
    let _left = fs::remove_file(&link).or_else(|_| fs::remove_dir_all(&link));
    let home = tempfile::tempdir().unwrap();
    let precious = home.path().join("Documents/thesis");
    fs::create_dir_all(&precious).unwrap();
    let [volume, point] = ["v", "m"].map(|name| home.path().join(name));
    fs::create_dir(&point).unwrap();
    for path in [home.path(), &precious, &home.path().join("Documents"), &point] {
        std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
    }
    std::os::unix::fs::symlink(home.path(), &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).unwrap();
    let as_user = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        let user = USER.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"]);
        let pelago = pelago(home.path(), args);
        command.arg(pelago.get_program()).args(args).current_dir(home.path());
        command.env("HOME", home.path()).env_remove("XDG_RUNTIME_DIR");
        command
    };
    let volume = volume.to_str().unwrap();
    let point = point.to_str().unwrap();
    let up = run(&mut as_user(&["up", volume, "--detach", "--mount", point]));
    if up.code != Some(0) {
        let _removed = fs::remove_file(&link);
        return println!("skipped: not here: another user cannot mount: {}", up.err.trim_end());
    }
    let pid = fs::read_to_string(Path::new(volume).join("lock")).unwrap();
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let pid: u32 = pid.trim().parse().unwrap();
    until("killed", || !Path::new(&format!("/proc/{pid}/fd/0")).exists());
    let log = root.join("unmount");
    let ran = run(&mut traced(&as_user(&["unmount", "-V", volume]), &log));
    let is_there = precious.exists();
    let seen = paths(&log);
    let _removed = fs::remove_file(&link);
    let _detached = Command::new("umount").args(["-l", point]).stderr(Stdio::null()).status();
    assert!(is_there, "what the link leads to is gone: {ran:?}");
    for seen in seen.iter().filter(|seen| seen.meant().starts_with(&link)) {
        assert!(seen.is_by_opener(), "past the opener: {}", seen.line);
    }
    ran.expect_success();
}
