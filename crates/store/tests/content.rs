//! Content files: bytes, names, times and errors.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pelago_store::content::{ContentEntry, ContentStore, FileAccess};
use pelago_wire::{AllocateMode, Generation, InodeId, Time, Whence};
use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;

const INO: InodeId = InodeId::from_raw(0x1_0000_0000_02ab);
const FIRST: Generation = Generation::FIRST;

fn temp() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn path_in(dir: &Path) -> PathBuf {
    dir.join("ab/00010000000002ab.00000001")
}

/// Returns how many bytes the kernel has read from disks for this thread, readahead included.
fn disk_reads_of_this_thread() -> u64 {
    let counts = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counts.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.unwrap().parse().unwrap()
}

fn listed(content: &ContentStore) -> Vec<ContentEntry> {
    let mut found = Vec::new();
    content
        .list(&mut |one| {
            found.push(one);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

#[test]
fn bytes_come_back_as_they_were_written() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let file = content.create(INO, FIRST).unwrap();
    file.write_at(b"hello, world", 0).unwrap();
    file.write_at(b"W", 7).unwrap();
    let mut buffer = [0; 64];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 12);
    assert_eq!(&buffer[..12], b"hello, World");
    assert_eq!(file.read_at(&mut buffer[..5], 7).unwrap(), 5);
    assert_eq!(file.read_at(&mut buffer, 12).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    assert_eq!((file.ino(), file.generation()), (INO, FIRST));
    drop(file);
    let again = content.open_file(INO, FIRST, FileAccess::Read).unwrap().unwrap();
    assert_eq!(again.read_at(&mut buffer, 0).unwrap(), 12);
    let refused = again.write_at(b"x", 0).unwrap_err();
    assert_eq!(refused.written, 0);
    assert!(refused.to_string().contains("00010000000002ab.00000001"), "{refused}");
}

/// The name is part of the format, and other users must not be able to read the file.
#[test]
fn a_content_file_has_its_documented_name() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    assert!(!content.exists(INO, FIRST).unwrap());
    content.create(INO, FIRST).unwrap().write_at(b"x", 0).unwrap();
    assert!(content.exists(INO, FIRST).unwrap());
    assert_eq!(fs::read(path_in(temp.path())).unwrap(), b"x");
    for private in [temp.path().join("ab"), path_in(temp.path())] {
        assert_eq!(fs::metadata(private).unwrap().mode() & 0o077, 0);
    }
}

#[test]
fn generations_and_inodes_are_apart() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let others = [(INO, Generation(2)), (InodeId::from_raw(INO.raw() + 0x100), FIRST)];
    content.create(INO, FIRST).unwrap().write_at(b"first", 0).unwrap();
    for (ino, generation) in others {
        assert!(content.open_file(ino, generation, FileAccess::ReadWrite).unwrap().is_none());
        content.create(ino, generation).unwrap();
    }
    assert!(content.remove(INO, Generation(2)).unwrap());
    assert!(!content.remove(INO, Generation(2)).unwrap());
    assert!(!content.remove(InodeId::ROOT, FIRST).unwrap(), "its subfolder was never created");
    assert_eq!(
        content.open_file(INO, FIRST, FileAccess::Read).unwrap().unwrap().stat().unwrap().size,
        5
    );
}

/// No row names a leftover of a crash, so its bytes belong to no file.
#[test]
fn a_file_found_without_a_row_is_emptied() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    content.create(INO, FIRST).unwrap().write_at(b"left over", 0).unwrap();
    let file = content.create(INO, FIRST).unwrap();
    assert_eq!(file.stat().unwrap().size, 0);
}

/// A removed file stays readable through its open descriptors.
#[test]
fn a_removed_file_lives_while_it_is_open() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let file = content.create(INO, FIRST).unwrap();
    file.write_at(b"still here", 0).unwrap();
    assert!(content.remove(INO, FIRST).unwrap());
    let mut buffer = [0; 10];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 10);
    file.sync(true).unwrap();
    file.sync_name().unwrap();
    assert!(content.open_file(INO, FIRST, FileAccess::Read).unwrap().is_none());
}

#[test]
fn sizes_and_times_are_those_that_were_set() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let file = content.create(INO, FIRST).unwrap();
    file.write_at(&[1; 10_000], 0).unwrap();
    file.truncate(4000).unwrap();
    file.truncate(1 << 30).unwrap();
    let early = Time { seconds: 1_000_000_000, nanos: 0 };
    let late = Time { seconds: 1_500_000_000, nanos: 0 };
    file.set_times(Some(early), Some(late)).unwrap();
    let stat = file.stat().unwrap();
    assert_eq!((stat.size, stat.atime, stat.mtime), (1 << 30, early, late));
    assert!(stat.blocks * 512 < 1 << 30, "the rest is a hole");
    assert!(stat.ctime > late);
    file.set_times(Some(late), None).unwrap();
    let stat = file.stat().unwrap();
    assert_eq!((stat.atime, stat.mtime), (late, late));
    file.set_times(None, None).unwrap();
    let mut buffer = [9; 2];
    assert_eq!(file.read_at(&mut buffer, 3999).unwrap(), 2);
    assert_eq!(buffer, [1, 0]);
}

/// An operation that succeeds has its effect; one that the file system lacks is an error.
#[test]
fn ranges_are_reserved_freed_and_found() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let file = content.create(INO, FIRST).unwrap();
    file.write_at(&vec![1; 3 << 20], 0).unwrap();
    if let Err(error) = file.allocate(AllocateMode::PunchHole, 1 << 20, 1 << 20) {
        assert!(error.is_unsupported(), "{error}");
        println!("skipped: the file system has no holes");
        return;
    }
    let mut byte = [9];
    assert_eq!(file.read_at(&mut byte, 1 << 20).unwrap(), 1);
    assert_eq!(byte, [0]);
    assert_eq!(file.stat().unwrap().size, 3 << 20);
    assert_eq!(file.seek(0, Whence::Hole).unwrap(), Some(1 << 20));
    assert_eq!(file.seek(1 << 20, Whence::Data).unwrap(), Some(2 << 20));
    assert_eq!(file.seek(2 << 20, Whence::Hole).unwrap(), Some(3 << 20));
    assert_eq!(file.seek(3 << 20, Whence::Data).unwrap(), None);
    file.allocate(AllocateMode::Reserve { keep_size: true }, 0, 4 << 20).unwrap();
    assert_eq!(file.stat().unwrap().size, 3 << 20);
    file.allocate(AllocateMode::Reserve { keep_size: false }, 0, 4 << 20).unwrap();
    assert_eq!(file.stat().unwrap().size, 4 << 20);
}

#[test]
fn bytes_are_copied_from_file_to_file() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let from = content.create(INO, FIRST).unwrap();
    let to = content.create(INO, Generation(2)).unwrap();
    from.write_at(b"0123456789", 0).unwrap();
    assert_eq!(from.copy_to(4, &to, 2, 100).unwrap(), 6);
    let mut buffer = [9; 8];
    assert_eq!(to.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer, b"\0\x00456789");
}

/// A listing finds content files and foreign files, and touches neither.
#[test]
fn a_listing_finds_all_files_and_strangers() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    assert_eq!(listed(&content), []);
    let mut expected = Vec::new();
    for number in 0..300 {
        let ino = InodeId::from_raw(number);
        content.create(ino, FIRST).unwrap();
        expected.push(ContentEntry::File { ino, generation: FIRST });
    }
    let foreign = [
        "ab/notes.txt",
        "ab/00000000000000cd.00000001", // in another folder than its own
        "ab/00000000000000ab.00000000", // no such generation
        "ab/00000000000000AB.00000001",
        "notes.txt",
        "abc",
    ];
    for name in foreign {
        fs::write(temp.path().join(name), b"").unwrap();
        expected.push(ContentEntry::Foreign(temp.path().join(name)));
    }
    let found = listed(&content);
    assert_eq!(found.len(), expected.len());
    for one in expected {
        assert!(found.contains(&one), "{one:?}");
    }
    let mut visits = 0;
    content
        .list(&mut |_| {
            visits += 1;
            ControlFlow::Break(())
        })
        .unwrap();
    assert_eq!(visits, 1);
}

/// A probe file that a crash left is not foreign, and the next probe removes it.
#[test]
fn a_probe_that_was_left_is_no_stranger_and_goes() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let probe = temp.path().join("probe");
    fs::write(&probe, b"?").unwrap();
    assert_eq!(listed(&content), []);
    // Any result will do.
    let _can = content.can_detect_writers();
    assert!(!probe.exists());
}

/// Threads create files in the same few subfolders, and each syncs its own.
#[test]
fn files_are_made_and_synced_from_many_threads() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let content = &content;
            scope.spawn(move || {
                for number in 0..20 {
                    let ino = InodeId::from_raw((thread << 20) | (number << 8) | (number % 4));
                    let file = content.create(ino, FIRST).unwrap();
                    file.write_at(&ino.raw().to_le_bytes(), 0).unwrap();
                    file.sync(false).unwrap();
                    file.sync_name().unwrap();
                }
            });
        }
    });
    content.sync_all().unwrap();
    assert_eq!(listed(&content).len(), 80);
    let reopened = ContentStore::open(temp.path()).unwrap();
    let file = reopened
        .open_file(InodeId::from_raw(1 << 20), FIRST, FileAccess::ReadWrite)
        .unwrap()
        .unwrap();
    file.sync_name().unwrap();
    assert_eq!(file.stat().unwrap().size, 8);
}

#[test]
fn the_medium_has_a_size() {
    let temp = temp();
    let stats = ContentStore::open(temp.path()).unwrap().statfs().unwrap();
    assert!(stats.block_bytes > 0 && stats.blocks > 0);
    assert!(stats.available <= stats.free && stats.free <= stats.blocks);
}

#[test]
fn a_missing_folder_is_an_error_that_names_it() {
    let temp = temp();
    let error = ContentStore::open(&temp.path().join("none")).unwrap_err();
    assert!(error.to_string().ends_with("none failed"), "{error}");
    assert!(!error.is_no_space() && !error.is_read_only());
}

/// The kernel reads files ahead, up to a limit of the disk. A store without readahead reads the one
/// page that was asked for.
#[test]
fn without_readahead_only_what_is_read_is_read_from_the_disk() {
    const SIZE: usize = 1 << 20;
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let file = content.create(INO, FIRST).unwrap();
    file.write_at(&vec![1; SIZE], 0).unwrap();
    file.sync(false).unwrap();
    let read_bytes = |content: &ContentStore| {
        let file = content.open_existing(INO, FIRST).unwrap();
        fadvise(file.backing(), 0, None, Advice::DontNeed).unwrap();
        let before = disk_reads_of_this_thread();
        file.read_at(&mut [0; 1], 0).unwrap();
        disk_reads_of_this_thread() - before
    };
    let with_readahead = read_bytes(&content);
    let page = rustix::param::page_size() as u64;
    if with_readahead <= page {
        println!("skipped: {} is read without readahead here", temp.path().display());
        return;
    }
    assert_eq!(read_bytes(&content.without_readahead()), page);
}

/// On a full disk the error says how many bytes of the write are in the file.
#[test]
fn a_full_medium_says_how_much_was_written() {
    let temp = temp();
    let path = temp.path().join("m");
    fs::create_dir(&path).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    if let Err(error) = rustix::mount::mount("none", &path, "tmpfs", flags, c"size=1m") {
        println!("skipped: cannot mount a file system: {error}");
        return;
    }
    let tried = std::panic::catch_unwind(|| {
        let content = ContentStore::open(&path).unwrap();
        let file = content.create(INO, FIRST).unwrap();
        let error = file.write_at(&vec![1; 4 << 20], 0).unwrap_err();
        assert!(error.is_no_space() && !error.is_read_only(), "{error}");
        assert_eq!(error.written as u64, file.stat().unwrap().size);
        assert!(error.written > 0);
    });
    rustix::mount::unmount(&path, rustix::mount::UnmountFlags::DETACH).unwrap();
    tried.unwrap();
}

#[test]
fn a_content_file_that_is_replaced_stays_as_it_is_for_its_descriptors() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let old = content.create(INO, FIRST).unwrap();
    old.write_at(b"old", 0).unwrap();
    let new = content.replace(INO, FIRST).unwrap();
    new.write_at(b"x", 0).unwrap();
    let mut bytes = [0; 3];
    assert_eq!((old.read_at(&mut bytes, 0).unwrap(), &bytes), (3, b"old"));
    assert_eq!(content.stat_existing(INO, FIRST).unwrap().size, 1);
    assert_eq!(listed(&content).len(), 1);
    assert!(!content.remove_replacement(INO, FIRST).unwrap());
    content.create(INO, Generation(FIRST.0 + 1)).unwrap();
    assert!(content.remove_replacement(INO, FIRST).unwrap());
    new.sync_name().unwrap();
}

#[test]
fn a_file_without_a_name_takes_all_bytes_of_another_one() {
    let temp = temp();
    let content = ContentStore::open(temp.path()).unwrap();
    let from = content.create(INO, FIRST).unwrap();
    from.write_at(b"bytes", 100).unwrap();
    let to = content.create_unnamed(INO, FIRST).unwrap();
    if let Err(error) = from.clone_to(&to) {
        println!("skipped: not here: {} shares no blocks: {}", temp.path().display(), error.source);
        assert_eq!(from.copy_to(0, &to, 0, 105).unwrap(), 105);
    }
    from.truncate(0).unwrap();
    let mut bytes = [0; 5];
    assert_eq!((to.read_at(&mut bytes, 100).unwrap(), &bytes), (5, b"bytes"));
    assert_eq!(listed(&content).len(), 1);
}
