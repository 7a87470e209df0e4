//! Names and directories.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, linkat, makedev, mknodat, open, openat,
    renameat_with, statat,
};
use rustix::io::Errno;

use crate::harness::mapping::Mapping;
use crate::harness::programs::Program;
use crate::mounted::beside::{Door, NOBODY, as_nobody, can_be_others, on_both};
use crate::mounted::{errno, on_volume};

fn swap(a: &Path, b: &Path, flags: RenameFlags) -> Result<(), Errno> {
    renameat_with(CWD, a, CWD, b, flags)
}

pub(super) fn ino(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

pub(super) fn links(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().nlink()
}

#[test]
fn names() {
    on_both(|root| {
        let long = "é".repeat(127) + "x";
        for name in ["a", "A", &long, "\u{1}\n\\ \"'*?", "é", "e\u{301}"] {
            File::create_new(root.join(name)).unwrap();
        }
        File::create_new(root.join(OsStr::from_bytes(b"\xff\xfe\x80"))).unwrap();
        assert_eq!(fs::read_dir(root).unwrap().count(), 7);
        assert_eq!(errno(File::create_new(root.join(long.clone() + "y"))), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::metadata(root.join(long + "y"))), Errno::NAMETOOLONG);
    });
}

#[test]
fn link() {
    on_both(|root| {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("a"), "one").unwrap();
        symlink("a", root.join("s")).unwrap();
        fs::hard_link(root.join("a"), root.join("d/b")).unwrap();
        assert_eq!((links(&root.join("a")), ino(&root.join("a"))), (2, ino(&root.join("d/b"))));
        fs::write(root.join("d/b"), "two").unwrap();
        assert_eq!(fs::read(root.join("a")).unwrap(), b"two");
        // A hard link to a symbolic link, or to its target.
        linkat(CWD, root.join("s"), CWD, root.join("s2"), AtFlags::empty()).unwrap();
        assert_eq!(fs::read_link(root.join("s2")).unwrap(), Path::new("a"));
        linkat(CWD, root.join("s"), CWD, root.join("c"), AtFlags::SYMLINK_FOLLOW).unwrap();
        assert_eq!(links(&root.join("a")), 3);
        let refused = |from: &str| errno(fs::hard_link(root.join(from), root.join("no")));
        assert_eq!((refused("d"), refused("none")), (Errno::PERM, Errno::NOENT));
        assert_eq!(errno(fs::hard_link(root.join("a"), root.join("c"))), Errno::EXIST);
        if can_be_others() {
            let file = open(root.join("a"), OFlags::PATH, Mode::empty()).unwrap();
            linkat(&file, "", CWD, root.join("e"), AtFlags::EMPTY_PATH).unwrap();
            assert_eq!(links(&root.join("a")), 4);
        }
        // A file that has lost its last name cannot be linked.
        let file = File::create_new(root.join("gone")).unwrap();
        fs::remove_file(root.join("gone")).unwrap();
        let door = Door::of(file);
        let back = linkat(CWD, door.path(), CWD, root.join("back"), AtFlags::SYMLINK_FOLLOW);
        assert_eq!(back, Err(Errno::NOENT));
    });
}

#[test]
fn unlink() {
    on_both(|root| {
        for (name, size) in [("small", 10_usize), ("large", 300_000)] {
            let path = root.join(name);
            fs::write(&path, vec![7; size]).unwrap();
            let file = File::options().read(true).write(true).open(&path).unwrap();
            fs::remove_file(&path).unwrap();
            assert_eq!(errno(fs::metadata(&path)), Errno::NOENT);
            let door = Door::of(file);
            lives_without_a_name(&door, size as u64);
            // The name can be used again at once.
            fs::write(&path, "another").unwrap();
            let mut bytes = Vec::new();
            File::open(door.path()).unwrap().read_to_end(&mut bytes).unwrap();
            assert!(bytes.len() == 400_000 && bytes[..3] == [7; 3]);
        }
        fs::create_dir(root.join("d")).unwrap();
        assert_eq!(errno(fs::remove_file(root.join("d"))), Errno::ISDIR);
        assert_eq!(errno(fs::remove_file(root.join("none"))), Errno::NOENT);
    });
}

/// Every operation on an open file works after its last name was removed, also through
/// `/proc/self/fd`.
fn lives_without_a_name(door: &Door, size: u64) {
    let file = &door.file;
    let meta = || file.metadata().unwrap();
    assert_eq!((meta().nlink(), meta().len()), (0, size));
    file.set_len(100_000).unwrap();
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, 200_000).unwrap();
    assert_eq!(meta().len(), 200_000);
    file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(meta().mode() & 0o7777, 0o640);
    file.sync_all().unwrap();
    let again = File::options().read(true).write(true).open(door.path()).unwrap();
    again.set_len(400_000).unwrap();
    assert_eq!((meta().len(), again.metadata().unwrap().nlink()), (400_000, 0));
    let mut start = [0; 10];
    std::os::unix::fs::FileExt::read_exact_at(&again, &mut start, 0).unwrap();
    assert_eq!(start, [7; 10]);
}

#[test]
fn rename() {
    on_both(|root| {
        let at = |name: &str| root.join(name);
        let rename = |from: &str, to: &str| fs::rename(at(from), at(to));
        for name in ["a", "b"] {
            fs::write(at(name), name).unwrap();
        }
        fs::create_dir_all(at("d/x")).unwrap();
        fs::create_dir(at("e")).unwrap();
        let mut old = File::open(at("b")).unwrap();
        rename("a", "b").unwrap();
        assert_eq!(
            (fs::read(at("b")).unwrap(), errno(fs::metadata(at("a")))),
            (b"a".into(), Errno::NOENT)
        );
        let mut text = String::new();
        old.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), old.metadata().unwrap().nlink()), ("b", 0));
        assert_eq!(errno(rename("d", "d/x/y")), Errno::INVAL);
        assert_eq!(errno(rename("d", "d/y")), Errno::INVAL);
        assert_eq!(errno(rename("d/x", "d")), Errno::NOTEMPTY);
        assert_eq!(errno(rename("e", "d")), Errno::NOTEMPTY);
        assert_eq!(errno(rename("e", "b")), Errno::NOTDIR);
        assert_eq!(errno(rename("b", "e")), Errno::ISDIR);
        assert_eq!(errno(rename("b", "none/b")), Errno::NOENT);
        rename("b", "b").unwrap();
        rename("d/x", "e").unwrap();
        // `..` of a moved directory is its new parent.
        let inside = File::open(at("e")).unwrap();
        rename("e", "d/z").unwrap();
        let above = statat(&inside, "..", AtFlags::empty()).unwrap();
        assert_eq!((above.st_ino, links(&at("d"))), (ino(&at("d")), 3));
        // A rename between two names of one file does nothing.
        fs::hard_link(at("b"), at("b2")).unwrap();
        rename("b", "b2").unwrap();
        assert_eq!(links(&at("b")), 2);
        renames_with_flags(root);
    });
}

fn renames_with_flags(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::write(at("p"), "p").unwrap();
    fs::create_dir_all(at("q/in")).unwrap();
    let refused = |from: &str, to: &str, flags| swap(&at(from), &at(to), flags).unwrap_err();
    assert_eq!(refused("p", "q", RenameFlags::NOREPLACE), Errno::EXIST);
    assert_eq!(refused("p", "none", RenameFlags::EXCHANGE), Errno::NOENT);
    assert_eq!(refused("q", "q/in", RenameFlags::EXCHANGE), Errno::INVAL);
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    assert_eq!(refused("p", "q", both), Errno::INVAL);
    swap(&at("p"), &at("q"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(at("q")).unwrap(), b"p");
    assert!(at("p/in").is_dir());
    swap(&at("q"), &at("r"), RenameFlags::NOREPLACE).unwrap();
    assert_eq!(fs::read(at("r")).unwrap(), b"p");
    renames_that_leave_a_whiteout(root);
}

/// `RENAME_WHITEOUT`, which overlayfs needs in its upper directory.
fn renames_that_leave_a_whiteout(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::create_dir_all(at("w/dir/in")).unwrap();
    fs::write(at("w/one"), "one").unwrap();
    fs::write(at("w/two"), "two").unwrap();
    let leave = |from: &str, to: &str, how| swap(&at(from), &at(to), RenameFlags::WHITEOUT | how);
    let none = RenameFlags::empty();
    assert_eq!(leave("w/one", "w/two", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(leave("w/one", "w/two", RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(leave("w/dir", "w/two", none), Err(Errno::NOTDIR));
    let is_whiteout = |name: &str| {
        let found = fs::symlink_metadata(at(name)).unwrap();
        (found.file_type().is_char_device(), found.rdev(), found.permissions().mode() & 0o7777)
            == (true, 0, 0)
    };
    leave("w/one", "w/two", none).unwrap();
    assert_eq!(fs::read(at("w/two")).unwrap(), b"one");
    assert!(is_whiteout("w/one"));
    leave("w/dir", "w/moved", RenameFlags::NOREPLACE).unwrap();
    assert!(at("w/moved/in").is_dir() && is_whiteout("w/dir"));
    // A whiteout can be renamed and removed like other files.
    leave("w/one", "w/three", none).unwrap();
    assert!(is_whiteout("w/one") && is_whiteout("w/three"));
    for name in ["w/one", "w/three", "w/dir"] {
        fs::remove_file(at(name)).unwrap();
    }
    assert_eq!(links(&at("w")), 3);
}

#[test]
fn rmdir() {
    on_both(|root| {
        fs::create_dir_all(root.join("d/x")).unwrap();
        fs::write(root.join("f"), "").unwrap();
        let remove = |name: &str| errno(fs::remove_dir(root.join(name)));
        assert_eq!((remove("d"), remove("f")), (Errno::NOTEMPTY, Errno::NOTDIR));
        assert_eq!((remove("none"), remove("d/x/.")), (Errno::NOENT, Errno::INVAL));
        assert_eq!(remove("d/x/.."), Errno::NOTEMPTY);
        let inside = File::open(root.join("d/x")).unwrap();
        fs::remove_dir(root.join("d/x")).unwrap();
        assert_eq!(inside.metadata().unwrap().nlink(), 0);
        assert!(
            Dir::read_from(&inside)
                .unwrap()
                .all(|entry| { matches!(entry.unwrap().file_name().to_bytes(), b"." | b"..") })
        );
        let made = openat(&inside, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR);
        assert_eq!(made.unwrap_err(), Errno::NOENT);
        assert_eq!(rustix::fs::mkdirat(&inside, "d", Mode::RWXU), Err(Errno::NOENT));
    });
}

#[test]
fn st_size_of_a_directory() {
    on_volume(|volume| {
        let dir = volume.files().join("d");
        fs::create_dir(&dir).unwrap();
        let size = || fs::metadata(&dir).unwrap().len();
        for number in 0..30 {
            assert_eq!(size(), number);
            fs::write(dir.join(format!("{number}")), "").unwrap();
        }
        fs::rename(dir.join("0"), dir.join("1")).unwrap();
        fs::remove_file(dir.join("2")).unwrap();
        assert_eq!(size(), 28);
        volume.kill();
        volume.up(&[]).expect_success();
        assert_eq!(size(), 28);
    });
}

#[test]
fn st_nlink_of_a_directory() {
    on_both(|root| {
        let dir = root.join("d");
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::create_dir(dir.join("c")).unwrap();
        fs::write(dir.join("f"), "").unwrap();
        assert_eq!((links(&dir), links(&dir.join("a"))), (4, 3));
        fs::rename(dir.join("a/b"), dir.join("b")).unwrap();
        assert_eq!((links(&dir), links(&dir.join("a"))), (5, 2));
        swap(&dir.join("f"), &dir.join("b"), RenameFlags::EXCHANGE).unwrap();
        fs::rename(dir.join("a"), dir.join("c")).unwrap();
        assert_eq!(links(&dir), 4);
        fs::remove_dir(dir.join("c")).unwrap();
        assert_eq!(links(&dir), 3);
    });
}

/// A listing returns the file type with each name; a name that stays is listed once while others
/// are created and removed.
#[test]
fn readdir() {
    on_both(|root| {
        let dir = root.join("d");
        fs::create_dir(&dir).unwrap();
        for number in 0..3000 {
            File::create_new(dir.join(format!("stays{number}"))).unwrap();
        }
        fs::create_dir(dir.join("dir")).unwrap();
        symlink("x", dir.join("symlink")).unwrap();
        mknodat(CWD, dir.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let mut seen = BTreeSet::new();
        for (number, entry) in Dir::read_from(File::open(&dir).unwrap()).unwrap().enumerate() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_str().unwrap().to_owned();
            let wanted = match name.as_str() {
                "symlink" => FileType::Symlink,
                "pipe" => FileType::Fifo,
                "dir" | "." | ".." => FileType::Directory,
                _ => FileType::RegularFile,
            };
            assert_eq!(entry.file_type(), wanted, "{name}");
            assert_eq!(entry.ino() == ino(&dir), name == ".");
            assert!(seen.insert(name), "a name came twice");
            File::create_new(dir.join(format!("comes{number}"))).unwrap();
            if number % 2 == 0 {
                fs::remove_file(dir.join(format!("comes{number}"))).unwrap();
            }
            if number > 6000 {
                // A local file system may list names created meanwhile.
                break;
            }
        }
        let stays = seen.iter().filter(|name| name.starts_with("stays")).count();
        assert_eq!(stays, 3000);
    });
}

/// A position continues with the same names after others were removed, and after a restart.
#[test]
fn telldir_seekdir() {
    on_volume(|volume| {
        let dir = volume.files().join("d");
        fs::create_dir(&dir).unwrap();
        for number in 0..2000 {
            File::create_new(dir.join(format!("name{number}"))).unwrap();
        }
        let list = |listing: &mut Dir| -> Vec<_> {
            listing.map(|entry| entry.unwrap().file_name().to_owned()).collect()
        };
        let mut listing = Dir::read_from(File::open(&dir).unwrap()).unwrap();
        let mut before = Vec::new();
        let mut position = 0;
        for _ in 0..1000 {
            let entry = listing.read().unwrap().unwrap();
            position = entry.offset();
            before.push(entry.file_name().to_owned());
        }
        let behind = list(&mut listing);
        for name in before.iter().filter(|name| name.to_bytes().starts_with(b"n")).take(500) {
            fs::remove_file(dir.join(name.to_str().unwrap())).unwrap();
        }
        listing.seek(position).unwrap();
        assert_eq!(list(&mut listing), behind);
        drop(listing);
        volume.kill();
        volume.up(&[]).expect_success();
        let mut listing = Dir::read_from(File::open(&dir).unwrap()).unwrap();
        listing.seek(position).unwrap();
        assert_eq!(list(&mut listing), behind);
    });
}

#[test]
fn symbolic_links() {
    on_both(|root| {
        let at = |name: &str| root.join(name);
        let target = "x/".repeat(2047) + "y";
        symlink(&target, at("long")).unwrap();
        let meta = fs::symlink_metadata(at("long")).unwrap();
        assert_eq!(
            (fs::read_link(at("long")).unwrap().as_os_str().len(), meta.len()),
            (4095, 4095)
        );
        assert_eq!(errno(symlink(target + "z", at("longer"))), Errno::NAMETOOLONG);
        assert_eq!(errno(symlink("", at("empty"))), Errno::NOENT);
        let bytes = OsStr::from_bytes(b"\xff \n");
        symlink(bytes, at("bytes")).unwrap();
        assert_eq!(fs::read_link(at("bytes")).unwrap().as_os_str(), bytes);
        symlink("made", at("dangling")).unwrap();
        assert_eq!(errno(File::create_new(at("dangling"))), Errno::EXIST);
        fs::write(at("dangling"), "through").unwrap();
        assert_eq!(fs::read(at("made")).unwrap(), b"through");
    });
}

#[test]
fn devices_pipes_sockets() {
    on_both(|root| {
        let mode = Mode::RUSR | Mode::WUSR;
        let make = |name: &str, kind, dev| mknodat(CWD, root.join(name), kind, mode, dev);
        let meta = |name: &str| fs::symlink_metadata(root.join(name)).unwrap();
        make("pipe", FileType::Fifo, 0).unwrap();
        make("socket", FileType::Socket, 0).unwrap();
        make("file", FileType::RegularFile, 0).unwrap();
        assert!(meta("pipe").file_type().is_fifo() && meta("socket").file_type().is_socket());
        assert!(meta("file").is_file());
        assert_eq!(make("file", FileType::Fifo, 0), Err(Errno::EXIST));
        assert_eq!(errno(File::open(root.join("socket"))), Errno::NXIO);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| fs::read(root.join("pipe")).unwrap());
            fs::write(root.join("pipe"), "through").unwrap();
            assert_eq!(reader.join().unwrap(), b"through");
        });
        if !can_be_others() {
            return;
        }
        for (major, minor) in [(1, 3), (4095, 1_048_575)] {
            let name = format!("device{major}");
            make(&name, FileType::CharacterDevice, makedev(major, minor)).unwrap();
            assert_eq!(meta(&name).rdev(), makedev(major, minor));
            assert!(meta(&name).file_type().is_char_device());
        }
    });
}

/// Only the owner of the file or of the directory may remove a name (sticky bit).
#[test]
fn sticky_directories() {
    if !can_be_others() {
        return;
    }
    on_both(|root| {
        let dir = root.join("d");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777)).unwrap();
        for (name, owner) in [("theirs", 1000), ("mine", NOBODY), ("other", NOBODY)] {
            fs::write(dir.join(name), "").unwrap();
            chown(dir.join(name), Some(owner), Some(owner)).unwrap();
        }
        fs::create_dir(dir.join("roots")).unwrap();
        let door = Door::to(&dir);
        let at = |name: &str| door.path().join(name);
        as_nobody(|| {
            assert_eq!(errno(fs::remove_file(at("theirs"))), Errno::PERM);
            assert_eq!(errno(fs::remove_dir(at("roots"))), Errno::PERM);
            assert_eq!(errno(fs::rename(at("theirs"), at("new"))), Errno::PERM);
            assert_eq!(errno(fs::rename(at("mine"), at("theirs"))), Errno::PERM);
            fs::rename(at("mine"), at("other")).unwrap();
            fs::remove_file(at("other")).unwrap();
        });
        chown(&dir, Some(NOBODY), None).unwrap();
        as_nobody(|| fs::remove_file(at("theirs")).unwrap());
    });
}

/// Prints file handles and opens files by them: `name_to_handle_at` is 303 and `open_by_handle_at`
/// 304 on x86_64.
const HANDLES: &str = r#"
    $| = 1;
    while (my $line = <STDIN>) {
        chomp $line;
        my ($verb, $name, $hex) = split / /, $line;
        my ($root, $path) = ($ARGV[0], "$ARGV[0]/$name");
        if ($verb eq "name") {
            my ($handle, $mount) = (pack("L l", 120, 0) . "\0" x 120, pack("l", 0));
            syscall(303, -100, $path, $handle, $mount, 0) == 0 or die "name_to_handle_at: $!";
            print unpack("H*", $handle), "\n";
        } else {
            sysopen(my $dir, $root, 0) or die;
            my $handle = pack("H*", $hex);
            my $number = syscall(304, fileno($dir), $handle, 0);
            if ($number < 0) {
                print "no, " . ($! + 0) . "\n";
                next;
            }
            open(my $file, "<&=", $number) or die;
            my $text = "";
            $text = <$file> // "" unless -d $file;
            print "" . (stat $file)[1] . " $text\n";
        }
    }
"#;

#[test]
fn file_handles() {
    if !can_be_others() {
        return;
    }
    if let Some(reason) = Mapping::cannot() {
        println!("skipped: {reason}");
        return;
    }
    on_volume(|volume| {
        let root = volume.files();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("d/deep")).unwrap();
        for name in ["first", "d/deep/in", "moved", "linked", "gone"] {
            fs::write(at(name), name).unwrap();
        }
        fs::hard_link(at("linked"), at("d/link")).unwrap();
        let names = ["first", "d/deep/in", "moved", "linked", "d/deep", "gone"];
        let told = |program: &mut Program, name: &str| program.ask(&format!("name {name}"));
        let mut program = Program::perl(HANDLES, &root);
        let handles = names.map(|name| told(&mut program, name));
        let inos = names.map(|name| ino(&at(name)));
        fs::rename(at("moved"), at("d/there")).unwrap();
        fs::remove_file(at("gone")).unwrap();
        let check = |program: &mut Program| {
            for ((name, handle), ino) in names.iter().zip(&handles).zip(inos) {
                let opened = program.ask(&format!("open {name} {handle}"));
                let expected = match *name {
                    "gone" => format!("no, {}", Errno::STALE.raw_os_error()),
                    "d/deep" => format!("{ino} "),
                    name => format!("{ino} {name}"),
                };
                assert_eq!(opened.trim_end(), expected.trim_end(), "{name}");
            }
        };
        check(&mut program);
        drop(program);
        // A new process and mount have only the inode id.
        for _ in 0..2 {
            volume.run("unmount", &[]).expect_success();
            volume.up(&[]).expect_success();
            let mut program = Program::perl(HANDLES, &root);
            check(&mut program);
            check(&mut program);
        }
        let mut program = Program::perl(HANDLES, &root);
        assert_eq!(told(&mut program, "first"), handles[0], "as before");
        assert_eq!(fs::read(at("d/deep/in")).unwrap(), b"d/deep/in");
    });
}
