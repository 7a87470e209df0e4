//! Golden messages of a primary and its mirror.

use pelago_wire::mirror::{
    ComparedBlocks, ComparedRange, GroupKind, GroupPart, GroupState, MirrorSays, RowChange,
    VolumeFile,
};
use pelago_wire::{Generation, InodeId, Time};

use crate::check_vectors;

const TIME: Time = Time { seconds: 0x0102_0304, nanos: 5 };

fn parts() -> Vec<(&'static str, GroupPart)> {
    let row = RowChange { key: b"key".to_vec(), value: Some(b"value".to_vec()) };
    let gone = RowChange { key: b"gone".to_vec(), value: None };
    let begin = |kind| GroupPart::Begin { number: 0x1112_1314, kind, cut: TIME };
    let file =
        |file, bytes: Option<&[u8]>| GroupPart::File { file, bytes: bytes.map(<[u8]>::to_vec) };
    vec![
        ("Offer", GroupPart::Offer { reign: 2, run: [7; 16] }),
        ("Begin.change", begin(GroupKind::Change)),
        ("Begin.copy", begin(GroupKind::Copy)),
        ("Begin.completion", begin(GroupKind::Completion)),
        ("Begin.resync", begin(GroupKind::Resync)),
        ("Rows", GroupPart::Rows(vec![gone, row])),
        (
            "Content",
            GroupPart::Content {
                ino: InodeId::from_raw(0x2122_2324),
                generation: Generation(3),
                size: 4096,
                mtime: TIME,
            },
        ),
        ("Bytes", GroupPart::Bytes { offset: 512, bytes: b"bytes".to_vec() }),
        ("Hole", GroupPart::Hole { offset: 1024, length: 2048 }),
        ("File.format", file(VolumeFile::Format, Some(b"f"))),
        ("File.seed", file(VolumeFile::Seed, Some(b"s"))),
        ("File.policy", file(VolumeFile::Policy, None)),
        ("File.clients", file(VolumeFile::Clients, Some(b""))),
        ("File.keys", file(VolumeFile::Keys, Some(b"k"))),
        ("End", GroupPart::End { sum: 0x3132_3334_3536_3738 }),
        ("Abort", GroupPart::Abort),
        ("Ping", GroupPart::Ping),
        ("HandOver", GroupPart::HandOver),
        ("Datagrams", GroupPart::Datagrams),
        ("RelayKey", GroupPart::RelayKey),
        (
            "Range",
            GroupPart::Range {
                from: b"a".to_vec(),
                until: b"c".to_vec(),
                rows: vec![RowChange { key: b"b".to_vec(), value: Some(b"value".to_vec()) }],
            },
        ),
        (
            "Compare",
            GroupPart::Compare(vec![
                ComparedRange { from: Vec::new(), until: b"k".to_vec(), hash: [1; 32] },
                ComparedRange { from: b"k".to_vec(), until: Vec::new(), hash: [2; 32] },
            ]),
        ),
        ("Contents", GroupPart::Contents(vec![(InodeId::from_raw(0x2122_2324), Generation(3))])),
        (
            "Blocks",
            GroupPart::Blocks(ComparedBlocks {
                ino: InodeId::from_raw(0x2122_2324),
                generation: Generation(3),
                first: 256,
                hashes: vec![[3; 32], [4; 32]],
            }),
        ),
    ]
}

#[test]
fn every_part_of_a_group_is_the_bytes_it_always_was() {
    let mut vectors = Vec::new();
    for (name, part) in parts() {
        let body = part.encode().unwrap();
        assert_eq!(GroupPart::decode(&body), Ok(part));
        vectors.push((name.to_owned(), body));
    }
    for (name, says) in [
        ("State.ready", MirrorSays::Ready),
        ("State.safe", MirrorSays::Safe),
        ("State.pong", MirrorSays::Pong),
        ("State.failed", MirrorSays::Failed("the disk is full".to_owned())),
        ("State.differ", MirrorSays::Differ([true, false, false].repeat(3))),
        ("State.promoted", MirrorSays::Promoted),
        ("State.datagrams", MirrorSays::Datagrams),
        ("State.no-datagrams", MirrorSays::NoDatagrams("the port is taken".to_owned())),
        ("State.relay-key", MirrorSays::RelayKey([6; 32])),
        ("State.proof", MirrorSays::Proof([7; 32])),
    ] {
        let state = GroupState { reign: 2, run: [7; 16], number: 9, says };
        let body = state.encode();
        assert_eq!(GroupState::decode(&body), Ok(state));
        vectors.push((name.to_owned(), body));
    }
    check_vectors("mirror.txt", &vectors);
}
