//! Restarts of a killed server under a mount by another process: the programs of that mount go on,
//! no acknowledged operation is lost, and none is done twice.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::harness::program::{bare, pelago, until};
use crate::harness::volume::{Volume, cannot_mount};

mod appends;
mod kept_back;
mod locks;

/// Only one test at a time: see [`Starter`].
static TURN: Mutex<()> = Mutex::new(());

/// A shell that starts the server while this process has files of the mount open. A process that is
/// made from this one closes these files before it runs its program, and closing one waits for the
/// server.
struct Starter(Child);

impl Starter {
    fn new(volume: &Volume) -> Self {
        let script = "while read -r line; do \"$PELAGO\" up \"$VOLUME\" --detach && echo up; done";
        let mut command = Command::new("sh");
        bare(&mut command, &volume.root);
        command.args(["-c", script]).env("PELAGO", env!("CARGO_BIN_EXE_pelago"));
        command.env("VOLUME", &volume.dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap())
    }

    /// Starts the server, and returns once it is mounted.
    fn up(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"up\n").unwrap();
        let mut said = Vec::new();
        let out = self.0.stdout.as_mut().unwrap();
        while !said.ends_with(b"up\n") {
            let mut byte = [0];
            out.read_exact(&mut byte).expect("the server starts");
            said.extend(byte);
        }
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        // It may have ended.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

/// A volume that is up, and a mount of it by another process.
struct World {
    starter: Starter,
    volume: Volume,
    client: Child,
    point: PathBuf,
    /// Further mounts.
    others: Vec<Child>,
    // Dropped last.
    _turn: MutexGuard<'static, ()>,
}

impl World {
    fn new() -> Option<Self> {
        if let Some(why) = cannot_mount() {
            println!("skipped: {why}");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let volume = Volume::mounted();
        let starter = Starter::new(&volume);
        let point = volume.root.join("far");
        let client = mount(&volume, &point);
        Some(Self { starter, volume, client, point, others: Vec::new(), _turn: turn })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// Mounts the volume once more. Returns where.
    fn mount_other(&mut self) -> PathBuf {
        let point = self.volume.root.join(format!("other {}", self.others.len()));
        self.others.push(mount(&self.volume, &point));
        point
    }

    /// Kills the server and starts it again.
    fn restart(&mut self) {
        self.volume.kill();
        self.starter.up();
    }

    fn status(&self) -> serde_json::Value {
        self.volume.run("status", &["--json"]).expect_success().json()
    }

    /// Returns the `status` of the first mount.
    fn far_status(&self) -> serde_json::Value {
        let point = self.point.to_str().unwrap();
        let mut command = pelago(&self.volume.root, ["status", point, "--json"]);
        crate::harness::program::run(&mut command).expect_success().json()
    }

    /// Ends the mount, as a failed test must do before its files are closed.
    fn kill_client(&mut self) {
        self.client.kill().unwrap();
        self.client.wait().unwrap();
    }

    /// Ends the mounts, then the server, and checks the volume.
    fn finish(mut self) {
        for client in [&mut self.client].into_iter().chain(&mut self.others) {
            let pid = i32::try_from(client.id()).unwrap();
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            let code = crate::harness::program::wait(client);
            assert_eq!(code, Some(0), "the mount ends cleanly");
        }
        until("all files are closed", || self.status()["open_files"] == 0);
        self.volume.run("unmount", &[]).expect_success();
        self.volume.check_whole();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if thread::panicking() {
            self.kill_client();
            for other in &mut self.others {
                other.kill().unwrap();
                other.wait().unwrap();
            }
        }
    }
}

fn mount(volume: &Volume, point: &Path) -> Child {
    fs::create_dir_all(point).unwrap();
    let socket = volume.dir.join("pelago.sock");
    let mut command = pelago(&volume.root, ["mount"]);
    command.arg(socket).arg(point).stdin(Stdio::null()).stdout(Stdio::null());
    let log = File::create(point.with_extension("log")).unwrap();
    let mut child = command.stderr(log).spawn().unwrap();
    let device = fs::metadata(point).unwrap().dev();
    until("mounted", || {
        assert!(child.try_wait().unwrap().is_none(), "the mount ended");
        fs::metadata(point).is_ok_and(|now| now.dev() != device)
    });
    child
}

/// The acknowledged state: names, and the bytes of their files.
type Answered = BTreeMap<String, Vec<u8>>;

/// Creates, writes, renames and removes files in a directory of its own until it is told to stop.
fn load(dir: &Path, number: usize, stop: &AtomicBool, done: &AtomicU64) -> Answered {
    let mut answered = Answered::new();
    for round in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let bytes = format!("{number} {round}\n").repeat(if round % 8 == 0 { 3000 } else { 3 });
        let first = format!("new {number} {round}");
        let second = format!("file {number} {round}");
        let step = |what: &str, result: std::io::Result<()>| {
            result.unwrap_or_else(|error| panic!("{what} in round {round}: {error}"));
        };
        let path = dir.join(&first);
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&path).unwrap_or_else(|error| {
                panic!("create in round {round}: {error}");
            });
        for part in bytes.as_bytes().chunks(5000) {
            step("write", file.write_all(part));
        }
        // Without a close in between: what was written must be there all the same.
        step("rename", fs::rename(&path, dir.join(&second)));
        let folder = dir.join(format!("dir {number} {round}"));
        step("mkdir", fs::create_dir(&folder));
        if round % 2 == 0 {
            step("rmdir", fs::remove_dir(&folder));
        } else {
            answered.insert(format!("dir {number} {round}"), Vec::new());
        }
        drop(file);
        if round % 3 == 0 {
            step("link", fs::hard_link(dir.join(&second), dir.join(&first)));
            answered.insert(first, bytes.clone().into_bytes());
        }
        if round % 5 == 0 {
            step("unlink", fs::remove_file(dir.join(&second)));
        } else {
            answered.insert(second, bytes.into_bytes());
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    answered
}

/// Returns what is in a directory.
fn found(dir: &Path) -> Answered {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let read = |path: PathBuf| if path.is_dir() { Vec::new() } else { fs::read(path).unwrap() };
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| (name(&entry), read(entry.path()))).collect()
}

#[test]
fn a_load_goes_on_without_an_error_when_the_server_is_killed() {
    let Some(mut world) = World::new() else { return };
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let dirs: Vec<_> = (0..4).map(|number| world.path(&format!("of {number}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let answered: Vec<Answered> = thread::scope(|scope| {
        let stop = &stop;
        let done = &done;
        let start = |(number, dir): (usize, &PathBuf)| {
            let dir = dir.clone();
            scope.spawn(move || load(&dir, number, stop, done))
        };
        let loads: Vec<_> = dirs.iter().enumerate().map(start).collect();
        for _ in 0..5 {
            let before = done.load(Ordering::Relaxed);
            until("the load goes on", || {
                loads.iter().any(|load| load.is_finished())
                    || done.load(Ordering::Relaxed) > before + 40
            });
            world.restart();
        }
        let before = done.load(Ordering::Relaxed);
        until("the load goes on", || {
            loads.iter().any(|load| load.is_finished())
                || done.load(Ordering::Relaxed) > before + 40
        });
        stop.store(true, Ordering::Relaxed);
        loads.into_iter().map(|load| load.join().unwrap()).collect()
    });
    for (dir, answered) in dirs.iter().zip(&answered) {
        let own = world.volume.files().join(dir.file_name().unwrap());
        for dir in [dir, &own] {
            let found = found(dir);
            assert_eq!(found.keys().collect::<Vec<_>>(), answered.keys().collect::<Vec<_>>());
            for (name, bytes) in answered {
                assert!(found[name] == *bytes, "{name} has {} bytes", found[name].len());
            }
        }
    }
    world.finish();
}

/// Open files stay open, including one without a name and one that was renamed meanwhile.
#[test]
fn open_files_survive() {
    let Some(mut world) = World::new() else { return };
    let open = |name: &str| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).open(world.path(name)).unwrap()
    };
    let large = vec![7_u8; 200_000];
    let mut gone = open("gone");
    let mut moved = open("old");
    let mut big = open("big");
    let mut unnamed = OpenOptions::new();
    let unnamed = unnamed.read(true).write(true).custom_flags(libc_tmpfile()).open(&world.point);
    let mut unnamed = unnamed.unwrap();
    for file in [&mut gone, &mut moved, &mut unnamed] {
        file.write_all(b"before").unwrap();
    }
    big.write_all(&large).unwrap();
    fs::remove_file(world.path("gone")).unwrap();
    fs::remove_file(world.path("big")).unwrap();
    fs::rename(world.path("old"), world.path("new")).unwrap();
    for round in 1..=2 {
        world.restart();
        for file in [&mut gone, &mut moved, &mut unnamed] {
            file.write_all(b", after").unwrap();
            let mut text = String::new();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("before{}", ", after".repeat(round)));
        }
        let mut bytes = vec![0; large.len()];
        big.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == large, "the bytes of an unnamed content file");
        assert_eq!(gone.metadata().unwrap().nlink(), 0);
    }
    assert_eq!(fs::read(world.volume.files().join("new")).unwrap(), b"before, after, after");
    drop((gone, moved, unnamed, big));
    until("closed", || world.status()["open_files"] == 0);
    world.finish();
}

/// A file that is open in two mounts is replaced by one of them, and the server is killed twice.
#[test]
fn open_files_that_were_replaced_survive() {
    let Some(mut world) = World::new() else { return };
    let roots = [world.point.clone(), world.mount_other()];
    let sizes = [5, 200_000];
    for size in sizes {
        fs::write(world.path(&size.to_string()), vec![7; size]).unwrap();
    }
    let opened = roots.iter().flat_map(|root| sizes.map(|size| (root, size)));
    let opened: Vec<(File, usize)> = opened
        .map(|(root, size)| (File::open(root.join(size.to_string())).unwrap(), size))
        .collect();
    for size in sizes {
        fs::write(world.path("new"), "new").unwrap();
        fs::rename(world.path("new"), world.path(&size.to_string())).unwrap();
    }
    for _ in 0..2 {
        world.restart();
        for (file, size) in &opened {
            let mut bytes = vec![0; *size];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert!(bytes == vec![7; *size]);
            assert_eq!(file.metadata().unwrap().nlink(), 0);
        }
        for (root, size) in roots.iter().flat_map(|root| sizes.map(|size| (root, size))) {
            assert_eq!(fs::read(root.join(size.to_string())).unwrap(), b"new");
        }
    }
    drop(opened);
    until("closed", || world.status()["open_files"] == 0);
    world.finish();
}

/// `O_TMPFILE`.
const fn libc_tmpfile() -> i32 {
    0o20_000_000 | 0o200_000
}

/// A clean stop is no end of a session either.
#[test]
fn a_mount_goes_on_after_a_clean_stop() {
    let Some(mut world) = World::new() else { return };
    let mut file = File::create(world.path("file")).unwrap();
    file.write_all(b"before").unwrap();
    world.volume.run("unmount", &[]).expect_success();
    world.starter.up();
    file.write_all(b", after").unwrap();
    assert_eq!(fs::read(world.path("file")).unwrap(), b"before, after");
    drop(file);
    world.finish();
}

/// The files of a client that does not come back are closed after a term, and removed if they have
/// no name; so too if the server was killed meanwhile.
#[test]
fn the_files_of_a_killed_client_are_closed_after_a_term() {
    for restart in [false, true] {
        let Some(mut world) = World::new() else { return };
        let file = File::create(world.path("file")).unwrap();
        fs::remove_file(world.path("file")).unwrap();
        assert_eq!(world.status()["open_files"], 1);
        world.kill_client();
        drop(file);
        if restart {
            world.restart();
        }
        until("the session has ended", || world.status()["open_files"] == 0);
        // Answered once the server waits for no client any more.
        fs::metadata(world.volume.files().join("file")).unwrap_err();
        world.client = mount(&world.volume, &world.volume.root.join("again"));
        world.point = world.volume.root.join("again");
        fs::write(world.path("other"), b"bytes").unwrap();
        assert_eq!(fs::read(world.volume.files().join("other")).unwrap(), b"bytes");
        world.finish();
    }
}

/// A start that waits for a client says so, until the client's term is over.
#[test]
fn status_counts_the_sessions_that_a_start_waits_for() {
    let Some(mut world) = World::new() else { return };
    assert_eq!(world.status()["awaited_sessions"], 0);
    world.kill_client();
    world.restart();
    assert_eq!(world.status()["awaited_sessions"], 1);
    let text = world.volume.run("status", &[]).expect_success().out;
    assert!(text.contains("starting  requests wait for 1 session of the last run\n"), "{text}");
    until("the start is over", || world.status()["awaited_sessions"] == 0);
    let text = world.volume.run("status", &[]).expect_success().out;
    assert!(!text.contains("starting"), "{text}");
    world.client = mount(&world.volume, &world.volume.root.join("again"));
    world.finish();
}
