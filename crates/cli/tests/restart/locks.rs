//! File locks when the server is killed: programs keep their locks.

use std::fs;

use crate::harness::program::until;
use crate::harness::programs::{Program, locker};
use crate::restart::World;
use rustix::process::{Pid, Signal, kill_process};

/// `EAGAIN`.
const TAKEN: &str = "no, 11";
/// `EIO`.
const LOST: &str = "no, 5";

/// Returns a program on the first mount, one on a second mount of the volume, and that mount.
fn programs(world: &mut World, name: &str) -> [Program; 2] {
    let other = world.mount_other();
    fs::write(world.path(name), "bytes").unwrap();
    [world.path(name), other.join(name)].map(|path| locker(&path))
}

fn waiters(world: &World) -> u64 {
    world.status()["lock_waiters"].as_u64().unwrap()
}

/// Of all kinds, by ranges; what was given up stays so, and what waits goes on waiting.
#[test]
fn locks_are_held_over_a_kill_of_the_server() {
    let Some(mut world) = World::new() else { return };
    let [mut holder, mut other] = programs(&mut world, "file");
    let mut second = locker(&world.path("file"));
    for line in ["fcntl write 0 10", "fcntl read 20 10", "ofd write 40 10", "flock write 0 0"] {
        assert_eq!(holder.ask(&format!("try {line}")), "yes", "{line}");
    }
    assert_eq!(holder.ask("try fcntl drop 5 1"), "yes");
    assert_eq!(second.ask("try fcntl write 60 10"), "yes");
    let before = waiters(&world);
    other.tell("wait fcntl write 60 1");
    until("it waits", || waiters(&world) > before);
    for _ in 0..2 {
        world.restart();
        let mut near = locker(&world.volume.files().join("file"));
        for (line, answer) in [
            ("fcntl write 0 1", TAKEN),
            ("fcntl read 9 1", TAKEN),
            ("fcntl write 5 1", "yes"),
            ("fcntl drop 5 1", "yes"),
            ("fcntl read 20 1", "yes"),
            ("fcntl write 29 1", TAKEN),
            ("fcntl drop 20 1", "yes"),
            ("ofd read 49 1", TAKEN),
            ("flock read 0 0", TAKEN),
            ("fcntl read 60 1", TAKEN),
        ] {
            assert_eq!(near.ask(&format!("try {line}")), answer, "{line}");
        }
    }
    until("it waits again", || waiters(&world) == 1);
    drop(second);
    assert_eq!(other.hear(), "yes");
    assert_eq!(other.ask("try fcntl write 0 5"), TAKEN);
    assert_eq!(holder.ask("put under the lock"), "yes");
    drop(holder);
    until("its locks end with it", || other.ask("try fcntl write 0 5") == "yes");
    drop(other);
    world.finish();
}

/// A mount is stopped for longer than its term (the test waits for those 10 seconds, because only
/// then does the server give up). Another one takes its lock and drops it, and the server is
/// killed: the lock is not given back, and the program that believes to have it is told.
#[test]
fn a_lock_that_another_has_had_since_is_lost_and_told() {
    let Some(mut world) = World::new() else { return };
    let [mut holder, mut other] = programs(&mut world, "file");
    for line in ["try fcntl write 0 10", "open", "try flock read 0 0 1", "open", "open"] {
        assert_eq!(holder.ask(line), "yes", "{line}");
    }
    let client = Pid::from_raw(i32::try_from(world.client.id()).unwrap()).unwrap();
    kill_process(client, Signal::STOP).unwrap();
    assert_eq!(other.ask("wait fcntl write 0 5"), "yes");
    assert_eq!(other.ask("put of the other"), "yes");
    assert_eq!(other.ask("try fcntl drop 0 5"), "yes");
    world.volume.kill();
    kill_process(client, Signal::CONT).unwrap();
    world.starter.up();
    assert_eq!(other.ask("try fcntl write 0 0"), "yes", "it is not given back");
    assert_eq!(other.ask("try fcntl drop 0 0"), "yes");
    for line in ["put x", "get", "try fcntl write 0 1", "try fcntl drop 0 0", "test ofd read 0 1"] {
        assert_eq!(holder.ask(line), LOST, "{line}");
    }
    assert_eq!(holder.ask("try flock drop 0 0 1"), LOST, "the other lock");
    let status = world.far_status();
    assert_eq!(status["locks_lost"], 2, "{status}");
    // What was opened beside them goes on, and so does the file once they are closed.
    assert_eq!(holder.ask("try ofd write 0 10 2"), "yes");
    assert_eq!(holder.ask("close 0"), LOST, "it gives up the lock");
    assert_eq!(holder.ask("close 1"), "yes");
    assert_eq!(holder.ask("try fcntl write 20 10 3"), "yes");
    assert_eq!(fs::read(world.path("file")).unwrap(), b"of the other\n");
    drop((holder, other));
    world.finish();
}
