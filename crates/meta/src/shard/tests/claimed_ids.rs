//! Ids of inodes that were lost, which their clients give when they make them again (I-3).

use pelago_store::rows::{Orphan, Writing};
use pelago_wire::Generation;
use pelago_wire::codec::{Replayed, ReplyStamp};

use super::*;

/// Makes a file whose client says that it was this one. Returns whether it got the id.
fn is_given(rig: &Rig, node: Handle) -> bool {
    let stamp = ReplyStamp { epoch: 1, sequence: 1 };
    let replayed = Replayed { stamp, node: Some(node), time: None };
    let context = Context { replayed: Some(replayed), ..CALLER };
    let again = NewInode::file(NewMode::exactly(0o644));
    let made = rig.shard.create(&context, ROOT, &name("again"), again, at(300)).unwrap();
    made.attr.ino == node.ino
}

#[test]
fn a_lost_file_gets_its_id_again_and_no_second_one_does() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    rig.table.persist().unwrap();
    let lost = rig.file(ROOT, "f", 110).handle;
    let next = rig.crashed(0);
    assert!(is_given(&next, lost));
    next.rename(ROOT, "again", dir, "f", RenameFlags::Replace).unwrap();
    assert!(!is_given(&next, lost));
}

/// Wherever its inode is: no client takes the id of a file that was not lost.
#[test]
fn the_id_of_a_file_that_is_there_is_not_given_again() {
    let rig = Rig::new();
    let embedded = rig.file(ROOT, "embedded", 110).handle;
    assert!(!is_given(&rig.crashed(usize::MAX), embedded), "only its name has it");
    let linked = rig.file(ROOT, "linked", 111).handle;
    rig.shard.link(linked, ROOT, &name("second"), at(112)).unwrap();
    assert!(!is_given(&rig.crashed(usize::MAX), Handle::own(linked.ino)));
    rig.file(ROOT, "before", 113);
    let moved = rig.rename(ROOT, "before", ROOT, "behind", RenameFlags::Replace).unwrap();
    assert!(!is_given(&rig.crashed(usize::MAX), Handle::own(moved.moved.ino)));
    let dir = rig.dir(ROOT, "d", 114).handle;
    assert!(!is_given(&rig.crashed(usize::MAX), dir));
}

/// Its content file would be that of two files, or be removed with the first one.
#[test]
fn the_id_of_a_content_file_that_is_in_use_is_not_given_again() {
    let ino = InodeId::from_raw(500);
    let generation = Generation::FIRST;
    let stamp = Stamp { epoch: 1, sequence: 9 };
    let Handle { dir, hash, .. } = Handle::ROOT;
    let orphan = Orphan { generation: Some(generation) }.encode(stamp);
    let writing = Writing { dir, hash, generation }.encode(stamp);
    for (key, row) in [(key::orphan(ino), orphan), (key::writing(ino), writing)] {
        let rig = Rig::new();
        let mut batch = Batch::new();
        batch.put(key, row);
        rig.table.write(&batch).unwrap();
        assert!(!is_given(&rig.crashed(usize::MAX), Handle::own(ino)));
    }
    assert!(is_given(&Rig::new().crashed(0), Handle::own(ino)), "it is given without these rows");
}
