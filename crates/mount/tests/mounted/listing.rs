//! Listings: complete, without duplicates, and stable under `seekdir`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, CWD, RawDir, SeekFrom, StatxFlags, seek, statx};

use super::{Mounted, mounted};
use crate::memory::{collide, same, spread};

/// Bytes for one or two entries, so that the kernel stops at each name.
const TINY: usize = 72;

/// Returns names and the offset after each, read with a buffer of `room` bytes.
fn read(dir: &File, room: usize) -> Vec<(String, u64)> {
    let mut buffer = vec![MaybeUninit::uninit(); room];
    let mut entries = Vec::new();
    let mut reader = RawDir::new(dir, &mut buffer);
    while let Some(entry) = reader.next() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_str().unwrap().to_owned();
        entries.push((name, entry.next_entry_cookie()));
    }
    entries
}

fn names(entries: &[(String, u64)]) -> BTreeSet<&str> {
    entries.iter().map(|(name, _)| name.as_str()).collect()
}

fn fill(mounted: &Mounted, count: u32) {
    for index in 0..count {
        mounted.memory.put(&format!("{index}"), b"");
    }
}

fn assert_complete(point: &Path, room: usize, count: usize) -> Vec<(String, u64)> {
    let entries = read(&File::open(point).unwrap(), room);
    assert_eq!(entries.len(), count + 2, "as many as there are, and the dots");
    assert_eq!(names(&entries).len(), entries.len(), "none twice");
    assert_eq!((entries[0].0.as_str(), entries[1].0.as_str()), (".", ".."));
    entries
}

/// The last of so many names have no attributes in the listing, and are usable all the same.
#[test]
fn three_hundred_thousand_names_are_listed_once_each() {
    let Some(mounted) = mounted(spread) else { return };
    fill(&mounted, 300_000);
    let entries = assert_complete(mounted.mount.point(), 32 << 10, 300_000);
    let requests = || mounted.memory.requests.load(Ordering::Relaxed);
    assert!(requests() < 5_000, "{} requests for 300,000 names", requests());
    let costs = |at: usize, what: StatxFlags| {
        let before = requests();
        let path = mounted.path(&entries[at].0);
        let found = statx(CWD, &path, AtFlags::empty(), what).unwrap();
        assert_eq!(found.stx_mask & what.bits(), what.bits());
        requests() - before
    };
    let attributes = StatxFlags::BASIC_STATS;
    assert_eq!((costs(1_000, attributes), costs(299_000, attributes)), (0, 1));
    // Neither listings nor lookups have the birth time: it is requested once.
    let all = attributes | StatxFlags::BTIME;
    assert_eq!((costs(1_000, all), costs(1_000, all)), (1, 0));
}

#[test]
fn names_of_one_cookie_are_listed_once_each_wherever_the_kernel_stops() {
    let Some(mounted) = mounted(collide) else { return };
    fill(&mounted, 900);
    for room in [TINY, 200, 4096, 32 << 10] {
        assert_complete(mounted.mount.point(), room, 900);
    }
}

/// Many more names of one hash than occur by chance: a listing ends, and each part of it costs the
/// same.
#[test]
fn five_thousand_names_of_one_hash_are_listed_once_each() {
    let Some(mounted) = mounted(same) else { return };
    fill(&mounted, 5_000);
    for room in [200, 4096, 32 << 10] {
        let before = mounted.memory.requests.load(Ordering::Relaxed);
        let dir = File::open(mounted.mount.point()).unwrap();
        let mut seen = BTreeSet::new();
        let mut count = 0;
        let mut buffer = vec![MaybeUninit::uninit(); room];
        let mut reader = RawDir::new(&dir, &mut buffer);
        while let Some(entry) = reader.next() {
            seen.insert(entry.unwrap().file_name().to_owned());
            count += 1;
            assert!(count <= 5_002, "room {room}: the listing goes on, {} names", seen.len());
        }
        assert_eq!((count, seen.len()), (5_002, 5_002), "room {room}");
        let requests = mounted.memory.requests.load(Ordering::Relaxed) - before;
        assert!(requests < 5_000, "room {room}: {requests} requests");
    }
}

#[test]
fn seekdir_returns_to_the_position_of_telldir() {
    for hash in [spread as fn(&[u8]) -> u64, collide] {
        let Some(mounted) = mounted(hash) else { return };
        fill(&mounted, 300);
        let dir = File::open(mounted.mount.point()).unwrap();
        let entries = read(&dir, TINY);
        assert_eq!(entries.len(), 302);
        // Half of the names go; a place stays where it was, whether its name is there or not.
        for index in (0..300).step_by(2) {
            fs::remove_file(mounted.path(&format!("{index}"))).unwrap();
        }
        let remains = |name: &str| name.parse::<u32>().is_ok_and(|number| number % 2 == 1);
        for (index, (_, offset)) in entries.iter().enumerate().skip(2).step_by(7) {
            seek(&dir, SeekFrom::Start(*offset)).unwrap();
            let behind = read(&dir, 4096);
            let expected: Vec<_> = entries[index + 1..]
                .iter()
                .filter_map(|(name, _)| remains(name).then_some(name.as_str()))
                .collect();
            // The kernel may still show names that were removed after the open.
            let found: Vec<_> = behind
                .iter()
                .filter_map(|(name, _)| remains(name).then_some(name.as_str()))
                .collect();
            assert_eq!(found, expected, "behind entry {index}");
        }
        seek(&dir, SeekFrom::Start(0)).unwrap();
        assert_eq!(read(&dir, 4096).len(), 152);
        assert_complete(mounted.mount.point(), 4096, 150);
    }
}

/// A listing with attributes counts as a lookup of each entry.
#[test]
fn listed_files_can_be_used() {
    let Some(mounted) = mounted(spread) else { return };
    fill(&mounted, 1_000);
    for _ in 0..2 {
        for entry in fs::read_dir(mounted.mount.point()).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().is_file());
            assert_eq!(fs::read(entry.path()).unwrap(), b"");
        }
    }
}

#[test]
fn dots_refer_to_the_directory_and_its_parent() {
    let Some(mounted) = mounted(spread) else { return };
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    let mut buffer = vec![MaybeUninit::uninit(); 4096];
    let dir = File::open(mounted.path("a/b")).unwrap();
    let mut reader = RawDir::new(&dir, &mut buffer);
    let mut inos = Vec::new();
    while let Some(entry) = reader.next() {
        inos.push(entry.unwrap().ino());
    }
    use std::os::unix::fs::MetadataExt;
    let ino = |name: &str| fs::metadata(mounted.path(name)).unwrap().ino();
    assert_eq!(inos, [ino("a/b"), ino("a")]);
}
