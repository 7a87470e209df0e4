//! Attributes, the right to change them, and extended attributes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    XattrFlags, copy_file_range, fallocate, futimens, getxattr, getxattr_query, lgetxattr,
    listxattr, lsetxattr, mknodat, removexattr, setxattr, statvfs, statx, utimensat as set_both,
};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::mounted::beside::{Door, NOBODY, as_nobody, as_user, can_be_others, on_both};
use crate::mounted::{errno, on_mount, on_volume};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn give(path: &Path, user: u32, group: u32) {
    chown(path, Some(user), Some(group)).unwrap();
}

const fn time(tv_sec: i64, tv_nsec: i64) -> Timespec {
    Timespec { tv_sec, tv_nsec }
}

fn set_times(path: &Path, access: Timespec, modify: Timespec) -> Result<(), Errno> {
    let times = Timestamps { last_access: access, last_modification: modify };
    set_both(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn modified(path: &Path) -> (i64, i64) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.mtime(), meta.mtime_nsec())
}

fn accessed(path: &Path) -> (i64, i64) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.atime(), meta.atime_nsec())
}

#[test]
fn stat() {
    on_both(|root| {
        for size in [10_u64, 300_000] {
            let path = root.join(format!("f{size}"));
            let file = File::create_new(&path).unwrap();
            let mut last = modified(&path);
            for step in 1..=10 {
                file.write_all_at(b"x", size * step - 1).unwrap();
                let meta = fs::metadata(&path).unwrap();
                assert_eq!((meta.len(), meta.mode() & 0o170_000), (size * step, 0o100_000));
                assert!(modified(&path) >= last);
                last = modified(&path);
            }
        }
    });
}

/// Times in the far past and future, on both sides of the inline limit, and after a crash.
#[test]
fn birth_time() {
    let birth = |path: &Path| {
        let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).unwrap();
        assert_ne!(found.stx_mask & StatxFlags::BTIME.bits(), 0, "{path:?}");
        (found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
    };
    on_both(|root| {
        let file = root.join("f");
        let dir = root.join("d");
        let link = root.join("l");
        fs::write(&file, "x").unwrap();
        fs::create_dir(&dir).unwrap();
        symlink("f", &link).unwrap();
        let born: Vec<_> = [&file, &dir, &link].map(|path| birth(path)).into();
        assert!(born.iter().all(|birth| birth.0 > 1_000_000_000), "{born:?}");
        // With and without cached attributes, and after changes.
        assert_eq!(fs::metadata(&file).unwrap().len(), 1);
        assert_eq!(birth(&file), born[0]);
        fs::write(&file, vec![1; 100_000]).unwrap();
        set_times(&file, time(5, 6), time(7, 8)).unwrap();
        set_mode(&file, 0o600);
        fs::write(dir.join("in"), "").unwrap();
        let moved = root.join("moved");
        fs::rename(&file, &moved).unwrap();
        fs::hard_link(&moved, root.join("linked")).unwrap();
        assert_eq!([&moved, &dir, &link].map(|path| birth(path)).to_vec(), born);
        assert_eq!(birth(&root.join("linked")), born[0]);
        let found = statx(CWD, &moved, AtFlags::STATX_FORCE_SYNC, StatxFlags::ALL).unwrap();
        let meta = fs::metadata(&moved).unwrap();
        assert_eq!((found.stx_size, u64::from(found.stx_nlink)), (meta.len(), meta.nlink()));
        assert_eq!((found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec), (7, 8));
        assert_eq!(
            (found.stx_ino, found.stx_uid, found.stx_gid),
            (meta.ino(), meta.uid(), meta.gid())
        );
        assert_eq!((u32::from(found.stx_mode), found.stx_blocks), (meta.mode(), meta.blocks()));
    });
    on_volume(|volume| {
        let path = volume.files().join("f");
        fs::write(&path, "x").unwrap();
        let born = birth(&path);
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        assert_eq!(birth(&path), born);
    });
}

#[test]
fn nanoseconds() {
    const SECONDS: [i64; 5] = [0, -1, -2_000_000_000, 2_147_483_648, 15_000_000_000];
    on_volume(|volume| {
        // Not every disk supports times after 2038.
        let near = SECONDS.into_iter().take(3).map(|seconds| (100_000_usize, seconds));
        let files = || SECONDS.into_iter().map(|seconds| (10, seconds)).chain(near.clone());
        let at = |(size, seconds)| volume.files().join(format!("f{size}.{seconds}"));
        for (size, seconds) in files() {
            let path = at((size, seconds));
            fs::write(&path, vec![1; size]).unwrap();
            set_times(&path, time(seconds, 999_999_999), time(seconds, 1)).unwrap();
        }
        let check = || {
            for (size, seconds) in files() {
                let path = at((size, seconds));
                assert_eq!(modified(&path), (seconds, 1), "{size}");
                assert_eq!(accessed(&path), (seconds, 999_999_999), "{size}");
            }
        };
        check();
        volume.kill();
        volume.up(&[]).expect_success();
        check();
    });
    on_mount(|root| {
        // Each change sets a newer ctime, however fast changes follow each other.
        let path = root.join("f");
        let mut last = (0, 0);
        for step in 0..200 {
            match step % 2 {
                0 => fs::write(&path, "x").unwrap(),
                _ => set_mode(&path, 0o600 + step % 7),
            }
            let meta = fs::metadata(&path).unwrap();
            assert!((meta.ctime(), meta.ctime_nsec()) > last);
            last = (meta.ctime(), meta.ctime_nsec());
        }
    });
}

/// `UTIME_NOW`, `UTIME_OMIT` and given times have different rules.
#[test]
fn utimensat() {
    on_both(|root| {
        let path = root.join("f");
        fs::write(&path, "x").unwrap();
        symlink("f", root.join("l")).unwrap();
        set_times(&path, time(5, 5), time(6, 6)).unwrap();
        set_times(&root.join("l"), time(7, 7), time(8, 8)).unwrap();
        assert_eq!((modified(&path), modified(&root.join("l"))), ((6, 6), (8, 8)));
        assert_eq!(accessed(&path), (5, 5));
        set_times(&path, time(0, UTIME_NOW), time(0, UTIME_OMIT)).unwrap();
        assert_eq!(modified(&path), (6, 6));
        assert!(accessed(&path).0 > 1_500_000_000);
        let changed = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.ctime(), meta.ctime_nsec())
        };
        let before = changed(&path);
        set_times(&path, time(0, UTIME_OMIT), time(0, UTIME_OMIT)).unwrap();
        assert_eq!(changed(&path), before, "nothing was asked for");
        assert_eq!(set_times(&path, time(0, 1_000_000_000), time(0, 0)), Err(Errno::INVAL));
        let file = File::open(&path).unwrap();
        let nine = time(9, 9);
        let times = Timestamps { last_access: nine, last_modification: nine };
        futimens(&file, &times).unwrap();
        assert_eq!(modified(&path), (9, 9));
        if !can_be_others() {
            return;
        }
        let door = Door::to(root);
        let own = door.path().join("f");
        let now = time(0, UTIME_NOW);
        let omit = time(0, UTIME_OMIT);
        let past = time(1, 1);
        set_mode(&path, 0o666);
        as_nobody(|| {
            set_times(&own, now, now).unwrap();
            assert_eq!(set_times(&own, past, past), Err(Errno::PERM));
            assert_eq!(set_times(&own, now, omit), Err(Errno::PERM));
        });
        set_mode(&path, 0o644);
        as_nobody(|| assert_eq!(set_times(&own, now, now), Err(Errno::ACCESS)));
    });
}

/// Each file is read once per mount: the kernel answers later reads from its pages.
#[test]
fn atime() {
    const DAY: i64 = 86_400;
    on_volume(|volume| {
        let at = |name: &str| volume.files().join(name);
        let up_again = |args: &[&str]| {
            volume.run("unmount", &[]).expect_success();
            volume.up(args).expect_success();
        };
        fs::write(at("old"), "read me").unwrap();
        let now = fs::metadata(at("old")).unwrap().mtime();
        // `set_times` sets the ctime to now; only an access time in the future is newer than that.
        let read_at =
            [("old", 1000), ("seen", now + 1000), ("day", now - 2 * DAY), ("quiet", 1000)];
        for (name, access) in read_at.into_iter().chain([("later", 1000)]) {
            fs::write(at(name), "read me").unwrap();
            set_times(&at(name), time(access, 1), time(1000, 0)).unwrap();
        }
        up_again(&[]);
        for name in ["old", "seen", "day"] {
            assert_eq!(fs::read(at(name)).unwrap(), b"read me");
        }
        let quiet = i32::try_from(OFlags::NOATIME.bits()).unwrap();
        let file = File::options().read(true).custom_flags(quiet).open(at("quiet")).unwrap();
        file.read_exact_at(&mut [0; 7], 0).unwrap();
        drop(file);
        let kept = ["old", "day"].map(|name| accessed(&at(name)));
        assert!(kept.iter().all(|time| time.0 >= now), "{kept:?}");
        assert_eq!(accessed(&at("seen")), (now + 1000, 1));
        assert_eq!(accessed(&at("quiet")), (1000, 1));
        up_again(&["--noatime"]);
        assert_eq!(fs::read(at("later")).unwrap(), b"read me");
        assert_eq!(accessed(&at("later")), (1000, 1));
        assert_eq!(["old", "day"].map(|name| accessed(&at(name))), kept);
        up_again(&["--strictatime"]);
        let mut last = accessed(&at("seen"));
        set_times(&at("seen"), time(1000, 1), time(1000, 0)).unwrap();
        for _ in 0..3 {
            assert_eq!(fs::read(at("seen")).unwrap(), b"read me");
            let read = accessed(&at("seen"));
            assert!(read != last && read.0 >= now, "{read:?} after {last:?}");
            last = read;
        }
        up_again(&[]);
        assert_eq!(accessed(&at("seen")), last);
    });
}

#[test]
fn setgid_directories() {
    if !can_be_others() {
        return;
    }
    on_both(|root| {
        let dir = root.join("d");
        fs::create_dir(&dir).unwrap();
        give(&dir, 0, 4321);
        set_mode(&dir, 0o2777);
        let door = Door::to(&dir);
        let at = |name: &str| door.path().join(name);
        as_nobody(|| {
            fs::write(at("f"), "").unwrap();
            fs::create_dir(at("sub")).unwrap();
            symlink("x", at("l")).unwrap();
            mknodat(CWD, at("p"), FileType::Fifo, Mode::RUSR, 0).unwrap();
            let make = |mode| File::options().write(true).create(true).mode(mode).open(at("run"));
            make(0o2755).unwrap();
        });
        for name in ["f", "sub", "l", "p", "run"] {
            assert_eq!(fs::symlink_metadata(dir.join(name)).unwrap().gid(), 4321, "{name}");
        }
        assert_eq!(mode(&dir.join("sub")) & 0o2000, 0o2000, "directories hand the bit on");
        assert_eq!(mode(&dir.join("run")) & 0o2000, 0, "not for who is not of the group");
    });
}

#[test]
fn setuid_setgid_on_files() {
    if !can_be_others() {
        return;
    }
    on_both(|root| {
        let door = Door::to(root);
        let path = door.path().join("f");
        let fresh = |bits: u32| {
            fs::write(&path, "0123456789").unwrap();
            give(&path, NOBODY, NOBODY);
            set_mode(&path, bits);
        };
        fs::write(root.join("source"), "source").unwrap();
        set_mode(&root.join("source"), 0o644);
        let source = door.path().join("source");
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let truncate = || File::options().write(true).truncate(true).open(&path).unwrap();
        let changes: [(&str, &(dyn Fn() + Sync)); 7] = [
            ("write", &|| open().write_all_at(b"x", 0).unwrap()),
            ("append", &|| open().write_all_at(b"x", 9000).unwrap()),
            ("ftruncate", &|| open().set_len(3).unwrap()),
            ("O_TRUNC", &|| drop(truncate())),
            ("fallocate", &|| {
                fallocate(open(), rustix::fs::FallocateFlags::empty(), 0, 9).unwrap()
            }),
            ("copy", &|| {
                let copied = copy_file_range(File::open(&source).unwrap(), None, open(), None, 6);
                assert_eq!(copied, Ok(6));
            }),
            ("chown", &|| chown(&path, None, Some(NOBODY)).unwrap()),
        ];
        for (name, change) in changes {
            for (bits, left) in [(0o6777, 0o777), (0o4755, 0o755), (0o2767, 0o2767)] {
                fresh(bits);
                as_nobody(change);
                // Setgid without the execute bit once meant mandatory locking.
                assert_eq!(mode(&path), left, "{name} {bits:o}");
            }
        }
        fresh(0o6777);
        open().write_all_at(b"x", 0).unwrap();
        open().set_len(3).unwrap();
        assert_eq!(mode(&path), 0o6777, "root writes");
        give(&path, 5, 5);
        assert_eq!(mode(&path), 0o777, "root gives it away");
        // Not for a group that the caller is not in.
        fresh(0o755);
        give(&path, NOBODY, 1);
        as_nobody(|| set_mode(&path, 0o2755));
        assert_eq!(mode(&path), 0o755);
        root_without_the_right(&path, &fresh);
        root_of_a_namespace_of_its_own(&path, &fresh);
        capabilities_go_too(&path, fresh);
    });
}

/// Its capabilities are those of its namespace, in which the file's group is not mapped.
fn root_of_a_namespace_of_its_own(path: &Path, fresh: &(dyn Fn(u32) + Sync)) {
    const CUT: &str = r#"open(my $file, "+<&=", 0) or die; truncate($file, 3) or die "$!""#;
    fresh(0o755);
    give(path, NOBODY, 5);
    set_mode(path, 0o2767);
    let cut = as_nobody(|| {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let mut program = Command::new("unshare");
        program.args(["-Ur", "perl", "-e", CUT]).stdin(file).stderr(Stdio::null());
        program.status().unwrap().success()
    });
    match cut {
        true => assert_eq!(mode(path), 0o767),
        false => println!("skipped: not here: users have no namespaces of their own"),
    }
}

/// The capability counts, not the user id.
fn root_without_the_right(path: &Path, fresh: &(dyn Fn(u32) + Sync)) {
    if !capabilities(None).unwrap().effective.contains(CapabilitySet::FSETID) {
        println!("skipped: not here: root has no right to keep setuid bits");
        return;
    }
    let cut = || File::options().write(true).open(path).unwrap().set_len(3).unwrap();
    let empty = || drop(File::options().write(true).truncate(true).open(path).unwrap());
    let write = || File::options().write(true).open(path).unwrap().write_all_at(b"x", 0).unwrap();
    let leave = || chown(path, None, None).unwrap();
    for change in [&cut as &(dyn Fn() + Sync), &empty, &write, &leave] {
        for (bits, left) in [(0o6777, 0o777), (0o4755, 0o755), (0o2767, 0o767)] {
            fresh(bits);
            let run = || {
                let mut rights = capabilities(None).unwrap();
                rights.effective -= CapabilitySet::FSETID;
                set_capabilities(None, rights).unwrap();
                change();
            };
            thread::scope(|scope| scope.spawn(run).join().unwrap());
            assert_eq!(mode(path), left, "{bits:o}");
        }
    }
}

fn capabilities_go_too(path: &Path, fresh: impl Fn(u32)) {
    const NAME: &str = "security.capability";
    let value = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let open = || File::options().write(true).open(path).unwrap();
    for change in [&(|| open().write_all_at(b"x", 0).unwrap()) as &(dyn Fn() + Sync), &|| {
        open().set_len(3).unwrap();
    }] {
        fresh(0o755);
        if setxattr(path, NAME, &value, XattrFlags::empty()).is_err() {
            println!("skipped: not here: capabilities cannot be given to files");
            return;
        }
        as_nobody(change);
        assert_eq!(getxattr(path, NAME, &mut [0; 40]), Err(Errno::NODATA));
    }
}

#[test]
fn permission() {
    on_both(|root| {
        let file = root.join("f");
        let dir = root.join("d");
        fs::write(&file, "x").unwrap();
        // An open descriptor keeps working after a change of mode.
        let mut options = File::options();
        let opened = options.read(true).write(true).open(&file).unwrap();
        set_mode(&file, 0);
        opened.write_all_at(b"y", 0).unwrap();
        opened.read_exact_at(&mut [0], 0).unwrap();
        let kept = options.create_new(true).mode(0o000).open(root.join("none")).unwrap();
        kept.write_all_at(b"y", 0).unwrap();
        if !can_be_others() {
            return;
        }
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("in"), "x").unwrap();
        let door = Door::to(root);
        let at = |name: &str| door.path().join(name);
        let access = |mode: u32, user: u32, groups: &[u32]| {
            set_mode(&file, mode);
            give(&file, 1000, 2000);
            as_user(user, groups, || {
                let read = File::open(at("f")).is_ok();
                (read, File::options().write(true).open(at("f")).is_ok())
            })
        };
        assert_eq!(access(0o077, 1000, &[2000]), (false, false), "the owner's bits alone");
        assert_eq!(access(0o707, NOBODY, &[2000]), (false, false), "the group's bits alone");
        assert_eq!(access(0o040, NOBODY, &[2000]), (true, false));
        assert_eq!(access(0o002, NOBODY, &[]), (false, true));
        as_nobody(|| {
            assert_eq!(
                errno(fs::set_permissions(at("f"), Permissions::from_mode(0o777))),
                Errno::PERM
            );
            assert_eq!(errno(chown(at("f"), Some(NOBODY), None)), Errno::PERM);
            assert_eq!(errno(fs::create_dir(at("e"))), Errno::ACCESS);
            assert_eq!(errno(fs::remove_file(at("f"))), Errno::ACCESS);
        });
        for (bits, listed, entered) in [(0o744, true, false), (0o711, false, true)] {
            set_mode(&dir, bits);
            as_nobody(|| {
                assert_eq!(fs::read_dir(at("d")).is_ok(), listed);
                assert_eq!(fs::metadata(at("d/in")).is_ok(), entered);
            });
        }
        // An owner may set any of its groups.
        as_user(1000, &[3000], || {
            chown(at("f"), None, Some(3000)).unwrap();
            assert_eq!(errno(chown(at("f"), None, Some(4000))), Errno::PERM);
        });
        give(&file, u32::MAX - 1, u32::MAX - 1);
        assert_eq!(fs::metadata(&file).unwrap().uid(), u32::MAX - 1);
    });
}

#[test]
fn extended_attributes() {
    on_volume(|volume| {
        let path = volume.files().join("f");
        fs::write(&path, "x").unwrap();
        let set = |name: &str, value: &[u8], flags| setxattr(&path, name, value, flags);
        let any = XattrFlags::empty();
        let long = format!("user.{}", "n".repeat(250));
        let large: Vec<u8> = (0..65_536_u32).map(|at| at.to_le_bytes()[0]).collect();
        set(&long, b"", any).unwrap();
        set("user.large", &large, XattrFlags::CREATE).unwrap();
        assert_eq!(set(&format!("{long}n"), b"", any), Err(Errno::RANGE));
        assert_eq!(set("user.larger", &[0; 65_537], any), Err(Errno::TOOBIG));
        assert_eq!(set("user.", b"", any), Err(Errno::INVAL));
        assert_eq!(set("", b"", any), Err(Errno::RANGE));
        assert_eq!(set("other.name", b"", any), Err(Errno::OPNOTSUPP));
        assert_eq!(set(&long, b"", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(set("user.none", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
        volume.kill();
        volume.up(&[]).expect_success();
        let mut value = vec![0; 65_536];
        assert_eq!(getxattr(&path, "user.large", &mut value), Ok(65_536));
        assert!(value == large);
        assert_eq!(getxattr_query(&path, "user.large"), Ok(65_536));
        assert_eq!(getxattr(&path, "user.large", &mut [0; 9]), Err(Errno::RANGE));
        assert_eq!(listxattr(&path, &mut [0; 9]), Err(Errno::RANGE));
        // As many names as fit into the kernel's limit, and one more.
        let mut names = long.len() + "user.large".len() + 2;
        for number in 0.. {
            let name = format!("user.{number:03}{}", "n".repeat(247));
            names += name.len() + 1;
            let done = set(&name, b"", any);
            if names > 65_536 {
                assert_eq!(done, Err(Errno::TOOBIG));
                break;
            }
            done.unwrap();
        }
        assert!(listxattr(&path, &mut value).unwrap() > 65_000);
        removexattr(&path, "user.large").unwrap();
        assert_eq!(removexattr(&path, "user.large"), Err(Errno::NODATA));
        assert_eq!(getxattr(&path, "user.large", &mut value), Err(Errno::NODATA));
    });
    on_both(extended_attributes_of_others);
}

fn extended_attributes_of_others(root: &Path) {
    let any = XattrFlags::empty();
    let path = root.join("f");
    let link = root.join("l");
    fs::write(&path, "x").unwrap();
    symlink("f", &link).unwrap();
    assert_eq!(lsetxattr(&link, "user.x", b"1", any), Err(Errno::PERM));
    if !can_be_others() {
        return;
    }
    lsetxattr(&link, "trusted.x", b"link", any).unwrap();
    assert_eq!(lgetxattr(&link, "trusted.x", &mut [0; 9]), Ok(4));
    setxattr(&path, "trusted.x", b"1", any).unwrap();
    setxattr(&path, "user.x", b"1", any).unwrap();
    set_mode(&path, 0o644);
    let door = Door::to(root);
    let own = door.path().join("f");
    as_nobody(|| {
        assert_eq!(getxattr(&own, "user.x", &mut [0; 9]), Ok(1));
        assert_eq!(getxattr(&own, "trusted.x", &mut [0; 9]), Err(Errno::NODATA));
        assert_eq!(setxattr(&own, "user.x", b"2", any), Err(Errno::ACCESS));
        assert_eq!(setxattr(&own, "trusted.x", b"2", any), Err(Errno::PERM));
        let mut names = [0; 1000];
        let length = listxattr(&own, &mut names).unwrap();
        let mut names = names[..length].split(|byte| *byte == 0);
        assert!(!names.any(|name| name.starts_with(b"trusted.")), "names of root's alone");
    });
}

/// `statfs` of the mount equals that of the disk, also after writes.
#[test]
fn statfs() {
    on_volume(|volume| {
        const WRITTEN: u64 = 256 << 20;
        let space = |path: &Path| {
            let found = statvfs(path).unwrap();
            assert_eq!(found.f_namemax, 255);
            assert!(found.f_bavail <= found.f_bfree && found.f_bfree <= found.f_blocks);
            assert!(found.f_files >= found.f_ffree);
            (found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize)
        };
        let ours = space(&volume.files());
        let below = space(&volume.dir);
        assert_eq!(ours.0, below.0);
        let file = File::create(volume.files().join("f")).unwrap();
        fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, WRITTEN).unwrap();
        assert_eq!(file.metadata().unwrap().blocks() * 512 / WRITTEN, 1);
        // Other programs use the disk too, so the disk is asked before and after.
        crate::harness::program::until("the space agrees with the disk's", || {
            let before = space(&volume.dir).1;
            let ours = space(&volume.files()).1;
            let after = space(&volume.dir).1;
            let least = before.min(after);
            let most = before.max(after);
            // The volume's reserve and the space kept for the engine.
            least.saturating_sub(WRITTEN / 2) <= ours && ours <= most + WRITTEN / 2
        });
    });
}
