//! The differences from ext4: the rows of "Unlike ext4".

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, SeekFrom, StatVfsMountFlags, StatxFlags, Timespec,
    Timestamps, XattrFlags, fcntl_setfl, getxattr, makedev, mknodat, seek, setxattr, statvfs,
    statx, utimensat,
};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::process::{Signal, kill_process};

use crate::harness::mapping::Mapping;
use crate::harness::program::DEADLINE;
use crate::harness::programs::Program;
use crate::mounted::beside::{Door, NOBODY, as_nobody, can_be_others, one_more_than_is_held};
use crate::mounted::{errno, on_mount, on_volume};

#[test]
fn times_far_away() {
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        for tv_sec in [i64::MIN / 4, -1 << 40, 1 << 34, 1 << 40, i64::MAX / 4] {
            let time = Timespec { tv_sec, tv_nsec: 5 };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
            let found = statx(CWD, &path, AtFlags::empty(), StatxFlags::ALL).unwrap();
            assert_eq!((found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec), (tv_sec, 5));
            assert_eq!((found.stx_atime.tv_sec, found.stx_atime.tv_nsec), (tv_sec, 5));
        }
    });
}

#[test]
fn o_path_of_a_file_without_a_name() {
    on_volume(|volume| {
        let doors = one_more_than_is_held(volume);
        assert_eq!(errno(File::open(doors[0].path())), Errno::STALE);
        assert_eq!(doors[0].file.metadata().unwrap().len(), 1);
        for door in &doors[1..] {
            assert_eq!(fs::read(door.path()).unwrap(), b"x");
            assert_eq!(door.file.metadata().unwrap().nlink(), 0);
        }
        drop(doors);
        volume.wait_until_closed();
    });
}

#[test]
fn setuid_programs_and_devices() {
    on_mount(|root| {
        let flags = statvfs(root).unwrap().f_flag;
        assert!(flags.contains(StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV));
    });
    if !can_be_others() {
        return;
    }
    on_volume(|volume| {
        let files = volume.files();
        fs::set_permissions(&files, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy("/usr/bin/id", files.join("id")).unwrap();
        fs::set_permissions(files.join("id"), fs::Permissions::from_mode(0o4755)).unwrap();
        // The device of `/dev/null`.
        let device = makedev(1, 3);
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, files.join("null"), FileType::CharacterDevice, mode, device).unwrap();
        // Independent of the umask.
        fs::set_permissions(files.join("null"), fs::Permissions::from_mode(0o666)).unwrap();
        let counts = || {
            let door = Door::to(&files);
            as_nobody(|| {
                let id = Command::new(door.path().join("id")).arg("-u").output().unwrap();
                let writes = fs::write(door.path().join("null"), "x").map_err(|e| e.kind());
                (String::from_utf8(id.stdout).unwrap().trim().to_owned(), writes)
            })
        };
        assert_eq!(counts(), (NOBODY.to_string(), Err(std::io::ErrorKind::PermissionDenied)));
        volume.run("unmount", &[]).expect_success();
        volume.up(&["--suid", "--dev"]).expect_success();
        assert_eq!(counts(), ("0".to_owned(), Ok(())));
    });
}

#[test]
fn o_append_taken_away() {
    on_volume(|volume| {
        let path = volume.files().join("f");
        let file = File::options().create_new(true).append(true).open(&path).unwrap();
        (&file).write_all(b"one").unwrap();
        fcntl_setfl(&file, OFlags::empty()).unwrap();
        file.write_all_at(b"two", 0).unwrap();
        let status = volume.run("status", &["--json"]).expect_success().json();
        let keeps =
            volume.passthrough.as_deref() == Some("always") && status["data_path"] == "passthrough";
        assert_eq!(fs::read(&path).unwrap(), if keeps { &b"onetwo"[..] } else { b"two" });
    });
}

#[test]
fn lseek_far_away() {
    on_mount(|root| {
        let file = File::create_new(root.join("f")).unwrap();
        let last = i64::MAX as u64;
        assert_eq!(seek(&file, SeekFrom::Start(last)), Ok(last));
        assert_eq!(errno(file.write_at(b"x", last)), Errno::INVAL);
    });
}

#[test]
fn xattr_create_with_xattr_replace() {
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        let both = XattrFlags::CREATE | XattrFlags::REPLACE;
        assert_eq!(setxattr(&path, "user.x", b"", both), Err(Errno::INVAL));
    });
}

#[test]
fn the_label_of_selinux() {
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        let label = || getxattr(&path, "security.selinux", &mut [0; 40]);
        let known = fs::read_to_string("/proc/filesystems").unwrap();
        let absent = if known.contains("selinuxfs") { Errno::NODATA } else { Errno::OPNOTSUPP };
        assert_eq!(label(), Err(absent));
        assert_eq!(getxattr(&path, "security.other", &mut [0; 40]), Err(Errno::NODATA));
        if can_be_others() {
            setxattr(&path, "security.selinux", b"label", XattrFlags::empty()).unwrap();
            assert_eq!(label(), Ok(5));
        }
    });
}

/// File flags (`lsattr`), extents, and block numbers.
#[test]
fn ioctl() {
    const ASK: &str = r#"
        $| = 1;
        open(my $file, "<", $ARGV[0]) or die;
        while (my $line = <STDIN>) {
            my $room = "\0" x 4096;
            print ioctl($file, hex($line), $room) ? "yes\n" : "no, " . ($! + 0) . "\n";
        }
    "#;
    on_mount(|root| {
        fs::write(root.join("f"), vec![1; 100_000]).unwrap();
        let mut program = Program::perl(ASK, root.join("f"));
        for (request, answer) in [("80086601", Errno::NOTTY), ("c020660b", Errno::OPNOTSUPP)] {
            assert_eq!(program.ask(request), format!("no, {}", answer.raw_os_error()));
        }
    });
}

/// If it is refused, programs retry without it.
#[test]
fn rwf_nowait() {
    on_mount(|root| {
        fs::write(root.join("f"), vec![1; 100_000]).unwrap();
        let file = File::open(root.join("f")).unwrap();
        let mut room = [0; 3];
        let mut parts = [std::io::IoSliceMut::new(&mut room)];
        match preadv2(&file, &mut parts, 0, ReadWriteFlags::NOWAIT) {
            Ok(read) => assert_eq!(read, 3),
            Err(error) => assert!(matches!(error, Errno::OPNOTSUPP | Errno::AGAIN)),
        }
        file.read_exact_at(&mut room, 0).unwrap();
        assert_eq!(room, [1; 3]);
    });
}

/// `syncfs` returns while the volume's process is stopped: it sends no request.
#[test]
fn syncfs() {
    on_volume(|volume| {
        fs::write(volume.files().join("f"), "x").unwrap();
        let dir = File::open(volume.files()).unwrap();
        let pid = volume.pid().unwrap();
        let (tell, told) = channel();
        kill_process(pid, Signal::STOP).unwrap();
        let syncs = move || tell.send(rustix::fs::syncfs(&dir)).unwrap();
        let thread = thread::Builder::new().spawn(syncs).unwrap();
        let answered = told.recv_timeout(DEADLINE);
        kill_process(pid, Signal::CONT).unwrap();
        thread.join().unwrap();
        assert_eq!(answered, Ok(Ok(())));
    });
}

/// `unshare` 272, `open_tree` 428 (clone 1), `mount_setattr` 442 (`AT_EMPTY_PATH` 0x1000,
/// `MOUNT_ATTR_IDMAP` 0x100000) of x86_64.
#[test]
fn idmapped_mounts() {
    const ASK: &str = r#"
        pipe(my $hears, my $says);
        pipe(my $waits, my $ends);
        my $pid = fork();
        if (!$pid) {
            syscall(272, 0x10000000) == 0 or exit 1;
            syswrite($says, "x");
            close($ends);
            sysread($waits, my $end, 1);
            exit 0;
        }
        close($says);
        sysread($hears, my $made, 1) or die "no namespace";
        for my $map ("uid_map", "gid_map") {
            open(my $file, ">", "/proc/$pid/$map") or die;
            print $file "0 1000 10";
            close($file) or die;
        }
        open(my $namespace, "<", "/proc/$pid/ns/user") or die;
        my ($path, $none) = ($ARGV[0], "");
        my $tree = syscall(428, -100, $path, 1);
        die "open_tree: $!" if $tree < 0;
        my $attr = pack("Q4", 0x100000, 0, 0, fileno($namespace));
        my $done = syscall(442, $tree, $none, 0x1000, $attr, 32);
        print $done == 0 ? "yes\n" : "no, " . ($! + 0) . "\n";
        close($ends);
    "#;
    if !can_be_others() {
        return;
    }
    if let Some(reason) = Mapping::cannot() {
        println!("skipped: {reason}");
        return;
    }
    on_mount(|root| {
        let program = Program::perl(ASK, root);
        assert_eq!(program.hear(), format!("no, {}", Errno::INVAL.raw_os_error()));
    });
}

#[test]
fn hidden_names() {
    on_mount(|root| {
        let dir = root.join("d");
        fs::create_dir(&dir).unwrap();
        let [file, find] = [".pelago-find", ".find"].map(|name| dir.join(name));
        assert!(fs::metadata(&file).unwrap().is_file() && fs::metadata(&find).unwrap().is_dir());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        assert_eq!(fs::read_dir(&find).unwrap().count(), 0);
        assert_eq!(errno(fs::create_dir(&find)), Errno::EXIST);
        assert_eq!(errno(File::create_new(&file)), Errno::EXIST);
        assert_eq!(errno(fs::remove_dir(&find)), Errno::ROFS);
        assert_eq!(errno(fs::remove_file(&file)), Errno::ROFS);
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("real/inside"), "x").unwrap();
        fs::rename(root.join("real"), &find).unwrap();
        assert_eq!(fs::read(find.join("inside")).unwrap(), b"x");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    });
}
