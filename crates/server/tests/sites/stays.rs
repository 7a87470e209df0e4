//! Bytes of new and emptied files of the first site that are written at berlin, and stay there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pelago_server::{Options, Server, StayStatus};
use pelago_wire::{
    Attr, Code, Handle, Level, NewMode, OpenFlags, OpenId, Reply, Request, SessionId, SetAttr,
    SetTime, Time, WriteFlags, limits,
};

use super::line::Losing;
use super::world::{Offices, ask, ask_with, berlin_dir, client, lookup, options, wait_for};
use crate::harness::rig::name;

pub(super) const DIRECT: SessionId = SessionId::DIRECT;
/// More than goes home at close.
pub(super) const SIZE: usize = 5 * limits::STAY_LEAST_BYTES + 1000;
/// The bytes of a program's write.
pub(super) const WRITE: usize = 128 << 10;

/// Returns bytes that differ from place to place, and by `seed`.
pub(super) fn content(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 777) as u8 ^ seed).collect()
}

pub(super) fn create(server: &Server, session: SessionId, text: &str, open: OpenId) -> Handle {
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

pub(super) fn open(
    server: &Server,
    node: Handle,
    flags: OpenFlags,
    open: OpenId,
) -> Result<Attr, Code> {
    match ask(server, DIRECT, Request::Open { node, flags, open })? {
        Reply::Opened { attr, .. } => Ok(attr),
        other => panic!("{other:?}"),
    }
}

pub(super) fn write(server: &Server, open: OpenId, at: usize, bytes: &[u8]) -> Result<(), Code> {
    for (part, bytes) in bytes.chunks(WRITE).enumerate() {
        let offset = (at + part * WRITE) as u64;
        let request = Request::Write { open, offset, flags: WriteFlags::NONE };
        ask_with(server, DIRECT, request, bytes)?;
    }
    Ok(())
}

pub(super) fn flush(server: &Server, open: OpenId) -> Result<(), Code> {
    ask(server, DIRECT, Request::Flush { open, owner: None }).map(drop)
}

pub(super) fn release(server: &Server, open: OpenId) {
    ask(server, DIRECT, Request::Release { open }).unwrap();
}

pub(super) fn close(server: &Server, open: OpenId) {
    flush(server, open).unwrap();
    release(server, open);
}

pub(super) fn attr(server: &Server, node: Handle) -> Attr {
    match ask(server, DIRECT, Request::GetAttr { node }) {
        Ok(Reply::Attr(attr)) => attr,
        other => panic!("{other:?}"),
    }
}

/// Reads a file to its end.
pub(super) fn read_open(server: &Server, open: OpenId) -> Result<Vec<u8>, Code> {
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

pub(super) fn read(server: &Server, text: &str) -> Result<Vec<u8>, Code> {
    let node = lookup(server, Handle::ROOT, text)?;
    let reading = OpenId(700);
    open(server, node, OpenFlags::READ, reading)?;
    let read = read_open(server, reading);
    release(server, reading);
    read
}

/// Writes a new file by the mount of a server.
pub(super) fn write_new(server: &Server, text: &str, bytes: &[u8]) -> Handle {
    let open = OpenId(1);
    let file = create(server, DIRECT, text, open);
    write(server, open, 0, bytes).unwrap();
    close(server, open);
    file
}

impl Offices {
    /// Writes a new file of the first site at berlin.
    pub(super) fn new_file(&self, text: &str, bytes: &[u8]) -> Handle {
        write_new(&self.berlin, text, bytes)
    }

    pub(super) fn sent(&self) -> u64 {
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
    super::world::rename(&offices.first, "other", "replaced").unwrap();
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

/// The size of such a file is at its home, and its bytes are not: no group of a mirror has both.
#[test]
fn a_sync_of_bytes_at_another_site_has_no_later_level_than_local() {
    let offices = Offices::new();
    let bytes = content(1, SIZE);
    let writing = OpenId(1);
    let node = create(&offices.berlin, DIRECT, "new", writing);
    write(&offices.berlin, writing, 0, &bytes).unwrap();
    let reading = OpenId(2);
    open(&offices.first, node, OpenFlags::READ, reading).unwrap();
    for (server, open) in [(&offices.berlin, writing), (&offices.first, reading)] {
        let sync = |level| ask(server, DIRECT, Request::FsyncAt { open, level }).map(drop);
        assert_eq!(sync(Level::Remote), Err(Code::NotSupported));
        assert_eq!(sync(Level::Network), Err(Code::NotSupported));
        assert_eq!(sync(Level::Local), Ok(()));
        assert_eq!(sync(Level::Async), Ok(()));
    }
    assert!(read(&offices.first, "new").unwrap() == bytes);
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

/// A kill of the home between the steps by which bytes come home: they are where they were.
#[test]
fn bytes_that_were_asked_for_are_read_and_written_still() {
    let offices = Offices::new();
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    let mut bytes = content(1, SIZE);
    write(&offices.berlin, writing, 0, &bytes).unwrap();
    flush(&offices.berlin, writing).unwrap();
    let node = offices.first.bytes_at(file).unwrap();
    let give = Request::GiveBytes { node: Handle::own(node), file: file.ino };
    for _ in 0..2 {
        ask(&offices.berlin, offices.first_at_berlin(), give.clone()).unwrap();
    }
    for server in [&offices.first, &offices.berlin] {
        assert!(read(server, "file").unwrap() == bytes);
    }
    write(&offices.berlin, writing, 0, b"goes home").unwrap();
    bytes[..9].copy_from_slice(b"goes home");
    assert!(read_open(&offices.berlin, writing).unwrap() == bytes);
    close(&offices.berlin, writing);
    assert_eq!(offices.first.bytes_at(file), None);
    wait_for("berlin has none", || offices.berlin.stays() == StayStatus::default());
    for server in [&offices.first, &offices.berlin] {
        assert!(read(server, "file").unwrap() == bytes);
    }
}

/// The last step is lost, and so is the word of a removal.
#[test]
fn a_start_asks_whether_bytes_are_needed() {
    let offices = Offices::new();
    let file = offices.new_file("file", &content(1, SIZE));
    offices.new_file("removed", &content(2, SIZE));
    offices.new_file("stays", &content(3, SIZE));
    *offices.losing.lock() = Losing::Requests;
    open(&offices.first, file, OpenFlags::WRITE, OpenId(1)).unwrap();
    close(&offices.first, OpenId(1));
    let unlink = Request::Unlink { dir: Handle::ROOT, name: name("removed") };
    ask(&offices.first, DIRECT, unlink).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    *offices.losing.lock() = Losing::Nothing;
    assert!(nodes(&offices) > 1);
    let offices = offices.crash_berlin();
    wait_for("only one is left", || nodes(&offices) == 1);
    assert!(read(&offices.first, "stays").unwrap() == content(3, SIZE));
    assert!(read(&offices.berlin, "file").unwrap() == content(1, SIZE));
}

/// Returns how many content files berlin has.
pub(super) fn nodes(offices: &Offices) -> usize {
    content_files(&berlin_dir(&offices.folder).join("content")).len()
}

fn content_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(content_files(&path)),
            false => files.push(path),
        }
    }
    files
}

/// A loss of power at berlin has cut the bytes that were not synced.
#[test]
fn what_a_loss_of_power_has_cut_is_not_shown_as_zeros() {
    let offices = Offices::new();
    let bytes = content(1, SIZE);
    // The file is open: so nothing says that its bytes are safe.
    let file = create(&offices.berlin, DIRECT, "file", OpenId(1));
    write(&offices.berlin, OpenId(1), 0, &bytes).unwrap();
    flush(&offices.berlin, OpenId(1)).unwrap();
    let folder = berlin_dir(&offices.folder).join("content");
    let cut = move || {
        let files = content_files(&folder);
        let content = std::fs::OpenOptions::new().write(true).open(&files[0]).unwrap();
        assert_eq!((files.len(), content.metadata().unwrap().len()), (1, SIZE as u64));
        content.set_len(100_000).unwrap();
    };
    // Before the home is told: nobody is shown fewer bytes than there were, or zeros.
    let reading = OpenId(9);
    open(&offices.first, file, OpenFlags::READ, reading).unwrap();
    cut();
    let beyond = Request::Read { open: reading, offset: 90_000, size: 20_000 };
    assert_eq!(ask(&offices.first, DIRECT, beyond).err(), Some(Code::Io));
    release(&offices.first, reading);
    let offices = offices.crash_berlin();
    wait_for("the home is told", || attr(&offices.first, file).size == 100_000);
    for server in [&offices.first, &offices.berlin] {
        assert!(read(server, "file").unwrap() == bytes[..100_000]);
    }
}

/// Execution 18: the version of the bytes moves with the bytes alone.
#[test]
fn a_change_of_the_mode_moves_no_bytes() {
    let offices = Offices::new();
    let bytes = content(1, SIZE);
    let file = offices.new_file("file", &bytes);
    assert!(read(&offices.first, "file").unwrap() == bytes);
    let asked = || {
        let before = offices.sent_by_first();
        assert!(read(&offices.first, "file").unwrap() == bytes);
        offices.sent_by_first() - before
    };
    let again = asked();
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let chmod = Request::SetAttr { node: file, open: None, set };
    ask(&offices.first, DIRECT, chmod).unwrap();
    assert_eq!(asked(), again);
}

/// A file without a name, as many programs make them.
#[test]
fn a_file_without_a_name_stays_as_long_as_it_is_open() {
    let offices = Offices::new();
    let writing = OpenId(1);
    create(&offices.berlin, DIRECT, "file", writing);
    let unlink = Request::Unlink { dir: Handle::ROOT, name: name("file") };
    ask(&offices.berlin, DIRECT, unlink).unwrap();
    let bytes = content(1, SIZE);
    write(&offices.berlin, writing, 0, &bytes).unwrap();
    flush(&offices.berlin, writing).unwrap();
    assert!(read_open(&offices.berlin, writing).unwrap() == bytes);
    release(&offices.berlin, writing);
    wait_for("it is gone", || nodes(&offices) == 0);
    assert_eq!(offices.berlin.stays(), StayStatus::default());
}

/// What one site did to a file, and what it must be from then on, in both.
struct Model {
    offices: Offices,
    /// The bytes of each file that there is.
    files: [Option<Vec<u8>>; 4],
    random: u64,
}

impl Model {
    fn next(&mut self, below: usize) -> usize {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % below as u64) as usize
    }

    fn server(&self, site: usize) -> &Server {
        if site == 0 { &self.offices.first } else { &self.offices.berlin }
    }

    /// Opens a file, writes parts of it, and closes it; the other site looks in between.
    fn write_some(&mut self, file: usize, truncates: bool) {
        let site = self.next(3).min(1);
        let text = format!("file-{file}");
        let writing = OpenId(20 + site as u64);
        let mut bytes = match self.files[file].take() {
            None => {
                create(self.server(site), DIRECT, &text, writing);
                Vec::new()
            }
            Some(bytes) => {
                let node = lookup(self.server(site), Handle::ROOT, &text).unwrap();
                let flags = OpenFlags { truncate: truncates, ..OpenFlags::READ_WRITE };
                open(self.server(site), node, flags, writing).unwrap();
                if truncates { Vec::new() } else { bytes }
            }
        };
        for _ in 0..1 + self.next(4) {
            let size = [10, 5000, 70_000, 200_000][self.next(4)];
            let at = if self.next(2) == 0 { bytes.len() } else { self.next(bytes.len() + 1) };
            let part = content(self.next(250) as u8, size);
            write(self.server(site), writing, at, &part).unwrap();
            bytes.resize(bytes.len().max(at + size), 0);
            bytes[at..at + size].copy_from_slice(&part);
            match self.next(6) {
                0 => {
                    let size = self.next(bytes.len() + 1);
                    let node = lookup(self.server(site), Handle::ROOT, &text).unwrap();
                    let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                    let cut = Request::SetAttr { node, open: Some(writing), set };
                    ask(self.server(site), DIRECT, cut).unwrap();
                    bytes.truncate(size);
                }
                1 => {
                    let other = self.server(1 - site);
                    assert!(read(other, &text).unwrap() == bytes, "{text} by the other site");
                }
                2 => {
                    let synced = Request::Fsync { open: writing, data_only: true };
                    ask(self.server(site), DIRECT, synced).unwrap();
                }
                _ => {}
            }
            assert!(read_open(self.server(site), writing).unwrap() == bytes, "{text}, own");
        }
        close(self.server(site), writing);
        self.files[file] = Some(bytes);
    }

    fn step(&mut self) {
        let file = self.next(4);
        let site = self.next(2);
        match self.next(10) {
            0 if self.files[file].is_some() => {
                let text = format!("file-{file}");
                let unlink = Request::Unlink { dir: Handle::ROOT, name: name(&text) };
                ask(self.server(site), DIRECT, unlink).unwrap();
                self.files[file] = None;
            }
            1 if self.files[file].is_some() => {
                let to = (file + 1) % 4;
                let [from, target] = [file, to].map(|file| format!("file-{file}"));
                super::world::rename(self.server(site), &from, &target).unwrap();
                self.files[to] = self.files[file].take();
            }
            2 if self.files[file].is_some() => {
                let size = self.next(300_000);
                let text = format!("file-{file}");
                let node = lookup(self.server(site), Handle::ROOT, &text).unwrap();
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                let cut = Request::SetAttr { node, open: None, set };
                ask(self.server(site), DIRECT, cut).unwrap();
                self.files[file].as_mut().unwrap().resize(size, 0);
            }
            3 | 4 => self.write_some(file, true),
            _ => self.write_some(file, false),
        }
        self.compare();
    }

    fn compare(&self) {
        for (file, bytes) in self.files.iter().enumerate() {
            let text = format!("file-{file}");
            for site in 0..2 {
                let read = read(self.server(site), &text);
                match bytes {
                    None => assert_eq!(read, Err(Code::NotFound), "{text} at {site}"),
                    Some(bytes) => assert!(read.unwrap() == *bytes, "{text} at {site}"),
                }
            }
        }
    }
}

/// Random changes by both sites, with kills of berlin's server, against a model.
#[test]
fn both_sites_see_the_bytes_of_a_model() {
    for seed in 1..=6_u64 {
        let offices = Offices::new();
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut model = Model { offices, files: [const { None }; 4], random };
        for _ in 0..4 {
            for _ in 0..12 {
                model.step();
            }
            model.offices = model.offices.crash_berlin();
            wait_for("the home is told", || untold(&model.offices.berlin) == 0);
            model.compare();
        }
    }
}

/// Programs of both sites append to one file, whose bytes go home at the first write there.
#[test]
fn no_line_is_lost_that_both_sites_append() {
    const LINES: usize = 300;
    let offices = Offices::new();
    let before = content(1, SIZE);
    let file = offices.new_file("file", &before);
    let append = |server: &Server, letter: u8| {
        let open = OpenId(40 + u64::from(letter));
        let flags = OpenFlags { append: true, ..OpenFlags::WRITE };
        let request = Request::Open { node: file, flags, open };
        ask(server, DIRECT, request).unwrap();
        for line in 0..LINES {
            let text = format!("{}{line:05}\n", char::from(letter));
            let flags = WriteFlags { append: true, ..WriteFlags::NONE };
            let request = Request::Write { open, offset: 0, flags };
            ask_with(server, DIRECT, request, text.as_bytes()).unwrap();
        }
        close(server, open);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| append(&offices.berlin, b'b'));
        scope.spawn(|| append(&offices.first, b'a'));
    });
    for server in [&offices.first, &offices.berlin] {
        let seen = read(server, "file").unwrap();
        assert!(seen[..SIZE] == before);
        let mut lines: Vec<&[u8]> = seen[SIZE..].chunks(7).collect();
        lines.sort_unstable();
        let letters = [b'a', b'b'].map(char::from);
        let expected = letters.iter().flat_map(|letter| {
            (0..LINES).map(move |line| format!("{letter}{line:05}\n").into_bytes())
        });
        assert!(lines == expected.collect::<Vec<_>>());
    }
}

/// Programs of both sites write to parts of their own of a new file.
#[test]
fn no_block_is_lost_that_both_sites_write() {
    const BLOCK: usize = 40_000;
    const BLOCKS: usize = 30;
    for round in 0..6_u8 {
        let offices = Offices::new();
        let writing = OpenId(50);
        let file = create(&offices.berlin, DIRECT, "file", writing);
        write(&offices.berlin, writing, 0, &content(round, BLOCK)).unwrap();
        let block = |at: usize| content(round.wrapping_add(at as u8), BLOCK);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in (2..BLOCKS).step_by(2) {
                    write(&offices.berlin, writing, at * BLOCK, &block(at)).unwrap();
                }
                close(&offices.berlin, writing);
            });
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(u64::from(round) * 2));
                let open_there = OpenId(51);
                open(&offices.first, file, OpenFlags::WRITE, open_there).unwrap();
                for at in (1..BLOCKS).step_by(2) {
                    write(&offices.first, open_there, at * BLOCK, &block(at)).unwrap();
                }
                close(&offices.first, open_there);
            });
        });
        let expected: Vec<u8> = (0..BLOCKS).flat_map(block).collect();
        for server in [&offices.first, &offices.berlin] {
            let seen = read(server, "file").unwrap();
            let wrong = (0..BLOCKS).find(|at| {
                let range = at * BLOCK..(at + 1) * BLOCK;
                seen.get(range.clone()) != expected.get(range)
            });
            assert_eq!((wrong, seen.len()), (None, expected.len()), "round {round}");
        }
    }
}

/// A reader of the first site never sees a byte that is not yet written, or less than before.
#[test]
fn a_reader_sees_what_grows_and_nothing_else() {
    let offices = Offices::new();
    let writing = OpenId(60);
    let file = create(&offices.berlin, DIRECT, "log", writing);
    let whole = content(3, 40 * 9973);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (part, bytes) in whole.chunks(9973).enumerate() {
                write(&offices.berlin, writing, part * 9973, bytes).unwrap();
                std::thread::sleep(Duration::from_millis(2));
            }
            close(&offices.berlin, writing);
            is_over.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            let mut longest = 0;
            let reading = OpenId(61);
            open(&offices.first, file, OpenFlags::READ, reading).unwrap();
            while !is_over.load(Ordering::Acquire) {
                let size = attr(&offices.first, file).size as usize;
                let seen = read_open(&offices.first, reading).unwrap();
                assert!(seen[..] == whole[..seen.len()]);
                assert!(size >= longest && seen.len() >= size, "{longest} {size} {}", seen.len());
                longest = seen.len();
            }
            assert!(read_open(&offices.first, reading).unwrap() == whole);
            release(&offices.first, reading);
        });
    });
}
