//! Creates.

use super::*;

#[test]
fn a_new_file_is_found_by_its_name() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110);
    let file = rig.file(dir.handle, "f", 120);
    assert_eq!(rig.lookup(dir.handle, "f"), Ok(file));
    assert_eq!(rig.lookup(dir.handle, "g"), Err(Code::NotFound));
    assert_eq!(rig.lookup(file.handle, "x"), Err(Code::NotDirectory));
}

#[test]
fn a_new_file_belongs_to_its_caller() {
    let file = Rig::new().file(ROOT, "f", 120);
    assert_eq!((file.attr.uid, file.attr.gid, file.attr.links), (10, 20, 1));
}

#[test]
fn a_directory_counts_its_names_and_directories() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110);
    rig.file(dir.handle, "f", 120);
    let attr = rig.shard.attr(dir.handle).unwrap();
    assert_eq!((attr.size, attr.links, attr.mtime), (1, 2, at(120)));
    assert_eq!(rig.links(ROOT), 3);
    assert_eq!(rig.shard.parent(dir.handle).unwrap().handle, ROOT);
}

#[test]
fn a_name_is_made_once() {
    let rig = Rig::new();
    rig.dir(ROOT, "d", 110);
    let new = NewInode::file(NewMode::exactly(0));
    let again = rig.shard.create(&CALLER, ROOT, &name("d"), new, at(130));
    assert_eq!(again.unwrap_err().code, Code::Exists);
}

#[test]
fn a_setgid_directory_gives_its_group_to_new_nodes() {
    let rig = Rig::new();
    let dir = rig.make(ROOT, "d", NewInode::directory(NewMode::exactly(0o2775)), 110);
    let set = SetAttr { gid: Some(77), ..SetAttr::default() };
    rig.shard.set_attr(dir.handle, &set, at(111)).unwrap();
    let file = rig.file(dir.handle, "f", 112);
    let below = rig.dir(dir.handle, "s", 113);
    assert_eq!((file.attr.gid, file.attr.mode), (77, 0o644));
    assert_eq!((below.attr.gid, below.attr.mode), (77, 0o2755));
}

/// What a new file costs other callers. Only making it takes the shard's lock and writes a batch;
/// writing into it and releasing it do neither.
#[test]
fn a_new_file_takes_the_lock_once_and_writes_one_batch() {
    let rig = Rig::new();
    let live = LiveAttrs { size: 42, blocks: 8, mtime: at(120), ctime: at(120) };
    let costs = |number: u32| {
        let before = (rig.shard.state.lock().locked_times, rig.table.unsafe_batches());
        let new = NewInode::file(NewMode::exactly(0o644));
        let text = format!("f{number}");
        let made = rig.shard.create_open(&CALLER, ROOT, &name(&text), new, at(110)).unwrap();
        rig.shard.set_live_attrs(made.handle.ino, Some(live));
        assert!(!rig.shard.release(made.handle.ino));
        let after = (rig.shard.state.lock().locked_times, rig.table.unsafe_batches());
        (after.0 - before.0, after.1 - before.1)
    };
    // The first one reserves ids.
    costs(0);
    assert!((1..100).all(|number| costs(number) == (1, 1)));
}
