//! Handles from before a rename, from before a second name, and from before all names but one were
//! removed: they lead to the file, with warm caches and with cold ones.

use super::*;

/// Both handles lead to the file, which has this many names.
fn assert_found(rig: &Rig, handles: [Handle; 2], links: u32) {
    for rig in [rig, &rig.cold()] {
        for handle in handles {
            let attr = rig.shard.attr(handle).unwrap();
            assert_eq!((attr.ino, attr.links), (handle.ino, links));
        }
    }
}

/// Handles of a file that was renamed from `f` in the root to `g` in `d`.
fn renamed(rig: &Rig) -> [Handle; 2] {
    let dir = rig.dir(ROOT, "d", 110);
    let old = rig.file(ROOT, "f", 120).handle;
    let new = rig.rename(ROOT, "f", dir.handle, "g", RenameFlags::Replace).unwrap().moved;
    assert_ne!(new, old);
    [old, new]
}

#[test]
fn a_handle_survives_a_rename() {
    let rig = Rig::new();
    let handles = renamed(&rig);
    assert_found(&rig, handles, 1);
}

#[test]
fn a_handle_survives_a_link_and_the_removal_of_its_own_name() {
    let rig = Rig::new();
    let handles = renamed(&rig);
    rig.shard.link(handles[1], ROOT, &name("h"), at(400)).unwrap();
    assert_found(&rig, handles, 2);
    let dir = rig.lookup(ROOT, "d").unwrap().handle;
    rig.shard.unlink(dir, &name("g"), at(410)).unwrap();
    assert_found(&rig, handles, 1);
}

#[test]
fn a_handle_of_a_removed_file_is_stale() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 120).handle;
    rig.shard.unlink(ROOT, &name("f"), at(420)).unwrap();
    assert_eq!(rig.shard.attr(file).unwrap_err().code, Code::Stale);
}
