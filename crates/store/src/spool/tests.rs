use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

const HEAD: SpoolHead = SpoolHead { volume: VolumeId([1; 16]), reign: 2, run: [3; 16] };
const CUT: Time = Time { seconds: 4, nanos: 5 };

/// The bodies of a group without a row.
fn bodies() -> Vec<Vec<u8>> {
    let parts = [
        GroupPart::Begin { number: 6, kind: GroupKind::Change, cut: CUT },
        GroupPart::Bytes { offset: 0, bytes: b"ab".to_vec() },
    ];
    let mut bodies: Vec<_> = parts.iter().map(|part| part.encode().unwrap()).collect();
    let mut sum = GroupSum::default();
    bodies.iter().for_each(|body| sum.add(body));
    bodies.push(GroupPart::End { sum: sum.value() }.encode().unwrap());
    bodies
}

fn spooled(dir: &Folder) -> Spool {
    let mut spool = Spool::open(dir, "s").unwrap();
    spool.begin(HEAD).unwrap();
    for body in bodies() {
        spool.append(&body).unwrap();
    }
    spool.finish().unwrap();
    spool
}

fn group_of_bytes(dir: &Folder, bytes: &[u8]) -> Option<SpooledGroup> {
    let path = dir.path().join("s");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    Spool::open(dir, "s").unwrap().group().unwrap()
}

#[test]
fn a_group_is_read_back() {
    let temp = tempfile::tempdir().unwrap();
    let dir = Folder::open(temp.path()).unwrap();
    drop(spooled(&dir));
    let mut spool = Spool::open(&dir, "s").unwrap();
    let group = SpooledGroup { head: HEAD, number: 6, kind: GroupKind::Change, cut: CUT };
    assert_eq!(spool.group().unwrap(), Some(group));
    let read: Vec<_> = spool.bodies().unwrap().map(Result::unwrap).collect();
    assert_eq!(read, bodies());
    let mode = fs::metadata(temp.path().join("s")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    spool.clear().unwrap();
    assert_eq!(spool.group().unwrap(), None);
}

#[test]
fn its_bytes_are_those_of_the_document() {
    let temp = tempfile::tempdir().unwrap();
    let dir = Folder::open(temp.path()).unwrap();
    drop(spooled(&dir));
    let bytes = fs::read(temp.path().join("s")).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = [
        // Magic, version, volume.
        "50454c53504f4f0a",
        "0100000000000000",
        "01010101010101010101010101010101",
        // Reign, run, checksum.
        "0200000000000000",
        "03030303030303030303030303030303",
        "190e8c4d626a87e5",
        // Begin.
        "160000008598d609",
        "01060000000000000000040000000000000005000000",
        // Bytes.
        "0f000000645b644c",
        "040000000000000000020000006162",
        // End.
        "09000000e16169bc",
        "071348656b0ab0a571",
    ];
    assert_eq!(hex, expected.concat());
}

#[test]
fn a_group_that_was_cut_is_none() {
    let temp = tempfile::tempdir().unwrap();
    let dir = Folder::open(temp.path()).unwrap();
    drop(spooled(&dir));
    let bytes = fs::read(temp.path().join("s")).unwrap();
    for end in 0..bytes.len() {
        assert_eq!(group_of_bytes(&dir, &bytes[..end]), None, "cut at {end}");
    }
    assert!(group_of_bytes(&dir, &bytes).is_some());
    assert_eq!(group_of_bytes(&dir, &[&bytes[..], &[0]].concat()), None);
}

#[test]
fn a_group_with_a_changed_bit_is_none() {
    let temp = tempfile::tempdir().unwrap();
    let dir = Folder::open(temp.path()).unwrap();
    drop(spooled(&dir));
    let bytes = fs::read(temp.path().join("s")).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(group_of_bytes(&dir, &bytes), None, "bit {bit}");
    }
}

/// Records that are whole, in the wrong order: only the sum of the group shows it.
#[test]
fn a_group_that_lacks_a_part_is_none() {
    let temp = tempfile::tempdir().unwrap();
    let dir = Folder::open(temp.path()).unwrap();
    for left_out in 0..3 {
        let mut spool = Spool::open(&dir, "s").unwrap();
        spool.begin(HEAD).unwrap();
        for (number, body) in bodies().iter().enumerate() {
            if number != left_out {
                spool.append(body).unwrap();
            }
        }
        assert_eq!(spool.group().unwrap(), None, "without part {left_out}");
    }
}

#[test]
fn what_no_frame_can_have_is_not_taken() {
    let temp = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(&Folder::open(temp.path()).unwrap(), "s").unwrap();
    spool.begin(HEAD).unwrap();
    let body = vec![0; limits::FRAME_BODY_BYTES + 1];
    assert!(matches!(spool.append(&body), Err(SpoolError::TooLong { .. })));
    spool.append(&body[1..]).unwrap();
}
