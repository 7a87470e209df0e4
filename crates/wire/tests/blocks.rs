//! Laws of blocks over HTTP and of have-maps, with random ones, and each lie that is refused.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::collections::BTreeSet;

use pelago_wire::blocks::{
    BlockEvent, BlockFrame, BlockFrameKind, BlockReader, BlocksError, BlocksHead, Extents,
    HASH_BYTES, HaveError, HaveMap,
};
use pelago_wire::limits::{BLOCK_BYTES, BLOCKS_FILE_BYTES, EXTENT_BYTES, HAVE_BYTES, HAVE_RUNS};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const BLOCK: u64 = BLOCK_BYTES as u64;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

/// An event without its borrowed bytes.
fn told(event: BlockEvent<'_>) -> (String, Vec<u8>) {
    match event {
        BlockEvent::Block { block, bytes } => (format!("block {block}"), bytes.to_vec()),
        event => (format!("{event:?}"), Vec::new()),
    }
}

/// Decodes a body that comes in pieces of these sizes, in turn.
fn decode(body: &[u8], pieces: &[usize]) -> Result<Vec<(String, Vec<u8>)>, BlocksError> {
    let mut reader = BlockReader::default();
    let mut all = Vec::new();
    let mut rest = body;
    let mut at = 0;
    while !rest.is_empty() {
        let (mut piece, behind) = rest.split_at(pieces[at % pieces.len()].min(rest.len()));
        while let Some(event) = reader.next(&mut piece)? {
            all.push(told(event));
        }
        assert!(piece.is_empty(), "what is not told is kept");
        rest = behind;
        at += 1;
    }
    reader.finish().map(|()| all)
}

/// Returns a body: its bytes and what it says.
fn body(size: u64, order: &[u64]) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    let file = Extents::of(size).unwrap();
    let mut bytes = BlocksHead { extents: file }.encode().to_vec();
    let mut says = vec![told(BlockEvent::Head(file))];
    for number in order {
        let range = file.block(*number);
        let payload = vec![*number as u8; (range.end - range.start) as usize];
        bytes.extend(BlockFrame::block(file, *number).encode());
        bytes.extend(&payload);
        says.push((format!("block {number}"), payload));
        let extent = number / 16;
        let hash = [*number as u8; HASH_BYTES];
        bytes.extend(BlockFrame::hash(file, extent).encode());
        bytes.extend(hash);
        says.push(told(BlockEvent::Hash { extent, hash }));
    }
    bytes.extend(BlockFrame::end(false).encode());
    says.push(told(BlockEvent::End { root: None }));
    (bytes, says)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_body_says_the_same_however_it_is_cut_into_pieces(
        blocks in 1..40_u64,
        last in 1..=BLOCK,
        picks in vec(any::<prop::sample::Index>(), 0..6),
        pieces in vec(1..100_000_usize, 1..5),
    ) {
        let order: Vec<u64> = picks.iter().map(|pick| pick.index(blocks as usize) as u64).collect();
        let (bytes, says) = body((blocks - 1) * BLOCK + last, &order);
        prop_assert_eq!(decode(&bytes, &pieces), Ok(says));
        let cut = pieces[0] % bytes.len();
        prop_assert_eq!(decode(&bytes[..cut], &pieces), Err(BlocksError::Truncated));
    }

    #[test]
    fn no_bytes_panic_and_none_are_kept_beyond_a_frame(bytes in vec(any::<u8>(), 0..200)) {
        let (mut whole, _) = body(10 * BLOCK, &[]);
        whole.truncate(24);
        whole.extend(bytes);
        let _decoded = decode(&whole, &[7]);
    }

    #[test]
    fn a_have_map_has_the_blocks_it_was_made_of(
        blocks in btree_set(0..300_u64, 0..200),
    ) {
        let map = HaveMap::of(blocks.iter().copied());
        let file = Extents::of(300 * BLOCK).unwrap();
        prop_assert_eq!(HaveMap::decode(&map.encode(), file), Ok(map.clone()));
        let found: BTreeSet<u64> = (0..310).filter(|block| map.contains(*block)).collect();
        prop_assert_eq!(&found, &blocks);
    }

    #[test]
    fn no_bytes_of_a_have_map_panic(runs in vec(any::<(u64, u64)>(), 0..8), count in 0..9_u32) {
        let bytes = map_of(&runs, count);
        if let Ok(map) = HaveMap::decode(&bytes, Extents::of(BLOCKS_FILE_BYTES).unwrap()) {
            prop_assert_eq!(map.encode(), bytes);
        }
    }
}

fn map_of(runs: &[(u64, u64)], count: u32) -> Vec<u8> {
    let mut bytes = HaveMap::default().encode();
    bytes[12..16].copy_from_slice(&count.to_le_bytes());
    for (first, blocks) in runs {
        bytes.extend(first.to_le_bytes());
        bytes.extend(blocks.to_le_bytes());
    }
    bytes
}

#[test]
fn each_lie_in_a_have_map_is_refused_with_its_own_error() {
    let file = Extents::of(100 * BLOCK).unwrap();
    let refused =
        |runs: &[(u64, u64)]| HaveMap::decode(&map_of(runs, runs.len() as u32), file).unwrap_err();
    assert_eq!(refused(&[(0, 0)]), HaveError::Empty { run: 0 });
    assert_eq!(refused(&[(5, 5), (2, 1)]), HaveError::Unsorted { run: 1 });
    assert_eq!(refused(&[(5, 5), (9, 3)]), HaveError::Overlap { run: 1 });
    assert_eq!(refused(&[(5, 5), (10, 3)]), HaveError::Adjacent { run: 1 });
    assert_eq!(refused(&[(5, 5), (99, 2)]), HaveError::BeyondEnd { run: 1, blocks: 100 });
    assert_eq!(refused(&[(1, u64::MAX)]), HaveError::BeyondEnd { run: 0, blocks: 100 });
    let decode = |bytes: &[u8]| HaveMap::decode(bytes, file).unwrap_err();
    let many = HAVE_RUNS as u32 + 1;
    assert_eq!(decode(&map_of(&[], many)), HaveError::TooManyRuns(many));
    assert_eq!(decode(&map_of(&[], u32::MAX)), HaveError::TooManyRuns(u32::MAX));
    assert_eq!(decode(&map_of(&[(1, 1)], 2)), HaveError::Length { found: 32, needed: 48 });
    assert_eq!(decode(&map_of(&[(1, 1)], 0)), HaveError::Length { found: 32, needed: 16 });
    assert_eq!(decode(b"short"), HaveError::NotAMap);
    let with = |at: usize| {
        let mut bytes = map_of(&[], 0);
        bytes[at] ^= 0x80;
        decode(&bytes)
    };
    assert_eq!(with(0), HaveError::NotAMap);
    assert_eq!(with(8), HaveError::Version(0x81));
    assert_eq!(with(10), HaveError::Reserved(0x80));
}

#[test]
fn a_map_of_too_many_runs_leaves_the_shortest_out() {
    // Every second block, and a long run at the end.
    let many = (0..40 * HAVE_RUNS as u64).step_by(2).chain(500_000..500_009);
    let map = HaveMap::of(many);
    assert_eq!(map.runs().len(), HAVE_RUNS);
    assert_eq!(map.encode().len(), HAVE_BYTES);
    assert!((500_000..500_009).all(|block| map.contains(block)));
    let file = Extents::of(500_009 * BLOCK).unwrap();
    assert_eq!(HaveMap::decode(&map.encode(), file), Ok(map));
}

#[test]
fn each_lie_in_a_body_is_refused_before_its_payload() {
    let size = EXTENT_BYTES as u64 + 3;
    let file = Extents::of(size).unwrap();
    let head = BlocksHead { extents: file }.encode();
    let refused = |bytes: &[u8]| decode(&[&head, bytes].concat(), &[1]).unwrap_err();
    let frame = |kind, offset, length| refused(&BlockFrame { kind, offset, length }.encode());
    let kind = BlockFrameKind::Block;
    for (offset, length) in [(0, 65_535), (0, u32::MAX), (0, 0), (1_048_576, 65_536)] {
        assert_eq!(frame(kind, offset, length), BlocksError::Length { kind, offset, length });
    }
    for offset in [1, 65_535, 1_114_112, u64::MAX] {
        assert_eq!(frame(kind, offset, 65_536), BlocksError::Offset { kind, offset, size });
    }
    let kind = BlockFrameKind::Hash;
    assert_eq!(frame(kind, 65_536, 32), BlocksError::Offset { kind, offset: 65_536, size });
    assert_eq!(frame(kind, 0, 33), BlocksError::Length { kind, offset: 0, length: 33 });
    let kind = BlockFrameKind::End;
    assert_eq!(frame(kind, 9, 0), BlocksError::Offset { kind, offset: 9, size });
    assert_eq!(frame(kind, 0, 31), BlocksError::Length { kind, offset: 0, length: 31 });
    let mut unknown = BlockFrame::changed().encode();
    unknown[12] = 7;
    assert_eq!(refused(&unknown), BlocksError::Kind(7));
    unknown[15] = 1;
    unknown[12] = 4;
    assert_eq!(refused(&unknown), BlocksError::Reserved);
    let more = [&BlockFrame::changed().encode()[..], b"x"].concat();
    assert_eq!(refused(&more), BlocksError::Trailing);
    assert_eq!(refused(&[]), BlocksError::Truncated);
}

#[test]
fn each_lie_in_the_head_of_a_body_is_refused() {
    let with = |at: usize, byte: u8| {
        let mut head = BlocksHead { extents: Extents::of(0).unwrap() }.encode();
        head[at] = byte;
        decode(&head, &[5]).unwrap_err()
    };
    assert_eq!(with(0, b'p'), BlocksError::NotBlocks);
    assert_eq!(with(8, 2), BlocksError::Version(2));
    assert_eq!(with(15, 1), BlocksError::Reserved);
    assert_eq!(with(23, 1), BlocksError::Size(1 << 56));
}
