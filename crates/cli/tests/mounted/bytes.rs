//! Reads return the written bytes, in whichever place they are stored.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use pelago_random::bytes_of;
use rustix::io::Errno;

use crate::harness::program::run;
use crate::mounted::{errno, on_mount, on_volume};

/// Sizes on both sides of each limit: empty, inline, a page, a request, several requests.
const SIZES: [usize; 10] =
    [0, 1, 4095, 4096, 4097, 65_536, 1 << 20, (1 << 20) + 1, 3 << 20, (5 << 20) + 12_345];

#[test]
fn files_of_all_sizes_come_back() {
    on_volume(|volume| {
        let path = |size: usize| volume.files().join(format!("f{size}"));
        for size in SIZES {
            fs::write(path(size), bytes_of(size as u64, size)).unwrap();
        }
        let check = || {
            for size in SIZES {
                assert!(fs::read(path(size)).unwrap() == bytes_of(size as u64, size), "{size}");
            }
        };
        check();
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        check();
        volume.kill();
        volume.up(&[]).expect_success();
        check();
    });
}

#[test]
fn a_big_file_is_copied_whole() {
    on_mount(|root| {
        let bytes = bytes_of(1, 48 << 20);
        fs::write(root.join("a"), &bytes).unwrap();
        fs::copy(root.join("a"), root.join("b")).unwrap();
        assert!(fs::read(root.join("b")).unwrap() == bytes);
    });
}

#[test]
fn a_file_grows_past_the_inline_limit_and_back() {
    on_mount(|root| {
        let path = root.join("f");
        let mut all = Vec::new();
        for step in 0..20_u64 {
            let more = bytes_of(step, 500);
            let mut file = File::options().append(true).create(true).open(&path).unwrap();
            file.write_all(&more).unwrap();
            drop(file);
            all.extend(more);
            assert!(fs::read(&path).unwrap() == all, "after {} bytes", all.len());
        }
        let file = File::options().write(true).open(&path).unwrap();
        for size in [9000, 4096, 4095, 100, 0] {
            file.set_len(size).unwrap();
            all.truncate(usize::try_from(size).unwrap());
            assert!(fs::read(&path).unwrap() == all, "cut to {size}");
        }
    });
}

#[test]
fn holes_read_as_zeros_and_take_no_space() {
    on_mount(|root| {
        let path = root.join("sparse");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(b"end", 1 << 32).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), (1 << 32) + 3);
        assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
        let mut hole = vec![1; 70_000];
        file.read_exact_at(&mut hole, 1 << 31).unwrap();
        assert!(hole.iter().all(|byte| *byte == 0));
        let mut end = [0; 3];
        file.read_exact_at(&mut end, 1 << 32).unwrap();
        assert_eq!(&end, b"end");
    });
}

#[test]
fn a_small_hole_reads_as_zeros() {
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "0123456789").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(4).unwrap();
        file.set_len(8).unwrap();
        file.write_all_at(b"x", 9).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"0123\0\0\0\0\0x");
    });
}

#[test]
fn opening_may_empty_a_file() {
    on_mount(|root| {
        for size in [10, 100_000] {
            let path = root.join("f");
            fs::write(&path, vec![1; size]).unwrap();
            let file = File::options().write(true).truncate(true).open(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
            file.write_all_at(b"new", 0).unwrap();
            drop(file);
            assert_eq!(fs::read(&path).unwrap(), b"new");
        }
    });
}

/// A second descriptor sees a write at once, without close or fsync.
#[test]
fn two_opens_see_each_other() {
    on_mount(|root| {
        for (name, start) in [("small", 0_u64), ("large", 1 << 20)] {
            let path = root.join(name);
            let writer = File::create(&path).unwrap();
            let reader = File::open(&path).unwrap();
            for step in 0..50 {
                let text = format!("{step:04}");
                writer.write_all_at(text.as_bytes(), start + 4 * step).unwrap();
                let mut seen = [0; 4];
                reader.read_exact_at(&mut seen, start + 4 * step).unwrap();
                assert_eq!(seen, text.as_bytes());
                assert_eq!(reader.metadata().unwrap().len(), start + 4 * step + 4);
            }
        }
    });
}

#[test]
fn what_was_fsynced_survives_a_crash() {
    on_volume(|volume| {
        let small = volume.files().join("small");
        let large = volume.files().join("large");
        let files: Vec<File> = [&small, &large].map(|path| File::create(path).unwrap()).into();
        files[0].write_all_at(b"kept", 0).unwrap();
        files[1].write_all_at(&bytes_of(3, 2_000_000), 0).unwrap();
        files[0].sync_all().unwrap();
        files[1].sync_data().unwrap();
        File::open(volume.files()).unwrap().sync_all().unwrap();
        volume.kill();
        drop(files);
        volume.up(&[]).expect_success();
        assert_eq!(fs::read(&small).unwrap(), b"kept");
        assert!(fs::read(&large).unwrap() == bytes_of(3, 2_000_000));
    });
}

#[test]
fn descriptors_do_only_what_they_were_opened_for() {
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        assert_eq!(errno(File::open(&path).unwrap().write_all_at(b"y", 0)), Errno::BADF);
        let writer = File::options().write(true).open(&path).unwrap();
        assert_eq!(errno(writer.read_at(&mut [0], 0)), Errno::BADF);
        assert_eq!(errno(File::open(root).unwrap().read(&mut [0])), Errno::ISDIR);
    });
}

/// The kernel maps programs that it runs from the mount. Another process copies the program: a file
/// open for writing here may be inherited by a child of another test, and then does not run
/// (ETXTBSY).
#[test]
fn a_program_can_be_run() {
    on_mount(|root| {
        let copy = root.join("program");
        run(Command::new("cp").arg(env!("CARGO_BIN_EXE_pelago")).arg(&copy)).expect_success();
        run(Command::new(&copy).arg("version")).expect_success();
    });
}

/// Stores into a shared mapping reach the file at `msync`. The program is in Perl, which each
/// Debian has: a `read` into the mapping is the store.
#[test]
fn a_shared_mapping_writes_the_file() {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: not here: the numbers of the system calls are those of x86_64");
        return;
    }
    on_volume(|volume| {
        let path = volume.files().join("mapped");
        fs::write(&path, vec![b'.'; 100_000]).unwrap();
        let mut perl = Command::new("perl");
        perl.args(["-e", MAP]).arg(&path);
        run(&mut perl).expect_success();
        let mut expected = vec![b'.'; 100_000];
        expected[50_000..50_005].copy_from_slice(b"store");
        assert!(fs::read(&path).unwrap() == expected);
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        assert!(fs::read(&path).unwrap() == expected);
    });
}

/// mmap 9 (read and write 3, shared 1), pipe by perl, read 0, msync 26 (sync 4).
const MAP: &str = r#"
open(my $file, "+<", $ARGV[0]) or die;
my $at = syscall(9, 0, 100000, 3, 1, fileno($file), 0);
die "mmap" if $at == -1;
pipe(my $from, my $to) or die;
syswrite($to, "store") == 5 or die;
syscall(0, fileno($from), $at + 50000, 5) == 5 or die "read";
syscall(26, $at, 100000, 4) == 0 or die "msync";
"#;

/// `df` shows the space of the disk, and the reserve is not counted twice.
#[test]
fn the_space_is_that_of_the_disk() {
    on_volume(|volume| {
        let ours = rustix::fs::statvfs(volume.files()).unwrap();
        let below = rustix::fs::statvfs(&volume.dir).unwrap();
        assert_eq!(ours.f_blocks * ours.f_frsize, below.f_blocks * below.f_frsize);
        assert!(ours.f_bavail <= ours.f_bfree && ours.f_bfree <= ours.f_blocks);
        assert_eq!(ours.f_namemax, 255);
    });
}

/// If it is supported, the file grows and its bytes stay; otherwise it fails with `EOPNOTSUPP`.
#[test]
fn space_can_be_reserved() {
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "abc").unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        let none = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&file, none, 0, 100_000) {
            Ok(()) => assert_eq!(file.metadata().unwrap().len(), 100_000),
            Err(error) => assert_eq!(error, Errno::OPNOTSUPP),
        }
        assert_eq!(fs::read(&path).unwrap()[..3], *b"abc");
    });
}

#[test]
fn reading_behind_the_end_is_nothing() {
    on_mount(|root| {
        let path: &Path = &root.join("f");
        fs::write(path, "abc").unwrap();
        let file = File::open(path).unwrap();
        assert_eq!(file.read_at(&mut [0; 10], 3).unwrap(), 0);
        assert_eq!(file.read_at(&mut [0; 10], 1 << 40).unwrap(), 0);
        assert_eq!(file.read_at(&mut [0; 10], 1).unwrap(), 2);
    });
}
