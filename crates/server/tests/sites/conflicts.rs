//! Bytes that berlin has written into files of the first site, and that others have passed over.

use std::sync::atomic::Ordering;

use pelago_server::{KeptVersion, Server};
use pelago_wire::{Code, Handle, OpenFlags, OpenId, Reply, Request, SessionId, WriteFlags, limits};

use super::stays::{close, content, create, flush, nodes, open, read, write};
use super::world::{Offices, ask, ask_with, client, lookup, options, rename, wait_for};

const DIRECT: SessionId = SessionId::DIRECT;
const SIZE: usize = 5 * limits::STAY_LEAST_BYTES + 1000;
/// The numbers of a client's opens.
const KEPT: OpenId = OpenId(1);
const FILE: OpenId = OpenId(2);

fn theirs() -> Vec<u8> {
    content(2, 5000)
}

/// A file that berlin has written while the line was cut, and the first site too.
fn conflict(offices: &Offices, text: &str, bytes: &[u8]) -> Handle {
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, text, writing);
    write(&offices.berlin, writing, 0, bytes).unwrap();
    offices.cut(true);
    offices.end_session_of_berlin_leases();
    open(&offices.first, file, OpenFlags::WRITE, OpenId(1)).unwrap();
    write(&offices.first, OpenId(1), 0, &theirs()).unwrap();
    close(&offices.first, OpenId(1));
    offices.cut(false);
    assert_eq!(flush(&offices.berlin, writing), Err(Code::Io));
    ask(&offices.berlin, DIRECT, Request::Release { open: writing }).unwrap();
    file
}

fn only(server: &Server, file: Handle) -> KeptVersion {
    let mut kept = server.kept_versions(Some(file.ino));
    assert_eq!(kept.len(), 1, "{kept:?}");
    kept.remove(0)
}

/// What `pelago conflicts` asks for: a client reads the node as any file.
fn read_kept(server: &Server, session: SessionId, version: &KeptVersion) -> Result<Vec<u8>, Code> {
    let node = Handle::own(version.node);
    ask(server, session, Request::Open { node, flags: OpenFlags::READ, open: KEPT })?;
    let mut bytes = Vec::new();
    loop {
        let request = Request::Read { open: KEPT, offset: bytes.len() as u64, size: 1 << 20 };
        match ask(server, session, request)? {
            Reply::Data(data) if data.as_bytes().is_empty() => break,
            Reply::Data(data) => bytes.extend_from_slice(data.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
    ask(server, session, Request::Release { open: KEPT })?;
    Ok(bytes)
}

/// Writes over a file as a client does, and returns once that is safe.
fn write_over(server: &Server, session: SessionId, node: Handle, bytes: &[u8]) -> Result<(), Code> {
    let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    ask(server, session, Request::Open { node, flags, open: FILE })?;
    let request = Request::Write { open: FILE, offset: 0, flags: WriteFlags::NONE };
    ask_with(server, session, request, bytes)?;
    ask(server, session, Request::Fsync { open: FILE, data_only: false })?;
    ask(server, session, Request::Release { open: FILE }).map(drop)
}

#[test]
fn what_is_kept_is_listed_and_read() {
    let offices = Offices::new();
    assert_eq!(offices.berlin.kept_versions(None), []);
    let mine = content(1, SIZE);
    let file = conflict(&offices, "file", &mine);
    let other = conflict(&offices, "other", &mine[..SIZE / 2]);
    let version = only(&offices.berlin, file);
    assert_eq!((version.file.ino, version.bytes), (file.ino, SIZE as u64));
    assert_eq!((version.site, version.site_name.as_str()), (0, "first"));
    assert!(version.mtime.seconds > 0);
    assert_eq!(only(&offices.berlin, other).bytes, SIZE as u64 / 2);
    assert_eq!(offices.berlin.kept_versions(None).len(), 2);
    assert_eq!(offices.first.kept_versions(None), []);
    let session = client(&offices.berlin);
    assert!(read_kept(&offices.berlin, session, &version).unwrap() == mine);
    assert!(read(&offices.berlin, "file").unwrap() == theirs());
}

#[test]
fn what_is_dropped_is_gone_and_the_file_stays() {
    let offices = Offices::new();
    let file = conflict(&offices, "file", &content(1, SIZE));
    let version = only(&offices.berlin, file);
    assert_eq!(nodes(&offices), 1);
    offices.berlin.drop_kept(version.node).unwrap();
    assert_eq!(offices.berlin.drop_kept(version.node).unwrap_err().code, Code::NotFound);
    assert_eq!(offices.berlin.kept_versions(None), []);
    wait_for("the bytes are gone", || nodes(&offices) == 0);
    let session = client(&offices.berlin);
    assert_eq!(read_kept(&offices.berlin, session, &version).unwrap_err(), Code::Stale);
    let offices = offices.start_berlin_again(options());
    assert_eq!(offices.berlin.kept_versions(None), []);
    for server in [&offices.first, &offices.berlin] {
        assert!(read(server, "file").unwrap() == theirs());
    }
}

/// Only what is kept can be dropped: the others are the only bytes of their files.
#[test]
fn bytes_that_a_file_has_are_not_dropped() {
    let offices = Offices::new();
    let bytes = content(1, SIZE);
    let file = super::stays::write_new(&offices.berlin, "file", &bytes);
    let node = offices.first.bytes_at(file).unwrap();
    assert_eq!(offices.berlin.kept_versions(None), []);
    for node in [node, file.ino] {
        assert_eq!(offices.berlin.drop_kept(node).unwrap_err().code, Code::NotFound);
    }
    assert!(read(&offices.first, "file").unwrap() == bytes);
}

#[test]
fn what_is_kept_can_be_written_over_the_file() {
    let offices = Offices::new();
    let mine = content(1, SIZE);
    let file = conflict(&offices, "file", &mine);
    let version = only(&offices.berlin, file);
    let session = client(&offices.berlin);
    let bytes = read_kept(&offices.berlin, session, &version).unwrap();
    write_over(&offices.berlin, session, file, &bytes).unwrap();
    assert_eq!(only(&offices.berlin, file), version, "it stays until it is dropped");
    offices.berlin.drop_kept(version.node).unwrap();
    assert!(read(&offices.berlin, "file").unwrap() == mine);
    offices.cut(true);
    assert!(read(&offices.first, "file").unwrap() == mine, "it is at home");
}

/// Between the two steps nothing is lost: neither by a cut line, nor by a kill.
#[test]
fn what_is_kept_stays_if_it_cannot_be_written() {
    let offices = Offices::new();
    let mine = content(1, SIZE);
    let file = conflict(&offices, "file", &mine);
    let session = client(&offices.berlin);
    offices.cut(true);
    assert!(write_over(&offices.berlin, session, file, &mine).is_err());
    let version = only(&offices.berlin, file);
    assert!(read_kept(&offices.berlin, session, &version).unwrap() == mine);
    offices.is_cut.store(false, Ordering::Release);
    let offices = offices.start_berlin_after_crash(options());
    assert_eq!(only(&offices.berlin, file).bytes, SIZE as u64);
    let session = client(&offices.berlin);
    assert!(read_kept(&offices.berlin, session, &only(&offices.berlin, file)).unwrap() == mine);
    assert!(read(&offices.first, "file").unwrap() == theirs());
}

/// The file has another name by now, or none: what was kept is still read.
#[test]
fn what_is_kept_outlives_its_file() {
    let offices = Offices::new();
    let mine = content(1, SIZE);
    let file = conflict(&offices, "file", &mine);
    rename(&offices.first, "file", "renamed").unwrap();
    let renamed = lookup(&offices.berlin, Handle::ROOT, "renamed").unwrap();
    assert_eq!(renamed.ino, file.ino);
    let version = only(&offices.berlin, renamed);
    let name = crate::harness::rig::name("renamed");
    ask(&offices.first, DIRECT, Request::Unlink { dir: Handle::ROOT, name }).unwrap();
    let session = client(&offices.berlin);
    assert!(read_kept(&offices.berlin, session, &version).unwrap() == mine);
}
