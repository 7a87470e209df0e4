//! Opening files, and the rights of descriptors.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open, openat, readlinkat, statat};
use rustix::io::{Errno, read};
use rustix::process::geteuid;

use crate::harness::program::run;
use crate::harness::programs::Program;
use crate::mounted::beside::{Door, as_nobody, can_be_others, on_both};
use crate::mounted::errno;

fn flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap()
}

fn try_open(path: &Path, flags: OFlags) -> Result<File, Errno> {
    open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

#[test]
fn open_with_o_creat() {
    on_both(|root| {
        let at = |name: &str| root.join(name);
        let create = OFlags::CREATE | OFlags::RDWR;
        try_open(&at("f"), create).unwrap().write_all_at(b"kept", 0).unwrap();
        assert_eq!(try_open(&at("f"), create).unwrap().metadata().unwrap().len(), 4);
        let only_new = |name: &str| try_open(&at(name), create | OFlags::EXCL).err();
        assert_eq!(only_new("f"), Some(Errno::EXIST));
        symlink("target", at("l")).unwrap();
        assert_eq!(only_new("l"), Some(Errno::EXIST));
        try_open(&at("l"), create).unwrap();
        assert!(at("target").is_file());
        fs::create_dir(at("d")).unwrap();
        assert_eq!(try_open(&at("d"), OFlags::CREATE).err(), Some(Errno::ISDIR));
        assert_eq!(try_open(&at("new/"), create).err(), Some(Errno::ISDIR));
        assert_eq!(try_open(&at("f/x"), create).err(), Some(Errno::NOTDIR));
        assert_eq!(try_open(&at("none/x"), create).err(), Some(Errno::NOENT));
        // Of many concurrent creates one succeeds.
        let made = std::thread::scope(|scope| {
            let race = || (0..50).filter(|n| only_new(&format!("race{n}")).is_none()).count();
            let all: Vec<_> = (0..4).map(|_| scope.spawn(race)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
        });
        assert_eq!(made, 50);
    });
}

#[test]
fn o_trunc() {
    on_both(|root| {
        for size in [10, 100_000] {
            let path = root.join("f");
            fs::write(&path, vec![1; size]).unwrap();
            let other = File::open(&path).unwrap();
            let file = try_open(&path, OFlags::TRUNC | OFlags::WRONLY).unwrap();
            assert_eq!(
                (other.metadata().unwrap().len(), other.metadata().unwrap().blocks()),
                (0, 0)
            );
            assert_eq!(other.read_at(&mut [0], 0).unwrap(), 0);
            file.write_all_at(b"new", 2).unwrap();
            drop(file);
            assert_eq!(fs::read(&path).unwrap(), b"\0\0new");
            fs::write(&path, vec![1; size]).unwrap();
            try_open(&path, OFlags::TRUNC | OFlags::CREATE | OFlags::RDONLY).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        }
    });
}

/// `O_PATH`: a descriptor of a path, without access to the bytes.
#[test]
fn o_path() {
    on_both(|root| {
        let at = |name: &str| root.join(name);
        fs::write(at("f"), "abc").unwrap();
        symlink("f", at("l")).unwrap();
        let place = try_open(&at("f"), OFlags::PATH | OFlags::TRUNC).unwrap();
        assert_eq!(place.metadata().unwrap().len(), 3);
        assert_eq!(read(&place, &mut [0; 3]), Err(Errno::BADF));
        let mode = fs::Permissions::from_mode(0o600);
        assert_eq!(errno(place.set_permissions(mode)), Errno::BADF);
        let link = try_open(&at("l"), OFlags::PATH | OFlags::NOFOLLOW).unwrap();
        assert!(link.metadata().unwrap().is_symlink());
        assert_eq!(readlinkat(&link, "", Vec::new()).unwrap().to_bytes(), b"f");
        assert_eq!(fs::read(Door::of(place).path()).unwrap(), b"abc");
    });
}

#[test]
fn o_directory_o_nofollow() {
    on_both(|root| {
        let at = |name: &str| root.join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("f"), "abc").unwrap();
        symlink("f", at("l")).unwrap();
        let refused = |name: &str, flags| try_open(&at(name), flags).err();
        assert_eq!(refused("f", OFlags::DIRECTORY), Some(Errno::NOTDIR));
        assert_eq!(refused("d", OFlags::DIRECTORY | OFlags::RDWR), Some(Errno::ISDIR));
        assert_eq!(refused("l", OFlags::NOFOLLOW), Some(Errno::LOOP));
        assert_eq!(refused("f/", OFlags::RDONLY), Some(Errno::NOTDIR));
        let dir = try_open(&at("d"), OFlags::DIRECTORY).unwrap();
        assert_eq!(read(&dir, &mut [0; 3]), Err(Errno::ISDIR));
        openat(&dir, "in", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        assert_eq!(statat(&dir, "in", AtFlags::empty()).unwrap().st_size, 0);
    });
}

/// An open file can be opened again through `/proc/self/fd`, with other rights.
#[test]
fn proc_self_fd() {
    on_both(|root| {
        for size in [10, 100_000] {
            let path = root.join("f");
            fs::write(&path, vec![b'x'; size]).unwrap();
            let door = Door::of(File::open(&path).unwrap());
            fs::rename(&path, root.join("moved")).unwrap();
            fs::write(&path, "another").unwrap();
            let writer = File::options().write(true).open(door.path()).unwrap();
            fs::remove_file(root.join("moved")).unwrap();
            writer.write_all_at(b"y", 0).unwrap();
            assert_eq!(fs::read(door.path()).unwrap()[..2], *b"yx");
            assert_eq!(fs::metadata(door.path()).unwrap().nlink(), 0);
            let mut options = File::options();
            let emptied = options.write(true).custom_flags(flags(OFlags::TRUNC));
            emptied.open(door.path()).unwrap();
            assert_eq!(door.file.metadata().unwrap().len(), 0);
            assert_eq!(fs::read(&path).unwrap(), b"another");
        }
    });
}

/// An unnamed file has no name until it is linked, and is removed at its last close otherwise.
#[test]
fn o_tmpfile() {
    let by_number = |file: &File, to: &Path| {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)
    };
    on_both(|root| {
        let make = |how| try_open(root, OFlags::TMPFILE | OFlags::RDWR | how);
        for size in [10, 100_000] {
            let path = root.join(format!("{size}"));
            let file = make(OFlags::empty()).unwrap();
            file.write_all_at(&vec![b'x'; size], 0).unwrap();
            let found = file.metadata().unwrap();
            assert_eq!((found.nlink(), found.len()), (0, size as u64));
            assert!(found.is_file() && found.mode() & 0o7777 == 0o600);
            assert_eq!(fs::read(Door::of(file.try_clone().unwrap()).path()).unwrap().len(), size);
            assert!(!path.exists());
            fs::write(root.join("taken"), "").unwrap();
            assert_eq!(by_number(&file, &root.join("taken")), Err(Errno::EXIST));
            by_number(&file, &path).unwrap();
            file.write_all_at(b"y", 0).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);
            assert_eq!(fs::metadata(&path).unwrap().ino(), file.metadata().unwrap().ino());
            drop(file);
            let bytes = fs::read(&path).unwrap();
            assert_eq!((bytes.len(), &bytes[..2]), (size, &b"yx"[..]));
            // A file that has lost its last name cannot be linked.
            let file = File::open(&path).unwrap();
            fs::remove_file(&path).unwrap();
            assert_eq!(by_number(&file, &path), Err(Errno::NOENT));
        }
        let empty = make(OFlags::empty()).unwrap();
        if geteuid().is_root() {
            linkat(&empty, "", CWD, root.join("empty"), AtFlags::EMPTY_PATH).unwrap();
            by_number(&empty, &root.join("second")).unwrap();
            assert_eq!(empty.metadata().unwrap().nlink(), 2);
            assert_eq!(fs::read(root.join("second")).unwrap(), b"");
        }
        let never = make(OFlags::EXCL).unwrap();
        assert_eq!(by_number(&never, &root.join("never")), Err(Errno::NOENT));
        let left = make(OFlags::empty()).unwrap();
        left.write_all_at(&[1; 100_000], 0).unwrap();
        drop((never, left, empty));
        // A descriptor of `O_PATH` still returns the attributes.
        let door = Door::of(make(OFlags::empty()).unwrap());
        door.file.write_all_at(b"x", 0).unwrap();
        let place = try_open(&door.path(), OFlags::PATH).unwrap();
        drop(door);
        assert_eq!(place.metadata().unwrap().nlink(), 0);
        let before = fs::read_dir(root).unwrap().count();
        fs::create_dir(root.join("d")).unwrap();
        drop(try_open(&root.join("d"), OFlags::TMPFILE | OFlags::WRONLY).unwrap());
        assert_eq!(fs::read_dir(root.join("d")).unwrap().count(), 0);
        fs::remove_dir(root.join("d")).unwrap();
        assert_eq!(fs::read_dir(root).unwrap().count(), before);
        assert_eq!(try_open(root, OFlags::TMPFILE).err(), Some(Errno::INVAL));
        let file = try_open(&root.join("taken"), OFlags::TMPFILE | OFlags::RDWR);
        assert_eq!(file.err(), Some(Errno::NOTDIR));
        if can_be_others() {
            let door = Door::to(root);
            let other = as_nobody(|| try_open(&door.path(), OFlags::TMPFILE | OFlags::RDWR));
            assert_eq!(other.err(), Some(Errno::ACCESS));
        }
    });
}

/// A running program cannot be opened for writing, and a program open for writing cannot run. Other
/// processes copy the programs: a file open for writing here may be inherited by a child of another
/// test, and then does not run.
#[test]
fn running_programs() {
    on_both(|root| {
        let put = |name: &str, from: &Path| {
            run(Command::new("cp").arg(from).arg(root.join(name))).expect_success();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        };
        put("pelago", Path::new(env!("CARGO_BIN_EXE_pelago")));
        run(Command::new(root.join("pelago")).arg("version")).expect_success();
        let script = "printf '#!/bin/sh\\nexit 7\\n' > script; chmod 755 script; exec ./script";
        run(Command::new("sh").args(["-c", script]).current_dir(root)).expect_code(7);
        put("cat", Path::new("/bin/cat"));
        let mut running = Program::start(&mut Command::new(root.join("cat")));
        assert_eq!(running.ask("it runs"), "it runs");
        let cat = root.join("cat");
        let size = fs::metadata(&cat).unwrap().len();
        for how in [OFlags::WRONLY, OFlags::RDWR, OFlags::WRONLY | OFlags::TRUNC] {
            assert_eq!(try_open(&cat, how).err(), Some(Errno::TXTBSY));
        }
        assert_eq!(running.ask("it still runs"), "it still runs");
        assert_eq!(fs::metadata(&cat).unwrap().len(), size);
        drop(running);
        let writer = File::options().write(true).open(&cat).unwrap();
        let mut perl = Command::new("perl");
        perl.args(["-e", "exec { $ARGV[0] } 'cat'; exit $! + 0"]).arg(&cat);
        run(&mut perl).expect_code(Errno::TXTBSY.raw_os_error());
        drop(writer);
    });
}
