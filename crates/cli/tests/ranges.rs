//! Ranges of files through the kernel: `fallocate`, `lseek` for holes, `copy_file_range`; access
//! times; `O_DIRECT`.

use std::fs::{self, File, FileTimes};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use pelago_random::bytes_of;
use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate};
use rustix::io::Errno;

use crate::harness::volume::{Volume, cannot_mount, passthrough_modes};

const GROW: FallocateFlags = FallocateFlags::empty();
const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;

fn on_volume(work: impl Fn(&Volume)) {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    for passthrough in passthrough_modes(&["never", "auto", "always"]) {
        println!("--passthrough {passthrough}");
        let volume = Volume::with_passthrough(&passthrough);
        work(&volume);
        volume.finish();
    }
}

fn on_mount(work: impl Fn(&Path)) {
    on_volume(|volume| work(&volume.files()));
}

fn new_file(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}

/// Sizes on both sides of the inline limit.
#[test]
fn a_range_is_reserved_freed_and_zeroed() {
    let punch = FallocateFlags::PUNCH_HOLE | KEEP;
    let zero = FallocateFlags::ZERO_RANGE;
    on_mount(|root| {
        for size in [1000_usize, 400_000] {
            let path = root.join(format!("f{size}"));
            let file = new_file(&path);
            let mut bytes = bytes_of(1, size);
            file.write_all_at(&bytes, 0).unwrap();
            // The kernel's cached pages must be dropped with the range that is freed.
            assert!(fs::read(&path).unwrap() == bytes);
            let third = size / 3;
            fallocate(&file, punch, third as u64, third as u64).unwrap();
            bytes[third..third * 2].fill(0);
            assert!(fs::read(&path).unwrap() == bytes, "punched, {size}");
            fallocate(&file, zero, size as u64 - 10, 100).unwrap();
            bytes[size - 10..].fill(0);
            bytes.resize(size + 90, 0);
            assert_eq!(file.metadata().unwrap().len(), size as u64 + 90);
            fallocate(&file, zero | KEEP, 5, 10).unwrap();
            bytes[5..15].fill(0);
            fallocate(&file, KEEP, 0, 1 << 20).unwrap();
            assert_eq!(file.metadata().unwrap().len(), size as u64 + 90);
            fallocate(&file, GROW, 0, 2 << 20).unwrap();
            bytes.resize(2 << 20, 0);
            let meta = file.metadata().unwrap();
            assert_eq!(meta.len(), 2 << 20);
            assert!(meta.blocks() >= (2 << 20) / 512, "{}", meta.blocks());
            assert!(fs::read(&path).unwrap() == bytes, "reserved, {size}");
        }
    });
}

#[test]
fn a_reservation_beyond_the_disk_is_refused() {
    on_mount(|root| {
        let path = root.join("f");
        let file = new_file(&path);
        file.write_all_at(b"abc", 0).unwrap();
        for modes in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(fallocate(&file, modes, 0, 4096), Err(Errno::OPNOTSUPP));
        }
        assert_eq!(fallocate(&file, GROW, 0, 0), Err(Errno::INVAL));
        assert_eq!(fallocate(&file, GROW, i64::MAX as u64, 10), Err(Errno::FBIG));
        assert_eq!(fallocate(File::open(&path).unwrap(), GROW, 0, 10), Err(Errno::BADF));
        assert_eq!(fallocate(&file, GROW, 0, 1 << 60), Err(Errno::NOSPC));
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        // The space is available to other programs as before.
        fs::write(root.join("g"), bytes_of(2, 100_000)).unwrap();
    });
}

#[test]
fn times_and_space_follow_what_is_reserved_and_freed() {
    on_mount(|root| {
        let file = new_file(&root.join("f"));
        fallocate(&file, GROW, 0, 8 << 20).unwrap();
        let full = file.metadata().unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | KEEP;
        fallocate(&file, punch, 1 << 20, 6 << 20).unwrap();
        let freed = file.metadata().unwrap();
        assert!(freed.blocks() <= full.blocks() - (5 << 20) / 512);
        assert_eq!(freed.len(), full.len());
        assert!(freed.modified().unwrap() > full.modified().unwrap());
        let ctime = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
        assert!(ctime(&freed) > ctime(&full));
    });
}

/// The bytes are in memory, in the table or in a content file.
#[test]
fn ranges_are_copied_in_the_server() {
    on_mount(|root| {
        for from_size in [100, 5000, 3_000_000] {
            for to_size in [0, 10, 100_000] {
                let from = root.join("from");
                let to = root.join("to");
                let bytes = bytes_of(from_size as u64, from_size);
                let mut expected = bytes_of(9, to_size);
                fs::write(&from, &bytes).unwrap();
                fs::write(&to, &expected).unwrap();
                // The kernel has cached the pages that are about to change.
                assert!(fs::read(&to).unwrap() == expected);
                let source = File::open(&from).unwrap();
                let target = File::options().read(true).write(true).open(&to).unwrap();
                copy_all(&source, 7, &target, 3, from_size - 7);
                expected.resize(expected.len().max(from_size - 4), 0);
                expected[3..from_size - 4].copy_from_slice(&bytes[7..]);
                assert!(fs::read(&to).unwrap() == expected, "{from_size} to {to_size}");
                fs::remove_file(&from).unwrap();
                fs::remove_file(&to).unwrap();
            }
        }
    });
}

#[test]
fn a_file_is_copied_within_itself() {
    on_mount(|root| {
        for size in [1000_usize, 400_000] {
            let path = root.join(format!("f{size}"));
            let file = new_file(&path);
            let mut bytes = bytes_of(5, size);
            file.write_all_at(&bytes, 0).unwrap();
            let half = size / 2;
            copy_all(&file, 0, &file, half as u64, half);
            bytes.copy_within(..half, half);
            assert!(fs::read(&path).unwrap() == bytes, "{size}");
            let mut from = 0;
            let mut to = 1;
            let overlap = copy_file_range(&file, Some(&mut from), &file, Some(&mut to), half);
            assert_eq!(overlap, Err(Errno::INVAL));
        }
    });
}

fn copy_all(from: &File, mut from_at: u64, to: &File, mut to_at: u64, length: usize) {
    let mut left = length;
    while left > 0 {
        let done =
            copy_file_range(from.as_fd(), Some(&mut from_at), to, Some(&mut to_at), left).unwrap();
        assert!(done > 0, "{left} of {length} bytes are missing");
        left -= done;
    }
}

/// Reserved and copied ranges survive `kill -9`, as writes do.
#[test]
fn ranges_survive_kill_9() {
    on_volume(|volume| {
        let path = |name: &str| volume.files().join(name);
        let bytes = bytes_of(6, 500_000);
        fs::write(path("from"), &bytes).unwrap();
        let source = File::open(path("from")).unwrap();
        let target = new_file(&path("to"));
        copy_all(&source, 0, &target, 0, bytes.len());
        fallocate(&target, FallocateFlags::PUNCH_HOLE | KEEP, 100_000, 100_000).unwrap();
        let reserved = new_file(&path("reserved"));
        fallocate(&reserved, GROW, 0, 1 << 20).unwrap();
        drop((source, target, reserved));
        volume.kill();
        volume.up(&[]).expect_success();
        let mut expected = bytes;
        expected[100_000..200_000].fill(0);
        assert!(fs::read(path("to")).unwrap() == expected);
        assert_eq!(fs::read(path("reserved")).unwrap(), vec![0; 1 << 20]);
    });
}

/// The memory is aligned, as `O_DIRECT` requires.
#[test]
fn files_opened_with_o_direct_are_read_and_written() {
    const BLOCK: usize = 4096;
    on_mount(|root| {
        for blocks in [1_usize, 100] {
            let path = root.join(format!("f{blocks}"));
            let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).custom_flags(direct);
            let file = options.open(&path).unwrap();
            let size = blocks * BLOCK;
            let mut memory = vec![0; size + BLOCK];
            let start = memory.as_ptr().align_offset(BLOCK);
            let aligned = &mut memory[start..start + size];
            aligned.copy_from_slice(&bytes_of(7, size));
            file.write_all_at(aligned, 0).unwrap();
            assert!(fs::read(&path).unwrap() == aligned, "what is written around pages is read");
            let cached = File::options().write(true).open(&path).unwrap();
            cached.write_all_at(b"through pages", 9).unwrap();
            aligned.fill(0);
            file.read_exact_at(aligned, 0).unwrap();
            assert_eq!(&aligned[9..22], b"through pages");
            drop((cached, options.open(&path).unwrap()));
            let mut expected = bytes_of(7, size);
            expected[9..22].copy_from_slice(b"through pages");
            assert!(aligned == expected);
        }
    });
}

/// A read sets the access time at once, and it is kept; `noatime` prevents that. Each file is read
/// once per mount, because the kernel answers the next read from its pages.
#[test]
fn the_time_of_the_last_read_is_kept() {
    on_volume(|volume| {
        let path = |name: &str| volume.files().join(name);
        let atime = |name: &str| fs::metadata(path(name)).unwrap().atime();
        let up_again = |args: &[&str]| {
            volume.run("unmount", &[]).expect_success();
            volume.up(args).expect_success();
        };
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let times = FileTimes::new().set_accessed(past).set_modified(past);
        for name in ["read", "quiet", "later"] {
            let file = new_file(&path(name));
            file.write_all_at(b"read me", 0).unwrap();
            file.set_times(times).unwrap();
        }
        up_again(&[]);
        assert_eq!(fs::read(path("read")).unwrap(), b"read me");
        let read = atime("read");
        assert!(read > 1000, "{read}");
        let quiet = i32::try_from(OFlags::NOATIME.bits()).unwrap();
        let file = File::options().read(true).custom_flags(quiet).open(path("quiet")).unwrap();
        file.read_exact_at(&mut [0; 7], 0).unwrap();
        drop(file);
        assert_eq!(atime("quiet"), 1000);
        up_again(&["--noatime"]);
        assert_eq!(fs::read(path("later")).unwrap(), b"read me");
        assert_eq!((atime("read"), atime("quiet"), atime("later")), (read, 1000, 1000));
    });
}
