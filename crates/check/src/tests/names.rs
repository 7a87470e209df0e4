//! Damaged names, directories and loops.

use super::*;

#[test]
fn a_name_of_no_inode_is_removed() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let nothing = NameRow::Link { ino: InodeId::from_raw(99), kind: FileKind::Regular };
    rig.put(rig.name_key(dir, "nothing"), nothing.encode(STAMP));
    rig.expect(&[Damage::NameOfNothing, Damage::Counts]);
    assert_eq!(rig.name_row(dir, "nothing"), None);
}

#[test]
fn a_name_with_the_wrong_type_is_corrected() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let linked = rig.linked.handle.ino;
    let wrong = NameRow::Link { ino: linked, kind: FileKind::Fifo };
    rig.put(rig.name_key(dir, "two"), wrong.encode(STAMP));
    rig.expect(&[Damage::NameKind]);
}

#[test]
fn a_missing_parent_pointer_is_restored() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let linked = rig.linked.handle.ino;
    let two = key::parent_pointer(linked, dir, rig.hasher.hash(b"two"), b"two");
    rig.delete(two.clone());
    rig.expect(&[Damage::NameUnlisted, Damage::Links]);
    assert!(rig.table.get(&two).unwrap().is_some());
}

#[test]
fn a_missing_name_is_restored_from_its_parent_pointer() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let linked = rig.linked.handle.ino;
    rig.delete(rig.name_key(dir, "two"));
    rig.expect(&[Damage::NameMissing]);
    assert_eq!(rig.name_row(dir, "two").unwrap().ino(), linked);
    assert_eq!(rig.own(linked).links, 2);
}

#[test]
fn a_name_under_the_wrong_hash_is_stored_under_the_right_one() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let value = rig.table.get(&rig.name_key(dir, "small")).unwrap().unwrap();
    rig.delete(rig.name_key(dir, "small"));
    rig.put(key::name(dir, NameHash(1), b"small"), value);
    rig.expect(&[Damage::NameHash]);
    assert_eq!(rig.rnode_at(dir, "small").size, 5);
}

#[test]
fn a_directory_without_a_name_gets_one_in_the_root() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    rig.lose_dir_name();
    rig.expect(&[Damage::Lost, Damage::Counts]);
    assert!(rig.is_lost(dir));
}

#[test]
fn files_in_a_directory_that_is_gone_get_names_in_the_root() {
    let rig = Rig::new();
    rig.delete(key::inode(rig.dir.handle.ino));
    rig.expect(&[Damage::NameNowhere]);
    assert!(rig.is_lost(rig.small.handle.ino) && rig.is_lost(rig.large.handle.ino));
}

#[test]
fn a_second_name_in_a_directory_that_is_gone_is_removed() {
    let rig = Rig::new();
    rig.delete(key::inode(rig.dir.handle.ino));
    rig.expect(&[Damage::NameNowhere]);
    let one = rig.name_row(InodeId::ROOT, "one");
    let ino = rig.linked.handle.ino;
    assert_eq!(one.unwrap().ino(), ino);
    assert_eq!(rig.own(ino).links, 1);
}

/// Users can create files with any name: a lost file takes none that exists.
#[test]
fn a_lost_file_takes_no_name_that_exists() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let small = rig.small.handle.ino;
    let taken = rig.rnode_at(dir, "small");
    for (number, lost) in [dir, small, small].into_iter().enumerate() {
        let text = match number {
            2 => format!("lost+found.{lost}.1"),
            _ => format!("lost+found.{lost}"),
        };
        let ino = InodeId::from_raw(40 + number as u64);
        let theirs = Rnode { ino, flags: RnodeFlags::default(), size: 0, ..taken.clone() };
        rig.put(rig.name_key(InodeId::ROOT, &text), NameRow::Rnode(theirs).encode(STAMP));
    }
    rig.expect(&[Damage::Counts]);
    // First the directory is lost, then all that was in it.
    rig.lose_dir_name();
    rig.expect(&[Damage::Lost, Damage::Counts]);
    rig.delete(key::inode(dir));
    rig.expect(&[Damage::NameNowhere]);
    let at = |text: String| rig.name_row(InodeId::ROOT, &text).map(|row| row.ino().raw());
    assert_eq!(at(format!("lost+found.{dir}")), Some(40));
    assert_eq!(at(format!("lost+found.{small}")), Some(41));
    assert_eq!(at(format!("lost+found.{small}.1")), Some(42));
    assert_eq!(at(format!("lost+found.{small}.2")), Some(small.raw()));
}

/// A name under the wrong hash, while another file has the same name under the right one.
#[test]
fn a_name_under_the_wrong_hash_takes_no_name_that_exists() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let small = rig.small.handle.ino;
    let theirs = Rnode {
        ino: InodeId::from_raw(41),
        flags: RnodeFlags::default(),
        size: 0,
        ..rig.rnode_at(dir, "small")
    };
    let value = rig.table.get(&rig.name_key(dir, "small")).unwrap().unwrap();
    rig.put(key::name(dir, NameHash(1), b"small"), value);
    rig.put(rig.name_key(dir, "small"), NameRow::Rnode(theirs).encode(STAMP));
    rig.expect(&[Damage::NameHash]);
    assert_eq!(rig.rnode_at(dir, "small").ino.raw(), 41);
    assert_eq!(rig.rnode_at(InodeId::ROOT, &format!("lost+found.{small}")).size, 5);
}

#[test]
fn a_loop_of_directories_is_cut() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let below = rig.name_row(dir, "below").unwrap().ino();
    let hash = rig.hasher.hash(b"dir");
    let link = NameRow::Link { ino: dir, kind: FileKind::Directory };
    rig.lose_dir_name();
    rig.put(rig.name_key(below, "dir"), link.encode(STAMP));
    rig.put(key::parent_pointer(dir, below, hash, b"dir"), ParentPointer.encode(STAMP));
    rig.expect(&[Damage::Loop]);
    assert!(rig.is_lost(dir) || rig.is_lost(below));
}
