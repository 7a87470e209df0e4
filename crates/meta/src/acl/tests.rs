//! Lists by example, each with the result that Linux has.

use super::*;

/// Encodes entries of tag, rights and id.
fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = VERSION.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&rights.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

fn list(entries: &[(u16, u16, u32)]) -> Acl {
    Acl::decode(&bytes(entries)).unwrap().unwrap()
}

const MINIMAL: [(u16, u16, u32); 3] = [(1, 6, NO_ID), (4, 5, NO_ID), (32, 4, NO_ID)];
const FULL: [(u16, u16, u32); 6] =
    [(1, 7, NO_ID), (2, 6, 1000), (4, 7, NO_ID), (8, 5, 50), (16, 5, NO_ID), (32, 1, NO_ID)];

#[test]
fn a_list_is_encoded_as_it_was_decoded() {
    for entries in [&MINIMAL[..], &FULL] {
        assert_eq!(list(entries).encode(), bytes(entries));
    }
    let odd_id = [(1, 6, 5), (4, 5, 0), (32, 4, 9)];
    assert_eq!(list(&odd_id).encode(), bytes(&MINIMAL), "ids without a meaning are not kept");
    assert_eq!(Acl::decode(&bytes(&[])), Ok(None));
}

#[test]
fn a_list_that_is_not_valid_is_refused() {
    let o = NO_ID;
    let refused: [&[(u16, u16, u32)]; 16] = [
        &[(1, 6, o)],
        &[(1, 6, o), (4, 4, o)],
        &[(1, 6, o), (32, 4, o)],
        &[(4, 4, o), (32, 4, o)],
        // Twice.
        &[(1, 6, o), (1, 6, o), (4, 4, o), (32, 4, o)],
        &[(1, 6, o), (4, 4, o), (4, 4, o), (32, 4, o)],
        &[(1, 6, o), (4, 4, o), (16, 4, o), (16, 4, o), (32, 4, o)],
        &[(1, 6, o), (4, 4, o), (32, 4, o), (32, 4, o)],
        // Without a mask.
        &[(1, 6, o), (2, 4, 7), (4, 4, o), (32, 4, o)],
        &[(1, 6, o), (4, 4, o), (8, 4, 7), (32, 4, o)],
        // Not in order.
        &[(4, 4, o), (1, 6, o), (32, 4, o)],
        &[(1, 6, o), (4, 4, o), (2, 4, 7), (16, 4, o), (32, 4, o)],
        &[(1, 6, o), (4, 4, o), (32, 4, o), (16, 4, o)],
        // Rights, tags and ids that do not exist.
        &[(1, 8, o), (4, 4, o), (32, 4, o)],
        &[(1, 6, o), (4, 4, o), (64, 4, o), (32, 4, o)],
        &[(1, 6, o), (2, 4, NO_ID), (4, 4, o), (16, 4, o), (32, 4, o)],
    ];
    let invalid = Err(Code::Invalid.into());
    for entries in refused {
        assert_eq!(Acl::decode(&bytes(entries)), invalid, "{entries:?}");
    }
    let good = bytes(&FULL);
    for end in (0..good.len()).filter(|end| *end != HEAD_BYTES) {
        assert_eq!(Acl::decode(&good[..end]), invalid, "cut at {end}");
    }
    for version in [0, 1, 3, u32::MAX] {
        let bytes = [&version.to_le_bytes(), &good[HEAD_BYTES..]].concat();
        assert_eq!(Acl::decode(&bytes), invalid, "version {version}");
    }
}

#[test]
fn a_list_has_as_many_entries_as_the_kernel_takes() {
    let of = |count: u32| {
        let mut entries = vec![(1, 6, NO_ID)];
        entries.extend((0..count - 4).map(|id| (2, 4, id)));
        entries.extend([(4, 4, NO_ID), (16, 4, NO_ID), (32, 4, NO_ID)]);
        Acl::decode(&bytes(&entries))
    };
    assert!(of(511).is_ok());
    assert_eq!(of(512), Err(Code::TooBig.into()));
}

#[test]
fn the_mode_shows_the_mask_as_the_group() {
    assert_eq!(list(&MINIMAL).mode(0o7000), 0o7654);
    assert_eq!(list(&FULL).mode(0o2777), 0o2751);
    assert!(list(&MINIMAL).is_minimal() && !list(&FULL).is_minimal());
    let masked = [(1, 6, NO_ID), (4, 5, NO_ID), (16, 7, NO_ID), (32, 4, NO_ID)];
    assert!(!list(&masked).is_minimal(), "a mode has no mask");
}

#[test]
fn a_changed_mode_changes_the_mask_and_not_the_group() {
    let mut changed = FULL;
    changed[0].1 = 6;
    changed[4].1 = 2;
    changed[5].1 = 4;
    assert_eq!(list(&FULL).with_mode(0o1624), list(&changed));
    let mut changed = MINIMAL;
    changed[0].1 = 6;
    changed[1].1 = 2;
    changed[2].1 = 4;
    assert_eq!(list(&MINIMAL).with_mode(0o624), list(&changed));
}

#[test]
fn a_new_node_gets_no_more_than_its_mode_allows() {
    let mut access = FULL;
    access[0].1 = 6;
    access[4].1 = 4;
    access[5].1 = 0;
    let inherited = list(&FULL).inherit(0o1640);
    assert_eq!(inherited, Inherited { mode: 0o1640, access: Some(list(&access)) });
    let inherited = list(&FULL).inherit(0o777);
    assert_eq!(inherited, Inherited { mode: 0o751, access: Some(list(&FULL)) });
    let inherited = list(&MINIMAL).inherit(0o2771);
    assert_eq!(inherited, Inherited { mode: 0o2650, access: None });
}
