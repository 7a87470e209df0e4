//! Each request once, as programs cause it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use pelago_fuse::SessionOptions;
use pelago_fuse::ids::NodeId;
use pelago_fuse::init::{Capabilities, InitOptions};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags, fallocate,
    getxattr, getxattr_query, linkat, listxattr, listxattr_query, open, removexattr, renameat_with,
    seek, setxattr, statvfs,
};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::tree::NAME_BYTES;
use crate::{Mounted, init_options, mounted, mounted_with};

#[test]
fn files_are_made_written_read_and_removed() {
    let Some(mut mounted) = mounted() else { return };
    let path = mounted.path("file");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|place| (place % 251) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"other", 5000).unwrap();
    let mut part = [0; 7];
    file.read_exact_at(&mut part, 4999).unwrap();
    assert_eq!((part[0], &part[1..6], part[6]), (bytes[4999], &b"other"[..], bytes[5005]));
    file.set_len(10).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10);
    file.sync_all().unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 100).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100);
    let before_1970 = UNIX_EPOCH - Duration::from_millis(1500);
    file.set_modified(before_1970).unwrap();
    assert_eq!(file.metadata().unwrap().modified().unwrap(), before_1970);
    drop(file);
    fs::remove_file(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap_err().raw_os_error(), Some(Errno::NOENT.raw_os_error()));
    mounted.end().unwrap();
}

#[test]
fn names_are_renamed_linked_and_removed() {
    let Some(mut mounted) = mounted() else { return };
    fs::create_dir(mounted.path("dir")).unwrap();
    fs::write(mounted.path("one"), b"1").unwrap();
    fs::rename(mounted.path("one"), mounted.path("dir/two")).unwrap();
    assert_eq!(fs::read(mounted.path("dir/two")).unwrap(), b"1");
    let exchanged = renameat_with(
        CWD,
        mounted.path("dir/two"),
        CWD,
        mounted.path("dir"),
        RenameFlags::EXCHANGE,
    );
    assert_eq!(exchanged, Err(Errno::INVAL), "flags arrive; the test's file system knows none");
    linkat(CWD, mounted.path("dir/two"), CWD, mounted.path("three"), AtFlags::empty()).unwrap();
    assert_eq!(fs::metadata(mounted.path("three")).unwrap().nlink(), 2);
    symlink("dir/two", mounted.path("link")).unwrap();
    assert_eq!(fs::read_link(mounted.path("link")).unwrap().to_str(), Some("dir/two"));
    assert_eq!(fs::read(mounted.path("link")).unwrap(), b"1");
    let full = fs::remove_dir(mounted.path("dir")).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
    fs::remove_file(mounted.path("dir/two")).unwrap();
    fs::remove_dir(mounted.path("dir")).unwrap();
    let fifo =
        rustix::fs::mknodat(CWD, mounted.path("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0);
    assert_eq!(fifo, Err(Errno::NOSYS), "what is not written says so");
    mounted.end().unwrap();
}

/// Three kinds of listing: names only, names with attributes, and attributes of some names.
#[test]
fn listings_have_names_with_and_without_attributes() {
    let names_alone = InitOptions { capabilities: Capabilities::ASYNC_READ, ..init_options() };
    for (init_options, learnt) in [(init_options(), true), (names_alone, false)] {
        let options = SessionOptions {
            threads: 2,
            clone_device: true,
            ring: crate::ring_is_wanted(),
            init_options,
        };
        let Some(mut mounted) = mounted_with(options) else { return };
        let count = 1000;
        let expected = filled(&mounted, count);
        let listed = fs::read_dir(mounted.folder.path()).unwrap().map(|entry| {
            let entry = entry.unwrap();
            assert!(entry.file_type().unwrap().is_file());
            assert!(!entry.file_type().unwrap().is_fifo());
            (entry.file_name().into_string().unwrap(), rustix_ino(&entry))
        });
        assert_eq!(listed.collect::<BTreeMap<_, _>>(), expected);
        assert_eq!(mounted.tree.seen.lookups.load(Ordering::Relaxed), 0);
        for (name, ino) in &expected {
            assert_eq!(fs::metadata(mounted.path(name)).unwrap().ino(), *ino);
        }
        let lookups = mounted.tree.seen.lookups.load(Ordering::Relaxed);
        let least = if learnt { count / 2 } else { count };
        assert!(lookups >= least, "{lookups}: a name without attributes must be looked up");
        mounted.end().unwrap();
    }
}

fn rustix_ino(entry: &fs::DirEntry) -> u64 {
    std::os::unix::fs::DirEntryExt::ino(entry)
}

/// Half of the names are listed without attributes.
fn filled(mounted: &Mounted, count: u64) -> BTreeMap<String, u64> {
    let named = |number| {
        let kind = if number % 2 == 0 { "bare" } else { "whole" };
        let name = format!("{kind}-{number}-{}", "x".repeat(number as usize % 200));
        let NodeId(node) = mounted.tree.put(&name, b"");
        (name, node)
    };
    (0..count).map(named).collect()
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let Some(mut mounted) = mounted() else { return };
    let path = mounted.path("file");
    fs::write(&path, b"").unwrap();
    let mut space = [0; 100];
    assert_eq!(getxattr(&path, "user.a", &mut space), Err(Errno::NODATA));
    setxattr(&path, "user.a", b"value", XattrFlags::empty()).unwrap();
    setxattr(&path, "user.b", b"", XattrFlags::CREATE).unwrap();
    assert_eq!(getxattr_query(&path, "user.a"), Ok(5));
    assert_eq!(getxattr(&path, "user.a", &mut space[..2]), Err(Errno::RANGE));
    assert_eq!(getxattr(&path, "user.a", &mut space), Ok(5));
    assert_eq!(&space[..5], b"value");
    assert_eq!(listxattr(&path, &mut space), Ok(14));
    assert_eq!(&space[..14], b"user.a\0user.b\0");
    removexattr(&path, "user.a").unwrap();
    assert_eq!(listxattr_query(&path), Ok(7));
    mounted.end().unwrap();
}

#[test]
fn statfs_shows_the_space() {
    let Some(mut mounted) = mounted() else { return };
    let space = statvfs(mounted.folder.path()).unwrap();
    assert_eq!((space.f_blocks, space.f_bfree, space.f_bavail), (1000, 600, 500));
    assert_eq!((space.f_files, space.f_ffree), (70, 60));
    assert_eq!((space.f_bsize, space.f_namemax), (4096, u64::from(NAME_BYTES)));
    mounted.end().unwrap();
}

#[test]
fn unnamed_files_can_be_written() {
    let Some(mut mounted) = mounted() else { return };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    match open(mounted.folder.path(), flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => {
            let file = File::from(file);
            file.write_all_at(b"nameless", 0).unwrap();
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"nameless");
            assert_eq!(file.metadata().unwrap().nlink(), 0);
        }
        Err(Errno::OPNOTSUPP) => println!("skipped: not here: the kernel asks for none"),
        Err(error) => panic!("{error}"),
    }
    assert_eq!(fs::read_dir(mounted.folder.path()).unwrap().count(), 0);
    mounted.end().unwrap();
}

#[test]
fn data_and_holes_are_found_and_ranges_copied() {
    let Some(mut mounted) = mounted() else { return };
    let path = mounted.path("sparse");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(b"data", 100).unwrap();
    file.set_len(200).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(100));
    assert_eq!(seek(&file, SeekFrom::Hole(101)), Ok(104));
    assert_eq!(seek(&file, SeekFrom::Hole(150)), Ok(150));
    assert_eq!(seek(&file, SeekFrom::Data(150)), Err(Errno::NXIO));
    let copy = File::create_new(mounted.path("copy")).unwrap();
    let mut from = 98;
    let mut to = 3;
    let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 6);
    assert_eq!((copied, from, to), (Ok(6), 104, 9));
    drop((file, copy));
    assert_eq!(fs::read(mounted.path("copy")).unwrap(), b"\0\0\0\0\0data");
    mounted.end().unwrap();
}

#[test]
fn invalidated_names_and_attributes_are_requested_again() {
    let Some(mut mounted) = mounted() else { return };
    let node = mounted.tree.put("file", b"old");
    let path = mounted.path("file");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    mounted.tree.put("file", b"renewed");
    mounted.notifier.inval_inode(node, 0, 0).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 7);
    assert_eq!(fs::read(&path).unwrap(), b"renewed");
    let lookups = mounted.tree.seen.lookups.load(Ordering::Relaxed);
    mounted.notifier.inval_entry(NodeId::ROOT, "file".as_ref()).unwrap();
    fs::metadata(&path).unwrap();
    assert_eq!(mounted.tree.seen.lookups.load(Ordering::Relaxed), lookups + 1);
    let unknown = mounted.notifier.inval_inode(NodeId(1 << 40), 0, 0).unwrap_err();
    assert_eq!(unknown.kind(), std::io::ErrorKind::NotFound);
    let unknown = mounted.notifier.inval_entry(NodeId::ROOT, "none".as_ref()).unwrap_err();
    assert_eq!(unknown.kind(), std::io::ErrorKind::NotFound);
    mounted.end().unwrap();
}

#[test]
fn names_of_an_earlier_epoch_and_expired_names_are_looked_up_again() {
    let Some(mut mounted) = mounted() else { return };
    for name in ["file", "other"] {
        mounted.tree.put(name, b"1");
    }
    let looked_up = |names: &[&str]| {
        let before = mounted.tree.seen.lookups.load(Ordering::Relaxed);
        for name in names {
            fs::metadata(mounted.path(name)).unwrap();
        }
        mounted.tree.seen.lookups.load(Ordering::Relaxed) - before
    };
    assert_eq!((looked_up(&["file", "other"]), looked_up(&["file", "other"])), (2, 0));
    mounted.notifier.expire_entry(NodeId::ROOT, "file".as_ref()).unwrap();
    assert_eq!((looked_up(&["file", "other"]), looked_up(&["file", "other"])), (1, 0));
    let unknown = mounted.notifier.expire_entry(NodeId::ROOT, "none".as_ref()).unwrap_err();
    assert_eq!(unknown.kind(), std::io::ErrorKind::NotFound);
    match mounted.notifier.inc_epoch() {
        Ok(()) => {
            assert_eq!((looked_up(&["file", "other"]), looked_up(&["file", "other"])), (2, 0));
        }
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
            println!("skipped: not here: the kernel knows no epochs");
        }
    }
    mounted.end().unwrap();
}

/// The price of an epoch: what is mounted below a name goes with it, as with an invalidated name.
#[test]
fn a_mount_below_a_name_survives_an_expiry_but_no_epoch() {
    let Some(mut mounted) = mounted() else { return };
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    mount("none", &dir, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(dir.join("below"), b"1").unwrap();
    mounted.notifier.expire_entry(NodeId::ROOT, "dir".as_ref()).unwrap();
    assert!(fs::exists(dir.join("below")).unwrap());
    if mounted.notifier.inc_epoch().is_ok() {
        assert!(!fs::exists(dir.join("below")).unwrap());
    } else {
        unmount(&dir, UnmountFlags::DETACH).unwrap();
    }
    mounted.end().unwrap();
}
