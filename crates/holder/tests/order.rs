//! The order in which a server gets the requests of programs and the dirty bytes of a file.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_holder::Holder;
use pelago_wire::{
    Attr, Buffer, Bulk, Code, Context, Cookie, DataPath, DirEntry, Done, Entry, Error, FileKind,
    Granted, Handle, InodeId, LeaseHolder, LeasedDone, LeasedService, Leases, Level, LockOwner,
    Name, OpenFlags, OpenId, RenameFlags, Reply, Request, SeekFrom, Service, SessionId, SetAttr,
    Then, Touched, Whence, WriteEra, WriteFlags,
};

const DIR: Handle = Handle::ROOT;
const FILE: Handle = Handle::own(InodeId::from_raw(7));
const OPEN: OpenId = OpenId(1);

/// A server that answers at once, and records the names of its requests.
#[derive(Default)]
struct RecordingServer {
    requests: Mutex<Vec<&'static str>>,
    /// Its leases have ended.
    has_no_lease: AtomicBool,
    /// An open through which a lock was set that is lost.
    lost_lock: Option<OpenId>,
    /// Bytes of its file from here on cannot be read.
    bad_from: Option<u64>,
    /// Its answers to writes come too late.
    is_late: bool,
    /// It gets no report of an open: its line is cut.
    is_down: AtomicBool,
    /// Callbacks that wait until late writes are over.
    settling: Mutex<Vec<Then>>,
    /// Opens are answered later, and reads do not find them before.
    opens_later: bool,
    opening: Mutex<Vec<LeasedDone>>,
    /// Closes are answered later.
    closes_later: bool,
    closing: Mutex<Vec<LeasedDone>>,
    /// Listings that are not answered yet.
    lists: Mutex<Vec<LeasedDone>>,
}

impl RecordingServer {
    fn answer(&self, request: &Request, bulk: &Bulk<'_>) -> (Result<Reply, Error>, Leases) {
        self.requests.lock().push(request.describe().operation.name());
        let attr = Attr::empty(FILE.ino, FileKind::Regular);
        let all = Leases { node: true, names: true, ..Leases::default() };
        match request {
            Request::Lookup { name: text, .. } if *text == name("absent") => {
                (Err(Code::NotFound.into()), all)
            }
            Request::Lookup { .. } => (Ok(Reply::Entry(Entry { handle: FILE, attr })), all),
            Request::Open { .. } => {
                let attr = Attr { volatile: true, ..attr };
                let leases = Leases { bytes: Some(WriteEra::FIRST), ..Leases::default() };
                (Ok(Reply::Opened { attr, path: DataPath::Cached }), leases)
            }
            Request::GetAttr { node: DIR } => {
                (Ok(Reply::Attr(Attr::empty(DIR.ino, FileKind::Directory))), all)
            }
            Request::GetAttr { node: FILE } => (Ok(Reply::Attr(attr)), all),
            Request::Flush { .. } | Request::Release { .. } => (Ok(Reply::Done), Leases::default()),
            Request::Read { .. } if self.opens_later => match self.opening.lock().is_empty() {
                true => (Ok(Reply::Data(Buffer::new(b"bytes".to_vec()))), Leases::default()),
                false => (Err(Code::BadOpen.into()), Leases::default()),
            },
            Request::Read { offset, size, .. }
                if self.bad_from.is_some_and(|bad| offset + u64::from(*size) > bad) =>
            {
                (Err(Code::Io.into()), Leases::default())
            }
            Request::Read { size, .. } => {
                (Ok(Reply::Data(Buffer::new(vec![0; *size as usize]))), Leases::default())
            }
            Request::Write { open, .. } if self.lost_lock == Some(*open) => {
                (Err(Code::Io.into()), Leases::default())
            }
            Request::Write { .. } if self.is_late => {
                (Err(Code::Unavailable.into()), Leases::default())
            }
            Request::Write { flags, .. } => {
                assert!(flags.behind.is_some() || self.closes_later);
                let bytes = bulk.bytes().len() as u64;
                (Ok(Reply::Written { bytes, size: bytes }), Leases::default())
            }
            _ => (Err(Code::NotSupported.into()), Leases::default()),
        }
    }
}

impl Service for RecordingServer {
    fn ask(
        &self,
        _: &Context,
        _: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(Err(Code::NotSupported.into()))
    }
}

impl LeasedService for RecordingServer {
    fn ask_leased(&self, _: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        if let Request::List { .. } = request {
            self.requests.lock().push("list");
            return self.lists.lock().push(done);
        }
        if self.is_down.load(Ordering::Relaxed) {
            self.requests.lock().push("refused");
            return done(Err(Code::HostDown.into()), Granted::default());
        }
        if matches!(request, Request::Open { .. }) && self.opens_later {
            self.requests.lock().push("open");
            return self.opening.lock().push(done);
        }
        if matches!(request, Request::Release { .. }) && self.closes_later {
            self.requests.lock().push("release");
            return self.closing.lock().push(done);
        }
        let may_be_done = self.is_late && matches!(request, Request::Write { .. });
        let (result, leases) = self.answer(&request, &bulk);
        done(result, Granted { leases, may_be_done, ..Granted::default() });
    }

    fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        self.ask_leased(context, request, bulk, done);
    }

    fn lease_left(&self) -> Duration {
        if self.has_no_lease.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        Duration::from_secs(10)
    }

    fn has_lost_lock(&self, open: OpenId) -> bool {
        self.lost_lock == Some(open)
    }

    fn when_settled(&self, then: Then) {
        self.settling.lock().push(then);
    }

    fn set_holder(&self, _: Weak<dyn LeaseHolder>) {}
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn ask(holder: &Holder, request: Request, bytes: &[u8]) {
    let mut later = || -> Done { Box::new(|_| {}) };
    let _answer = holder.ask(&Context::direct(0, 0), request, Bulk::Borrowed(bytes), &mut later);
}

/// Returns the requests that the server gets if a program makes these after a write that was
/// buffered. The holder has cached that `file` leads to the file, and that `absent` does not exist.
fn requests_after_a_write(server: RecordingServer, requests: &[Request]) -> Vec<&'static str> {
    let server = Arc::new(server);
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    for text in ["file", "absent"] {
        ask(&holder, Request::Lookup { dir: DIR, name: name(text) }, b"");
    }
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OPEN }, b"");
    let write = Request::Write { open: OPEN, offset: 0, flags: WriteFlags::NONE };
    ask(&holder, write, b"bytes");
    let before = server.requests.lock().len();
    assert_eq!(before, 3, "the write is buffered");
    requests.iter().for_each(|request| ask(&holder, request.clone(), b""));
    server.requests.lock().split_off(before)
}

fn requests_with(request: Request) -> Vec<&'static str> {
    requests_after_a_write(RecordingServer::default(), &[request])
}

#[test]
fn a_request_for_a_file_or_its_names_follows_its_dirty_bytes() {
    let rename = |from: &str, to: &str| Request::Rename {
        from_dir: DIR,
        from: name(from),
        to_dir: DIR,
        to: name(to),
        flags: RenameFlags::Replace,
    };
    let cases = [
        ("rename", rename("file", "absent")),
        ("unlink", Request::Unlink { dir: DIR, name: name("file") }),
        // Unknown names may lead to the file, too.
        ("rename", rename("unknown", "absent")),
        ("unlink", Request::Unlink { dir: DIR, name: name("unknown") }),
        ("link", Request::Link { node: FILE, dir: DIR, name: name("second") }),
        ("setattr", Request::SetAttr { node: FILE, open: None, set: SetAttr::default() }),
        ("getattr", Request::GetAttr { node: FILE }),
        ("read", Request::Read { open: OPEN, offset: 0, size: 5 }),
        ("fsync", Request::Fsync { open: OPEN, data_only: false }),
        ("fsyncat", Request::FsyncAt { open: OPEN, level: Level::Remote }),
        ("release", Request::Release { open: OPEN }),
    ];
    for (operation, request) in cases {
        assert_eq!(requests_with(request), ["write", operation], "{operation}");
    }
}

#[test]
fn a_request_for_another_file_does_not_wait() {
    let other = Handle::own(InodeId::from_raw(8));
    assert_eq!(requests_with(Request::GetAttr { node: other }), ["getattr"]);
    let lookup = Request::Lookup { dir: DIR, name: name("other") };
    assert_eq!(requests_with(lookup), ["lookup"]);
}

/// The write commits the file, and replaces the flush.
#[test]
fn a_flush_is_one_request_with_the_bytes() {
    assert_eq!(requests_with(Request::Flush { open: OPEN, owner: None }), ["write"]);
}

#[test]
fn attributes_are_not_cached_while_a_write_may_still_be_carried_out() {
    let look = Request::GetAttr { node: FILE };
    let fsync = Request::Fsync { open: OPEN, data_only: false };
    let requests = [fsync, look.clone(), look];
    let requests_with = |is_late| {
        requests_after_a_write(RecordingServer { is_late, ..RecordingServer::default() }, &requests)
    };
    assert_eq!(requests_with(false), ["write", "fsync", "getattr"]);
    assert_eq!(requests_with(true), ["write", "getattr", "getattr"]);
}

/// Another session may read the attributes and write the file by then.
#[test]
fn attributes_are_cached_again_once_a_late_write_is_over() {
    let server = Arc::new(RecordingServer { is_late: true, ..RecordingServer::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OPEN }, b"");
    ask(&holder, Request::Write { open: OPEN, offset: 0, flags: WriteFlags::NONE }, b"bytes");
    ask(&holder, Request::Fsync { open: OPEN, data_only: false }, b"");
    let looks = || {
        server.requests.lock().clear();
        (0..2).for_each(|_| ask(&holder, Request::GetAttr { node: FILE }, b""));
        server.requests.lock().len()
    };
    assert_eq!(looks(), 2);
    let settling = std::mem::take(&mut *server.settling.lock());
    assert_eq!(settling.len(), 1);
    settling.into_iter().for_each(|then| then());
    assert_eq!(looks(), 1);
}

#[test]
fn a_request_through_an_open_whose_report_was_not_sent_says_that_the_server_is_down() {
    let server = Arc::new(RecordingServer::default());
    let holder = Holder::new(Arc::clone(&server) as _);
    ask(&holder, Request::GetAttr { node: FILE }, b"");
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ, open: OPEN }, b"");
    server.is_down.store(true, Ordering::Relaxed);
    let fails = |request: Request| {
        let failed: Arc<Mutex<Vec<Code>>> = Arc::default();
        let mut later = || -> Done {
            let failed = Arc::clone(&failed);
            Box::new(move |result| failed.lock().push(result.unwrap_err().code))
        };
        assert!(holder.ask(&Context::direct(0, 0), request, Bulk::None, &mut later).is_none());
        failed.lock().clone()
    };
    // The server has no such open, and would say so.
    let seek = Request::Seek { open: OPEN, from: SeekFrom { offset: 0, whence: Whence::Data } };
    assert_eq!(fails(seek), [Code::HostDown]);
    server.is_down.store(false, Ordering::Relaxed);
    server.requests.lock().clear();
    ask(&holder, Request::Read { open: OPEN, offset: 0, size: 5 }, b"");
    assert_eq!(*server.requests.lock(), ["open", "read"], "it is reported again");
}

/// The process may have set locks through another open of the file.
#[test]
fn a_close_by_a_process_with_locks_reaches_the_server() {
    for (owner, sent) in [(None, 0), (Some(LockOwner(3)), 2)] {
        let server = Arc::new(RecordingServer::default());
        let holder = Holder::new(Arc::clone(&server) as _);
        ask(&holder, Request::GetAttr { node: FILE }, b"");
        ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ, open: OPEN }, b"");
        server.requests.lock().clear();
        ask(&holder, Request::Flush { open: OPEN, owner }, b"");
        assert_eq!(server.requests.lock().len(), sent, "{:?}", server.requests.lock());
    }
}

/// Each answer makes room for the next request, and comes in the call of the one before.
#[test]
fn requests_that_are_answered_in_the_call_do_not_nest() {
    let holds_back = move || {
        let server = Arc::new(RecordingServer::default());
        let holder = Holder::new(Arc::clone(&server) as _);
        holder.keep_writes();
        ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OPEN }, b"");
        for at in 0..60 {
            let write = Request::Write { open: OPEN, offset: 2 * at, flags: WriteFlags::NONE };
            ask(&holder, write, b"x");
        }
        server.is_down.store(true, Ordering::Relaxed);
        holder.flush(Box::new(|| {}));
        assert_eq!(server.requests.lock().iter().filter(|name| **name == "refused").count(), 60);
    };
    // A call for each request would need more than this stack.
    let small = std::thread::Builder::new().stack_size(64 << 10);
    small.spawn(holds_back).unwrap().join().unwrap();
}

#[test]
fn after_the_end_of_write_behind_nothing_is_held_back() {
    let server = Arc::new(RecordingServer { closes_later: true, ..RecordingServer::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OPEN }, b"");
    let write = |offset| Request::Write { open: OPEN, offset, flags: WriteFlags::NONE };
    ask(&holder, write(0), b"x");
    assert_eq!(*server.requests.lock(), ["open"]);
    let flushed = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&flushed);
    holder.end_write_behind(Box::new(move || done.store(true, Ordering::Relaxed)));
    assert!(flushed.load(Ordering::Relaxed));
    assert_eq!(*server.requests.lock(), ["open", "write"]);
    ask(&holder, write(1), b"y");
    assert_eq!(*server.requests.lock(), ["open", "write", "write"]);
}

/// A client of another process has not written the bytes that are lost here.
#[test]
fn lost_bytes_are_reported_to_the_programs_of_this_process() {
    let server = Arc::new(RecordingServer { is_late: true, ..RecordingServer::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    let other = Context { session: SessionId(9), ..Context::direct(0, 0) };
    let open = |open| Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open };
    let theirs = OpenId(2);
    ask(&holder, open(OPEN), b"");
    let mut later = || -> Done { Box::new(|_| {}) };
    let _later = holder.ask(&other, open(theirs), Bulk::None, &mut later);
    ask(&holder, Request::Write { open: OPEN, offset: 0, flags: WriteFlags::NONE }, b"bytes");
    holder.flush(Box::new(|| {}));
    let fsync = |context: &Context, open| {
        let result: Arc<Mutex<Option<Result<(), Code>>>> = Arc::default();
        let mut later = || -> Done {
            let result = Arc::clone(&result);
            Box::new(move |it| *result.lock() = Some(it.map(|_| ()).map_err(|it| it.code)))
        };
        let fsync = Request::Fsync { open, data_only: false };
        let now = holder.ask(context, fsync, Bulk::None, &mut later);
        let later = result.lock().take();
        now.map(|it| it.map(|_| ()).map_err(|it| it.code)).or(later).unwrap()
    };
    // This server does not know `fsync`.
    assert_eq!(fsync(&other, theirs), Err(Code::NotSupported));
    assert_eq!(fsync(&Context::direct(0, 0), OPEN), Err(Code::Unavailable));
}

/// The holder requests more names than the program, and requests the listing again if the file was
/// written in between.
#[test]
fn a_listing_that_is_requested_again_has_as_many_names_as_were_wanted() {
    let server = Arc::new(RecordingServer::default());
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    ask(&holder, Request::GetAttr { node: DIR }, b"");
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OPEN }, b"");
    ask(&holder, Request::Write { open: OPEN, offset: 0, flags: WriteFlags::NONE }, b"bytes");
    let after = Cookie::AFTER_DOT_DOT;
    let list = Request::List { dir: DIR, after, behind: None, entries: 2, attributes: true };
    let listed: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut later = || -> Done {
        let listed = Arc::clone(&listed);
        Box::new(move |result| match result.unwrap() {
            Reply::Listed { entries, .. } => listed.lock().push(entries.len()),
            other => panic!("{other:?}"),
        })
    };
    assert!(holder.ask(&Context::direct(0, 0), list, Bulk::None, &mut later).is_none());
    ask(&holder, Request::Release { open: OPEN }, b"");
    assert_eq!(*server.requests.lock(), ["getattr", "open", "list", "write", "release"]);
    let entry = |number: u64| DirEntry {
        name: name(&number.to_string()),
        ino: FILE.ino,
        kind: FileKind::Regular,
        cookie: Cookie(after.0 + 1 + number),
        entry: Some(Entry { handle: FILE, attr: Attr::empty(FILE.ino, FileKind::Regular) }),
    };
    for asks in 1..=2 {
        let done = server.lists.lock().pop().unwrap();
        assert!(listed.lock().is_empty(), "{asks}");
        let entries = (0..3).map(entry).collect();
        done(Ok(Reply::Listed { entries, end: true }), Granted::default());
    }
    assert_eq!(*listed.lock(), [2]);
}

/// The server may carry out the read before the open.
#[test]
fn a_read_is_sent_with_the_open_that_it_needs_and_again_if_it_has_overtaken_it() {
    for fails in [false, true] {
        let server = Arc::new(RecordingServer { opens_later: true, ..RecordingServer::default() });
        let holder = Holder::new(Arc::clone(&server) as _);
        ask(&holder, Request::GetAttr { node: FILE }, b"");
        let open = Request::Open { node: FILE, flags: OpenFlags::READ, open: OPEN };
        ask(&holder, open, b"");
        assert_eq!(*server.requests.lock(), ["getattr"], "it is opened under the lease");
        let read: Arc<Mutex<Vec<Result<usize, Code>>>> = Arc::default();
        let mut later = || -> Done {
            let read = Arc::clone(&read);
            Box::new(move |result| {
                let bytes = result.map(|reply| reply.bulk().len());
                read.lock().push(bytes.map_err(|error| error.code));
            })
        };
        let request = Request::Read { open: OPEN, offset: 0, size: 5 };
        assert!(holder.ask(&Context::direct(0, 0), request, Bulk::None, &mut later).is_none());
        assert_eq!(*server.requests.lock(), ["getattr", "open", "read"]);
        assert!(read.lock().is_empty(), "it was refused, and waits");
        let opened = server.opening.lock().pop().unwrap();
        let attr = Attr::empty(FILE.ino, FileKind::Regular);
        let reply = Reply::Opened { attr, path: DataPath::Cached };
        opened(if fails { Err(Code::Stale.into()) } else { Ok(reply) }, Granted::default());
        let expected = if fails { Err(Code::Stale) } else { Ok(5) };
        assert_eq!(*read.lock(), [expected]);
        assert_eq!(server.requests.lock().len(), if fails { 3 } else { 4 });
    }
}

/// Another session may have written since the lease ended: the server waits for its bytes before it
/// answers the open.
#[test]
fn a_read_waits_for_an_open_whose_lease_has_ended() {
    let server = Arc::new(RecordingServer { opens_later: true, ..RecordingServer::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    ask(&holder, Request::GetAttr { node: FILE }, b"");
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ, open: OPEN }, b"");
    LeaseHolder::lost(&*holder);
    ask(&holder, Request::Read { open: OPEN, offset: 0, size: 5 }, b"");
    assert_eq!(*server.requests.lock(), ["getattr", "open"]);
    let opened = server.opening.lock().pop().unwrap();
    let attr = Attr::empty(FILE.ino, FileKind::Regular);
    opened(Ok(Reply::Opened { attr, path: DataPath::Cached }), Granted::default());
    assert_eq!(*server.requests.lock(), ["getattr", "open", "read"]);
}

/// A close ends the lease on the bytes in each case: the server may carry it out after an open that
/// was sent later and was granted the lease.
#[test]
fn an_open_that_crosses_a_close_has_no_lease_on_the_bytes() {
    let server = Arc::new(RecordingServer { closes_later: true, ..RecordingServer::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    let open = |open| Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open };
    let write = |open| Request::Write { open, offset: 0, flags: WriteFlags::NONE };
    ask(&holder, open(OPEN), b"");
    ask(&holder, Request::Release { open: OPEN }, b"");
    ask(&holder, open(OpenId(2)), b"");
    ask(&holder, write(OpenId(2)), b"bytes");
    assert_eq!(*server.requests.lock(), ["open", "release", "open", "write"]);
    server.closing.lock().pop().unwrap()(Ok(Reply::Done), Granted::default());
    ask(&holder, open(OpenId(3)), b"");
    ask(&holder, write(OpenId(3)), b"bytes");
    assert_eq!(server.requests.lock().len(), 5, "this one is buffered");
}

/// The program believes that it has the lock: its writes fail. Writes of other programs do not.
#[test]
fn a_write_through_an_open_that_has_lost_a_lock_is_not_buffered() {
    let other = OpenId(2);
    let lost = Some(OPEN);
    let server = Arc::new(RecordingServer { lost_lock: lost, ..RecordingServer::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    let write = |open| Request::Write { open, offset: 0, flags: WriteFlags::NONE };
    for open in [OPEN, other] {
        ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open }, b"");
    }
    ask(&holder, write(OPEN), b"bytes");
    assert_eq!(*server.requests.lock(), ["open", "open", "write"], "it fails at the server");
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OpenId(3) }, b"");
    ask(&holder, write(other), b"bytes");
    assert_eq!(server.requests.lock()[3..], ["open"], "it is buffered");
}

/// The request was sent under leases, and its answer comes after their end. New leases begin
/// without a call of the holder: nothing was cached when the old ones ended.
#[test]
fn an_answer_that_comes_after_the_leases_have_ended_is_not_cached() {
    let server = Arc::new(RecordingServer::default());
    let holder = Holder::new(Arc::clone(&server) as _);
    let lookup = || Request::Lookup { dir: DIR, name: name("file") };
    let look_up = |has_no_lease| {
        server.has_no_lease.store(has_no_lease, Ordering::Relaxed);
        ask(&holder, lookup(), b"");
        server.requests.lock().len()
    };
    assert_eq!(look_up(true), 1);
    assert_eq!(look_up(false), 2, "it was not cached");
    assert_eq!(look_up(false), 2);
}

/// Another session may have written since, although the session has the lease again.
#[test]
fn bytes_that_were_read_ahead_end_with_the_lease() {
    let recalled: Arc<[Touched]> = Arc::new([Touched::Node(FILE.ino)]);
    let ends: [&dyn Fn(&Holder); 3] = [
        &|holder| holder.recalled(Arc::clone(&recalled), Box::new(|| {})),
        &|holder| holder.lost(),
        &|holder| holder.everything_recalled(Box::new(|| {})),
    ];
    for end in ends {
        let server = Arc::new(RecordingServer::default());
        let holder = Holder::new(Arc::clone(&server) as _);
        let open = Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OPEN };
        let read = |offset| ask(&holder, Request::Read { open: OPEN, offset, size: 4 }, b"");
        ask(&holder, open.clone(), b"");
        [0, 4, 8].into_iter().for_each(read);
        assert_eq!(*server.requests.lock(), ["open", "read", "read"], "two of three are sent");
        end(&holder);
        ask(&holder, open, b"");
        server.requests.lock().clear();
        read(12);
        assert_eq!(*server.requests.lock(), ["read"]);
    }
}

/// Returns the requests that the server gets for reads that continue each other.
fn requests_of_reads(server: RecordingServer, flags: OpenFlags) -> Vec<&'static str> {
    let server = Arc::new(server);
    let holder = Holder::new(Arc::clone(&server) as _);
    ask(&holder, Request::Open { node: FILE, flags, open: OPEN }, b"");
    let read: Arc<Mutex<Vec<Result<usize, Code>>>> = Arc::default();
    for offset in [0, 4, 8, 12] {
        let mut later = || -> Done {
            let read = Arc::clone(&read);
            Box::new(move |result| {
                let bytes = result.map(|reply| reply.bulk().len());
                read.lock().push(bytes.map_err(|error| error.code));
            })
        };
        let request = Request::Read { open: OPEN, offset, size: 4 };
        if let Some(answer) = holder.ask(&Context::direct(0, 0), request, Bulk::None, &mut later) {
            later()(answer);
        }
    }
    assert_eq!(*read.lock(), [Ok(4); 4]);
    let requests = server.requests.lock().clone();
    assert_eq!(requests[0], "open");
    requests[1..].to_vec()
}

#[test]
fn reads_are_answered_from_what_was_read_ahead() {
    let flags = OpenFlags::READ_WRITE;
    assert_eq!(requests_of_reads(RecordingServer::default(), flags), ["read"; 2]);
    // A program that has lost its lock must get an error.
    let server = RecordingServer { lost_lock: Some(OPEN), ..RecordingServer::default() };
    assert_eq!(requests_of_reads(server, flags).len(), 4);
    // Each read changes the time of access.
    let strict = OpenFlags { strict_atime: true, ..flags };
    assert_eq!(requests_of_reads(RecordingServer::default(), strict), ["read"; 4]);
}

/// The program wants none of the bytes that cannot be read.
#[test]
fn a_larger_read_that_fails_is_sent_once_more_for_what_is_wanted() {
    let server = RecordingServer { bad_from: Some(18), ..RecordingServer::default() };
    let requests = requests_of_reads(server, OpenFlags::READ_WRITE);
    assert_eq!(requests.len(), 7, "all but the first are sent twice: {requests:?}");
}

/// The server has ended the lease without a recall, or the bytes are not those that were read.
#[test]
fn a_write_that_fails_ends_what_was_read_ahead() {
    let server = Arc::new(RecordingServer { is_late: true, ..RecordingServer::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    let open = Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OPEN };
    let read = |offset| ask(&holder, Request::Read { open: OPEN, offset, size: 4 }, b"");
    ask(&holder, open, b"");
    [0, 4, 8].into_iter().for_each(read);
    ask(&holder, Request::Write { open: OPEN, offset: 12, flags: WriteFlags::NONE }, b"new");
    ask(&holder, Request::Fsync { open: OPEN, data_only: false }, b"");
    server.requests.lock().clear();
    read(12);
    assert_eq!(*server.requests.lock(), ["read"]);
}
