//! A full disk: accepted data stays, files can be removed, and after that new data is accepted.

use std::path::Path;

use pelago_check as check;
use pelago_server::{Options, Server};
use pelago_wire::{
    AllocateMode, Code, Handle, OpenFlags, OpenId, Reply, Request, SetAttr, WriteFlags, limits,
};

use crate::harness::requests;

/// A file system of its own, detached when dropped.
struct SmallDisk<'a>(&'a Path);

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

impl<'a> SmallDisk<'a> {
    /// One of 200 MiB; nothing where none can be mounted.
    fn new(path: &'a Path) -> Option<Self> {
        std::fs::create_dir(path).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("none", path, "tmpfs", flags, c"size=200m") {
            Ok(()) => Some(Self(path)),
            Err(error) => {
                println!("skipped: cannot mount a file system that fills up: {error}");
                None
            }
        }
    }
}

/// Bytes that `statfs` says a program may write.
fn available(server: &Server) -> u64 {
    match requests::call(server, Request::StatFs, &[]).unwrap() {
        Reply::Volume(stats) => stats.available * u64::from(stats.block_bytes),
        other => panic!("{other:?}"),
    }
}

fn write(server: &Server, open: OpenId, offset: u64, bytes: &[u8]) -> Result<u64, Code> {
    let request = Request::Write { open, offset, flags: WriteFlags::NONE };
    match requests::call(server, request, bytes)? {
        Reply::Written { bytes, .. } => Ok(bytes),
        other => panic!("{other:?}"),
    }
}

fn truncate(server: &Server, node: Handle, open: OpenId, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    requests::call(server, Request::SetAttr { node, open: Some(open), set }, &[]).unwrap();
}

/// A program can write as much as `statfs` says, and no block more.
#[test]
fn what_is_available_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let Some(_disk) = SmallDisk::new(&path) else { return };
    let server = Server::start(&path.join("volume"), Options::default()).unwrap();
    let said = available(&server);
    let (_, open) = requests::create(&server, Handle::ROOT, "f").unwrap();
    let filler = vec![7; limits::IO_BYTES];
    let mut written = 0;
    let code = loop {
        match write(&server, open, written, &filler) {
            Ok(bytes) => written += bytes,
            Err(code) => break code,
        }
    };
    assert_eq!(code, Code::NoSpace);
    // Rows and the journal take space too.
    assert!(written.abs_diff(said) < 2 << 20, "{written} bytes of {said}");
    assert_eq!(available(&server), 0);
    assert_eq!(requests::put(&server, Handle::ROOT, "g", b"more").unwrap_err(), Code::NoSpace);
    requests::close(&server, open).unwrap();
    server.stop().unwrap();
}

/// Bytes in holes are new data: no way to write them takes space below the floor.
#[test]
fn holes_are_not_filled_while_space_is_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let Some(_disk) = SmallDisk::new(&path) else { return };
    let server = Server::start(&path.join("volume"), Options::default()).unwrap();
    let (entry, sparse) = requests::create(&server, Handle::ROOT, "sparse").unwrap();
    truncate(&server, entry.handle, sparse, 1 << 30);
    let filler = vec![7; limits::IO_BYTES];
    let mut at = 0;
    let refused = loop {
        match write(&server, sparse, at, &filler) {
            Ok(bytes) => at += bytes,
            Err(code) => break code,
        }
    };
    assert_eq!(refused, Code::NoSpace);
    let stats = rustix::fs::statvfs(&path).unwrap();
    let floor = (stats.f_blocks * stats.f_frsize / 32).min(limits::FREE_FLOOR_BYTES);
    let holds = || {
        let stats = rustix::fs::statvfs(&path).unwrap();
        assert!(stats.f_bavail * stats.f_frsize + (1 << 20) > floor, "the floor was taken");
        assert!(server.status().space.unwrap().holds_reserve);
    };
    holds();
    let hole = 512 << 20;
    let copy = Request::CopyRange {
        from: sparse,
        from_offset: 0,
        to: sparse,
        to_offset: hole,
        length: 1 << 20,
    };
    assert_eq!(requests::call(&server, copy, &[]).unwrap_err(), Code::NoSpace);
    let mode = AllocateMode::Reserve { keep_size: true };
    let allocate = Request::Allocate { open: sparse, offset: hole, length: 1 << 20, mode };
    assert_eq!(requests::call(&server, allocate, &[]).unwrap_err(), Code::NoSpace);
    // Allocated blocks can be overwritten, as on any full disk.
    assert_eq!(write(&server, sparse, 0, &filler).unwrap(), filler.len() as u64);
    // An open for writing gets no descriptor: the server could not count what is written by it.
    let flags = OpenFlags { write: true, passthrough: true, ..OpenFlags::default() };
    requests::close(&server, sparse).unwrap();
    let open = requests::next_open();
    let request = Request::Open { node: entry.handle, flags, open };
    let Reply::Opened { path: way, .. } = requests::call(&server, request, &[]).unwrap() else {
        panic!("it is opened");
    };
    assert!(!matches!(way, pelago_wire::DataPath::Passthrough(_)), "{way:?}");
    assert_eq!(write(&server, open, hole, &filler).unwrap_err(), Code::NoSpace);
    holds();
    truncate(&server, entry.handle, open, 0);
    requests::close(&server, open).unwrap();
    crate::harness::until("there is room again", || {
        requests::unlink(&server, Handle::ROOT, "again").ok();
        requests::put(&server, Handle::ROOT, "again", &filler).is_ok()
    });
    server.stop().unwrap();
}

#[test]
fn on_a_full_disk_files_can_be_removed_and_committed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let Some(_disk) = SmallDisk::new(&path) else { return };
    let dir = path.join("volume");
    let server = Server::start(&dir, Options::default()).unwrap();
    assert!(server.status().space.unwrap().holds_reserve);
    requests::put(&server, Handle::ROOT, "small", b"before").unwrap();
    let (_, open) = requests::create(&server, Handle::ROOT, "open").unwrap();
    requests::write(&server, open, 0, b"bytes").unwrap();

    let filler = vec![7; 4 << 20];
    let mut files = 0;
    let code = loop {
        match requests::put(&server, Handle::ROOT, &format!("f{files}"), &filler) {
            Ok(()) => files += 1,
            Err(code) => break code,
        }
        assert!(files < 100, "the disk does not fill up");
    };
    assert_eq!(code, Code::NoSpace);
    assert!(files > 10, "{files}");
    // The open file is committed, and all files can be removed.
    requests::close(&server, open).unwrap();
    for file in 0..files {
        requests::unlink(&server, Handle::ROOT, &format!("f{file}")).unwrap();
    }
    requests::unlink(&server, Handle::ROOT, &format!("f{files}")).ok();
    crate::harness::until("there is room again", || {
        // Removes what an earlier attempt has left.
        requests::unlink(&server, Handle::ROOT, "again").ok();
        requests::put(&server, Handle::ROOT, "again", &filler).is_ok()
    });
    crate::harness::until("the reserve is held again", || {
        server.status().space.unwrap().holds_reserve
    });
    server.stop().unwrap();
    drop(server);
    let plan = check::plan(&dir).unwrap();
    assert!(plan.is_whole(), "{:?}", plan.findings);
    let server = Server::start(&dir, Options::default()).unwrap();
    assert_eq!(requests::lookup(&server, Handle::ROOT, "small").unwrap().attr.size, 6);
    assert_eq!(requests::lookup(&server, Handle::ROOT, "open").unwrap().attr.size, 5);
    server.stop().unwrap();
}
