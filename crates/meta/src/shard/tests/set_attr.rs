//! Changes of attributes.

use super::*;

#[test]
fn the_time_of_a_directory_can_be_set_back_and_is_stored() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    rig.file(dir, "f", 120);
    let set = SetAttr { mtime: Some(SetTime::To(at(5))), ..SetAttr::default() };
    assert_eq!(rig.shard.set_attr(dir, &set, at(130)).unwrap().mtime, at(5));
    assert_eq!(rig.shard.attr(dir).unwrap().mtime, at(5));
    rig.shard.write_counts().unwrap();
    assert_eq!(rig.cold().shard.attr(dir).unwrap().mtime, at(5));
}

fn to_another_owner() -> SetAttr {
    SetAttr { uid: Some(11), ..SetAttr::default() }
}

#[test]
fn a_change_of_the_owner_clears_setuid_and_setgid() {
    let rig = Rig::new();
    let file = rig.make(ROOT, "f", NewInode::file(NewMode::exactly(0o6755)), 110).handle;
    assert_eq!(rig.shard.set_attr(file, &to_another_owner(), at(120)).unwrap().mode, 0o755);
}

#[test]
fn setgid_without_group_execution_survives_a_change_of_the_owner() {
    let rig = Rig::new();
    let file = rig.make(ROOT, "f", NewInode::file(NewMode::exactly(0o2745)), 110).handle;
    assert_eq!(rig.shard.set_attr(file, &to_another_owner(), at(120)).unwrap().mode, 0o2745);
}

#[test]
fn a_mode_that_is_set_with_the_owner_counts() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    let both = SetAttr { mode: Some(0o4700), ..to_another_owner() };
    assert_eq!(rig.shard.set_attr(file, &both, at(130)).unwrap().mode, 0o4700);
}

/// Setuid and setgid of a directory say who owns new nodes in it: no privilege that a new owner
/// could misuse.
#[test]
fn a_directory_keeps_its_setgid_bit_when_it_gets_another_owner() {
    let rig = Rig::new();
    let dir = rig.make(ROOT, "d", NewInode::directory(NewMode::exactly(0o2775)), 110).handle;
    let set = SetAttr { gid: Some(7), kill_privileges: true, ..SetAttr::default() };
    assert_eq!(rig.shard.set_attr(dir, &set, at(120)).unwrap().mode, 0o2775);
}
