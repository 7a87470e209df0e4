//! Renames.

use super::*;

const REPLACE: RenameFlags = RenameFlags::Replace;

/// The root with directories `d` (empty) and `full` (with a file `x`), and files `a` and `b`.
struct Tree {
    rig: Rig,
    dir: Handle,
    full: Handle,
    a: Handle,
    b: Handle,
}

impl Tree {
    fn new() -> Self {
        let rig = Rig::new();
        let dir = rig.dir(ROOT, "d", 110).handle;
        let full = rig.dir(ROOT, "full", 110).handle;
        rig.file(full, "x", 111);
        let a = rig.file(ROOT, "a", 112).handle;
        let b = rig.file(ROOT, "b", 113).handle;
        Self { rig, dir, full, a, b }
    }
}

#[test]
fn a_rename_refuses_targets_of_another_kind() {
    let Tree { rig, .. } = Tree::new();
    assert_eq!(rig.rename(ROOT, "a", ROOT, "d", REPLACE), Err(Code::IsDirectory));
    assert_eq!(rig.rename(ROOT, "d", ROOT, "a", REPLACE), Err(Code::NotDirectory));
}

#[test]
fn a_rename_refuses_targets_that_are_full_taken_or_missing() {
    let Tree { rig, .. } = Tree::new();
    assert_eq!(rig.rename(ROOT, "d", ROOT, "full", REPLACE), Err(Code::NotEmpty));
    assert_eq!(rig.rename(ROOT, "a", ROOT, "b", RenameFlags::NoReplace), Err(Code::Exists));
    assert_eq!(rig.rename(ROOT, "a", ROOT, "no", RenameFlags::Exchange), Err(Code::NotFound));
}

#[test]
fn a_directory_cannot_move_into_itself() {
    let Tree { rig, dir, .. } = Tree::new();
    assert_eq!(rig.rename(ROOT, "d", dir, "x", REPLACE), Err(Code::WouldLoop));
}

#[test]
fn an_exchange_swaps_two_files() {
    let Tree { rig, full, a, .. } = Tree::new();
    let x = rig.lookup(full, "x").unwrap().handle;
    rig.rename(ROOT, "a", full, "x", RenameFlags::Exchange).unwrap();
    assert_eq!(rig.lookup(full, "x").unwrap().handle.ino, a.ino);
    assert_eq!(rig.lookup(ROOT, "a").unwrap().handle.ino, x.ino);
}

#[test]
fn a_replaced_file_is_gone() {
    let Tree { rig, full, b, .. } = Tree::new();
    let x = rig.lookup(full, "x").unwrap().handle;
    rig.rename(ROOT, "b", full, "x", REPLACE).unwrap();
    assert_eq!(rig.lookup(full, "x").unwrap().handle.ino, b.ino);
    assert_eq!(rig.shard.attr(x).unwrap_err().code, Code::Stale);
}

#[test]
fn a_directory_that_moved_has_another_parent() {
    let Tree { rig, dir, full, .. } = Tree::new();
    rig.rename(ROOT, "d", full, "d", REPLACE).unwrap();
    assert_eq!(rig.shard.parent(dir).unwrap().handle.ino, full.ino);
    assert_eq!(rig.names(ROOT), strings(&["a", "b", "full"]));
    assert_eq!(rig.names(full), strings(&["d", "x"]));
    assert_eq!((rig.links(ROOT), rig.links(full)), (3, 3));
}

#[test]
fn a_rename_between_two_names_of_one_file_does_nothing() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "a", 110).handle;
    rig.shard.link(file, ROOT, &name("b"), at(120)).unwrap();
    rig.rename(ROOT, "a", ROOT, "b", REPLACE).unwrap();
    assert_eq!(rig.names(ROOT), strings(&["a", "b"]));
    assert_eq!(rig.links(file), 2);
}

const WHITEOUT: RenameFlags = RenameFlags::Whiteout { replace: true };

#[test]
fn a_whiteout_does_not_replace_unless_told_to() {
    let Tree { rig, .. } = Tree::new();
    let flags = RenameFlags::Whiteout { replace: false };
    assert_eq!(rig.rename(ROOT, "a", ROOT, "b", flags), Err(Code::Exists));
}

/// The whiteout comes with the rename: whichever prefix of the batches stays, the old name leads to
/// the file or to the whiteout.
#[test]
fn a_rename_leaves_a_whiteout_in_one_batch() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    let file = rig.file(dir, "a", 111).handle;
    let other = rig.file(dir, "b", 112).handle;
    // The first create of a run reserves ids in a batch of its own.
    let before = rig.table.unsafe_batches();
    rig.rename(dir, "a", dir, "b", WHITEOUT).unwrap();
    assert_eq!(rig.table.unsafe_batches(), before + 1);
    let crashed = rig.crashed(before);
    assert_eq!(crashed.lookup(dir, "a").unwrap().handle.ino, file.ino);
    assert_eq!(crashed.lookup(dir, "b").unwrap().handle.ino, other.ino);
    for rig in [&rig, &rig.crashed(before + 1)] {
        assert_eq!(rig.lookup(dir, "b").unwrap().handle.ino, file.ino);
        assert_eq!(rig.shard.attr(other).unwrap_err().code, Code::Stale);
        let whiteout = rig.lookup(dir, "a").unwrap().attr;
        assert_eq!((whiteout.kind, whiteout.rdev), (FileKind::CharDevice, 0));
        assert_eq!((whiteout.mode, whiteout.uid, whiteout.links), (0, CALLER.uid, 1));
        assert_eq!(rig.names(dir), strings(&["a", "b"]));
    }
}

#[test]
fn a_whiteout_of_a_directory_counts_as_a_name_and_no_directory() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    rig.dir(dir, "sub", 120);
    let counts = || {
        let attr = rig.shard.attr(dir).unwrap();
        (attr.links, attr.size)
    };
    assert_eq!(counts(), (3, 1));
    rig.rename(dir, "sub", ROOT, "sub", WHITEOUT).unwrap();
    assert_eq!(counts(), (2, 1));
}
