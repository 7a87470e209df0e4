//! Changes that build on unsafe ones of other sessions, and are answered once those are safe.

use pelago_wire::{RecordedPeer, SessionId, SessionRecord};

use super::*;
use crate::reply_cache::OpContext;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);

/// Two sessions and a directory `d` with these files, all safe.
fn scene(files: &[&str]) -> (Rig, Handle) {
    let rig = Rig::new();
    for session in [ONE, TWO] {
        let record = SessionRecord::new([0; 16], RecordedPeer::User(0));
        rig.shard.begin_session(session, &record).unwrap();
    }
    let dir = rig.dir(ROOT, "d", 110).handle;
    for file in files {
        rig.file(dir, file, 111);
    }
    make_safe(&rig);
    (rig, dir)
}

fn make_safe(rig: &Rig) {
    let sequence = rig.shard.write_counts().unwrap();
    rig.table.persist().unwrap();
    rig.shard.durability.persisted(sequence);
}

fn by(session: SessionId) -> OpContext {
    OpContext::by(&Context { session, ..CALLER }, at(200))
}

fn waits(rig: &Rig, session: SessionId) -> bool {
    rig.shard.builds_on_others(session, None)
}

fn move_by(rig: &Rig, session: SessionId, from_dir: Handle, from: &str, to_dir: Handle, to: &str) {
    let from = name(from);
    let to = name(to);
    let names = Move { from_dir, from: &from, to_dir, to: &to };
    let context = Context { session, ..CALLER };
    rig.shard.rename(&context, names, RenameFlags::Replace, by(session)).unwrap();
}

#[test]
fn the_removal_of_a_directory_builds_on_removals_in_it() {
    let (rig, dir) = scene(&["x"]);
    rig.shard.unlink(dir, &name("x"), by(ONE)).unwrap();
    rig.shard.remove_dir(ROOT, &name("d"), by(TWO)).unwrap();
    assert!(waits(&rig, TWO) && !waits(&rig, ONE));
    make_safe(&rig);
    assert!(!waits(&rig, TWO));
}

#[test]
fn a_rename_over_a_directory_builds_on_moves_out_of_it() {
    let (rig, dir) = scene(&["x"]);
    rig.dir(ROOT, "e", 112);
    make_safe(&rig);
    move_by(&rig, ONE, dir, "x", ROOT, "x");
    move_by(&rig, TWO, ROOT, "e", ROOT, "d");
    assert!(waits(&rig, TWO));
}

/// Its own removal does not hide that of the other.
#[test]
fn the_removal_of_a_directory_builds_on_all_removals_in_it() {
    let (rig, dir) = scene(&["x", "y"]);
    rig.shard.unlink(dir, &name("x"), by(ONE)).unwrap();
    rig.shard.unlink(dir, &name("y"), by(TWO)).unwrap();
    assert!(!waits(&rig, TWO) && !waits(&rig, ONE), "neither builds on the other");
    rig.shard.remove_dir(ROOT, &name("d"), by(TWO)).unwrap();
    assert!(waits(&rig, TWO));
}

/// Else it could be one below itself, once the other one is lost.
#[test]
fn a_move_of_a_directory_builds_on_moves_of_others() {
    let (rig, dir) = scene(&[]);
    let below = rig.dir(dir, "below", 112).handle;
    let deeper = rig.dir(below, "deeper", 113).handle;
    make_safe(&rig);
    move_by(&rig, ONE, dir, "below", ROOT, "beside");
    assert!(!waits(&rig, ONE));
    move_by(&rig, TWO, ROOT, "d", deeper, "d");
    assert!(waits(&rig, TWO));
}

#[test]
fn sessions_that_work_in_one_directory_do_not_wait_for_each_other() {
    let (rig, dir) = scene(&["a", "b", "c", "f"]);
    for (session, names) in [(ONE, ["a", "b", "new"]), (TWO, ["c", "f", "newer"])] {
        rig.shard.unlink(dir, &name(names[0]), by(session)).unwrap();
        move_by(&rig, session, dir, names[1], ROOT, names[1]);
        let context = Context { session, ..CALLER };
        let new = NewInode::file(NewMode::exactly(0o644));
        rig.shard.create(&context, dir, &name(names[2]), new, at(201)).unwrap();
    }
    assert!(!waits(&rig, ONE) && !waits(&rig, TWO));
}

/// The next run must know the session, so that its client can repeat the change.
#[test]
fn changes_wait_until_the_next_run_knows_their_session() {
    let (rig, dir) = scene(&["a", "b", "c", "d"]);
    let third = SessionId(3);
    let record = SessionRecord::new([0; 16], RecordedPeer::User(0));
    rig.shard.begin_session(third, &record).unwrap();
    rig.shard.unlink(dir, &name("a"), by(third)).unwrap();
    assert!(waits(&rig, third));
    make_safe(&rig);
    rig.shard.unlink(dir, &name("b"), by(third)).unwrap();
    assert!(!waits(&rig, third));
    rig.shard.forget_session(third).unwrap();
    make_safe(&rig);
    assert!(waits(&rig, third), "as long as it is forgotten");
    rig.shard.remember_session(third).unwrap();
    assert!(waits(&rig, third), "its row may be lost");
    make_safe(&rig);
    assert!(!waits(&rig, third));
}
