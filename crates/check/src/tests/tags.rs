//! Rows of tags that disagree with the tags.

use super::*;

impl Rig {
    /// Returns the row of the tag that some files of the rig have.
    fn tag_row(&self, ino: InodeId) -> Option<Tag> {
        let value = self.table.get(&key::tag("k", b"v", ino)).unwrap()?;
        Some(Tag::decode(&value).unwrap().1)
    }

    fn put_tag(&self, key: Vec<u8>, row: Tag) {
        self.put(key, row.encode(STAMP));
    }
}

#[test]
fn a_missing_row_of_a_tag_is_written() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let large = rig.large.handle;
    for ino in [dir, large.ino, rig.linked.handle.ino] {
        rig.delete(key::tag("k", b"v", ino));
        rig.expect(&[Damage::TagMissing]);
    }
    assert_eq!(rig.tag_row(dir), Some(Tag { dir, hash: NameHash(0) }));
    assert_eq!(rig.tag_row(large.ino), Some(Tag { dir: large.dir, hash: large.hash }));
}

/// The server adds them.
#[test]
fn a_missing_row_is_no_damage_in_a_volume_without_the_feature() {
    let rig = Rig::new();
    rig.delete(key::tag("k", b"v", rig.dir.handle.ino));
    let plan = plan_on(Parts { tags_are_complete: false, ..rig.parts() }).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
}

#[test]
fn a_row_of_no_tag_is_removed() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    let small = rig.small.handle.ino;
    let own = |dir| Tag { dir, hash: NameHash(0) };
    let malformed = vec![RowKind::Tag.number(), b'k', 0, b'v'];
    let strays = [
        key::tag("k", b"other", dir),
        key::tag("other", b"v", dir),
        key::tag("a", b"b", small),
        key::tag("k", b"v", InodeId::from_raw(77)),
        malformed,
    ];
    for key in strays {
        rig.put_tag(key.clone(), own(dir));
        rig.expect(&[Damage::TagStray]);
        assert_eq!(rig.table.get(&key).unwrap(), None, "{}", key.escape_ascii());
    }
    assert!(rig.tag_row(dir).is_some());
}

/// A stray and a missing row: the tag got another value, and the row did not.
#[test]
fn a_row_with_the_wrong_value_is_replaced() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    rig.put(key::xattr(dir, b"user.tag.k"), Xattr { value: b"new" }.encode(STAMP));
    rig.expect(&[Damage::TagStray, Damage::TagMissing]);
    assert!(rig.table.get(&key::tag("k", b"new", dir)).unwrap().is_some());
    assert_eq!(rig.tag_row(dir), None);
}

/// Without a `moved` row nothing else leads to a file with one name.
#[test]
fn a_row_that_leads_to_another_name_is_corrected() {
    let rig = Rig::new();
    let small = rig.small.handle;
    rig.put(key::xattr(small.ino, b"user.tag.k"), Xattr { value: b"v" }.encode(STAMP));
    rig.put_tag(key::tag("k", b"v", small.ino), Tag { dir: small.dir, hash: NameHash(1) });
    rig.expect(&[Damage::TagHint, Damage::XattrNames]);
    assert_eq!(rig.tag_row(small.ino), Some(Tag { dir: small.dir, hash: small.hash }));
}

#[test]
fn a_row_that_cannot_be_read_is_written_again() {
    let rig = Rig::new();
    let dir = rig.dir.handle.ino;
    rig.put(key::tag("k", b"v", dir), b"damaged".to_vec());
    rig.expect(&[Damage::Row]);
    assert!(rig.tag_row(dir).is_some());
}
