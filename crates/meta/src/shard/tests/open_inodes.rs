//! Open inodes: their rows outlive their names, and their attributes are shown everywhere.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn an_open_file_outlives_its_name() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    rig.shard.acquire(file).unwrap();
    rig.shard.unlink(ROOT, &name("f"), at(120)).unwrap();
    assert_eq!(rig.links(file), 0);
    assert!(rig.table.get(&key::orphan(file.ino)).unwrap().is_some());
    assert!(rig.shard.release(file.ino));
}

#[test]
fn a_file_that_lost_its_last_name_gets_no_other() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    rig.shard.acquire(file).unwrap();
    rig.shard.unlink(ROOT, &name("f"), at(120)).unwrap();
    let linked = rig.shard.link(file, ROOT, &name("g"), at(130));
    assert_eq!(linked.unwrap_err().code, Code::NotFound);
}

#[test]
fn only_the_last_reference_of_an_unnamed_file_makes_it_an_orphan() {
    let rig = Rig::new();
    let file = rig.unnamed(110).handle;
    rig.shard.acquire(file).unwrap();
    assert!(!rig.shard.release(file.ino) && rig.shard.is_open(file.ino));
    assert!(rig.shard.release(file.ino) && !rig.shard.is_open(file.ino));
}

/// The release of a file whose last name is being removed reports the orphan when its row is there,
/// and not before.
#[test]
fn the_last_release_waits_for_the_removal_of_the_last_name() {
    let rig = Rig::new();
    let ino = rig.file(ROOT, "f", 110).handle.ino;
    rig.shard.acquire(Handle::own(ino)).unwrap();
    let written = AtomicBool::new(false);
    thread::scope(|threads| {
        let unlinking = rig.shard.state.lock();
        assert!(rig.shard.open_inodes.set_unnamed(ino, InodeId::ROOT, Some(&name("f"))));
        let opener = threads.spawn(|| (rig.shard.release(ino), written.load(Ordering::Acquire)));
        while rig.shard.open_inodes.contains(ino) {
            thread::yield_now();
        }
        written.store(true, Ordering::Release);
        drop(unlinking);
        assert_eq!(opener.join().unwrap(), (true, true));
    });
}

const LIVE: LiveAttrs = LiveAttrs {
    size: 42,
    blocks: 8,
    mtime: Time { seconds: 120, nanos: 0 },
    ctime: Time { seconds: 120, nanos: 0 },
};

#[test]
fn every_attribute_of_an_open_file_has_what_is_not_committed() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    rig.shard.acquire(file).unwrap();
    rig.shard.set_live_attrs(file.ino, Some(LIVE));
    let page = Page { dir: ROOT, after: Cookie::START, behind: None, entries: 9, attributes: true };
    let listed = rig.shard.list(page).unwrap().0[0].entry.unwrap().attr;
    for attr in [listed, rig.shard.attr(file).unwrap(), rig.lookup(ROOT, "f").unwrap().attr] {
        assert_eq!((attr.size, attr.mtime), (42, at(120)));
    }
}

#[test]
fn a_commit_writes_the_attributes_of_an_open_file() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    rig.shard.acquire(file).unwrap();
    rig.shard.set_live_attrs(file.ino, Some(LIVE));
    let change = BytesChange { live: Some(LIVE), ..BytesChange::NOTHING };
    let (attr, _) = rig.shard.commit_bytes(file, &change).unwrap();
    assert_eq!(attr, rig.shard.attr(file).unwrap());
    assert_eq!(rig.cold().lookup(ROOT, "f").unwrap().attr, attr);
}
