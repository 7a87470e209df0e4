//! Executions that once broke the rules of this cache, step by step.

use std::fs::{self, File};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use pelago_wire::{SetAttr, SetTime, Time};

use crate::coherence::world::World;
use crate::coherence::{CONTEXT, StopAtEnd, busy, is_missing, meta, names, set, size};

/// A program looks a name up and the reply is on its way; another session changes what it says. The
/// kernel has no inode to invalidate yet, and the program holds the directory.
#[test]
fn a_reply_after_the_notice_is_not_kept() {
    let Some(world) = World::alone(false) else { return };
    fs::write(world.path("f"), b"12345").unwrap();
    let Some(world) = world.remounted() else { return };
    let stall = world.watched.stall();
    thread::scope(|scope| {
        let holding = stall.hold("f");
        let program = scope.spawn(|| size(&world, "f"));
        stall.wait();
        set(&world, "f", SetAttr { size: Some(2), ..SetAttr::default() });
        drop(holding);
        assert!([2, 5].contains(&program.join().unwrap()));
    });
    assert_eq!(size(&world, "f"), 2);
    // The same with a name: it is removed while its lookup is under way.
    let Some(world) = world.remounted() else { return };
    let stall = world.watched.stall();
    thread::scope(|scope| {
        let holding = stall.hold("f");
        let program = scope.spawn(|| fs::metadata(world.path("f")).is_ok());
        stall.wait();
        world.other.unlink(&CONTEXT, world.at("f")).wait().unwrap();
        assert!(!program.is_finished(), "the change did not wait for the program");
        drop(holding);
        program.join().unwrap();
    });
    assert!(is_missing(&world, "f"));
}

/// The same with the attributes of a file that a program has just made: the kernel takes them from
/// the reply without looking at their version.
#[test]
fn a_created_file_that_changes_before_its_reply_is_seen() {
    let Some(world) = World::new(false) else { return };
    let stall = world.watched.stall();
    thread::scope(|scope| {
        let holding = stall.hold_create("new");
        let program = scope.spawn(|| File::create(world.path("new")));
        stall.wait();
        let owner = SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() };
        set(&world, "new", owner);
        drop(holding);
        program.join().unwrap().unwrap();
    });
    // At once: an inode that the kernel does not know yet is told again 10 ms later. As `size`.
    let found = rustix::fs::stat(world.path("new")).unwrap();
    assert_eq!((found.st_uid, found.st_gid), (7, 8));
}

/// A directory is mounted below, so names cannot be invalidated all at once: it would be detached.
/// The change waits for the program instead.
#[test]
fn a_mount_below_stays_and_the_change_waits() {
    let Some(world) = World::new(false) else { return };
    for dir in ["d", "below"] {
        fs::create_dir(world.path(dir)).unwrap();
    }
    let below = world.path("below");
    let bind = |arguments: &[&str]| {
        let status = Command::new(arguments[0]).args(&arguments[1..]).arg(&below).status();
        status.is_ok_and(|status| status.success())
    };
    if !bind(&["mount", "--bind", "/proc"]) {
        return println!("skipped: nothing can be mounted below");
    }
    let stall = world.watched.stall();
    thread::scope(|scope| {
        let holding = stall.hold("busy");
        scope.spawn(|| is_missing(&world, "d/busy"));
        stall.wait();
        let (tell, told) = channel();
        let other = &world;
        scope.spawn(move || {
            other.put("d/f", b"x");
            tell.send(()).unwrap();
        });
        assert!(told.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
        assert!(fs::metadata(below.join("self")).is_ok(), "it is mounted");
        drop(holding);
        told.recv().unwrap();
    });
    assert_eq!((meta(&world, "d/f").len(), world.mount.notices().epochs), (1, 0));
    assert!(fs::metadata(below.join("self")).is_ok(), "it is mounted");
    assert!(bind(&["umount", "-l"]));
}

/// The same while programs of the mount create and remove names beside those of the other session.
#[test]
fn a_mount_below_survives_contended_creates() {
    let Some(world) = World::new(false) else { return };
    for dir in ["d", "below"] {
        fs::create_dir(world.path(dir)).unwrap();
    }
    let below = world.path("below");
    let bound = Command::new("mount").args(["--bind", "/proc"]).arg(&below).status();
    if !bound.is_ok_and(|status| status.success()) {
        return println!("skipped: nothing can be mounted below");
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..4 {
            let stop = &stop;
            let dir = world.path("d");
            scope.spawn(move || busy(&dir, number, stop));
        }
        let guard = StopAtEnd(&stop);
        for number in 0..300 {
            world.put(&format!("d/{number}"), b"x");
            assert_eq!(meta(&world, &format!("d/{number}")).len(), 1);
            assert!(fs::metadata(below.join("self")).is_ok(), "it is mounted after {number}");
        }
        drop(guard);
    });
    assert_eq!(world.mount.notices().epochs, 0);
    let ended = Command::new("umount").arg("-l").arg(&below).status();
    assert!(ended.unwrap().success());
}

/// Bytes and a listing change, and the times are set back, as rsync does.
#[test]
fn what_changes_under_the_same_time_is_seen() {
    let Some(world) = World::new(false) else { return };
    fs::create_dir(world.path("d")).unwrap();
    fs::write(world.path("d/f"), b"before").unwrap();
    let time = SetTime::To(Time { seconds: 1000, nanos: 0 });
    let set_back = SetAttr { mtime: Some(time), ..SetAttr::default() };
    set(&world, "d/f", set_back);
    set(&world, "d", set_back);
    for round in 0..20_u8 {
        assert_eq!(fs::read(world.path("d/f")).unwrap().len(), 6);
        let listed = names(&world, "d");
        assert_eq!(listed, names(&world, "d"));
        let open = world.open("d/f");
        world.write(open, 0, &[round; 6]);
        world.close(open);
        set(&world, "d/f", set_back);
        assert_eq!(fs::read(world.path("d/f")).unwrap(), [round; 6]);
        world.put(&format!("d/{round}"), b"");
        set(&world, "d", set_back);
        assert_eq!(names(&world, "d").len(), listed.len() + 1);
    }
}
