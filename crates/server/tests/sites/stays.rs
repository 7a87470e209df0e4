//! Bytes of new and emptied files of the first site that are written at berlin, and stay there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pelago_server::{Options, Server, StayStatus};
use pelago_wire::{
    Attr, Code, Handle, NewMode, OpenFlags, OpenId, Reply, Request, SessionId, SetAttr, SetTime,
    Time, WriteFlags, limits,
};

use super::world::{Offices, ask, ask_with, berlin_dir, client, lookup, options, wait_for};
use crate::harness::rig::name;

const DIRECT: SessionId = SessionId::DIRECT;
/// More than goes home at close.
const SIZE: usize = 5 * limits::STAY_LEAST_BYTES + 1000;
/// The bytes of a program's write.
const WRITE: usize = 128 << 10;

/// Returns bytes that differ from place to place, and by `seed`.
fn content(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 777) as u8 ^ seed).collect()
}

fn create(server: &Server, session: SessionId, text: &str, open: OpenId) -> Handle {
    let request = Request::Create {
        dir: Handle::ROOT,
        name: name(text),
        mode: NewMode::exactly(0o644),
        flags: OpenFlags::READ_WRITE,
        open,
    };
    match ask(server, session, request) {
        Ok(Reply::Created { entry, .. }) => entry.handle,
        other => panic!("{other:?}"),
    }
}

fn open(server: &Server, node: Handle, flags: OpenFlags, open: OpenId) -> Result<Attr, Code> {
    match ask(server, DIRECT, Request::Open { node, flags, open })? {
        Reply::Opened { attr, .. } => Ok(attr),
        other => panic!("{other:?}"),
    }
}

fn write(server: &Server, open: OpenId, at: usize, bytes: &[u8]) -> Result<(), Code> {
    for (part, bytes) in bytes.chunks(WRITE).enumerate() {
        let offset = (at + part * WRITE) as u64;
        let request = Request::Write { open, offset, flags: WriteFlags::NONE };
        ask_with(server, DIRECT, request, bytes)?;
    }
    Ok(())
}

fn flush(server: &Server, open: OpenId) -> Result<(), Code> {
    ask(server, DIRECT, Request::Flush { open, owner: None }).map(drop)
}

fn release(server: &Server, open: OpenId) {
    ask(server, DIRECT, Request::Release { open }).unwrap();
}

fn close(server: &Server, open: OpenId) {
    flush(server, open).unwrap();
    release(server, open);
}

fn attr(server: &Server, node: Handle) -> Attr {
    match ask(server, DIRECT, Request::GetAttr { node }) {
        Ok(Reply::Attr(attr)) => attr,
        other => panic!("{other:?}"),
    }
}

/// Reads a file to its end.
fn read_open(server: &Server, open: OpenId) -> Result<Vec<u8>, Code> {
    let mut read = Vec::new();
    loop {
        let request = Request::Read { open, offset: read.len() as u64, size: WRITE as u32 };
        match ask(server, DIRECT, request)? {
            Reply::Data(data) if data.as_bytes().is_empty() => return Ok(read),
            Reply::Data(data) => read.extend_from_slice(data.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
}

fn read(server: &Server, text: &str) -> Result<Vec<u8>, Code> {
    let node = lookup(server, Handle::ROOT, text)?;
    let reading = OpenId(700);
    open(server, node, OpenFlags::READ, reading)?;
    let read = read_open(server, reading);
    release(server, reading);
    read
}

impl Offices {
    /// Writes a new file of the first site at berlin.
    fn new_file(&self, text: &str, bytes: &[u8]) -> Handle {
        let open = OpenId(1);
        let file = create(&self.berlin, DIRECT, text, open);
        write(&self.berlin, open, 0, bytes).unwrap();
        close(&self.berlin, open);
        file
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// Ends the run of berlin's server without a stop, and starts it again.
    fn crash_berlin(self) -> Self {
        self.start_berlin_after_crash(options())
    }
}

fn untold(server: &Server) -> usize {
    server.stays().untold
}

/// A unit of the promise: a round trip to make it, and one to close it, however large it is.
#[test]
fn a_new_file_is_written_here_and_read_everywhere() {
    let offices = Offices::new();
    let before = offices.sent();
    let bytes = content(1, SIZE);
    let file = offices.new_file("file", &bytes);
    assert_eq!(offices.sent() - before, 3, "create, close, and the end of the open");
    assert_eq!(offices.berlin.stays(), StayStatus { files: 1, untold: 0, kept: 0 });
    assert_eq!(attr(&offices.first, file).size, SIZE as u64);
    assert!(read(&offices.first, "file").unwrap() == bytes);
    let before = offices.sent();
    assert!(read(&offices.berlin, "file").unwrap() == bytes);
    assert!(offices.sent() - before <= 4, "only names and opens");
    assert_eq!(attr(&offices.berlin, file).size, SIZE as u64);
}

#[test]
fn a_small_file_goes_home_with_its_close() {
    let offices = Offices::new();
    let before = offices.sent();
    let bytes = content(2, 3000);
    offices.new_file("small", &bytes);
    assert_eq!(offices.sent() - before, 3);
    assert_eq!(offices.berlin.stays(), StayStatus::default());
    offices.is_cut.store(true, Ordering::Release);
    assert!(read(&offices.first, "small").unwrap() == bytes, "it is at home");
}

/// The program at the first site looks while the one at berlin still writes.
#[test]
fn what_is_written_is_seen_before_the_file_is_closed() {
    let offices = Offices::new();
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    let bytes = content(3, SIZE);
    write(&offices.berlin, writing, 0, &bytes[..WRITE]).unwrap();
    assert_eq!(attr(&offices.berlin, file).size, WRITE as u64);
    assert_eq!(attr(&offices.first, file).size, WRITE as u64, "berlin was asked");
    let reading = OpenId(2);
    open(&offices.first, file, OpenFlags::READ, reading).unwrap();
    assert!(read_open(&offices.first, reading).unwrap() == bytes[..WRITE]);
    write(&offices.berlin, writing, WRITE, &bytes[WRITE..]).unwrap();
    assert_eq!(attr(&offices.first, file).size, SIZE as u64, "it was told with each write");
    assert!(read_open(&offices.first, reading).unwrap() == bytes);
    // In place, while the other one has it open.
    write(&offices.berlin, writing, 0, b"in place").unwrap();
    let seen = read_open(&offices.first, reading).unwrap();
    assert!(&seen[..8] == b"in place" && seen[8..] == bytes[8..]);
    close(&offices.berlin, writing);
    release(&offices.first, reading);
}

#[test]
fn a_file_goes_on_where_its_bytes_are() {
    let offices = Offices::new();
    let mut bytes = content(4, SIZE);
    let file = offices.new_file("file", &bytes);
    let writing = OpenId(1);
    let before = offices.sent();
    open(&offices.berlin, file, OpenFlags::WRITE, writing).unwrap();
    let more = content(5, SIZE);
    write(&offices.berlin, writing, SIZE, &more).unwrap();
    close(&offices.berlin, writing);
    assert!(offices.sent() - before <= 3);
    bytes.extend_from_slice(&more);
    assert!(read(&offices.first, "file").unwrap() == bytes);
    assert_eq!(offices.berlin.stays().files, 1);
}

#[test]
fn the_bytes_come_home_before_another_site_writes() {
    let offices = Offices::new();
    let mut bytes = content(6, SIZE);
    let file = offices.new_file("file", &bytes);
    let writing = OpenId(3);
    open(&offices.first, file, OpenFlags::READ_WRITE, writing).unwrap();
    write(&offices.first, writing, 10, b"of the first site").unwrap();
    bytes[10..27].copy_from_slice(b"of the first site");
    close(&offices.first, writing);
    wait_for("berlin has none", || offices.berlin.stays() == StayStatus::default());
    for server in [&offices.first, &offices.berlin] {
        assert!(read(server, "file").unwrap() == bytes);
    }
    offices.cut(true);
    assert!(read(&offices.first, "file").unwrap() == bytes, "it is at home");
}

/// Execution 19: b writes while the bytes go home.
#[test]
fn a_program_goes_on_writing_while_the_bytes_go_home() {
    let offices = Offices::new();
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    let mut bytes = content(7, SIZE);
    write(&offices.berlin, writing, 0, &bytes).unwrap();
    let other = OpenId(3);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            open(&offices.first, file, OpenFlags::READ_WRITE, other).unwrap();
            write(&offices.first, other, 0, b"first").unwrap();
        });
        for at in 0..200 {
            write(&offices.berlin, writing, SIZE + at * 10, b"0123456789").unwrap();
        }
    });
    bytes[..5].copy_from_slice(b"first");
    bytes.extend(b"0123456789".repeat(200));
    close(&offices.berlin, writing);
    close(&offices.first, other);
    wait_for("berlin has none", || offices.berlin.stays() == StayStatus::default());
    for server in [&offices.first, &offices.berlin] {
        assert!(read(server, "file").unwrap() == bytes);
    }
}

#[test]
fn what_is_emptied_stays_where_it_is_written_next() {
    let offices = Offices::new();
    let at_home = content(8, SIZE);
    let writing = OpenId(3);
    let file = create(&offices.first, DIRECT, "file", writing);
    write(&offices.first, writing, 0, &at_home).unwrap();
    close(&offices.first, writing);
    let truncating = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    for seed in 9..11 {
        let bytes = content(seed, SIZE);
        open(&offices.berlin, file, truncating, OpenId(1)).unwrap();
        write(&offices.berlin, OpenId(1), 0, &bytes).unwrap();
        close(&offices.berlin, OpenId(1));
        wait_for("only the last bytes", || offices.berlin.stays().files == 1);
        for server in [&offices.first, &offices.berlin] {
            assert!(read(server, "file").unwrap() == bytes, "{seed}");
        }
    }
    // By the first site: nothing is fetched.
    open(&offices.first, file, truncating, OpenId(1)).unwrap();
    close(&offices.first, OpenId(1));
    wait_for("berlin has none", || offices.berlin.stays() == StayStatus::default());
    assert_eq!(attr(&offices.berlin, file).size, 0);
    assert!(read(&offices.berlin, "file").unwrap().is_empty());
}

/// Executions 13 and 30: the bytes of what is gone go, too.
#[test]
fn what_is_removed_or_replaced_is_removed_here() {
    let offices = Offices::new();
    offices.new_file("removed", &content(1, SIZE));
    offices.new_file("replaced", &content(2, SIZE));
    offices.new_file("linked", &content(3, SIZE));
    offices.new_file("other", &content(4, SIZE));
    assert_eq!(offices.berlin.stays().files, 4);
    let unlink = |text| Request::Unlink { dir: Handle::ROOT, name: name(text) };
    ask(&offices.first, DIRECT, unlink("removed")).unwrap();
    super::world::rename(&offices.first, "other", "replaced");
    let node = lookup(&offices.first, Handle::ROOT, "linked").unwrap();
    let link = Request::Link { node, dir: Handle::ROOT, name: name("second") };
    ask(&offices.first, DIRECT, link).unwrap();
    ask(&offices.berlin, DIRECT, unlink("linked")).unwrap();
    wait_for("two are left", || offices.berlin.stays().files == 2);
    assert!(read(&offices.first, "second").unwrap() == content(3, SIZE));
    assert!(read(&offices.berlin, "replaced").unwrap() == content(4, SIZE));
}

#[test]
fn attributes_are_those_of_the_home() {
    let offices = Offices::new();
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    let bytes = content(1, SIZE);
    let old = Time { seconds: 1_000_000, nanos: 7 };
    let set = SetAttr { mtime: Some(SetTime::To(old)), mode: Some(0o600), ..SetAttr::default() };
    let set = || Request::SetAttr { node: file, open: Some(writing), set };
    // As `cp -p`, and before the first byte.
    ask(&offices.berlin, DIRECT, set()).unwrap();
    write(&offices.berlin, writing, 0, &bytes).unwrap();
    ask(&offices.berlin, DIRECT, set()).unwrap();
    close(&offices.berlin, writing);
    for server in [&offices.first, &offices.berlin] {
        let attr = attr(server, file);
        assert_eq!((attr.mtime, attr.mode, attr.size), (old, 0o600, SIZE as u64));
    }
    assert_eq!(offices.berlin.stays().files, 1);
    // A size that is set, as many programs do before they write.
    let open = OpenId(2);
    let file = create(&offices.berlin, DIRECT, "cut", open);
    write(&offices.berlin, open, 0, &bytes).unwrap();
    let set = SetAttr { size: Some(100_000), ..SetAttr::default() };
    let cut = Request::SetAttr { node: file, open: Some(open), set };
    let Ok(Reply::Attr(cut)) = ask(&offices.berlin, DIRECT, cut) else { panic!() };
    assert_eq!((cut.ino, cut.size), (file.ino, 100_000));
    close(&offices.berlin, open);
    assert!(read(&offices.first, "cut").unwrap() == bytes[..100_000]);
}

/// A program of berlin's that has no lease, because it is a client's.
#[test]
fn clients_write_home_and_read_what_stays() {
    let offices = Offices::new();
    let bytes = content(1, SIZE);
    let file = offices.new_file("file", &bytes);
    let session = client(&offices.berlin);
    let open = OpenId(5);
    let request = Request::Open { node: file, flags: OpenFlags::READ_WRITE, open };
    ask(&offices.berlin, session, request).unwrap();
    let request = Request::Write { open, offset: 0, flags: WriteFlags::NONE };
    ask_with(&offices.berlin, session, request, b"client").unwrap();
    let seen = read(&offices.first, "file").unwrap();
    assert!(&seen[..6] == b"client" && seen[6..] == bytes[6..]);
    offices.berlin.session_service().end_session(session);
    assert!(read(&offices.berlin, "file").unwrap() == seen);
}

/// Nothing that is not known is shown: a reader hears that the other office is away.
#[test]
fn a_reader_hears_that_the_bytes_are_away() {
    let offices = Offices::with(Options { remote_timeout: Duration::from_secs(1), ..options() });
    let file = offices.new_file("file", &content(1, SIZE));
    offices.cut(true);
    let away = |code: Code| matches!(code, Code::HostDown | Code::TimedOut);
    assert!(away(read(&offices.first, "file").unwrap_err()));
    assert!(away(open(&offices.first, file, OpenFlags::WRITE, OpenId(1)).unwrap_err()));
    let unlink = Request::Unlink { dir: Handle::ROOT, name: name("file") };
    ask(&offices.first, DIRECT, unlink).unwrap();
    offices.cut(false);
    wait_for("the removal is known", || offices.berlin.stays().files == 0);
}

/// Execution 20, without the kill: the home was changed while the line was cut.
#[test]
fn what_was_written_meanwhile_is_not_overwritten() {
    let offices = Offices::new();
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    write(&offices.berlin, writing, 0, &content(1, SIZE)).unwrap();
    offices.cut(true);
    offices.end_session_of_berlin_leases();
    let theirs = content(2, 5000);
    open(&offices.first, file, OpenFlags::WRITE, OpenId(1)).unwrap();
    write(&offices.first, OpenId(1), 0, &theirs).unwrap();
    close(&offices.first, OpenId(1));
    offices.cut(false);
    assert_eq!(flush(&offices.berlin, writing), Err(Code::Io));
    assert_eq!(offices.berlin.stays(), StayStatus { files: 0, untold: 0, kept: 1 });
    assert!(read(&offices.first, "file").unwrap() == theirs);
    assert!(read(&offices.berlin, "file").unwrap() == theirs);
}

/// What was closed is served again, and what was written last is told.
#[test]
fn a_kill_of_the_writers_server_loses_nothing() {
    let offices = Offices::new();
    let closed = content(1, SIZE);
    offices.new_file("closed", &closed);
    let writing = OpenId(2);
    create(&offices.berlin, DIRECT, "open", writing);
    let bytes = content(2, SIZE);
    write(&offices.berlin, writing, 0, &bytes).unwrap();
    let synced = OpenId(3);
    create(&offices.berlin, DIRECT, "synced", synced);
    write(&offices.berlin, synced, 0, &bytes).unwrap();
    ask(&offices.berlin, DIRECT, Request::Fsync { open: synced, data_only: false }).unwrap();
    write(&offices.berlin, synced, SIZE, b"more").unwrap();
    let offices = offices.crash_berlin();
    wait_for("the home is told", || untold(&offices.berlin) == 0);
    assert_eq!(offices.berlin.stays().files, 3);
    assert!(read(&offices.first, "closed").unwrap() == closed);
    assert!(read(&offices.first, "open").unwrap() == bytes);
    assert!(read(&offices.first, "synced").unwrap() == [&bytes[..], b"more"].concat());
    assert!(read(&offices.berlin, "closed").unwrap() == closed);
    let _folder = berlin_dir(&offices.folder);
}

/// Execution 20: the next run finds that the file has other bytes.
#[test]
fn a_kill_brings_back_nothing_that_was_passed_over() {
    let offices = Offices::new();
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    write(&offices.berlin, writing, 0, &content(1, SIZE)).unwrap();
    offices.cut(true);
    offices.end_session_of_berlin_leases();
    let theirs = content(2, 5000);
    open(&offices.first, file, OpenFlags::WRITE, OpenId(1)).unwrap();
    write(&offices.first, OpenId(1), 0, &theirs).unwrap();
    close(&offices.first, OpenId(1));
    offices.is_cut.store(false, Ordering::Release);
    let offices = offices.crash_berlin();
    wait_for("they are kept", || offices.berlin.stays().kept == 1);
    assert!(read(&offices.first, "file").unwrap() == theirs);
    assert!(read(&offices.berlin, "file").unwrap() == theirs);
}
