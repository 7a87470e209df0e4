//! Inline bytes and content files that are missing, short or stray.

use pelago_store::content::FileAccess;

use super::*;

#[test]
fn a_file_takes_the_size_of_its_inline_bytes() {
    let rig = Rig::new();
    rig.put(key::inline(rig.small.handle.ino), InlineRow { bytes: b"hell" }.encode(STAMP));
    rig.expect(&[Damage::InlineSize]);
    assert_eq!(rig.rnode_at(rig.dir.handle.ino, "small").size, 4);
}

#[test]
fn inline_bytes_of_a_file_with_a_content_file_are_removed() {
    let rig = Rig::new();
    rig.put(key::inline(rig.large.handle.ino), InlineRow { bytes: b"x" }.encode(STAMP));
    rig.expect(&[Damage::InlineStray]);
}

#[test]
fn a_file_without_its_inline_bytes_becomes_empty() {
    let rig = Rig::new();
    rig.delete(key::inline(rig.small.handle.ino));
    rig.expect(&[Damage::InlineMissing]);
    assert_eq!(rig.rnode_at(rig.dir.handle.ino, "small").size, 0);
}

#[test]
fn a_file_takes_the_size_of_a_short_content_file() {
    let rig = Rig::new();
    let large = rig.large.handle.ino;
    let file =
        rig.content.open_file(large, Generation::FIRST, FileAccess::ReadWrite).unwrap().unwrap();
    file.truncate(10).unwrap();
    rig.expect(&[Damage::ContentShort]);
    assert_eq!(rig.rnode_at(rig.dir.handle.ino, "renamed").size, 10);
}

#[test]
fn a_content_file_of_no_inode_is_a_leftover() {
    let rig = Rig::new();
    rig.content.create(InodeId::from_raw(99), Generation::FIRST).unwrap();
    assert!(rig.plan().is_whole(), "it only takes space");
    rig.expect(&[Damage::ContentStray]);
    assert!(!rig.content.exists(InodeId::from_raw(99), Generation::FIRST).unwrap());
}

#[test]
fn a_missing_content_file_has_no_repair() {
    let rig = Rig::new();
    rig.content.remove(rig.large.handle.ino, Generation::FIRST).unwrap();
    let applied = apply_on(rig.parts()).unwrap();
    assert_eq!(kinds(&applied.after), [Damage::ContentMissing]);
}
