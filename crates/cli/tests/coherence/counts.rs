//! The number of requests that changes by other sessions cause in the server's own mount.

use std::fs;

use pelago_wire::NewMode;

use crate::coherence::world::World;
use crate::coherence::{CONTEXT, is_missing, size};

const INODES: u64 = 20;

/// Makes directories, and uses names and attributes that the kernel has cached.
fn use_inodes(world: &World, round: u32) {
    for number in 0..INODES {
        fs::create_dir(world.path(&format!("{round} {number}"))).unwrap();
    }
    for _ in 0..5 {
        for number in 0..INODES {
            assert_eq!(size(world, &format!("{round} {number}")), 0);
            assert!(is_missing(world, "missing"));
        }
    }
}

/// Returns the requests of a use, after one that has warmed what is warmed once.
fn requests(world: &World) -> (u64, u64) {
    use_inodes(world, 1);
    world.watched.forget_counts();
    use_inodes(world, 2);
    (world.watched.take("lookup"), world.watched.take("getattr"))
}

/// An idle session adds the question for the attributes that rode on an entry, once for each inode.
#[test]
fn an_idle_session_adds_one_getattr_for_each_new_inode() {
    let Some(world) = World::alone(false) else { return };
    let alone = requests(&world);
    assert_eq!(world.mount.notices(), Default::default());
    drop(world);
    let Some(world) = World::new(false) else { return };
    let beside = requests(&world);
    println!("alone {alone:?}, beside {beside:?}");
    assert_eq!(beside.0, alone.0, "no lookup more");
    assert_eq!(beside.1, alone.1 + INODES);
    assert_eq!(world.mount.notices(), Default::default());
}

/// After the end of the last session the kernel caches replies as before the first one.
#[test]
fn after_the_last_session_all_is_as_before() {
    let Some(world) = World::alone(false) else { return };
    let alone = requests(&world);
    drop(world);
    let Some(world) = World::new(false) else { return };
    world.put("theirs", b"x");
    world.server.session_service().end_session(crate::coherence::world::OTHER);
    assert_eq!(requests(&world), alone);
}

#[test]
fn a_change_in_a_directory_that_the_kernel_does_not_know_tells_no_name() {
    let Some(world) = World::new(false) else { return };
    let mode = NewMode::exactly(0o755);
    world.other.make_dir(&CONTEXT, world.at("theirs"), mode).wait().unwrap();
    let before = world.mount.notices();
    world.put("theirs/f", b"bytes");
    assert_eq!(world.mount.notices(), before);
    assert_eq!(fs::read(world.path("theirs/f")).unwrap(), b"bytes");
    world.put("theirs/g", b"bytes");
    assert_eq!(world.mount.notices().names, before.names + 1);
}
