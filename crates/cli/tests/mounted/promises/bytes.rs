//! Bytes and ranges of bytes.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use pelago_random::bytes_of;
use rustix::fs::{
    FallocateFlags, OFlags, SeekFrom, copy_file_range as copy_range, fallocate as reserve, seek,
};
use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use crate::harness::volume::folder;
use crate::mounted::beside::{is_ext4, on_both};
use crate::mounted::{errno, on_mount, on_volume};

const GROW: FallocateFlags = FallocateFlags::empty();
const KEEP: FallocateFlags = FallocateFlags::KEEP_SIZE;
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(KEEP);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE;
/// The largest offset.
const LAST: u64 = i64::MAX as u64;

fn new_file(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap()
}

#[test]
fn o_append() {
    on_both(|root| {
        let path = root.join("log");
        let append = || File::options().append(true).create(true).open(&path).unwrap();
        thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || {
                    let mut file = append();
                    for _ in 0..200 {
                        file.write_all(format!("{number:09}\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.len(), 4 * 200 * 10);
        for number in 0..4 {
            let line = format!("{number:09}");
            assert_eq!(text.lines().filter(|other| **other == line).count(), 200);
        }
        // The end of the file is determined at each write.
        let mut file = append();
        File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
        file.write_all(b"end").unwrap();
        let one = [std::io::IoSlice::new(b"one")];
        let plain = File::options().write(true).open(&path).unwrap();
        assert_eq!(pwritev2(&plain, &one, 0, ReadWriteFlags::APPEND), Ok(3));
        assert_eq!(fs::read(&path).unwrap(), b"000endone");
    });
}

/// After a write has returned, each read of any program returns its bytes, also a cached one.
#[test]
fn read_write() {
    on_both(|root| {
        for (name, start) in [("small", 0_u64), ("large", 1 << 20)] {
            let path = root.join(name);
            let writer = new_file(&path);
            let reader = File::open(&path).unwrap();
            for step in 0..50 {
                let text = format!("{step:04}");
                writer.write_all_at(text.as_bytes(), start + 2 * step).unwrap();
                let mut seen = [0; 4];
                reader.read_exact_at(&mut seen, start + 2 * step).unwrap();
                assert_eq!(seen, text.as_bytes());
            }
            let end = reader.metadata().unwrap().len();
            assert_eq!(reader.read_at(&mut [0; 10], end).unwrap(), 0);
            assert_eq!(reader.read_at(&mut [0; 10], end - 2).unwrap(), 2);
            assert_eq!(errno(reader.write_all_at(b"x", 0)), Errno::BADF);
            let blind = File::options().write(true).open(&path).unwrap();
            assert_eq!(errno(blind.read_at(&mut [0], 0)), Errno::BADF);
        }
    });
}

#[test]
fn close() {
    on_both(|root| {
        for size in [0_usize, 10, 4096, 4097, 300_000, (2 << 20) + 1] {
            let path = root.join("f");
            let bytes = bytes_of(size as u64, size);
            let file = new_file(&path);
            file.write_all_at(&bytes, 0).unwrap();
            let open = file.metadata().unwrap();
            drop(file);
            let closed = fs::metadata(&path).unwrap();
            assert_eq!((closed.len(), closed.mtime_nsec()), (size as u64, open.mtime_nsec()));
            assert!(fs::read(&path).unwrap() == bytes, "{size}");
        }
    });
}

#[test]
fn fsync_fdatasync() {
    on_volume(|volume| {
        let at = |name: &str| volume.files().join(name);
        let sync = i32::try_from(OFlags::SYNC.bits()).unwrap();
        let mut options = File::options();
        let synchronous = options.write(true).create(true).custom_flags(sync);
        let mut open = Vec::new();
        for size in [10_usize, 300_000] {
            let names = ["fsync", "fdatasync", "sync"].map(|how| format!("{how}{size}"));
            let files = [new_file(&at(&names[0])), new_file(&at(&names[1]))];
            let files = [&files[0], &files[1], &synchronous.open(at(&names[2])).unwrap()]
                .map(|file| file.try_clone().unwrap());
            for file in &files {
                file.write_all_at(&bytes_of(1, size), 0).unwrap();
            }
            files[0].sync_all().unwrap();
            files[1].sync_data().unwrap();
            // Also through a read-only descriptor.
            File::open(at(&names[0])).unwrap().sync_all().unwrap();
            open.extend(files);
        }
        fs::create_dir(at("d")).unwrap();
        File::open(volume.files()).unwrap().sync_all().unwrap();
        volume.kill();
        drop(open);
        volume.up(&[]).expect_success();
        for size in [10_usize, 300_000] {
            for how in ["fsync", "fdatasync", "sync"] {
                let kept = fs::read(at(&format!("{how}{size}"))).unwrap();
                assert!(kept == bytes_of(1, size), "{how} {size}");
            }
        }
        assert!(at("d").is_dir());
    });
}

#[test]
fn truncate() {
    on_both(|root| {
        let path = root.join("f");
        let mut bytes = bytes_of(1, 400_000);
        fs::write(&path, &bytes).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        for size in [300_001, 9000, 4097, 100, 4096, 200_000, 10, 5000, 0, 7] {
            file.set_len(size).unwrap();
            bytes.resize(usize::try_from(size).unwrap(), 0);
            assert!(fs::read(&path).unwrap() == bytes, "{size}");
        }
        assert_eq!(errno(File::open(&path).unwrap().set_len(1)), Errno::INVAL);
    });
}

/// Offsets beyond 2⁴⁰ work like small ones.
#[test]
fn sparse_files() {
    on_volume(|volume| {
        let path = volume.files().join("f");
        let places = [1_u64 << 20, 1 << 32, (1 << 40) + 5, (1 << 43) + 4095];
        let file = new_file(&path);
        for place in places {
            file.write_all_at(&place.to_le_bytes(), place).unwrap();
            assert_eq!(file.metadata().unwrap().len(), place + 8);
        }
        let check = |file: &File| {
            let meta = file.metadata().unwrap();
            assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
            for place in places {
                let mut found = [1; 16];
                file.read_exact_at(&mut found, place - 8).unwrap();
                assert_eq!((&found[..8], &found[8..]), (&[0; 8][..], &place.to_le_bytes()[..]));
            }
            assert_eq!(seek(file, SeekFrom::Data((1 << 41) + 1)).map(|at| at >> 40), Ok(8));
            assert_eq!(seek(file, SeekFrom::Hole(places[3])), Ok(places[3] + 8));
        };
        check(&file);
        drop(file);
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        check(&File::open(&path).unwrap());
        File::options().write(true).open(&path).unwrap().set_len(3 << 40).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 3 << 40);
        // From a small file to a far offset.
        let small = new_file(&volume.files().join("small"));
        small.write_all_at(b"start", 0).unwrap();
        small.set_len(1 << 41).unwrap();
        let mut start = [1; 10];
        small.read_exact_at(&mut start, 0).unwrap();
        assert_eq!(&start, b"start\0\0\0\0\0");
    });
}

/// Each call with an offset, at and beyond the largest one. None changes the file.
#[test]
fn offsets() {
    let (_folder, below) = folder();
    on_both(|root| {
        let path = root.join("f");
        let file = new_file(&path);
        file.write_all_at(b"abc", 0).unwrap();
        let write = |at: u64| errno(file.write_at(b"x", at));
        let far = 1 << 62;
        assert_eq!((write(LAST), write(LAST + 1)), (Errno::INVAL, Errno::INVAL));
        assert_eq!(file.read_at(&mut [0; 10], far).unwrap(), 0);
        assert_eq!(errno(file.read_at(&mut [0], LAST + 1)), Errno::INVAL);
        let grow = |flags, at, size| reserve(&file, flags, at, size);
        assert_eq!(grow(GROW, LAST, 1), Err(Errno::FBIG));
        assert_eq!(grow(GROW, LAST - 5, 10), Err(Errno::FBIG));
        assert_eq!(grow(ZERO, LAST - 5, 10), Err(Errno::FBIG));
        assert_eq!(grow(GROW, LAST + 1, 1), Err(Errno::INVAL));
        assert_eq!((grow(GROW, 0, 0), grow(PUNCH, 0, 0)), (Err(Errno::INVAL), Err(Errno::INVAL)));
        let place = |from| seek(&file, from);
        assert_eq!(place(SeekFrom::End(-4)), Err(Errno::INVAL));
        assert_eq!(place(SeekFrom::Start(1 << 63)), Err(Errno::INVAL));
        assert_eq!(place(SeekFrom::Data(far)), Err(Errno::NXIO));
        assert_eq!(place(SeekFrom::Hole(far)), Err(Errno::NXIO));
        let source = new_file(&root.join("source"));
        source.write_all_at(b"12345678", 0).unwrap();
        let copy = |mut from: u64, mut to: u64, size| {
            copy_range(&source, Some(&mut from), &file, Some(&mut to), size)
        };
        assert_eq!(copy(0, LAST + 1, 8), Err(Errno::INVAL));
        assert_eq!((copy(100, 0, 8), copy(far, 0, 8)), (Ok(0), Ok(0)));
        // The largest size of a file depends on the disk.
        if is_ext4(&below) {
            assert_eq!((write(LAST - 1), write(far)), (Errno::FBIG, Errno::FBIG));
            assert_eq!(errno(file.set_len(LAST)), Errno::FBIG);
            assert_eq!(errno(file.set_len(far)), Errno::FBIG);
            assert_eq!((copy(0, LAST, 8), copy(0, far, 8)), (Err(Errno::FBIG), Err(Errno::FBIG)));
            assert_eq!(grow(GROW, LAST - 5, 5), Err(Errno::FBIG));
        }
        assert_eq!(fs::read(&path).unwrap(), b"abc");
        assert_eq!(copy(6, 3, 1 << 40), Ok(2));
        assert_eq!(fs::read(&path).unwrap(), b"abc78");
    });
}

/// Sizes on both sides of the inline limit.
#[test]
fn fallocate() {
    on_both(|root| {
        for size in [1000_usize, 400_000] {
            let path = root.join(format!("f{size}"));
            let file = new_file(&path);
            let mut bytes = bytes_of(1, size);
            file.write_all_at(&bytes, 0).unwrap();
            // The kernel's cached pages must be dropped with the range that is freed.
            assert!(fs::read(&path).unwrap() == bytes);
            let third = size / 3;
            reserve(&file, PUNCH, third as u64, third as u64).unwrap();
            bytes[third..third * 2].fill(0);
            assert!(fs::read(&path).unwrap() == bytes, "punched, {size}");
            reserve(&file, ZERO, size as u64 - 10, 100).unwrap();
            bytes[size - 10..].fill(0);
            bytes.resize(size + 90, 0);
            reserve(&file, ZERO | KEEP, 5, 10).unwrap();
            bytes[5..15].fill(0);
            reserve(&file, KEEP, 0, 1 << 20).unwrap();
            assert_eq!(file.metadata().unwrap().len(), size as u64 + 90);
            let before = file.metadata().unwrap();
            reserve(&file, GROW, 0, 2 << 20).unwrap();
            bytes.resize(2 << 20, 0);
            let meta = file.metadata().unwrap();
            assert!(meta.len() == 2 << 20 && meta.blocks() >= (2 << 20) / 512);
            assert!((meta.ctime(), meta.ctime_nsec()) > (before.ctime(), before.ctime_nsec()));
            assert!(fs::read(&path).unwrap() == bytes, "reserved, {size}");
            assert_eq!(reserve(&file, FallocateFlags::PUNCH_HOLE, 0, 9), Err(Errno::OPNOTSUPP));
            assert_eq!(reserve(File::open(&path).unwrap(), GROW, 0, 9), Err(Errno::BADF));
        }
    });
    on_mount(|root| {
        let file = new_file(&root.join("f"));
        for modes in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
            assert_eq!(reserve(&file, modes, 0, 4096), Err(Errno::OPNOTSUPP));
        }
        // A local file system would be full first.
        file.write_all_at(b"abc", 0).unwrap();
        assert_eq!(reserve(&file, GROW, 0, 1 << 60), Err(Errno::NOSPC));
        assert_eq!(fs::read(root.join("f")).unwrap(), b"abc");
    });
}

#[test]
fn seek_data_seek_hole() {
    on_both(|root| {
        let file = new_file(&root.join("f"));
        assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
        file.write_all_at(b"0123456789", 0).unwrap();
        assert_eq!(seek(&file, SeekFrom::Data(3)), Ok(3));
        assert_eq!(seek(&file, SeekFrom::Hole(3)), Ok(10));
        assert_eq!(seek(&file, SeekFrom::Hole(10)), Err(Errno::NXIO));
        let far = 64 << 20;
        file.set_len(far + 10).unwrap();
        file.write_all_at(&bytes_of(3, 10), far).unwrap();
        let hole = seek(&file, SeekFrom::Hole(0)).unwrap();
        assert!(hole > 0 && hole <= 1 << 20, "{hole}");
        assert_eq!(seek(&file, SeekFrom::Data(1 << 20)), Ok(far));
        assert_eq!(seek(&file, SeekFrom::Hole(far)), Ok(far + 10));
        assert_eq!(seek(&file, SeekFrom::Data(far + 10)), Err(Errno::NXIO));
    });
}

/// The bytes are in memory, in the table or in a content file.
#[test]
fn copy_file_range() {
    on_both(|root| {
        for (from_size, to_size) in [(100, 0), (100, 100_000), (5000, 10), (3_000_000, 10)] {
            let from = root.join("from");
            let to = root.join("to");
            let bytes = bytes_of(from_size as u64, from_size);
            let mut expected = bytes_of(9, to_size);
            fs::write(&from, &bytes).unwrap();
            fs::write(&to, &expected).unwrap();
            let source = File::open(&from).unwrap();
            let target = File::options().read(true).write(true).open(&to).unwrap();
            copy_all(&source, &target, 3);
            expected.resize(expected.len().max(from_size + 3), 0);
            expected[3..from_size + 3].copy_from_slice(&bytes);
            assert!(fs::read(&to).unwrap() == expected, "{from_size} to {to_size}");
            let mut at = 0;
            let mut beside = 1;
            let within = copy_range(&target, Some(&mut at), &target, Some(&mut beside), 50);
            assert_eq!(within, Err(Errno::INVAL), "ranges that overlap");
            let refused = copy_range(&target, None, &source, None, 50);
            assert_eq!(refused, Err(Errno::BADF));
            let append = File::options().append(true).open(&to).unwrap();
            assert_eq!(copy_range(&source, None, &append, None, 50), Err(Errno::BADF));
        }
    });
}

fn copy_all(from: &File, to: &File, start: u64) {
    let mut from_at = 0;
    let mut to_at = start;
    let end = from.metadata().unwrap().len();
    while from_at < end {
        let left = usize::try_from(end - from_at).unwrap();
        let done = copy_range(from, Some(&mut from_at), to, Some(&mut to_at), left);
        assert!(done.unwrap() > 0, "{left} of {end} bytes are missing");
    }
}

/// `O_DIRECT` together with cached reads and writes. If memory, offset or size are not aligned, the
/// call succeeds or fails with `EINVAL`.
#[test]
fn o_direct() {
    const BLOCK: usize = 4096;
    on_both(|root| {
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
        for blocks in [1_usize, 100] {
            let path = root.join(format!("f{blocks}"));
            let mut options = File::options();
            let options = options.read(true).write(true).create(true).custom_flags(direct);
            let Ok(file) = options.open(&path) else {
                assert!(!root.ends_with("files"), "the mount has it");
                return;
            };
            let size = blocks * BLOCK;
            let mut memory = vec![0; size + BLOCK];
            let start = memory.as_ptr().align_offset(BLOCK);
            let mut expected = bytes_of(7, size);
            memory[start..start + size].copy_from_slice(&expected);
            file.write_all_at(&memory[start..start + size], 0).unwrap();
            assert!(fs::read(&path).unwrap() == expected);
            let cached = File::options().write(true).open(&path).unwrap();
            cached.write_all_at(b"through pages", 9).unwrap();
            expected[9..22].copy_from_slice(b"through pages");
            memory.fill(0);
            file.read_exact_at(&mut memory[start..start + size], 0).unwrap();
            assert!(memory[start..start + size] == expected);
            memory[start + 1..start + 11].copy_from_slice(b"unaligned!");
            for (from, at, length) in [(1, 0, 10), (1, 1, 10), (0, 100, BLOCK)] {
                let bytes = &memory[start + from..start + from + length];
                match file.write_at(bytes, at) {
                    Ok(done) => {
                        let at = usize::try_from(at).unwrap();
                        expected.resize(expected.len().max(at + done), 0);
                        expected[at..at + done].copy_from_slice(&bytes[..done]);
                    }
                    Err(error) => assert_eq!(errno::<()>(Err(error)), Errno::INVAL),
                }
            }
            assert!(fs::read(&path).unwrap() == expected);
        }
    });
}
