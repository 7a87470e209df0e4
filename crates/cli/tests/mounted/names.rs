//! Names: which are valid, and how they are created, renamed and removed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno;

use crate::mounted::{errno, on_mount, on_volume};

fn exchange(a: &Path, b: &Path, flags: RenameFlags) -> Result<(), Errno> {
    renameat_with(CWD, a, CWD, b, flags)
}

#[test]
fn every_byte_but_two_may_be_in_a_name() {
    on_volume(|volume| {
        let root = volume.files();
        let names: Vec<Vec<u8>> =
            (1..=255).filter(|byte| *byte != b'/').map(|byte| vec![b'n', byte, b'x']).collect();
        for name in &names {
            fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
        }
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        for name in &names {
            assert_eq!(fs::read(root.join(OsStr::from_bytes(name))).unwrap(), *name);
        }
        assert_eq!(fs::read_dir(&root).unwrap().count(), names.len());
    });
}

#[test]
fn a_name_has_255_bytes_at_most() {
    on_mount(|root| {
        let long = "é".repeat(127) + "x";
        assert_eq!(long.len(), 255);
        fs::write(root.join(&long), "long").unwrap();
        assert_eq!(fs::read(root.join(&long)).unwrap(), b"long");
        assert_eq!(errno(fs::write(root.join(long + "y"), "")), Errno::NAMETOOLONG);
    });
}

#[test]
fn rename_replaces_a_file() {
    on_mount(|root| {
        fs::write(root.join("a"), "a").unwrap();
        fs::write(root.join("b"), "b").unwrap();
        let mut old = File::open(root.join("b")).unwrap();
        fs::rename(root.join("a"), root.join("b")).unwrap();
        assert_eq!(errno(fs::metadata(root.join("a"))), Errno::NOENT);
        assert_eq!(fs::read(root.join("b")).unwrap(), b"a");
        // A descriptor of the replaced file can still be read.
        let mut text = String::new();
        old.read_to_string(&mut text).unwrap();
        assert_eq!(text, "b");
    });
}

#[test]
fn rename_replaces_only_an_empty_directory() {
    on_mount(|root| {
        for dir in ["from", "empty", "full", "full/x"] {
            fs::create_dir(root.join(dir)).unwrap();
        }
        fs::write(root.join("file"), "").unwrap();
        let rename = |from: &str, to: &str| fs::rename(root.join(from), root.join(to));
        assert_eq!(errno(rename("from", "full")), Errno::NOTEMPTY);
        assert_eq!(errno(rename("from", "file")), Errno::NOTDIR);
        assert_eq!(errno(rename("file", "empty")), Errno::ISDIR);
        rename("from", "empty").unwrap();
        assert_eq!(errno(fs::metadata(root.join("from"))), Errno::NOENT);
    });
}

#[test]
fn rename_may_refuse_to_replace() {
    on_mount(|root| {
        fs::write(root.join("a"), "a").unwrap();
        fs::write(root.join("b"), "b").unwrap();
        let keep = RenameFlags::NOREPLACE;
        assert_eq!(exchange(&root.join("a"), &root.join("b"), keep), Err(Errno::EXIST));
        exchange(&root.join("a"), &root.join("c"), keep).unwrap();
        assert_eq!(fs::read(root.join("c")).unwrap(), b"a");
    });
}

#[test]
fn rename_exchanges_anything_with_anything() {
    on_mount(|root| {
        fs::write(root.join("file"), "file").unwrap();
        fs::create_dir_all(root.join("dir/in")).unwrap();
        exchange(&root.join("file"), &root.join("dir"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read(root.join("dir")).unwrap(), b"file");
        assert!(root.join("file/in").is_dir());
        let missing = exchange(&root.join("file"), &root.join("no"), RenameFlags::EXCHANGE);
        assert_eq!(missing, Err(Errno::NOENT));
    });
}

#[test]
fn a_directory_does_not_move_below_itself() {
    on_mount(|root| {
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        assert_eq!(errno(fs::rename(root.join("a"), root.join("a/b/c/d"))), Errno::INVAL);
        let swap = exchange(&root.join("a"), &root.join("a/b"), RenameFlags::EXCHANGE);
        assert_eq!(swap, Err(Errno::INVAL));
    });
}

#[test]
fn a_moved_directory_keeps_what_is_in_it() {
    on_mount(|root| {
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("c")).unwrap();
        fs::write(root.join("a/b/f"), "f").unwrap();
        fs::rename(root.join("a/b"), root.join("c/d")).unwrap();
        assert_eq!(fs::read(root.join("c/d/f")).unwrap(), b"f");
        assert_eq!(fs::metadata(root.join("c/d/..")).unwrap().ino(), ino(&root.join("c")));
        assert_eq!(links(&root.join("a")), 2);
        assert_eq!(links(&root.join("c")), 3);
    });
}

fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

fn links(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().nlink()
}

#[test]
fn a_file_may_have_many_names() {
    on_mount(|root| {
        fs::write(root.join("a"), "one").unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::hard_link(root.join("a"), root.join("b")).unwrap();
        fs::hard_link(root.join("b"), root.join("d/c")).unwrap();
        assert_eq!(links(&root.join("a")), 3);
        assert_eq!(ino(&root.join("a")), ino(&root.join("d/c")));
        fs::write(root.join("d/c"), "two").unwrap();
        assert_eq!(fs::read(root.join("a")).unwrap(), b"two");
        fs::remove_file(root.join("a")).unwrap();
        assert_eq!(links(&root.join("b")), 2);
        fs::remove_file(root.join("b")).unwrap();
        assert_eq!(links(&root.join("d/c")), 1);
        assert_eq!(fs::read(root.join("d/c")).unwrap(), b"two");
        let dir = fs::hard_link(root.join("d"), root.join("e"));
        assert_eq!(errno(dir), Errno::PERM);
    });
}

/// A rename between two names of one file does nothing.
#[test]
fn rename_to_the_same_file_does_nothing() {
    on_mount(|root| {
        fs::write(root.join("a"), "x").unwrap();
        fs::hard_link(root.join("a"), root.join("b")).unwrap();
        fs::rename(root.join("a"), root.join("b")).unwrap();
        assert_eq!(links(&root.join("a")), 2);
        assert_eq!(links(&root.join("b")), 2);
    });
}

#[test]
fn directories_count_their_directories() {
    on_mount(|root| {
        let dir = root.join("d");
        fs::create_dir(&dir).unwrap();
        assert_eq!(links(&dir), 2);
        fs::create_dir(dir.join("a")).unwrap();
        fs::create_dir(dir.join("b")).unwrap();
        fs::write(dir.join("f"), "").unwrap();
        assert_eq!(links(&dir), 4);
        fs::remove_dir(dir.join("a")).unwrap();
        assert_eq!(links(&dir), 3);
        fs::rename(dir.join("b"), root.join("b")).unwrap();
        assert_eq!(links(&dir), 2);
    });
}

#[test]
fn only_an_empty_directory_goes() {
    on_mount(|root| {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/f"), "").unwrap();
        assert_eq!(errno(fs::remove_dir(root.join("d"))), Errno::NOTEMPTY);
        assert_eq!(errno(fs::remove_dir(root.join("d/f"))), Errno::NOTDIR);
        assert_eq!(errno(fs::remove_file(root.join("d"))), Errno::ISDIR);
        fs::remove_file(root.join("d/f")).unwrap();
        fs::remove_dir(root.join("d")).unwrap();
        assert_eq!(errno(fs::remove_dir(root.join("d"))), Errno::NOENT);
    });
}

#[test]
fn symbolic_links_say_anything() {
    on_mount(|root| {
        let target = "x/".repeat(2047) + "y";
        assert_eq!(target.len(), 4095);
        symlink(&target, root.join("long")).unwrap();
        assert_eq!(fs::read_link(root.join("long")).unwrap(), Path::new(&target));
        assert_eq!(fs::symlink_metadata(root.join("long")).unwrap().len(), 4095);
        fs::write(root.join("f"), "f").unwrap();
        symlink("f", root.join("l")).unwrap();
        assert_eq!(fs::read(root.join("l")).unwrap(), b"f");
        symlink("l2", root.join("l1")).unwrap();
        symlink("l1", root.join("l2")).unwrap();
        assert_eq!(errno(fs::read(root.join("l1"))), Errno::LOOP);
    });
}

#[test]
fn only_one_makes_a_name() {
    on_mount(|root| {
        let create = || File::options().write(true).create_new(true).open(root.join("f"));
        create().unwrap();
        assert_eq!(errno(create()), Errno::EXIST);
        assert_eq!(errno(fs::create_dir(root.join("f"))), Errno::EXIST);
        assert_eq!(errno(symlink("x", root.join("f"))), Errno::EXIST);
        assert_eq!(errno(fs::read(root.join("f/x"))), Errno::NOTDIR);
    });
}

#[test]
fn other_kinds_of_files_are_made() {
    on_mount(|root| {
        let make = |name: &str, kind| mknodat(CWD, root.join(name), kind, Mode::RUSR, 0).unwrap();
        make("pipe", FileType::Fifo);
        make("socket", FileType::Socket);
        make("file", FileType::RegularFile);
        let kind = |name: &str| fs::symlink_metadata(root.join(name)).unwrap().file_type();
        assert!(kind("pipe").is_fifo() && kind("socket").is_socket() && kind("file").is_file());
    });
}

#[test]
fn a_pipe_carries_bytes() {
    on_mount(|root| {
        let path = root.join("pipe");
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read(&path).unwrap());
            fs::write(&path, "through").unwrap();
            assert_eq!(reader.join().unwrap(), b"through");
        });
    });
}

#[test]
fn a_file_without_a_name_lives_while_it_is_open() {
    on_volume(|volume| {
        let root = volume.files();
        let mut small = open_new(&root.join("small"));
        let mut large = open_new(&root.join("large"));
        small.write_all(b"small").unwrap();
        large.write_all(&vec![7; 300_000]).unwrap();
        fs::remove_file(root.join("small")).unwrap();
        fs::remove_file(root.join("large")).unwrap();
        assert_eq!(small.metadata().unwrap().nlink(), 0);
        small.write_all(b", grown").unwrap();
        rustix::fs::seek(&small, rustix::fs::SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        small.read_to_string(&mut text).unwrap();
        assert_eq!(text, "small, grown");
        assert_eq!(large.metadata().unwrap().len(), 300_000);
        // The name can be used again at once.
        fs::write(root.join("large"), "another").unwrap();
        assert_eq!(large.metadata().unwrap().len(), 300_000);
    });
}

/// The process is killed while an orphan is open: it is removed at the next start.
#[test]
fn an_orphan_is_removed_after_a_crash() {
    on_volume(|volume| {
        let mut file = open_new(&volume.files().join("gone"));
        file.write_all(&vec![7; 300_000]).unwrap();
        fs::remove_file(volume.files().join("gone")).unwrap();
        volume.kill();
        drop(file);
        volume.up(&[]).expect_success();
        assert_eq!(fs::read_dir(volume.files()).unwrap().count(), 0);
    });
}

fn open_new(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}
