//! Dead far mounts, whose process was killed at a random moment.

use rustix::process::{Signal, kill_process};

use crate::harness::program::{pelago, run, until};
use crate::harness::volume::{cannot_mount, has_threads};
use crate::notices::world::World;

/// Returns a world whose far mount is dead.
fn dead() -> Option<World> {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return None;
    }
    let world = World::new();
    kill_process(world.far.pid, Signal::KILL).unwrap();
    until("killed", || !has_threads(world.far.pid));
    Some(world)
}

#[test]
fn the_same_command_mounts_a_dead_far_mount_again() {
    let Some(mut world) = dead() else { return };
    world.mount();
    world.assert_serves(0);
    world.finish();
}

#[test]
fn status_and_unmount_of_a_dead_far_mount_name_its_verb() {
    let Some(mut world) = dead() else { return };
    let point = world.far.point.to_str().unwrap().to_owned();
    let say = |verb| run(&mut pelago(&world.volume.root, [verb, point.as_str()]));
    let status = say("status").expect_code(5);
    assert!(status.out.contains("dead") && status.out.contains("the same `pelago mount`"));
    let unmounted = say("unmount").expect_success();
    assert!(unmounted.out.contains("its process was gone; `pelago mount` mounts it again"));
    for said in [&status.out, &unmounted.out] {
        assert!(!said.contains("pelago up"), "{said}");
    }
    world.mount();
    world.finish();
}
