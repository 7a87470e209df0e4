//! Decodes any bytes as a row of every kind, unchanged and with a valid checksum. A decoded row
//! must encode to the same bytes: a value has one form. Keys are parsed too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pelago_store::key::{self, Key, RowKind};
use pelago_store::rows::{
    CachedReply, HighWater, Identity, IndexCommits, Inline, MirrorRow, Moved, NameRow, Orphan,
    ParentPointer, Partition, Rnode, Row, Tag, Writing, Xattr, XattrNames,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

fuzz_target!(|bytes: &[u8]| {
    decode_as_all(bytes);
    for kind in RowKind::ALL {
        let sum = xxh3_64_with_seed(bytes, u64::from(kind.number())) as u32;
        decode_as_all(&[bytes, &sum.to_le_bytes()].concat());
    }
    parse_key(bytes);
});

fn decode_as_all(value: &[u8]) {
    one::<Rnode>(value);
    one::<NameRow>(value);
    one::<Moved>(value);
    one::<ParentPointer>(value);
    one::<Partition>(value);
    one::<Orphan>(value);
    one::<Writing>(value);
    one::<Inline<'_>>(value);
    one::<Xattr<'_>>(value);
    one::<Tag>(value);
    one::<XattrNames<'_>>(value);
    one::<CachedReply<'_>>(value);
    one::<Identity>(value);
    one::<HighWater>(value);
    one::<IndexCommits>(value);
    one::<MirrorRow>(value);
}

fn one<'a, R: Row<'a>>(value: &'a [u8]) {
    if let Ok((stamp, row)) = R::decode(value) {
        assert_eq!(row.encode(stamp), value);
    }
}

fn parse_key(bytes: &[u8]) {
    match Key::parse(bytes) {
        Some(Key::Name { dir, hash, name }) => assert_eq!(key::name(dir, hash, name), bytes),
        // A cut value has the hash of bytes that the key does not contain.
        Some(Key::Tag { tag, value, ino }) if value.is_whole() => {
            assert_eq!(key::tag(tag, &value.bytes(), ino), bytes);
        }
        Some(Key::Tag { value, .. }) => assert!(!value.bytes().is_empty()),
        _ => {}
    }
}
