//! File locks between programs on different mounts.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::far::world::World;
use crate::far::{on_server, on_world};
use crate::harness::program::until;
use crate::harness::programs::{Program, locker};

/// `EAGAIN`.
const TAKEN: &str = "no, 11";
/// `EDEADLK`.
const DEADLOCK: &str = "no, 35";

fn waiters(world: &World) -> u64 {
    world.status()["lock_waiters"].as_u64().unwrap()
}

/// Tells a program to wait for a lock, and returns once the server knows.
fn wait_for(world: &World, program: &mut Program, line: &str) {
    let before = waiters(world);
    program.tell(line);
    until("it waits", || waiters(world) > before);
}

fn new_file(root: &Path) -> PathBuf {
    let path = root.join("locked");
    fs::write(&path, "x").unwrap();
    path
}

fn programs(world: &World) -> Vec<Program> {
    new_file(&world.roots()[0]);
    world.roots().iter().map(|root| locker(&root.join("locked"))).collect()
}

#[test]
fn locks_of_ranges_exclude_all_mounts() {
    on_world(|world| {
        for how in ["fcntl", "ofd"] {
            let mut all = programs(world);
            for holder in 0..all.len() {
                assert_eq!(all[holder].ask(&format!("try {how} write 10 10")), "yes");
                for other in (0..all.len()).filter(|other| *other != holder) {
                    let program = &mut all[other];
                    assert_eq!(program.ask(&format!("try {how} read 19 1")), TAKEN, "{other}");
                    assert_eq!(program.ask(&format!("try {how} read 20 1")), "yes");
                    let found = program.ask("test fcntl write 0 0");
                    assert!(found.starts_with("write 10 10 "), "{found}");
                    assert_eq!(program.ask(&format!("try {how} drop 0 0")), "yes");
                }
                // Shared by all, written by none.
                for program in &mut all {
                    assert_eq!(program.ask(&format!("try {how} read 50 5")), "yes");
                }
                assert_eq!(all[holder].ask(&format!("try {how} write 50 5")), TAKEN);
                for program in &mut all {
                    assert_eq!(program.ask(&format!("try {how} drop 0 0")), "yes");
                }
            }
        }
    });
}

#[test]
fn locks_of_files_exclude_all_mounts() {
    on_world(|world| {
        let roots = world.roots();
        new_file(&roots[0]);
        let open = |root: &PathBuf| File::open(root.join("locked")).unwrap();
        let files: Vec<File> = roots.iter().map(open).collect();
        for (turn, holder) in files.iter().enumerate() {
            holder.try_lock().unwrap();
            for (other, file) in files.iter().enumerate().filter(|(other, _)| *other != turn) {
                assert!(file.try_lock_shared().is_err(), "{turn} holds, {other} asks");
            }
            holder.unlock().unwrap();
            files.iter().for_each(|file| file.try_lock_shared().unwrap());
            assert!(holder.try_lock().is_err());
            files.iter().for_each(|file| file.unlock().unwrap());
        }
    });
}

#[test]
fn a_waiter_gets_the_lock_when_another_mount_drops_it() {
    on_world(|world| {
        let mut all = programs(world);
        for holder in 0..all.len() {
            let waiter = (holder + 1) % all.len();
            assert_eq!(all[holder].ask("try fcntl write 0 0"), "yes");
            wait_for(world, &mut all[waiter], "wait fcntl write 0 10");
            assert_eq!(all[holder].ask("try fcntl drop 0 0"), "yes");
            assert_eq!(all[waiter].hear(), "yes");
            assert_eq!(all[waiter].ask("try fcntl drop 0 0"), "yes");
        }
    });
}

/// A program that is killed while it waits ends, and its request does too; so does its lock.
#[test]
fn a_killed_program_waits_and_holds_no_more() {
    on_world(|world| {
        for side in 0..world.roots().len() {
            let mut all = programs(world);
            let mut killed = all.remove(side);
            assert_eq!(all[0].ask("try fcntl write 0 10"), "yes");
            assert_eq!(killed.ask("try fcntl write 20 10"), "yes");
            wait_for(world, &mut killed, "wait fcntl write 0 10");
            killed.kill();
            until("no request waits", || waiters(world) == 0);
            until("its lock is gone", || all[1].ask("try fcntl write 20 10") == "yes");
        }
    });
}

#[test]
fn a_waiter_goes_on_after_a_signal() {
    on_world(|world| {
        for side in 1..world.roots().len() {
            let mut all = programs(world);
            let mut waiter = all.remove(side);
            assert_eq!(all[0].ask("try fcntl write 0 10"), "yes");
            wait_for(world, &mut waiter, "wait fcntl write 0 10");
            let pid = rustix::process::Pid::from_raw(waiter.id() as i32).unwrap();
            rustix::process::kill_process(pid, Signal::USR1).unwrap();
            // `EINTR`: the script's handler is installed without `SA_RESTART`.
            assert_eq!(waiter.hear(), "no, 4");
            assert_eq!(all[0].ask("try fcntl drop 0 0"), "yes");
            assert_eq!(waiter.ask("try fcntl write 0 10"), "yes");
        }
    });
}

#[test]
fn two_mounts_that_would_wait_for_each_other_are_told() {
    on_world(|world| {
        let mut all = programs(world);
        for one in 0..all.len() {
            let other = (one + 1) % all.len();
            assert_eq!(all[one].ask("try fcntl write 0 10"), "yes");
            assert_eq!(all[other].ask("try fcntl write 10 10"), "yes");
            wait_for(world, &mut all[one], "wait fcntl write 10 10");
            assert_eq!(all[other].ask("wait fcntl write 0 10"), DEADLOCK);
            assert_eq!(all[other].ask("try fcntl drop 0 0"), "yes");
            assert_eq!(all[one].hear(), "yes");
            assert_eq!(all[one].ask("try fcntl drop 0 0"), "yes");
        }
    });
}

/// Open files of a killed client are released, and its locks are dropped, when its session ends.
/// This test waits for a term of 10 seconds: the server cannot know earlier that the client does
/// not come back.
#[test]
fn what_a_killed_client_held_ends_with_its_term() {
    on_server(|world| {
        let far = [world.mount_unix("unix"), world.mount_tls("tls")];
        let own = world.volume.files();
        let mut near = locker(&new_file(&own));
        let mut holders: Vec<Program> =
            far.iter().map(|mount| locker(&mount.path("locked"))).collect();
        for (at, holder) in holders.iter_mut().enumerate() {
            assert_eq!(holder.ask(&format!("try fcntl write {at} 1")), "yes");
        }
        let unnamed: Vec<File> = far
            .iter()
            .enumerate()
            .map(|(at, mount)| {
                let file = File::create(mount.path(&format!("unnamed{at}"))).unwrap();
                fs::remove_file(own.join(format!("unnamed{at}"))).unwrap();
                file
            })
            .collect();
        far.iter().for_each(|mount| world.kill(mount));
        for at in 0..far.len() {
            assert_eq!(near.ask(&format!("try fcntl write {at} 1")), TAKEN);
        }
        assert_eq!(near.ask("wait fcntl write 0 10"), "yes");
        until("the sessions are over", || world.status()["sessions"] == serde_json::json!([]));
        drop((near, holders, unnamed));
        world.volume.wait_until_closed();
    });
}
