//! Files that were removed a moment ago: a kernel may still refer to them without an open, and
//! opens them by their handle.

use std::time::{Duration, Instant};

use pelago_server::Options;
use pelago_wire::{
    Attr, Code, Context, Handle, Reply, Request, RequestId, SessionId, SetAttr, XattrFlags, limits,
};

use crate::harness::rig::{CALLER, Rig, name};

const ROOT: Handle = Handle::ROOT;
const SIZES: [usize; 2] = [3, 100_000];

fn with_workers() -> Options {
    Options { workers: true, ..Options::default() }
}

fn content_files(rig: &Rig) -> u64 {
    rig.check().checked.content_files
}

fn attr(rig: &Rig, node: Handle) -> Result<Attr, Code> {
    match rig.call(Request::GetAttr { node })? {
        Reply::Attr(attr) => Ok(attr),
        other => panic!("{other:?}"),
    }
}

fn set_xattr(rig: &Rig, node: Handle, text: &str) {
    let name = format!("user.{text}").into_bytes();
    let value = text.as_bytes().to_vec();
    let flags = XattrFlags::Any;
    rig.call(Request::SetXattr { node, name, value, flags, kill_setgid: false }).unwrap();
}

fn get_xattr(rig: &Rig, node: Handle, text: &str) -> Result<Vec<u8>, Code> {
    match rig.call(Request::GetXattr { node, name: format!("user.{text}").into_bytes() })? {
        Reply::Bytes(value) => Ok(value),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_removed_file_can_be_opened_for_a_while_and_goes_then() {
    let rig = Rig::new(with_workers());
    for size in SIZES {
        let file = rig.put(ROOT, "file", &vec![1; size]).unwrap().handle;
        set_xattr(&rig, file, "kept");
        rig.unlink(ROOT, "file").unwrap();
        let found = attr(&rig, file).unwrap();
        assert_eq!((found.links, found.size), (0, size as u64));
        for _ in 0..2 {
            assert_eq!(rig.read(file, size as u64).unwrap(), vec![1; size]);
        }
        assert_eq!(get_xattr(&rig, file, "kept").unwrap(), b"kept");
        crate::harness::until("it is gone", || attr(&rig, file).is_err());
        assert_eq!(rig.read(file, 1), Err(Code::Stale));
        assert_eq!(get_xattr(&rig, file, "kept"), Err(Code::NoXattr));
    }
    crate::harness::until("its bytes are gone", || content_files(&rig) == 0);
    rig.expect_whole("after removed files");
}

#[test]
fn a_removed_file_that_is_opened_in_time_stays_until_it_is_closed() {
    let rig = Rig::new(with_workers());
    let opened = SIZES.map(|size| {
        let file = rig.put(ROOT, "file", &vec![1; size]).unwrap().handle;
        rig.unlink(ROOT, "file").unwrap();
        (file, rig.open(file).unwrap(), size)
    });
    let canary = rig.put(ROOT, "canary", b"canary").unwrap().handle;
    rig.unlink(ROOT, "canary").unwrap();
    crate::harness::until("what is removed later is gone", || attr(&rig, canary).is_err());
    for (file, open, size) in opened {
        assert_eq!(rig.read(file, size as u64).unwrap(), vec![1; size]);
        rig.close(open).unwrap();
        crate::harness::until("it is gone", || attr(&rig, file).is_err());
    }
    crate::harness::until("its bytes are gone", || content_files(&rig) == 0);
    rig.expect_whole("after removed files");
}

#[test]
fn a_removed_file_that_is_named_by_its_handle_can_be_changed() {
    let rig = Rig::new(with_workers());
    let file = rig.put(ROOT, "file", b"bytes").unwrap().handle;
    rig.unlink(ROOT, "file").unwrap();
    let set = SetAttr { mode: Some(0o600), size: Some(2), ..SetAttr::default() };
    rig.call(Request::SetAttr { node: file, open: None, set }).unwrap();
    set_xattr(&rig, file, "new");
    assert_eq!(rig.read(file, 10).unwrap(), b"by");
    let found = attr(&rig, file).unwrap();
    assert_eq!((found.mode, found.links), (0o600, 0));
    assert_eq!(get_xattr(&rig, file, "new").unwrap(), b"new");
    // It gets no name any more.
    let link = Request::Link { node: file, dir: ROOT, name: name("again") };
    assert_eq!(rig.call(link).map(drop), Err(Code::NotFound));
    crate::harness::until("it is gone", || attr(&rig, file).is_err());
    rig.expect_whole("after a removed file");
}

/// A kernel refers to it no more, and there is no other one.
#[test]
fn a_removed_file_that_is_forgotten_goes_at_once() {
    let rig = Rig::new(with_workers());
    let remove = || {
        let file = rig.put(ROOT, "file", &[1; 100_000]).unwrap().handle;
        rig.unlink(ROOT, "file").unwrap();
        assert!(attr(&rig, file).is_ok());
        rig.server.service().forgotten(file.ino);
        file
    };
    assert_eq!(attr(&rig, remove()), Err(Code::Stale));
    // Another session's kernel may refer to it.
    let other = Context { session: SessionId(9), request: RequestId(1), ..CALLER };
    rig.call_as(&other, Request::StatFs, &[]).unwrap();
    assert!(attr(&rig, remove()).is_ok());
}

/// The worker is told: each file would be kept for two seconds else.
#[test]
fn the_bytes_of_files_that_are_forgotten_are_soon_free() {
    let rig = Rig::new(with_workers());
    let start = Instant::now();
    for _ in 0..10 {
        let file = rig.put(ROOT, "file", &[1; 100_000]).unwrap().handle;
        rig.unlink(ROOT, "file").unwrap();
        rig.server.service().forgotten(file.ino);
        crate::harness::until("its bytes are gone", || content_files(&rig) == 0);
    }
    assert!(start.elapsed() < 10 * Duration::from_secs(limits::REMOVED_SECONDS));
    rig.expect_whole("after removed files");
}
