//! Everyday operations of programs.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags,
    fcntl_setfl, getxattr, listxattr, mknodat, open, removexattr, renameat_with, setxattr, statvfs,
    utimensat,
};

use rustix::io::{Errno, ReadWriteFlags, pwritev2};

use super::mounted;
use crate::memory::{HandsOut, spread};

/// `RWF_NOAPPEND` of Linux 6.9, for which rustix has no name.
const RWF_NOAPPEND: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x20);

#[test]
fn files_keep_what_is_written() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("file");
    assert_eq!(fs::metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&path, b"one").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"one");
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"two").unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"onetwo");
    let large: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    fs::write(&path, &large).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), large.len() as u64);
    assert_eq!(fs::read(&path).unwrap(), large);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(10).unwrap();
    file.write_at(b"x", 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 21);
    drop(file);
    assert_eq!(fs::read(&path).unwrap()[8..], *b"\x08\x09\0\0\0\0\0\0\0\0\0\0x");
    File::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

/// The commit at close changes ctime, which the kernel does not see.
#[test]
fn attributes_are_current_after_close() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"bytes").unwrap();
    let open = fs::metadata(&path).unwrap();
    drop(file);
    let closed = fs::metadata(&path).unwrap();
    let nanos = |metadata: &fs::Metadata| (metadata.ctime(), metadata.ctime_nsec());
    assert!(nanos(&closed) > nanos(&open), "{open:?} {closed:?}");
    assert_eq!(closed.len(), 5);
}

#[test]
fn names_are_renamed_and_removed() {
    let Some(mounted) = mounted(spread) else { return };
    let path = |name: &str| mounted.path(name);
    fs::create_dir(path("a")).unwrap();
    fs::create_dir(path("b")).unwrap();
    fs::write(path("a/x"), b"x").unwrap();
    fs::write(path("b/y"), b"y").unwrap();
    fs::rename(path("a/x"), path("b/z")).unwrap();
    assert_eq!(fs::read(path("b/z")).unwrap(), b"x");
    let noreplace = renameat_with(CWD, path("b/y"), CWD, path("b/z"), RenameFlags::NOREPLACE);
    assert_eq!(noreplace, Err(Errno::EXIST));
    renameat_with(CWD, path("b/y"), CWD, path("b/z"), RenameFlags::EXCHANGE).unwrap();
    fs::set_permissions(path("b/y"), Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(path("b/z"), Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::read(path("b/y")).unwrap(), b"x");
    assert_eq!(fs::metadata(path("b/z")).unwrap().mode() & 0o7777, 0o640);
    fs::rename(path("b/y"), path("b/z")).unwrap();
    assert_eq!(fs::read(path("b/z")).unwrap(), b"x");
    fs::rename(path("b"), path("a/c")).unwrap();
    assert_eq!(fs::read(path("a/c/z")).unwrap(), b"x");
    assert_eq!(fs::remove_dir(path("a")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs::remove_file(path("a/c/z")).unwrap();
    fs::remove_dir(path("a/c")).unwrap();
    fs::remove_dir(path("a")).unwrap();
    assert_eq!(fs::read_dir(mounted.mount.point()).unwrap().count(), 0);
}

#[test]
fn an_unnamed_file_stays_while_it_is_open() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("gone");
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create_new(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    file.write_all(b"still here").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.set_permissions(Permissions::from_mode(0o400)).unwrap();
}

#[test]
fn links_and_special_files_are_made() {
    let Some(mounted) = mounted(spread) else { return };
    let path = |name: &str| mounted.path(name);
    fs::write(path("one"), b"1").unwrap();
    fs::hard_link(path("one"), path("two")).unwrap();
    assert_eq!(fs::metadata(path("one")).unwrap().nlink(), 2);
    fs::remove_file(path("one")).unwrap();
    assert_eq!(fs::metadata(path("two")).unwrap().nlink(), 1);
    assert_eq!(fs::read(path("two")).unwrap(), b"1");
    symlink("two", path("link")).unwrap();
    assert_eq!(fs::read_link(path("link")).unwrap(), Path::new("two"));
    assert_eq!(fs::read(path("link")).unwrap(), b"1");
    mknodat(CWD, path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let mode = fs::symlink_metadata(path("pipe")).unwrap().mode();
    assert_eq!(FileType::from_raw_mode(mode), FileType::Fifo);
}

#[test]
fn times_before_1970_are_kept() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("old");
    fs::write(&path, b"").unwrap();
    let early = Timespec { tv_sec: -2, tv_nsec: 800_000_000 };
    let late = Timespec { tv_sec: 4_000_000_000, tv_nsec: 1 };
    let times = Timestamps { last_access: late, last_modification: early };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (-2, 800_000_000));
    assert_eq!((metadata.atime(), metadata.atime_nsec()), (4_000_000_000, 1));
}

#[test]
fn extended_attributes_are_set_read_and_removed() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("file");
    fs::write(&path, b"").unwrap();
    setxattr(&path, "user.a", b"value", XattrFlags::CREATE).unwrap();
    let again = setxattr(&path, "user.a", b"value", XattrFlags::CREATE);
    assert_eq!(again, Err(Errno::EXIST));
    let mut buffer = vec![0; 64];
    assert_eq!(getxattr(&path, "user.a", buffer.as_mut_slice()), Ok(5));
    assert_eq!(&buffer[..5], b"value");
    let mut small = [0; 2];
    assert_eq!(getxattr(&path, "user.a", &mut small), Err(Errno::RANGE));
    assert_eq!(listxattr(&path, buffer.as_mut_slice()), Ok(7));
    removexattr(&path, "user.a").unwrap();
    let gone = getxattr(&path, "user.a", buffer.as_mut_slice());
    assert_eq!(gone, Err(Errno::NODATA));
    let acl = getxattr(&path, "system.posix_acl_access", buffer.as_mut_slice());
    assert_eq!(acl, Err(Errno::NODATA));
}

#[test]
fn unsupported_requests_fall_back() {
    let Some(mounted) = mounted(spread) else { return };
    fs::write(mounted.path("from"), vec![7; 100_000]).unwrap();
    fs::copy(mounted.path("from"), mounted.path("to")).unwrap();
    assert_eq!(fs::read(mounted.path("to")).unwrap(), vec![7; 100_000]);
    let file = File::open(mounted.path("to")).unwrap();
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(10));
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(10));
    assert_eq!((data, hole), (Ok(10), Ok(100_000)));
    let stats = statvfs(mounted.mount.point()).unwrap();
    assert_eq!((stats.f_blocks, stats.f_bavail, stats.f_namemax), (1000, 400, 255));
}

/// The name is created by another client after the kernel has cached its absence.
#[test]
fn a_create_of_a_name_that_exists_meanwhile_opens_the_file() {
    let Some(mounted) = mounted(spread) else { return };
    for name in ["opened", "emptied", "refused"] {
        assert!(!mounted.path(name).exists());
        mounted.memory.put(name, b"bytes");
    }
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    let mut opened = options.truncate(false).open(mounted.path("opened")).unwrap();
    let mut text = String::new();
    opened.read_to_string(&mut text).unwrap();
    assert_eq!(text, "bytes");
    let emptied = options.truncate(true).open(mounted.path("emptied")).unwrap();
    assert_eq!(emptied.metadata().unwrap().len(), 0);
    let refused = options.create_new(true).open(mounted.path("refused"));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::AlreadyExists);
}

#[test]
fn names_may_be_255_bytes_long() {
    let Some(mounted) = mounted(spread) else { return };
    let name = "n".repeat(255);
    fs::write(mounted.path(&name), b"1").unwrap();
    assert_eq!(fs::read(mounted.path(&name)).unwrap(), b"1");
    let long = fs::write(mounted.path(&"n".repeat(256)), b"1").unwrap_err();
    assert_eq!(long.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
}

/// A process may have a descriptor of a directory that was removed or replaced.
#[test]
fn an_unlinked_directory_still_has_attributes() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("dir");
    fs::create_dir(&path).unwrap();
    let removed = File::open(&path).unwrap();
    fs::remove_dir(&path).unwrap();
    let shown = removed.metadata().unwrap();
    assert!(shown.is_dir());
    assert_eq!(shown.nlink(), 0);
    removed.set_permissions(Permissions::from_mode(0o711)).unwrap();
    assert_eq!(removed.metadata().unwrap().mode() & 0o7777, 0o711);
    removed.sync_all().unwrap();
    fs::create_dir(&path).unwrap();
    fs::create_dir(mounted.path("other")).unwrap();
    let replaced = File::open(&path).unwrap();
    fs::rename(mounted.path("other"), &path).unwrap();
    assert_eq!(replaced.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
}

/// To the server, a descriptor of a pipe never was an open file.
#[test]
fn an_unlinked_pipe_still_has_attributes() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(pipe.metadata().unwrap().nlink(), 0);
}

/// Without pages in the kernel, the server decides where an append goes: other clients append too.
#[test]
fn an_append_goes_behind_what_other_clients_have_written() {
    let Some(mounted) = mounted(spread) else { return };
    mounted.memory.hand_out(HandsOut::NoPages);
    let path = mounted.path("file");
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).unwrap();
    file.write_all(b"aaaa").unwrap();
    mounted.memory.append("file", b"bb");
    fcntl_setfl(&file, OFlags::APPEND).unwrap();
    file.write_all(b"cc").unwrap();
    mounted.memory.append("file", b"dd");
    file.write_all(b"ee").unwrap();
    fcntl_setfl(&file, OFlags::empty()).unwrap();
    file.write_at(b"f", 1).unwrap();
    drop(file);
    assert_eq!(fs::read(&path).unwrap(), b"afaabbccddee");
}

/// `O_APPEND` taken away and given again, through pages and without.
#[test]
fn each_write_follows_the_flags_of_its_moment() {
    let Some(mounted) = mounted(spread) else { return };
    for (name, what) in [("pages", HandsOut::Nothing), ("none", HandsOut::NoPages)] {
        mounted.memory.hand_out(what);
        let path = mounted.path(name);
        let mut file = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
        file.write_all(b"aaaa").unwrap();
        fcntl_setfl(&file, OFlags::empty()).unwrap();
        file.write_at(b"b", 1).unwrap();
        fcntl_setfl(&file, OFlags::APPEND).unwrap();
        file.rewind().unwrap();
        file.write_all(b"c").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"abaac", "{name}");
    }
}

/// A request does not tell of `RWF_NOAPPEND`, so with pages the offset of the kernel counts.
#[test]
fn a_write_that_must_not_append_goes_to_its_offset() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("file");
    let mut file = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    file.write_all(b"aaaa").unwrap();
    match pwritev2(&file, &[IoSlice::new(b"b")], 1, RWF_NOAPPEND) {
        Ok(written) => assert_eq!((written, &fs::read(&path).unwrap()[..]), (1, &b"abaa"[..])),
        Err(Errno::OPNOTSUPP) => println!("skipped: not here: it came with Linux 6.9"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn chown_clears_privileges_even_if_it_changes_no_owner() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("file");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o4755)).unwrap();
    chown(&path, None, None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
}

/// An open during a rename over the name gets the old file or the new one.
#[test]
fn a_name_that_is_being_replaced_can_always_be_opened() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("file");
    fs::write(&path, b"bytes").unwrap();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|number| {
                let other = mounted.path(&format!("other{number}"));
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..1500 {
                        fs::write(&other, b"bytes").unwrap();
                        fs::rename(&other, path).unwrap();
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            assert_eq!(fs::read(&path).unwrap(), b"bytes");
        }
    });
}

/// `ETXTBSY` comes before any change, whatever the flags of the open.
#[test]
fn a_running_program_is_not_truncated() {
    let Some(mounted) = mounted(spread) else { return };
    let path = mounted.path("program");
    // Not by this process: a child of another test could inherit the descriptor for writing.
    assert!(Command::new("cp").arg("/bin/sleep").arg(&path).status().unwrap().success());
    let mut program = Command::new(&path).arg("100").spawn().unwrap();
    let before = fs::metadata(&path).unwrap().len();
    let opened = open(&path, OFlags::RDONLY | OFlags::TRUNC, Mode::empty());
    let after = fs::metadata(&path).unwrap().len();
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(opened.map(drop), Err(Errno::TXTBSY));
    assert_eq!(after, before);
}
