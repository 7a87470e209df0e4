//! The end of a mount, and errors of a mount that does not end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, thread};

use pelago_client::Files;
use pelago_mount::connection::Aborter;
use pelago_mount::mountinfo::{self, Liveness};
use pelago_mount::{Atime, Keeps, MountError, MountOptions, Trusts, UnmountError, mount};
use rustix::mount::{UnmountFlags, unmount};

use super::{mounted, options};
use crate::INODE_TABLE_BYTES;
use crate::memory::{Memory, spread};

const DEADLINE: Duration = Duration::from_secs(60);
const CHILD_POINT: &str = "PELAGO_TEST_MOUNT_POINT";
const NAME: &str = "a test, of ours";

#[test]
fn a_busy_mount_is_refused_with_the_processes_that_use_it() {
    let Some(mounted) = mounted(spread) else { return };
    let file = File::create(mounted.path("held")).unwrap();
    let point = mounted.mount.point().to_owned();
    assert!(matches!(mounted.mount.unmount(), Err(UnmountError::Busy(busy)) if busy == point));
    let users = pelago_mount::busy::mount_users(&point).unwrap();
    assert!(users.iter().any(|user| user.pid == process::id()), "{users:?}");
    drop(file);
    // A process that scans `/proc` may keep the mount busy for an instant.
    until(|| mounted.mount.unmount().is_ok());
    mounted.mount.wait().unwrap();
    assert!(mounted.mount.has_ended());
    assert_eq!(mountinfo::at(&point).unwrap(), None);
    mounted.mount.unmount().unwrap();
}

#[test]
fn an_unmount_by_another_process_ends_it() {
    let Some(mounted) = mounted(spread) else { return };
    fs::write(mounted.path("file"), b"1").unwrap();
    let point = mounted.mount.point().to_owned();
    let entry = mountinfo::at(&point).unwrap().unwrap();
    assert_eq!((entry.fs_type.as_str(), entry.source.to_str()), ("fuse.pelago", Some(NAME)));
    assert!(mountinfo::ours().unwrap().contains(&entry));
    until(|| mountinfo::probe(&point) == Liveness::Alive);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mounted.mount.wait());
        let mut helper = Command::new("fusermount3");
        let helped = helper.arg("-u").arg(&point).status().is_ok_and(|status| status.success());
        if !helped {
            until(|| unmount(&point, UnmountFlags::empty()).is_ok());
        }
        waiter.join().unwrap().unwrap();
    });
    mounted.mount.wait().unwrap();
}

#[test]
fn a_detached_mount_lives_on_until_its_last_file_is_closed() {
    let Some(mounted) = mounted(spread) else { return };
    let mut file = File::create(mounted.path("held")).unwrap();
    mounted.mount.detach().unwrap();
    assert_eq!(mountinfo::at(mounted.mount.point()).unwrap(), None);
    file.write_all(b"still").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    assert!(!mounted.mount.has_ended());
    drop(file);
    mounted.mount.wait().unwrap();
    assert_eq!(mounted.memory.opens(), 0);
}

#[test]
fn a_mount_point_in_use_is_refused() {
    let Some(mounted) = mounted(spread) else { return };
    let files = Files::new(Arc::new(Memory::new(spread)));
    let options = MountOptions {
        mount_point: mounted.mount.point().to_owned(),
        fs_name: NAME.to_owned(),
        read_only: false,
        atime: Atime::default(),
        trusts: Trusts::default(),
        passthrough: false,
        inode_table_bytes: INODE_TABLE_BYTES,
        io_uring: crate::io_uring(),
        keeps: Keeps::default(),
    };
    let refused = mount(files, &options).unwrap_err();
    assert!(matches!(&refused, MountError::PointBusy { .. }), "{refused:?}");
    assert!(refused.to_string().starts_with("a test, of ours is mounted on /"), "{refused}");
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let folder = tempfile::tempdir().unwrap();
    if mounted(spread).is_none() {
        return;
    }
    let memory = Arc::new(Memory::new(spread));
    memory.put("there", b"bytes");
    let options = MountOptions { read_only: true, atime: Atime::Never, ..options(&folder) };
    let mount = mount(Files::new(memory), &options).unwrap();
    assert_eq!(fs::read(mount.point().join("there")).unwrap(), b"bytes");
    let refused = File::create(mount.point().join("new")).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

/// An aborted connection leaves the mount in the tree, where nothing responds.
#[test]
fn an_aborted_mount_is_detached() {
    let Some(mounted) = mounted(spread) else { return };
    let point = mounted.mount.point().to_owned();
    let file = File::create(mounted.path("held")).unwrap();
    match Aborter::of(mounted.mount.entry().unwrap()) {
        Ok(aborter) => aborter.abort().unwrap(),
        Err(error) => return println!("skipped: not here: no control of connections ({error})"),
    }
    let _however_it_ended = mounted.mount.wait();
    assert!(mountinfo::at(&point).unwrap().is_some());
    mounted.mount.unmount().unwrap();
    assert_eq!(mountinfo::at(&point).unwrap(), None);
    drop(file);
}

/// Without fusectl the end is a forced unmount, which leaves a mount that is in use in the tree.
#[test]
fn a_forced_unmount_ends_a_mount_in_use() {
    let Some(mounted) = mounted(spread) else { return };
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root to unmount by force");
    }
    let entry = mounted.mount.entry().cloned().unwrap();
    let file = File::create(mounted.path("held")).unwrap();
    Aborter::by_unmount(&entry).abort().unwrap();
    let _however_it_ended = mounted.mount.wait();
    assert!(mountinfo::is_dead(&entry.point));
    assert_eq!(mountinfo::at(&entry.point).unwrap().map(|found| found.id), Some(entry.id));
    drop(file);
    until(|| {
        Aborter::by_unmount(&entry).abort().unwrap();
        mountinfo::at(&entry.point).unwrap().is_none()
    });
    // What is mounted there by now is another one.
    Aborter::by_unmount(&entry).abort().unwrap();
}

/// What is prepared for a mount never ends a later one, which has got its number and its point.
#[test]
fn an_aborter_does_nothing_once_its_mount_has_ended() {
    if mounted(spread).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let again = || {
        let files = Files::new(Arc::new(Memory::new(spread)));
        mount(files, &options(&folder)).unwrap()
    };
    let first = again();
    let aborter = match Aborter::of(first.entry().unwrap()) {
        Ok(aborter) => aborter,
        Err(error) => return println!("skipped: not here: no control of connections ({error})"),
    };
    let entry = first.entry().cloned().unwrap();
    until(|| first.unmount().is_ok());
    first.wait().unwrap();
    drop(first);
    // Another test may have taken the number; the kernel gives the lowest one that is free.
    let mut later = Vec::new();
    until(|| {
        let next = again();
        let has_its_number = next.entry().unwrap().device == entry.device;
        if has_its_number {
            aborter.abort().unwrap();
            fs::write(next.point().join("still"), b"works").unwrap();
            assert!(!next.has_ended());
        }
        until(|| next.unmount().is_ok());
        later.push(has_its_number);
        has_its_number || later.len() > 50
    });
    println!("{} mounts until one had the number", later.len());
}

/// A mount whose process was killed is distinguished from one in use.
#[test]
fn a_dead_mount_is_detected() {
    let folder = tempfile::tempdir().unwrap();
    if mounted(spread).is_none() {
        return;
    }
    let point = fs::canonicalize(folder.path()).unwrap();
    let mut child = Command::new(env::current_exe().unwrap());
    child.args(["ends::the_child_that_is_killed", "--exact", "--nocapture"]);
    child.env(CHILD_POINT, &point).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("mounted")));
    let _detach = Detach(point.clone());
    until(|| mountinfo::probe(&point) == Liveness::Alive);
    child.kill().unwrap();
    child.wait().unwrap();
    until(|| mountinfo::is_dead(&point));
    until(|| {
        let files = Files::new(Arc::new(Memory::new(spread)));
        let refused = mount(files, &options(&folder)).unwrap_err();
        matches!(refused, MountError::PointDead(dead) if dead == point)
    });
}

/// No test of its own: what [`a_dead_mount_is_detected`] starts and kills. It does nothing
/// otherwise.
#[test]
fn the_child_that_is_killed() {
    let Some(point) = env::var_os(CHILD_POINT).map(PathBuf::from) else { return };
    let files = Files::new(Arc::new(Memory::new(spread)));
    let options = MountOptions {
        mount_point: point,
        fs_name: NAME.to_owned(),
        read_only: false,
        atime: Atime::default(),
        trusts: Trusts::default(),
        passthrough: false,
        inode_table_bytes: INODE_TABLE_BYTES,
        io_uring: crate::io_uring(),
        keeps: Keeps::default(),
    };
    let _mount = mount(files, &options).unwrap();
    println!("mounted");
    // Until it is killed, or its parent is gone.
    std::io::stdin().lines().for_each(drop);
}

/// Waits until a condition holds.
fn until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "the condition did not hold in time");
        thread::yield_now();
    }
}

struct Detach(PathBuf);

impl Drop for Detach {
    fn drop(&mut self) {
        if unmount(&self.0, UnmountFlags::DETACH).is_err() {
            let mut helper = Command::new("fusermount3");
            let ended = helper.args(["-u", "-z"]).arg(&self.0).status();
            println!("detached by the helper: {ended:?}");
        }
    }
}
