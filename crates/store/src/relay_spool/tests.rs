use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use pelago_wire::relay::RelayRepair;

use super::*;

const VOLUME: [u8; 16] = [9; 16];

fn offer(run: u8) -> RelayOffer {
    let mirror = "key@host:1".to_owned();
    RelayOffer { reign: 1, run: [run; 16], mirror, repair: RelayRepair::Auto }
}

fn record(group: u64, number: u64, is_last: bool, bytes: usize) -> Vec<u8> {
    let sealed = vec![number as u8; bytes];
    let record = Record { group, number, is_last, is_awaited: false, sealed };
    RelayMessage::Record(record).encode().unwrap()
}

fn spools(dir: &Path) -> SpoolFolder {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
    SpoolFolder::new(Folder::open(dir).unwrap())
}

/// Returns the numbers of the records after a group.
fn numbers(spool: &mut dyn RelaySpool, group: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut place = spool.place_after(group);
    while let Some(KeptRecord { body, next }) = spool.read(place).unwrap() {
        match RelayMessage::decode(&body).unwrap() {
            RelayMessage::Record(record) => numbers.push(record.number),
            other => panic!("{other:?} in a spool"),
        }
        place = next;
    }
    numbers
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let of = dir.join(VolumeId(VOLUME).to_string());
    let files = fs::read_dir(of).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| !path.ends_with(OFFER)).collect();
    files.sort();
    files
}

#[test]
fn whole_groups_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let all = spools(dir.path());
    let mut spool = all.open(VOLUME, &offer(1)).unwrap();
    for (group, number, is_last) in [(4, 1, false), (4, 2, true), (5, 3, true), (6, 4, false)] {
        spool.append(&record(group, number, is_last, 100)).unwrap();
    }
    assert_eq!(numbers(&mut *spool, 3), [1, 2, 3, 4]);
    drop(spool);
    assert_eq!(all.kept().unwrap(), [(VOLUME, offer(1))]);
    let mut spool = all.open(VOLUME, &offer(1)).unwrap();
    assert_eq!(spool.last_group(), 5);
    assert_eq!(numbers(&mut *spool, 3), [1, 2, 3], "6 was no whole group");
    assert_eq!(numbers(&mut *spool, 4), [3]);
    spool.remove_until(4).unwrap();
    assert_eq!(spool.kept().1, 1);
    spool.append(&record(6, 5, true, 100)).unwrap();
    assert_eq!(numbers(&mut *spool, 5), [5]);
}

#[test]
fn another_run_begins_with_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let all = spools(dir.path());
    all.open(VOLUME, &offer(1)).unwrap().append(&record(1, 1, true, 10)).unwrap();
    let mut spool = all.open(VOLUME, &offer(2)).unwrap();
    assert_eq!((spool.last_group(), spool.kept()), (0, (0, 0)));
    assert!(numbers(&mut *spool, 0).is_empty());
    assert_eq!(all.kept().unwrap(), [(VOLUME, offer(2))]);
}

#[test]
fn segments_go_when_the_mirror_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = spools(dir.path()).open(VOLUME, &offer(1)).unwrap();
    let groups = 3 * limits::RELAY_SEGMENT_BYTES / (400 << 10);
    for group in 1..=groups {
        spool.append(&record(group, group, true, 400 << 10)).unwrap();
    }
    assert_eq!(segments(dir.path()).len(), 3);
    spool.remove_until(groups - 1).unwrap();
    assert_eq!(segments(dir.path()).len(), 1);
    assert_eq!(numbers(&mut *spool, 0), [groups]);
    spool.remove_until(groups).unwrap();
    assert_eq!(spool.kept(), (0, 0));
}

#[test]
fn damage_costs_the_groups_after_it_only() {
    let dir = tempfile::tempdir().unwrap();
    let all = spools(dir.path());
    let mut spool = all.open(VOLUME, &offer(1)).unwrap();
    for group in 1..=3 {
        spool.append(&record(group, group, true, 100)).unwrap();
    }
    let second = spool.place_after(1).0;
    drop(spool);
    let [segment] = &segments(dir.path())[..] else { panic!("several segments") };
    let whole = fs::read(segment).unwrap();
    for at in second..whole.len() as u64 {
        let mut damaged = whole.clone();
        damaged[at as usize] ^= 1;
        fs::write(segment, &damaged).unwrap();
        let last = all.open(VOLUME, &offer(1)).unwrap().last_group();
        assert!((1..3).contains(&last), "byte {at}: {last}");
        fs::write(segment, &whole[..at as usize]).unwrap();
        let last = all.open(VOLUME, &offer(1)).unwrap().last_group();
        assert!((1..3).contains(&last), "cut at {at}: {last}");
    }
}

#[test]
fn a_damaged_offer_is_no_offer() {
    let message = RelayMessage::Offer(offer(1)).encode().unwrap();
    let whole = encode_offer(&message);
    assert_eq!(decode_offer(&whole), Some(offer(1)));
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        assert_eq!(decode_offer(&damaged), None, "byte {at}");
        assert_eq!(decode_offer(&whole[..at]), None, "cut at {at}");
    }
}

#[test]
fn a_group_that_was_begun_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let mut spool = spools(dir.path()).open(VOLUME, &offer(1)).unwrap();
    spool.append(&record(1, 1, true, 10)).unwrap();
    spool.append(&record(2, 2, false, 10)).unwrap();
    spool.drop_partial().unwrap();
    spool.append(&record(2, 3, true, 10)).unwrap();
    assert_eq!(numbers(&mut *spool, 0), [1, 3]);
}
