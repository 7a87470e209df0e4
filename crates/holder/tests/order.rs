//! The order in which a server gets what programs do to a file with bytes that were kept back.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_holder::Holder;
use pelago_wire::{
    Attr, Buffer, Bulk, Code, Context, Cookie, DataPath, DirEntry, Done, Entry, Error, FileKind,
    Granted, Handle, InodeId, LeaseHolder, LeasedDone, LeasedService, Leases, Name, OpenFlags,
    OpenId, RenameFlags, Reply, Request, Service, SetAttr, WriteEra, WriteFlags,
};

const DIR: Handle = Handle::ROOT;
const FILE: Handle = Handle::own(InodeId::from_raw(7));
const OPEN: OpenId = OpenId(1);

/// A server that answers at once, and notes what it was asked.
#[derive(Default)]
struct Noting {
    asked: Mutex<Vec<&'static str>>,
    /// Its leases have ended.
    has_no_lease: AtomicBool,
    /// An open through which a lock was set that is lost.
    lost_lock: Option<OpenId>,
    /// Its answers to writes come too late.
    is_late: bool,
    /// Opens are answered later, and reads do not find them before.
    opens_later: bool,
    opening: Mutex<Vec<LeasedDone>>,
    /// Closes are answered later.
    closes_later: bool,
    closing: Mutex<Vec<LeasedDone>>,
    /// Listings that are not answered yet.
    lists: Mutex<Vec<LeasedDone>>,
}

impl Noting {
    fn answer(&self, request: &Request, bulk: &Bulk<'_>) -> (Result<Reply, Error>, Leases) {
        self.asked.lock().push(request.describe().operation.name());
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

impl Service for Noting {
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

impl LeasedService for Noting {
    fn ask_leased(&self, _: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        if let Request::List { .. } = request {
            self.asked.lock().push("list");
            return self.lists.lock().push(done);
        }
        if matches!(request, Request::Open { .. }) && self.opens_later {
            self.asked.lock().push("open");
            return self.opening.lock().push(done);
        }
        if matches!(request, Request::Release { .. }) && self.closes_later {
            self.asked.lock().push("release");
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

    fn set_holder(&self, _: Weak<dyn LeaseHolder>) {}
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn ask(holder: &Holder, request: Request, bytes: &[u8]) {
    let mut later = || -> Done { Box::new(|_| {}) };
    let _answer = holder.ask(&Context::direct(0, 0), request, Bulk::Borrowed(bytes), &mut later);
}

/// Returns what the server is asked for these requests behind a write that was kept back. The
/// holder knows that `file` leads to the file, and that `absent` does not exist.
fn asked_behind_a_write(server: Noting, requests: &[Request]) -> Vec<&'static str> {
    let server = Arc::new(server);
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    for text in ["file", "absent"] {
        ask(&holder, Request::Lookup { dir: DIR, name: name(text) }, b"");
    }
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OPEN }, b"");
    let write = Request::Write { open: OPEN, offset: 0, flags: WriteFlags::NONE };
    ask(&holder, write, b"bytes");
    let before = server.asked.lock().len();
    assert_eq!(before, 3, "the write is kept back");
    requests.iter().for_each(|request| ask(&holder, request.clone(), b""));
    server.asked.lock().split_off(before)
}

fn asked(request: Request) -> Vec<&'static str> {
    asked_behind_a_write(Noting::default(), &[request])
}

#[test]
fn what_changes_or_reads_a_file_or_its_names_comes_behind_its_bytes() {
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
        // They may lead to the file as well.
        ("rename", rename("unknown", "absent")),
        ("unlink", Request::Unlink { dir: DIR, name: name("unknown") }),
        ("link", Request::Link { node: FILE, dir: DIR, name: name("second") }),
        ("setattr", Request::SetAttr { node: FILE, open: None, set: SetAttr::default() }),
        ("getattr", Request::GetAttr { node: FILE }),
        ("read", Request::Read { open: OPEN, offset: 0, size: 5 }),
        ("fsync", Request::Fsync { open: OPEN, data_only: false }),
        ("release", Request::Release { open: OPEN }),
    ];
    for (operation, request) in cases {
        assert_eq!(asked(request), ["write", operation], "{operation}");
    }
}

#[test]
fn what_concerns_other_files_does_not_wait() {
    let other = Handle::own(InodeId::from_raw(8));
    assert_eq!(asked(Request::GetAttr { node: other }), ["getattr"]);
    let lookup = Request::Lookup { dir: DIR, name: name("other") };
    assert_eq!(asked(lookup), ["lookup"]);
}

/// The flush goes with the write that commits the file.
#[test]
fn a_flush_is_one_request_with_the_bytes() {
    assert_eq!(asked(Request::Flush { open: OPEN, owner: None }), ["write"]);
}

#[test]
fn attributes_are_not_kept_again_while_a_write_may_still_be_carried_out() {
    let look = Request::GetAttr { node: FILE };
    let fsync = Request::Fsync { open: OPEN, data_only: false };
    let requests = [fsync, look.clone(), look];
    let asked = |is_late| asked_behind_a_write(Noting { is_late, ..Noting::default() }, &requests);
    assert_eq!(asked(false), ["write", "fsync", "getattr"]);
    assert_eq!(asked(true), ["write", "getattr", "getattr"]);
}

/// The holder asks for more names than the program, and for the whole again if the file was written
/// meanwhile.
#[test]
fn a_listing_that_is_asked_for_again_has_as_many_names_as_were_wanted() {
    let server = Arc::new(Noting::default());
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
    assert_eq!(*server.asked.lock(), ["getattr", "open", "list", "write", "release"]);
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

/// A server may take the read first.
#[test]
fn a_read_goes_with_the_open_that_it_needs_and_once_more_if_it_has_overtaken_it() {
    for fails in [false, true] {
        let server = Arc::new(Noting { opens_later: true, ..Noting::default() });
        let holder = Holder::new(Arc::clone(&server) as _);
        ask(&holder, Request::GetAttr { node: FILE }, b"");
        let open = Request::Open { node: FILE, flags: OpenFlags::READ, open: OPEN };
        ask(&holder, open, b"");
        assert_eq!(*server.asked.lock(), ["getattr"], "it is opened under the lease");
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
        assert_eq!(*server.asked.lock(), ["getattr", "open", "read"]);
        assert!(read.lock().is_empty(), "it was refused, and waits");
        let opened = server.opening.lock().pop().unwrap();
        let attr = Attr::empty(FILE.ino, FileKind::Regular);
        let reply = Reply::Opened { attr, path: DataPath::Cached };
        opened(if fails { Err(Code::Stale.into()) } else { Ok(reply) }, Granted::default());
        let expected = if fails { Err(Code::Stale) } else { Ok(5) };
        assert_eq!(*read.lock(), [expected]);
        assert_eq!(server.asked.lock().len(), if fails { 3 } else { 4 });
    }
}

/// Another session may have written since, and the server waits for its bytes before it answers the
/// open.
#[test]
fn a_read_waits_for_an_open_whose_lease_has_ended() {
    let server = Arc::new(Noting { opens_later: true, ..Noting::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    ask(&holder, Request::GetAttr { node: FILE }, b"");
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ, open: OPEN }, b"");
    LeaseHolder::lost(&*holder);
    ask(&holder, Request::Read { open: OPEN, offset: 0, size: 5 }, b"");
    assert_eq!(*server.asked.lock(), ["getattr", "open"]);
    let opened = server.opening.lock().pop().unwrap();
    let attr = Attr::empty(FILE.ino, FileKind::Regular);
    opened(Ok(Reply::Opened { attr, path: DataPath::Cached }), Granted::default());
    assert_eq!(*server.asked.lock(), ["getattr", "open", "read"]);
}

/// A close ends the lease on the bytes, whatever it finds: it may come behind an open that was sent
/// later, and was granted the lease.
#[test]
fn an_open_that_crosses_a_close_has_no_lease_on_the_bytes() {
    let server = Arc::new(Noting { closes_later: true, ..Noting::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    let open = |open| Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open };
    let write = |open| Request::Write { open, offset: 0, flags: WriteFlags::NONE };
    ask(&holder, open(OPEN), b"");
    ask(&holder, Request::Release { open: OPEN }, b"");
    ask(&holder, open(OpenId(2)), b"");
    ask(&holder, write(OpenId(2)), b"bytes");
    assert_eq!(*server.asked.lock(), ["open", "release", "open", "write"]);
    server.closing.lock().pop().unwrap()(Ok(Reply::Done), Granted::default());
    ask(&holder, open(OpenId(3)), b"");
    ask(&holder, write(OpenId(3)), b"bytes");
    assert_eq!(server.asked.lock().len(), 5, "this one is kept back");
}

/// Its program believes that it has the lock: what it writes fails, and no other program is told of
/// that.
#[test]
fn a_write_through_an_open_that_has_lost_a_lock_is_not_kept_back() {
    let other = OpenId(2);
    let lost = Some(OPEN);
    let server = Arc::new(Noting { lost_lock: lost, ..Noting::default() });
    let holder = Holder::new(Arc::clone(&server) as _);
    holder.keep_writes();
    let write = |open| Request::Write { open, offset: 0, flags: WriteFlags::NONE };
    for open in [OPEN, other] {
        ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open }, b"");
    }
    ask(&holder, write(OPEN), b"bytes");
    assert_eq!(*server.asked.lock(), ["open", "open", "write"], "it fails at the server");
    ask(&holder, Request::Open { node: FILE, flags: OpenFlags::READ_WRITE, open: OpenId(3) }, b"");
    ask(&holder, write(other), b"bytes");
    assert_eq!(server.asked.lock()[3..], ["open"], "it is kept back");
}

/// The request was sent under leases, and its answer comes when those have ended. They begin anew
/// without a word: nothing was kept when they ended.
#[test]
fn an_answer_that_comes_after_the_leases_have_ended_is_not_kept() {
    let server = Arc::new(Noting::default());
    let holder = Holder::new(Arc::clone(&server) as _);
    let lookup = || Request::Lookup { dir: DIR, name: name("file") };
    let look_up = |has_no_lease| {
        server.has_no_lease.store(has_no_lease, Ordering::Relaxed);
        ask(&holder, lookup(), b"");
        server.asked.lock().len()
    };
    assert_eq!(look_up(true), 1);
    assert_eq!(look_up(false), 2, "it was not kept");
    assert_eq!(look_up(false), 2);
}
