//! Each error that a program can get through a mount has a test of its name. The others are in
//! `errors.rs` of the server's tests.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use pelago_wire::limits;
use rustix::fs::{
    CWD, FallocateFlags, FlockOperation, RenameFlags, SeekFrom, XattrFlags, fallocate, flock,
    getxattr, removexattr, renameat_with, seek, setxattr,
};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::program::{bare, run, until};
use crate::harness::programs::Program;
use crate::harness::volume::{Volume, cannot_mount, folder, passthrough_modes};
use crate::mounted::beside::{
    Door, as_nobody, can_be_others, is_ext4, on_both, one_more_than_is_held,
};
use crate::mounted::{errno, locks, on_mount, on_volume};

fn new_file(path: &Path) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}

#[test]
fn not_found() {
    on_both(|root| {
        let path = root.join("none");
        assert_eq!(errno(fs::read(&path)), Errno::NOENT);
        assert_eq!(errno(fs::remove_file(&path)), Errno::NOENT);
        assert_eq!(errno(fs::rename(&path, root.join("other"))), Errno::NOENT);
        assert_eq!(errno(File::create(path.join("below"))), Errno::NOENT);
    });
}

#[test]
fn exists() {
    on_both(|root| {
        let path = root.join("f");
        let file = new_file(&path);
        assert_eq!(errno(File::create_new(&path)), Errno::EXIST);
        assert_eq!(errno(fs::create_dir(&path)), Errno::EXIST);
        assert_eq!(errno(symlink("x", &path)), Errno::EXIST);
        setxattr(&path, "user.x", b"", XattrFlags::empty()).unwrap();
        let again = rustix::fs::fsetxattr(&file, "user.x", b"", XattrFlags::CREATE);
        assert_eq!(again, Err(Errno::EXIST));
    });
}

#[test]
fn not_directory() {
    on_both(|root| {
        fs::write(root.join("f"), "").unwrap();
        fs::create_dir(root.join("d")).unwrap();
        assert_eq!(errno(fs::read(root.join("f/x"))), Errno::NOTDIR);
        assert_eq!(errno(fs::remove_dir(root.join("f"))), Errno::NOTDIR);
        assert_eq!(errno(fs::rename(root.join("d"), root.join("f"))), Errno::NOTDIR);
    });
}

#[test]
fn is_directory() {
    on_both(|root| {
        fs::write(root.join("f"), "").unwrap();
        fs::create_dir(root.join("d")).unwrap();
        assert_eq!(errno(fs::read(root.join("d"))), Errno::ISDIR);
        assert_eq!(errno(File::create(root.join("d"))), Errno::ISDIR);
        assert_eq!(errno(fs::remove_file(root.join("d"))), Errno::ISDIR);
        assert_eq!(errno(fs::rename(root.join("f"), root.join("d"))), Errno::ISDIR);
    });
}

#[test]
fn lock_held() {
    on_both(|root| {
        let path = root.join("f");
        let one = new_file(&path);
        let other = File::open(&path).unwrap();
        flock(&one, FlockOperation::LockExclusive).unwrap();
        let taken = flock(&other, FlockOperation::NonBlockingLockShared);
        assert_eq!(taken, Err(Errno::AGAIN));
    });
}

#[test]
fn deadlock() {
    locks::on_file(|path| {
        let mut one = locks::program(path);
        let mut other = locks::program(path);
        assert_eq!(one.ask("try fcntl write 0 1"), "yes");
        assert_eq!(other.ask("try fcntl write 1 1"), "yes");
        one.tell_to_wait("wait fcntl write 1 1");
        assert_eq!(other.ask("wait fcntl write 0 1"), "no, 35");
        assert_eq!(other.ask("try fcntl drop 1 1"), "yes");
        assert_eq!(one.hear(), "yes");
        // Two readers that both want to write.
        assert_eq!(one.ask("try fcntl read 5 1"), "yes");
        assert_eq!(other.ask("try fcntl read 5 1"), "yes");
        one.tell_to_wait("wait fcntl write 5 1");
        assert_eq!(other.ask("wait fcntl write 5 1"), "no, 35");
        other.kill();
        assert_eq!(one.hear(), "yes");
    });
}

#[test]
fn interrupted() {
    locks::on_file(|path| {
        let mut one = locks::program(path);
        let mut other = locks::program(path);
        assert_eq!(one.ask("try fcntl write 0 10"), "yes");
        other.tell_to_wait("wait fcntl write 0 10");
        let pid = Pid::from_raw(other.id().cast_signed()).unwrap();
        kill_process(pid, Signal::USR1).unwrap();
        assert_eq!(other.hear(), "no, 4");
        assert_eq!(one.ask("try fcntl drop 0 10"), "yes");
        assert_eq!(one.ask("test fcntl write 0 10"), "free", "nobody waits or holds");
    });
}

/// As many locks as a session may have; the next one is refused, and a close frees all.
#[test]
fn no_locks() {
    let limit = limits::LOCKS;
    on_volume(|volume| {
        let path = volume.files().join("f");
        fs::write(&path, "x").unwrap();
        let mut one = locks::program(&path);
        assert_eq!(one.ask(&format!("fill {}", limit + 1)), "no, 37");
        let mut other = locks::program(&path);
        assert_eq!(other.ask("try fcntl write 1 1"), "no, 37");
        assert_eq!(one.ask("close 0"), "yes");
        assert_eq!(other.ask("try fcntl write 0 0"), "yes");
    });
}

#[test]
fn not_empty() {
    on_both(|root| {
        fs::create_dir_all(root.join("d/x")).unwrap();
        fs::create_dir(root.join("e")).unwrap();
        assert_eq!(errno(fs::remove_dir(root.join("d"))), Errno::NOTEMPTY);
        assert_eq!(errno(fs::rename(root.join("e"), root.join("d"))), Errno::NOTEMPTY);
    });
}

#[test]
fn access_denied() {
    if !can_be_others() {
        return;
    }
    on_both(|root| {
        fs::write(root.join("f"), "secret").unwrap();
        fs::set_permissions(root.join("f"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        let door = Door::to(root);
        as_nobody(|| {
            assert_eq!(errno(fs::read(door.path().join("f"))), Errno::ACCESS);
            assert_eq!(errno(File::create(door.path().join("g"))), Errno::ACCESS);
        });
    });
}

#[test]
fn not_permitted() {
    on_both(|root| {
        fs::create_dir(root.join("d")).unwrap();
        assert_eq!(errno(fs::hard_link(root.join("d"), root.join("e"))), Errno::PERM);
        symlink("d", root.join("l")).unwrap();
        let named = rustix::fs::lsetxattr(root.join("l"), "user.x", b"", XattrFlags::empty());
        assert_eq!(named, Err(Errno::PERM));
    });
}

#[test]
fn name_too_long() {
    on_both(|root| {
        let long = "n".repeat(256);
        assert_eq!(errno(fs::write(root.join(&long), "")), Errno::NAMETOOLONG);
        assert_eq!(errno(fs::metadata(root.join(&long))), Errno::NAMETOOLONG);
        fs::create_dir(root.join("d")).unwrap();
        assert_eq!(errno(fs::rename(root.join("d"), root.join(long))), Errno::NAMETOOLONG);
    });
}

#[test]
fn invalid() {
    on_both(|root| {
        let file = new_file(&root.join("f"));
        assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 0), Err(Errno::INVAL));
        assert_eq!(seek(&file, SeekFrom::End(-1)), Err(Errno::INVAL));
        let flags = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
        let renamed = renameat_with(CWD, root.join("f"), CWD, root.join("g"), flags);
        assert_eq!(renamed, Err(Errno::INVAL));
    });
}

#[test]
fn would_loop() {
    on_both(|root| {
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        assert_eq!(errno(fs::rename(root.join("a"), root.join("a/b/c/d"))), Errno::INVAL);
        assert_eq!(errno(fs::rename(root.join("a"), root.join("a/d"))), Errno::INVAL);
    });
}

#[test]
fn too_many_links() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let volume = Volume::mounted();
    let root = volume.files();
    fs::write(root.join("f"), "").unwrap();
    fs::create_dir(root.join("d")).unwrap();
    let link = |number: u32| fs::hard_link(root.join("f"), root.join(format!("d/{number}")));
    for number in 1..65_000 {
        link(number).unwrap();
    }
    assert_eq!(errno(link(65_000)), Errno::MLINK);
    fs::remove_file(root.join("d/1")).unwrap();
    link(65_000).unwrap();
    volume.finish();
}

#[test]
fn file_too_large() {
    let (_folder, below) = folder();
    on_both(|root| {
        let file = new_file(&root.join("f"));
        let far = i64::MAX as u64 - 1;
        assert_eq!(fallocate(&file, FallocateFlags::empty(), far, 10), Err(Errno::FBIG));
        if is_ext4(&below) {
            assert_eq!(errno(file.write_at(b"x", far)), Errno::FBIG);
            assert_eq!(errno(file.set_len(far)), Errno::FBIG);
        }
    });
}

#[test]
fn no_space() {
    on_mount(|root| {
        let file = new_file(&root.join("f"));
        assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, 1 << 60), Err(Errno::NOSPC));
        fs::write(root.join("g"), vec![1; 100_000]).unwrap();
    });
}

#[test]
fn read_only() {
    on_volume(|volume| {
        fs::write(volume.files().join("f"), "x").unwrap();
        volume.run("unmount", &[]).expect_success();
        volume.up(&["--read-only"]).expect_success();
        let path = volume.files().join("f");
        assert_eq!(errno(fs::write(&path, "y")), Errno::ROFS);
        assert_eq!(errno(fs::remove_file(&path)), Errno::ROFS);
        assert_eq!(setxattr(&path, "user.x", b"", XattrFlags::empty()), Err(Errno::ROFS));
        assert_eq!(fs::read(&path).unwrap(), b"x");
    });
}

/// Descriptors of `O_PATH` keep only so many files alive.
#[test]
fn stale() {
    on_volume(|volume| {
        let doors = one_more_than_is_held(volume);
        assert_eq!(errno(File::open(doors[0].path())), Errno::STALE);
    });
}

#[test]
fn bad_open() {
    on_both(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(errno(reader.write_at(b"y", 0)), Errno::BADF);
        assert_eq!(fallocate(&reader, FallocateFlags::empty(), 0, 9), Err(Errno::BADF));
        let writer = File::options().write(true).open(&path).unwrap();
        assert_eq!(errno(writer.read_at(&mut [0], 0)), Errno::BADF);
    });
}

#[test]
fn no_xattr() {
    on_both(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        assert_eq!(getxattr(&path, "user.none", &mut [0; 9]), Err(Errno::NODATA));
        assert_eq!(removexattr(&path, "user.none"), Err(Errno::NODATA));
        let replaced = setxattr(&path, "user.none", b"", XattrFlags::REPLACE);
        assert_eq!(replaced, Err(Errno::NODATA));
    });
}

#[test]
fn too_big() {
    on_both(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        let set = setxattr(&path, "user.x", &[0; 65_537], XattrFlags::empty());
        assert_eq!(set, Err(Errno::TOOBIG));
    });
}

#[test]
fn range() {
    on_both(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        setxattr(&path, "user.x", b"value", XattrFlags::empty()).unwrap();
        assert_eq!(getxattr(&path, "user.x", &mut [0; 4]), Err(Errno::RANGE));
        let long = format!("user.{}", "n".repeat(251));
        assert_eq!(setxattr(&path, long, b"", XattrFlags::empty()), Err(Errno::RANGE));
    });
}

#[test]
fn not_supported() {
    on_mount(|root| {
        let file = new_file(&root.join("f"));
        let collapsed = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert_eq!(collapsed, Err(Errno::OPNOTSUPP));
        let named = setxattr(root.join("f"), "other.x", b"", XattrFlags::empty());
        assert_eq!(named, Err(Errno::OPNOTSUPP));
    });
}

#[test]
fn no_data() {
    on_both(|root| {
        let file = new_file(&root.join("f"));
        file.write_all_at(b"abc", 0).unwrap();
        assert_eq!(seek(&file, SeekFrom::Data(3)), Err(Errno::NXIO));
        assert_eq!(seek(&file, SeekFrom::Hole(4)), Err(Errno::NXIO));
    });
}

/// A symbolic link replaces a content file: the disk refuses to open it.
#[test]
fn io() {
    without_content(|content| {
        fs::remove_file(content).unwrap();
        symlink(content, content).unwrap();
    });
}

#[test]
fn corrupt() {
    without_content(|content| fs::remove_file(content).unwrap());
}

/// Damages one content file of a volume that is down. Reading that file then fails, and reading
/// others does not.
fn without_content(damage: impl FnOnce(&Path)) {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    let volume = Volume::mounted();
    fs::write(volume.files().join("f"), vec![1; 100_000]).unwrap();
    fs::write(volume.files().join("g"), "whole").unwrap();
    volume.run("unmount", &[]).expect_success();
    let mut found = Vec::new();
    for folder in fs::read_dir(volume.dir.join("content")).unwrap().map(Result::unwrap) {
        if folder.file_type().unwrap().is_dir() {
            found.extend(fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    // If each file has a content file, it is recognized by its size.
    found.retain(|content| fs::metadata(content).unwrap().len() == 100_000);
    let [content]: [PathBuf; 1] = found.try_into().unwrap();
    damage(&content);
    volume.up(&[]).expect_success();
    assert_eq!(errno(fs::read(volume.files().join("f"))), Errno::IO);
    assert_eq!(fs::read(volume.files().join("g")).unwrap(), b"whole");
    volume.run("unmount", &[]).expect_success();
}

#[test]
fn text_busy() {
    on_both(|root| {
        let copy = root.join("cat");
        run(Command::new("cp").arg("/bin/cat").arg(&copy)).expect_success();
        let mut running = Program::start(&mut Command::new(&copy));
        assert_eq!(running.ask("it runs"), "it runs");
        let written = File::options().write(true).open(&copy);
        assert_eq!(errno(written), Errno::TXTBSY);
    });
}

/// More files are open than pelago may have descriptors. On the daemon path no open fails. With
/// passthrough an open fails at once with `EMFILE`, other files work on, and after some are closed
/// opening works again.
#[test]
fn too_many_open() {
    if let Some(reason) = cannot_mount() {
        println!("skipped: {reason}");
        return;
    }
    for passthrough in passthrough_modes(&["never", "auto", "always"]) {
        println!("--passthrough {passthrough}");
        let volume = Volume::with_passthrough(&passthrough);
        open_many(&volume);
        volume.finish();
    }
}

fn open_many(volume: &Volume) {
    const FILES: usize = 300;
    let at = |number: usize| volume.files().join(format!("f{number}"));
    for number in 0..FILES {
        fs::write(at(number), vec![1; 10_000]).unwrap();
    }
    volume.run("unmount", &[]).expect_success();
    up_with_descriptors(volume, 256);
    let mut open = Vec::new();
    let mut refused = 0;
    for number in 0..FILES {
        let read = File::open(at(number)).and_then(|file| {
            file.read_exact_at(&mut [0; 3], 0)?;
            Ok(file)
        });
        match read {
            Ok(file) => open.push(file),
            Err(error) => {
                assert_eq!(errno::<()>(Err(error)), Errno::MFILE);
                refused += 1;
            }
        }
    }
    let status = volume.run("status", &["--json"]).expect_success().json();
    let are_handed_out = status["data_path"] == "passthrough";
    assert_eq!(refused > 0, are_handed_out, "{refused} refused");
    assert!(open.len() > 50, "{} open", open.len());
    // Open files, and operations that open none, still work.
    for file in &open {
        file.read_exact_at(&mut [0; 3], 5000).unwrap();
    }
    fs::write(volume.files().join("small"), "written").unwrap();
    assert_eq!(fs::read(volume.files().join("small")).unwrap(), b"written");
    assert_eq!(fs::metadata(at(FILES - 1)).unwrap().len(), 10_000);
    open.clear();
    until("there is room again", || {
        (0..FILES).all(|number| fs::read(at(number)).is_ok_and(|bytes| bytes.len() == 10_000))
    });
}

/// Starts a volume whose process may have this many descriptors.
fn up_with_descriptors(volume: &Volume, count: u32) {
    let up = volume.command("up", &[]);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n \"$0\" && exec \"$@\""]).arg(count.to_string());
    limited.arg(up.get_program()).args(up.get_args()).arg("--detach");
    bare(&mut limited, &volume.root);
    run(&mut limited).expect_success();
}
