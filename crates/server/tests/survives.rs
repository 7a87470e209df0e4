//! Survival of a loss of power: the last column of "What survives what" in `docs/semantics.md`, a
//! test for each line, named after it. The tests call the group commit and the workers by hand.
//! `power.rs` and `loss` test all other moments.

use pelago_wire::{Code, Handle, RenameFlags, Request, SetAttr, XattrFlags};

use crate::harness::rig::{Rig, by_hand, name};

const ROOT: Handle = Handle::ROOT;

/// The machine dies: what was not made safe is gone.
fn without_power(rig: &Rig) -> Rig {
    let left = rig.crashed(0, by_hand());
    left.expect_whole("without power");
    left
}

#[test]
fn a_name_operation_that_was_answered() {
    let rig = Rig::new(by_hand());
    for text in ["a", "b", "gone"] {
        rig.put(ROOT, text, text.as_bytes()).unwrap();
    }
    rig.make_dir(ROOT, "dir").unwrap();
    let node = rig.lookup(ROOT, "a").unwrap().handle;
    rig.call(Request::Link { node, dir: ROOT, name: name("link") }).unwrap();
    rig.unlink(ROOT, "gone").unwrap();
    let from = name("b");
    let to = name("moved");
    let flags = RenameFlags::Replace;
    rig.call(Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags }).unwrap();
    rig.sync();
    rig.make_dir(ROOT, "late").unwrap();
    let left = without_power(&rig);
    assert!(left.tree().keys().eq(["/a", "/dir", "/link", "/moved"]));
    assert_eq!(left.lookup(ROOT, "link").unwrap().attr.links, 2);
}

#[test]
fn attributes_that_were_set() {
    let rig = Rig::new(by_hand());
    let node = rig.put(ROOT, "file", &[1; 100_000]).unwrap().handle;
    let set = SetAttr { mode: Some(0o751), uid: Some(7), ..SetAttr::default() };
    rig.call(Request::SetAttr { node, open: None, set }).unwrap();
    let xattr = b"user.x".to_vec();
    let value = b"value".to_vec();
    let flags = XattrFlags::Any;
    let request = Request::SetXattr { node, name: xattr, value, flags, kill_setgid: false };
    rig.call(request).unwrap();
    rig.sync();
    let left = without_power(&rig);
    let attr = left.lookup(ROOT, "file").unwrap().attr;
    assert_eq!((attr.mode, attr.uid), (0o751, 7));
    assert_eq!(left.tree()["/file"].xattrs, b"user.x\0");
}

#[test]
fn bytes_of_a_closed_file() {
    let rig = Rig::new(by_hand());
    for size in [0_usize, 10, 4096, 100_000] {
        rig.put(ROOT, &size.to_string(), &vec![3; size]).unwrap();
    }
    rig.sync();
    let left = without_power(&rig);
    for size in [0_usize, 10, 4096, 100_000] {
        assert_eq!(left.tree()[&format!("/{size}")].bytes.0, vec![3; size]);
    }
}

#[test]
fn bytes_of_an_open_file_beyond_the_inline_limit() {
    let rig = Rig::new(by_hand());
    let (_, open) = rig.create(ROOT, "file").unwrap();
    rig.write(open, 0, &[4; 100_000]).unwrap();
    rig.fsync(open).unwrap();
    rig.write(open, 100_000, &[5; 100_000]).unwrap();
    let left = without_power(&rig);
    let found = left.lookup(ROOT, "file").unwrap();
    assert_eq!(left.read(found.handle, 100_000).unwrap(), vec![4; 100_000]);
}

#[test]
fn bytes_of_an_open_file_within_the_inline_limit() {
    let rig = Rig::new(by_hand());
    let (_, old) = rig.create(ROOT, "old").unwrap();
    rig.write(old, 0, b"old").unwrap();
    rig.sync();
    let (_, synced) = rig.create(ROOT, "synced").unwrap();
    rig.write(synced, 0, b"synced").unwrap();
    rig.fsync(synced).unwrap();
    let (_, late) = rig.create(ROOT, "late").unwrap();
    rig.write(late, 0, b"late").unwrap();
    let left = without_power(&rig);
    let tree = left.tree();
    assert_eq!((&*tree["/old"].bytes.0, &*tree["/synced"].bytes.0), (&b"old"[..], &b"synced"[..]));
    assert_eq!(left.lookup(ROOT, "late").err(), Some(Code::NotFound));
}
