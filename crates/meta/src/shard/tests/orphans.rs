//! Files without a name that are not open.

use pelago_store::rows::Orphan as OrphanRow;
use pelago_wire::Generation;

use super::*;

/// A link may come while the file is released: the worker finds that it has a name.
#[test]
fn a_file_that_was_linked_in_time_is_not_removed() {
    let rig = Rig::new();
    let file = rig.unnamed(110).handle;
    rig.shard.link(file, ROOT, &name("f"), at(120)).unwrap();
    assert!(!rig.shard.release(file.ino));
    assert!(rig.shard.remove_unnamed(file.ino).unwrap().is_none());
    assert_eq!(rig.names(ROOT), strings(&["f"]));
}

#[test]
fn a_file_that_was_released_without_a_name_is_removed() {
    let rig = Rig::new();
    let file = rig.unnamed(130).handle;
    assert!(rig.shard.release(file.ino));
    assert_eq!(rig.shard.link(file, ROOT, &name("g"), at(140)).unwrap_err().code, Code::NotFound);
    assert!(rig.shard.remove_unnamed(file.ino).unwrap().is_some());
    assert_eq!(rig.shard.attr(file).unwrap_err().code, Code::Stale);
}

#[test]
fn an_open_file_is_not_removed() {
    let rig = Rig::new();
    let file = rig.unnamed(110).handle;
    assert!(rig.shard.remove_unnamed(file.ino).unwrap().is_none());
    assert_eq!(rig.links(file), 0);
}

#[test]
#[should_panic = "I-6"]
fn the_orphan_row_of_an_open_file_stays() {
    let rig = Rig::new();
    let file = rig.unnamed(110).handle;
    let _never = rig.shard.delete_orphan_rows(&[file.ino]);
}

/// A file that outgrows the inline limit while it is open without a name: the worker must find its
/// content file.
#[test]
fn an_orphan_that_gets_a_content_file_is_removed_with_it() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "a", 110).handle;
    rig.shard.acquire(file).unwrap();
    rig.shard.unlink(ROOT, &name("a"), at(120)).unwrap();
    let generation = Some(Generation::FIRST);
    let change = BytesChange { generation, ..BytesChange::NOTHING };
    rig.shard.commit_bytes(Handle::own(file.ino), &change).unwrap();
    let stored = rig.table.get(&key::orphan(file.ino)).unwrap().unwrap();
    assert_eq!(OrphanRow::decode(&stored).unwrap().1.generation, generation);
    assert!(rig.shard.release(file.ino));
    assert_eq!(rig.shard.remove_unnamed(file.ino).unwrap().unwrap().1, generation);
}
