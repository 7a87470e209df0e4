//! Rows that disagree with the inodes to which they belong.

use super::*;

/// An id that no inode has.
const NO_INODE: InodeId = InodeId::from_raw(77);

#[test]
fn wrong_counts_are_counted_again() {
    let rig = Rig::new();
    let wrong = Partition { names: 1, ..Partition::default() };
    rig.put(key::partition(rig.dir.handle.ino, 0), wrong.encode(STAMP));
    rig.expect(&[Damage::Counts]);
}

#[test]
fn counts_of_no_directory_are_removed() {
    let rig = Rig::new();
    let stray = Partition { names: 1, ..Partition::default() };
    rig.put(key::partition(NO_INODE, 0), stray.encode(STAMP));
    rig.expect(&[Damage::Counts]);
    assert_eq!(rig.table.get(&key::partition(NO_INODE, 0)).unwrap(), None);
}

/// The server counts a dirty partition again by itself.
#[test]
fn wrong_counts_of_a_dirty_partition_are_no_damage() {
    let rig = Rig::new();
    let dirty = Partition { names: 1, dirty: true, ..Partition::default() };
    rig.put(key::partition(rig.dir.handle.ino, 0), dirty.encode(STAMP));
    assert!(rig.plan().is_whole());
}

#[test]
fn extended_attributes_of_no_inode_are_removed() {
    let rig = Rig::new();
    rig.put(key::xattr(NO_INODE, b"user.x"), Xattr { value: b"" }.encode(STAMP));
    rig.expect(&[Damage::XattrStray]);
    let names = XattrNames { names: b"user.x\0" }.encode(STAMP);
    rig.put(key::xattr_names(NO_INODE), names);
    rig.expect(&[Damage::XattrStray]);
}

#[test]
fn the_list_of_extended_attributes_gets_a_missing_name() {
    let rig = Rig::new();
    let small = rig.small.handle.ino;
    rig.put(key::xattr(small, b"user.b"), Xattr { value: b"" }.encode(STAMP));
    rig.expect(&[Damage::XattrNames]);
    assert_eq!(rig.xattr_names(small), b"user.a\0user.b\0");
}

#[test]
fn a_missing_list_of_extended_attributes_is_written_again() {
    let rig = Rig::new();
    let small = rig.small.handle.ino;
    rig.delete(key::xattr_names(small));
    rig.expect(&[Damage::XattrNames]);
    assert_eq!(rig.xattr_names(small), b"user.a\0");
}

#[test]
fn the_list_of_extended_attributes_loses_a_name_that_is_gone() {
    let rig = Rig::new();
    let small = rig.small.handle.ino;
    rig.put(key::xattr(small, b"user.b"), Xattr { value: b"" }.encode(STAMP));
    rig.expect(&[Damage::XattrNames]);
    rig.delete(key::xattr(small, b"user.b"));
    rig.expect(&[Damage::XattrNames]);
    assert_eq!(rig.xattr_names(small), b"user.a\0");
}

#[test]
fn a_file_without_its_last_extended_attribute_has_none() {
    let rig = Rig::new();
    rig.delete(key::xattr(rig.small.handle.ino, b"user.a"));
    rig.expect(&[Damage::XattrFlag, Damage::XattrNames]);
}

#[test]
fn flags_of_access_control_lists_follow_the_lists() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let small = rig.small.handle.ino;
    for (ino, name) in [(small, ACL_ACCESS), (dir, ACL_DEFAULT)] {
        rig.put(key::xattr(ino, name), Xattr { value: b"" }.encode(STAMP));
        rig.expect(&[Damage::XattrFlag]);
        rig.delete(key::xattr(ino, name));
        rig.expect(&[Damage::XattrFlag]);
    }
}

#[test]
fn a_wrong_row_of_a_moved_file_is_corrected() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let large = rig.large.handle.ino;
    rig.put(key::moved(large), Moved { dir, hash: NameHash(1) }.encode(STAMP));
    rig.expect(&[Damage::Moved]);
}

#[test]
fn a_missing_row_of_a_moved_file_is_restored() {
    let rig = Rig::new();
    let large = rig.large.handle.ino;
    rig.delete(key::moved(large));
    rig.expect(&[Damage::Moved]);
    assert!(rig.table.get(&key::moved(large)).unwrap().is_some());
}

#[test]
fn an_orphan_row_of_a_file_with_a_name_is_removed() {
    let rig = Rig::new();
    rig.put(key::orphan(rig.small.handle.ino), Orphan { generation: None }.encode(STAMP));
    rig.expect(&[Damage::OrphanStray]);
}

#[test]
fn a_writing_row_without_a_content_file_is_a_leftover() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let small = rig.small.handle.ino;
    let row = Writing { dir, hash: NameHash(0), generation: Generation::FIRST };
    rig.put(key::writing(small), row.encode(STAMP));
    assert!(rig.plan().is_whole(), "it only takes space");
    rig.expect(&[Damage::MarkStray]);
}

#[test]
fn a_low_high_water_mark_is_raised() {
    let rig = Rig::new();
    rig.put(key::high_water(0), HighWater { next: 3 }.encode(STAMP));
    rig.expect(&[Damage::Number]);
    let row = rig.table.get(&key::high_water(0)).unwrap().unwrap();
    assert!(HighWater::decode(&row).unwrap().1.next > 8);
}

#[test]
fn a_removed_file_gets_its_orphan_row_back() {
    let rig = Rig::new();
    let range = key::all(RowKind::Orphan);
    let mut orphan = Vec::new();
    rig.table
        .scan(&range.from, &range.to, &mut |key, _| {
            orphan = key.to_vec();
            std::ops::ControlFlow::Break(())
        })
        .unwrap();
    rig.delete(orphan.clone());
    rig.expect(&[Damage::Unburied]);
    assert!(rig.table.get(&orphan).unwrap().is_some());
}
