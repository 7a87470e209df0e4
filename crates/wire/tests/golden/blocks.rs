//! The bytes of blocks over HTTP, and of have-maps.

use pelago_wire::blocks::{
    BlockEvent, BlockFrame, BlockReader, BlocksHead, Extents, HASH_BYTES, HaveMap,
};
use pelago_wire::limits::{BLOCK_BYTES, EXTENT_BYTES};

use crate::check_vectors;

const HASH: [u8; HASH_BYTES] = [0xab; HASH_BYTES];

/// A file whose last extent has one block of three bytes.
fn file() -> Extents {
    Extents::of(EXTENT_BYTES as u64 + 3).unwrap()
}

#[test]
fn every_frame_of_a_body_is_the_bytes_it_always_was() {
    let file = file();
    let frames: [(&str, BlockFrame, &[u8], BlockEvent<'_>); 7] = [
        (
            "Block",
            BlockFrame::block(file, 16),
            b"abc",
            BlockEvent::Block { block: 16, bytes: b"abc" },
        ),
        ("Hash", BlockFrame::hash(file, 1), &HASH, BlockEvent::Hash { extent: 1, hash: HASH }),
        (
            "Unreadable",
            BlockFrame::unreadable(file, 1),
            &[25, 0],
            BlockEvent::Unreadable { extent: 1, code: Some(pelago_wire::Code::Io) },
        ),
        ("Changed", BlockFrame::changed(), &[], BlockEvent::Changed),
        ("Failed", BlockFrame::failed(), &[24, 0], {
            BlockEvent::Failed(Some(pelago_wire::Code::Unavailable))
        }),
        ("End", BlockFrame::end(true), &HASH, BlockEvent::End { root: Some(HASH) }),
        ("End-without-root", BlockFrame::end(false), &[], BlockEvent::End { root: None }),
    ];
    let head = BlocksHead { extents: file }.encode();
    let mut vectors = vec![("Head".to_owned(), head.to_vec())];
    for (name, frame, payload, expected) in frames {
        let bytes = [&frame.encode(), payload].concat();
        let mut reader = BlockReader::default();
        assert_eq!(reader.next(&mut &head[..]), Ok(Some(BlockEvent::Head(file))));
        assert_eq!(reader.next(&mut &bytes[..]), Ok(Some(expected)), "{name}");
        vectors.push((name.to_owned(), bytes));
    }
    check_vectors("blocks.txt", &vectors);
}

#[test]
fn every_have_map_is_the_bytes_it_always_was() {
    let file = Extents::of(100 * BLOCK_BYTES as u64).unwrap();
    let maps: [(&str, &[u64]); 3] = [("Nothing", &[]), ("One", &[7]), ("Two", &[0, 1, 2, 98, 99])];
    let vectors = maps.map(|(name, blocks)| {
        let map = HaveMap::of(blocks.iter().copied());
        let bytes = map.encode();
        assert_eq!(HaveMap::decode(&bytes, file), Ok(map), "{name}");
        (name.to_owned(), bytes)
    });
    check_vectors("have.txt", &vectors);
}
