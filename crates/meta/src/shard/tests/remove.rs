//! Removals of names and files.

use pelago_store::rows::Inline as InlineRow;

use super::*;

/// A file with inline bytes, an extended attribute, and a row that says that it moved.
fn file_with_many_rows(rig: &Rig, dir: Handle, text: &str) -> Handle {
    rig.file(dir, "before the rename", 110);
    let moved = rig.rename(dir, "before the rename", dir, text, RenameFlags::Replace);
    let handle = moved.unwrap().moved;
    rig.shard.set_xattr(handle, &xattr(b"user.a", b"1", XattrFlags::Any), at(111)).unwrap();
    let live = LiveAttrs { size: 3, blocks: 8, mtime: at(112), ctime: at(112) };
    let change =
        BytesChange { live: Some(live), inline: InlineBytes::Put(b"abc"), ..BytesChange::NOTHING };
    rig.shard.commit_bytes(handle, &change).unwrap();
    handle
}

#[test]
fn inline_bytes_are_a_row() {
    let rig = Rig::new();
    let handle = file_with_many_rows(&rig, ROOT, "f");
    let bytes = rig.table.get(&key::inline(handle.ino)).unwrap().unwrap();
    assert_eq!(InlineRow::decode(&bytes).unwrap().1.bytes, b"abc");
}

#[test]
fn a_removed_file_leaves_no_row() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 105).handle;
    rig.file(dir, "before", 106);
    rig.shard.unlink(dir, &name("before"), at(107)).unwrap();
    rig.shard.write_counts().unwrap();
    let before = rig.row_keys();
    file_with_many_rows(&rig, dir, "f");
    rig.shard.unlink(dir, &name("f"), at(120)).unwrap();
    rig.shard.write_counts().unwrap();
    assert_eq!(rig.row_keys(), before);
}

/// A caller that still refers to the node shows these attributes from then on.
#[test]
fn a_removal_returns_the_attributes_of_the_removed_node() {
    let rig = Rig::new();
    rig.dir(ROOT, "d", 110);
    let dir = rig.shard.remove_dir(ROOT, &name("d"), at(120)).unwrap().attr;
    assert_eq!((dir.kind, dir.links, dir.ctime), (FileKind::Directory, 0, at(120)));
    let file = rig.file(ROOT, "f", 130).handle;
    rig.shard.link(file, ROOT, &name("g"), at(140)).unwrap();
    assert_eq!(rig.shard.unlink(ROOT, &name("f"), at(150)).unwrap().attr.links, 1);
}

#[test]
fn a_rename_returns_the_attributes_of_the_replaced_node() {
    let rig = Rig::new();
    rig.dir(ROOT, "d", 160);
    let other = rig.dir(ROOT, "e", 170).handle;
    let renamed = rig.rename(ROOT, "d", ROOT, "e", RenameFlags::Replace).unwrap();
    let replaced = renamed.replaced.unwrap().attr;
    assert_eq!((replaced.ino, replaced.links, replaced.ctime), (other.ino, 0, at(300)));
}
