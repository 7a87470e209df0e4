//! Modes, owners, times, link counts and extended attributes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, StatxFlags, XattrFlags, getxattr, listxattr, removexattr, setxattr, statx,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::mounted::beside::{Door, NOBODY, as_nobody, can_be_others};
use crate::mounted::{on_mount, on_volume};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn modes_are_kept() {
    on_volume(|volume| {
        let path = volume.files().join("f");
        fs::write(&path, "").unwrap();
        for wanted in [0o000, 0o777, 0o4755, 0o2711, 0o1644] {
            set_mode(&path, wanted);
            assert_eq!(mode(&path), wanted);
        }
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        assert_eq!(mode(&path), 0o1644);
    });
}

#[test]
fn owners_are_kept_and_take_setuid_away() {
    if !geteuid().is_root() {
        println!("skipped: needs root to give files away");
        return;
    }
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "").unwrap();
        set_mode(&path, 0o6755);
        chown(&path, Some(1234), Some(4321)).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1234, 4321));
        assert_eq!(mode(&path) & 0o6000, 0, "setuid and setgid go with the owner");
    });
}

#[test]
fn a_setgid_directory_gives_its_group() {
    if !geteuid().is_root() {
        println!("skipped: needs root to give a directory another group");
        return;
    }
    on_mount(|root| {
        let dir = root.join("d");
        fs::create_dir(&dir).unwrap();
        chown(&dir, None, Some(4321)).unwrap();
        set_mode(&dir, 0o2775);
        fs::write(dir.join("f"), "").unwrap();
        fs::create_dir(dir.join("sub")).unwrap();
        assert_eq!(fs::metadata(dir.join("f")).unwrap().gid(), 4321);
        assert_eq!(fs::metadata(dir.join("sub")).unwrap().gid(), 4321);
        assert_eq!(mode(&dir.join("sub")) & 0o2000, 0o2000, "directories hand the bit on");
    });
}

#[test]
fn times_are_set_to_the_nanosecond() {
    on_volume(|volume| {
        let path = volume.files().join("f");
        fs::write(&path, "x").unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
        let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        let check = || {
            let meta = fs::metadata(&path).unwrap();
            assert_eq!((meta.mtime(), meta.mtime_nsec()), (1_234_567_890, 123_456_789));
            assert_eq!((meta.atime(), meta.atime_nsec()), (1_234_567_890, 123_456_789));
        };
        check();
        volume.kill();
        volume.up(&[]).expect_success();
        check();
    });
}

fn change_time(path: &Path) -> (i64, i64) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.ctime(), meta.ctime_nsec())
}

/// Each change sets a newer ctime, however fast changes follow each other.
#[test]
fn each_change_sets_a_newer_ctime() {
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        let mut last = change_time(&path);
        let mut is_later = |what: &str| {
            let now = change_time(&path);
            assert!(now > last, "{what}: {now:?} after {last:?}");
            last = now;
        };
        for step in 0..10 {
            set_mode(&path, 0o600 + step % 2);
            is_later("chmod");
            fs::write(&path, "y").unwrap();
            is_later("write");
            fs::hard_link(&path, root.join("l")).unwrap();
            is_later("link");
            fs::remove_file(root.join("l")).unwrap();
            is_later("unlink");
            setxattr(&path, "user.x", b"1", XattrFlags::empty()).unwrap();
            is_later("setxattr");
        }
    });
}

/// Creating and removing names changes the directory's times and size.
#[test]
fn a_directory_changes_with_its_names() {
    on_mount(|root| {
        let dir = root.join("d");
        fs::create_dir(&dir).unwrap();
        let changed = || {
            let meta = fs::metadata(&dir).unwrap();
            (meta.mtime(), meta.mtime_nsec())
        };
        let mut last = changed();
        let mut is_later = |what: &str| {
            let now = changed();
            assert!(now > last, "{what}: {now:?} after {last:?}");
            last = now;
        };
        fs::write(dir.join("a"), "").unwrap();
        is_later("create");
        assert_eq!(fs::metadata(&dir).unwrap().size(), 1);
        fs::rename(dir.join("a"), dir.join("b")).unwrap();
        is_later("rename");
        fs::create_dir(dir.join("c")).unwrap();
        is_later("mkdir");
        fs::remove_dir(dir.join("c")).unwrap();
        is_later("rmdir");
        fs::remove_file(dir.join("b")).unwrap();
        is_later("unlink");
        assert_eq!(fs::metadata(&dir).unwrap().size(), 0);
    });
}

#[test]
fn writing_changes_both_times_and_reading_none() {
    on_mount(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        let before = fs::metadata(&path).unwrap();
        fs::read(&path).unwrap();
        let read = fs::metadata(&path).unwrap();
        assert_eq!(
            (before.mtime_nsec(), before.ctime_nsec()),
            (read.mtime_nsec(), read.ctime_nsec())
        );
        fs::write(&path, "y").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()));
        assert_eq!(after.ino(), before.ino());
    });
}

#[test]
fn extended_attributes_of_all_sizes() {
    on_volume(|volume| {
        let path = volume.files().join("f");
        fs::write(&path, "x").unwrap();
        let long = format!("user.{}", "n".repeat(250));
        let large = vec![7; 65_536];
        let set = |name: &str, value: &[u8], flags| setxattr(&path, name, value, flags);
        set("user.empty", b"", XattrFlags::empty()).unwrap();
        set(&long, b"long", XattrFlags::CREATE).unwrap();
        set("user.large", &large, XattrFlags::empty()).unwrap();
        assert_eq!(set(&long, b"", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(set("user.no", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
        volume.kill();
        volume.up(&[]).expect_success();
        let mut value = vec![0; 70_000];
        let length = getxattr(&path, "user.large", &mut value).unwrap();
        assert!(value[..length] == large);
        let mut small = [0; 2];
        assert_eq!(getxattr(&path, long.as_str(), &mut small), Err(Errno::RANGE));
        let length = listxattr(&path, &mut value).unwrap();
        let mut names: Vec<&[u8]> = value[..length].split(|byte| *byte == 0).collect();
        names.retain(|name| name.starts_with(b"user."));
        names.sort_unstable();
        assert_eq!(names, [&b"user.empty"[..], b"user.large", long.as_bytes()]);
        removexattr(&path, "user.large").unwrap();
        assert_eq!(getxattr(&path, "user.large", &mut value), Err(Errno::NODATA));
        assert_eq!(removexattr(&path, "user.large"), Err(Errno::NODATA));
    });
}

#[test]
fn a_user_without_rights_is_refused() {
    if !geteuid().is_root() {
        println!("skipped: needs root to be another user");
        return;
    }
    on_volume(|volume| {
        let path = volume.files().join("secret");
        fs::write(&path, "x").unwrap();
        set_mode(&path, 0o600);
        set_mode(&volume.files(), 0o755);
        // The path to the mount is closed to other users too; inside the mount only the file's mode
        // counts.
        let mut other = std::process::Command::new("setpriv");
        other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat", "secret"]);
        let ran = crate::harness::program::run(other.current_dir(volume.files()));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("Permission denied"), "{ran:?}");
    });
}

/// With passthrough setuid is removed when an ordinary user opens the file for writing, and the
/// mode cached by the kernel must be dropped. On other data paths an open changes nothing.
#[test]
fn an_open_that_takes_setuid_away_is_seen_at_once() {
    if !can_be_others() {
        return;
    }
    on_volume(|volume| {
        let root = volume.files();
        set_mode(&root, 0o755);
        let door = Door::to(&root);
        let status = volume.run("status", &["--json"]).expect_success().json();
        let passes = status["data_path"] == "passthrough";
        for (name, size) in [("small", 10), ("large", 200_000)] {
            let path = door.path().join(name);
            fs::write(&path, vec![b'x'; size]).unwrap();
            chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            set_mode(&path, 0o6755);
            volume.wait_until_closed();
            assert_eq!(mode(&path), 0o6755);
            let is_passed =
                passes && (size > 4096 || volume.passthrough.as_deref() == Some("always"));
            let left = if is_passed { 0o755 } else { 0o6755 };
            as_nobody(|| {
                let file = File::options().write(true).open(&path).unwrap();
                assert_eq!(mode(&path), left, "{name}");
                assert_eq!(file.metadata().unwrap().permissions().mode() & 0o7777, left);
            });
            volume.wait_until_closed();
            assert_eq!(mode(&path), left, "{name}, closed");
            let asked = statx(CWD, &path, AtFlags::STATX_FORCE_SYNC, StatxFlags::MODE).unwrap();
            assert_eq!(u32::from(asked.stx_mode) & 0o7777, left, "{name}, as the server has it");
        }
    });
}
