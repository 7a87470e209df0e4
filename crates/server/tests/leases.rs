//! Leases of sessions over a socket, and changes by others: a server, its own mount as direct
//! calls, and clients that cache replies.
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_wire::{
    Attr, Bulk, Code, Context, Cookie, Done, Entry, Granted, Handle, InodeId, LeaseHolder,
    LeasedService, Leases, NewMode, OpenFlags, OpenId, Reply, Request, RequestId, SetAttr, Then,
    Touched, WriteEra, WriteFlags,
};

use crate::harness::requests::next_open;
use crate::harness::rig::{DEADLINE, Rig, by_hand, name};
use crate::harness::until;

const ROOT: Handle = Handle::ROOT;
/// Long enough for every answer on a busy machine.
const TERM: Duration = Duration::from_secs(60);
/// So short that a test can wait for its end.
const SHORT: Duration = Duration::from_millis(1500);

struct Served {
    rig: Arc<Rig>,
    _sessions: SessionServer,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new(term: Duration) -> Self {
        let rig = Arc::new(Rig::new(by_hand()));
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let sessions = SessionServer::start_with(rig.server.session_service(), term).unwrap();
        sessions.listen_unix(&socket).unwrap();
        Self { rig, _sessions: sessions, socket, _folder: folder }
    }

    fn client(&self) -> Client {
        Client::over(&self.socket)
    }

    /// Changes the mode of a file, as a program of the server's own mount does.
    fn chmod(&self, node: Handle, mode: u16) -> JoinHandle<Reply> {
        let rig = Arc::clone(&self.rig);
        thread::Builder::new().spawn(move || rig.call(chmod(node, mode)).unwrap()).unwrap()
    }
}

fn chmod(node: Handle, mode: u16) -> Request {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    Request::SetAttr { node, open: None, set }
}

fn lookup(text: &str) -> Request {
    Request::Lookup { dir: ROOT, name: name(text) }
}

fn make_dir(text: &str) -> Request {
    Request::MakeDir { dir: ROOT, name: name(text), mode: NewMode::exactly(0o755) }
}

fn unlink(text: &str) -> Request {
    Request::Unlink { dir: ROOT, name: name(text) }
}

/// What a client keeps: it notes recalls, and answers them when the test says so.
#[derive(Default)]
struct Holder {
    recalls: Mutex<VecDeque<(Arc<[Touched]>, Then)>>,
    came: Condvar,
    lost: Mutex<u32>,
}

impl LeaseHolder for Holder {
    fn recalled(&self, touched: Arc<[Touched]>, then: Then) {
        self.recalls.lock().push_back((touched, then));
        self.came.notify_all();
    }

    fn lost(&self) {
        *self.lost.lock() += 1;
    }

    fn flush(&self, then: Then) {
        then();
    }
}

struct Client {
    remote: Remote,
    holder: Arc<Holder>,
}

type Answer = (Result<Reply, Code>, Granted);

impl Client {
    fn over(socket: &Path) -> Self {
        let target = ServerTarget::Unix(socket.to_owned());
        let options =
            RemoteOptions { target, read_only: false, role: ClientRole::Client, give_up: None };
        let remote = Remote::connect(options, DEADLINE).unwrap();
        let holder = Arc::new(Holder::default());
        let weak: Weak<Holder> = Arc::downgrade(&holder);
        remote.set_holder(weak);
        Self { remote, holder }
    }

    fn send(&self, request: Request) -> Receiver<Answer> {
        let (sender, answers) = channel();
        let done = move |result: Result<Reply, pelago_wire::Error>, granted| {
            let _sent = sender.send((result.map_err(|error| error.code), granted));
        };
        let context = Context::direct(0, 0);
        self.remote.ask_leased(&context, request, Bulk::None, Box::new(done));
        answers
    }

    fn ask(&self, request: Request) -> Answer {
        self.send(request).recv_timeout(DEADLINE).unwrap()
    }

    fn leases(&self, request: Request) -> Leases {
        self.ask(request).1.leases
    }

    fn entry(&self, request: Request) -> Entry {
        match self.ask(request).0 {
            Ok(Reply::Entry(entry) | Reply::Created { entry, .. }) => entry,
            other => panic!("{other:?}"),
        }
    }

    fn attr(&self, node: Handle) -> (Attr, bool) {
        match self.ask(Request::GetAttr { node }) {
            (Ok(Reply::Attr(attr)), granted) => (attr, granted.leases.node),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a recall.
    fn recall(&self) -> (Arc<[Touched]>, Then) {
        let mut recalls = self.holder.recalls.lock();
        loop {
            if let Some(recall) = recalls.pop_front() {
                return recall;
            }
            assert!(!self.holder.came.wait_for(&mut recalls, DEADLINE).timed_out(), "no recall");
        }
    }

    fn has_recall(&self) -> bool {
        !self.holder.recalls.lock().is_empty()
    }
}

fn ino(node: Handle) -> Touched {
    Touched::Node(node.ino)
}

fn named(text: &str) -> Touched {
    Touched::Name { dir: ROOT.ino, name: name(text) }
}

#[test]
fn a_change_by_the_servers_own_mount_waits_until_a_lease_is_dropped() {
    let served = Served::new(TERM);
    let file = served.rig.put(ROOT, "a", b"bytes").unwrap();
    let client = served.client();
    let (attr, is_leased) = client.attr(file.handle);
    assert!(is_leased && attr.mode == 0o644 && client.remote.lease_left() > Duration::ZERO);
    let chmod = served.chmod(file.handle, 0o600);
    let (touched, drop_it) = client.recall();
    assert_eq!(*touched, [ino(file.handle)]);
    assert_eq!(served.rig.lookup(ROOT, "a").unwrap().attr.mode, 0o644, "it is not carried out");
    let (attr, is_leased) = client.attr(file.handle);
    assert!(attr.mode == 0o644 && !is_leased, "it is about to change");
    drop_it();
    chmod.join().unwrap();
    let (attr, is_leased) = client.attr(file.handle);
    assert!(attr.mode == 0o600 && is_leased);
}

#[test]
fn a_change_by_another_session_waits_and_its_author_is_told_nothing() {
    let served = Served::new(TERM);
    let file = served.rig.put(ROOT, "a", b"bytes").unwrap();
    let one = served.client();
    let two = served.client();
    assert!(one.attr(file.handle).1 && two.attr(file.handle).1);
    let answer = one.send(chmod(file.handle, 0o600));
    let (touched, drop_it) = two.recall();
    assert_eq!(*touched, [ino(file.handle)]);
    assert!(answer.try_recv().is_err(), "it waits");
    drop_it();
    let (reply, granted) = answer.recv_timeout(DEADLINE).unwrap();
    assert!(matches!(reply, Ok(Reply::Attr(attr)) if attr.mode == 0o600 && !attr.volatile));
    assert!(granted.leases.node && !one.has_recall());
    assert_eq!(two.attr(file.handle).0.mode, 0o600);
}

#[test]
fn names_are_leased_with_their_absence_and_recalled_one_by_one() {
    let served = Served::new(TERM);
    served.rig.put(ROOT, "a", b"").unwrap();
    let one = served.client();
    let two = served.client();
    let both = Leases { node: true, names: true, ..Leases::default() };
    assert_eq!(one.leases(lookup("a")), both);
    let (absent, granted) = one.ask(lookup("b"));
    assert_eq!(absent.unwrap_err(), Code::NotFound);
    assert!(granted.leases.names);
    let answer = two.send(make_dir("b"));
    let (touched, drop_it) = one.recall();
    assert_eq!(*touched, [named("b")], "the attributes of the root were not asked for");
    drop_it();
    let (made, granted) = answer.recv_timeout(DEADLINE).unwrap();
    assert!(matches!(made, Ok(Reply::Entry(entry)) if !entry.attr.volatile));
    assert_eq!(granted.leases, Leases { changed: true, made: true, ..both });
    assert!(granted.changed.is_some());
    // The lease on the other names is still there: another change is told.
    let answer = two.send(unlink("a"));
    let (touched, drop_it) = one.recall();
    assert_eq!(touched.len(), 2, "the name, and the file that it led to: {touched:?}");
    drop_it();
    assert!(matches!(answer.recv_timeout(DEADLINE).unwrap().0, Ok(Reply::Removed(_))));
}

#[test]
fn the_author_of_changes_keeps_its_names_without_recalls() {
    let served = Served::new(TERM);
    let client = served.client();
    for text in ["a", "b", "c"] {
        assert_eq!(client.ask(lookup(text)).0.unwrap_err(), Code::NotFound);
        assert!(client.leases(make_dir(text)).names);
        assert!(client.leases(lookup(text)).names);
    }
    let entry = client.entry(lookup("a"));
    assert!(client.leases(chmod(entry.handle, 0o700)).node);
    assert!(!client.has_recall());
}

/// Size and times of a file that is open for writing change without an announcement.
#[test]
fn a_file_that_is_open_for_writing_is_leased_once_it_is_closed() {
    let served = Served::new(TERM);
    let file = served.rig.put(ROOT, "a", b"bytes").unwrap();
    // Opened before there was another session.
    let open = served.rig.open(file.handle).unwrap();
    let client = served.client();
    assert!(!client.attr(file.handle).1);
    assert!(client.ask(lookup("a")).1.leases.names);
    served.rig.write(open, 5, b"more").unwrap();
    served.rig.close(open).unwrap();
    let (attr, is_leased) = client.attr(file.handle);
    assert!(attr.size == 9 && is_leased);
    let rig = Arc::clone(&served.rig);
    let handle = file.handle;
    let opening = thread::Builder::new().spawn(move || rig.open(handle)).unwrap();
    let (touched, drop_it) = client.recall();
    assert_eq!(*touched, [ino(file.handle)]);
    drop_it();
    let open = opening.join().unwrap().unwrap();
    assert!(!client.attr(file.handle).1);
    served.rig.close(open).unwrap();
    let other = served.client();
    // With `sync` nothing is kept back.
    let flags = OpenFlags { sync: true, ..OpenFlags::READ_WRITE };
    let open = next_open();
    other.ask(Request::Open { node: file.handle, flags, open }).0.unwrap();
    assert!(!client.attr(file.handle).1 && !other.attr(file.handle).1);
    other.ask(Request::Release { open }).0.unwrap();
    assert!(client.attr(file.handle).1);
}

/// Its client need not ask for what the close has left.
#[test]
fn the_close_of_a_file_leases_its_attributes_unless_it_has_no_name_or_is_still_written() {
    let served = Served::new(TERM);
    let client = served.client();
    let create = |text: &str| {
        let mode = NewMode::exactly(0o644);
        let flags = OpenFlags::READ_WRITE;
        let open = next_open();
        let entry =
            client.entry(Request::Create { dir: ROOT, name: name(text), mode, flags, open });
        (entry, open)
    };
    let closed = |open| {
        let (result, granted) = client.ask(Request::Release { open });
        assert!(matches!(result, Ok(Reply::Done)));
        (granted.changed.unwrap(), granted.leases.changed)
    };
    let (kept, open) = create("kept");
    let (_, granted) = client.ask(chmod(kept.handle, 0o600));
    assert!(!granted.leases.node, "it is written, and is not new any more");
    let (attr, is_leased) = closed(open);
    assert!(attr.ino == kept.attr.ino && attr.mode == 0o600 && is_leased);
    let answer = served.chmod(kept.handle, 0o640);
    let (touched, drop_it) = client.recall();
    assert_eq!(*touched, [ino(kept.handle)]);
    drop_it();
    answer.join().unwrap();
    // It was read, and is not open any more.
    let node = kept.handle;
    let flags = OpenFlags::READ;
    let open = next_open();
    client.ask(Request::Open { node, flags, open }).0.unwrap();
    assert!(closed(open).1);
    let (gone, open) = create("gone");
    assert!(!gone.attr.volatile, "it is new, and only this session has it");
    client.ask(unlink("gone")).0.unwrap();
    let (attr, is_leased) = closed(open);
    assert!(attr.ino == gone.attr.ino && attr.links == 0 && !is_leased);
    let (twice, open) = create("twice");
    let node = twice.handle;
    let flags = OpenFlags::READ_WRITE;
    let again = next_open();
    client.ask(Request::Open { node, flags, open: again }).0.unwrap();
    assert!(!closed(open).1);
    assert!(closed(again).1);
}

/// A client that does not answer delays others for as long as its leases last by its own clock.
#[test]
fn a_client_that_ignores_recalls_loses_its_leases_and_nothing_else() {
    let served = Served::new(SHORT);
    let file = served.rig.put(ROOT, "a", b"bytes").unwrap();
    let deaf = served.client();
    let other = served.client();
    assert!(deaf.attr(file.handle).1);
    let chmod = served.chmod(file.handle, 0o600);
    let (_, unanswered) = deaf.recall();
    let deadline = Instant::now() + DEADLINE;
    while !chmod.is_finished() {
        // Its answers do not lengthen its leases, and lease nothing.
        let (_, is_leased) = deaf.attr(ROOT);
        assert!(!is_leased || chmod.is_finished());
        assert_eq!(other.ask(lookup("b")).0.unwrap_err(), Code::NotFound, "others go on");
        assert!(Instant::now() < deadline, "the change waits for ever");
    }
    chmod.join().unwrap();
    assert_eq!(*deaf.holder.lost.lock(), 1, "its own clock has ended them before");
    let (attr, is_leased) = deaf.attr(file.handle);
    assert!(attr.mode == 0o600 && !is_leased, "it would delay the next change as well");
    served.chmod(file.handle, 0o640).join().unwrap();
    assert!(!deaf.has_recall());
    unanswered();
    // It is trusted again after a while.
    let deadline = Instant::now() + DEADLINE;
    while !deaf.attr(file.handle).1 {
        assert!(Instant::now() < deadline, "it is never trusted again");
        // Only the clock ends that.
        thread::sleep(SHORT / 50);
    }
    let chmod = served.chmod(file.handle, 0o600);
    deaf.recall().1();
    chmod.join().unwrap();
}

#[test]
fn a_change_that_waits_for_a_recall_ends_with_its_caller() {
    let served = Served::new(TERM);
    let file = served.rig.put(ROOT, "a", b"bytes").unwrap();
    let deaf = served.client();
    let other = served.client();
    assert!(deaf.attr(file.handle).1);
    let (interrupted, answers) = channel();
    let context = Context { request: RequestId(77), ..Context::direct(0, 0) };
    let mut later = || -> Done {
        let interrupted = interrupted.clone();
        Box::new(move |result| interrupted.send(result.map_err(|error| error.code)).unwrap())
    };
    let service = served.rig.server.service();
    let now = service.ask(&context, chmod(file.handle, 0o600), Bulk::None, &mut later);
    assert!(now.is_none());
    let (_, drop_it) = deaf.recall();
    service.cancel(&Context { request: RequestId(78), ..context });
    assert!(answers.try_recv().is_err(), "another request was cancelled");
    service.cancel(&context);
    assert_eq!(answers.recv_timeout(DEADLINE).unwrap().unwrap_err(), Code::Interrupted);
    drop_it();
    // Nothing is left of it: the file has its old mode, and can be leased and changed.
    let (attr, is_leased) = other.attr(file.handle);
    assert!(attr.mode != 0o600 && is_leased);
    let chmod = served.chmod(file.handle, 0o640);
    other.recall().1();
    chmod.join().unwrap();
}

#[test]
fn a_session_that_ends_delays_nothing() {
    let served = Served::new(TERM);
    let file = served.rig.put(ROOT, "a", b"bytes").unwrap();
    let client = served.client();
    assert!(client.attr(file.handle).1);
    let chmod = served.chmod(file.handle, 0o600);
    let recall = client.recall();
    client.remote.end();
    chmod.join().unwrap();
    drop(recall);
}

#[test]
fn a_listing_leases_its_names_and_their_attributes() {
    let served = Served::new(TERM);
    served.rig.put(ROOT, "a", b"bytes").unwrap();
    let written = served.rig.put(ROOT, "b", b"bytes").unwrap();
    let open = served.rig.open(written.handle).unwrap();
    let client = served.client();
    let dir = ROOT;
    let after = Cookie::START;
    let list = Request::List { dir, after, behind: None, entries: 100, attributes: true };
    let (reply, granted) = client.ask(list);
    let Ok(Reply::Listed { entries, .. }) = reply else { panic!("{reply:?}") };
    assert!(granted.leases.node && granted.leases.names);
    let attrs = entries.iter().map(|entry| entry.entry.unwrap().attr);
    let volatile: Vec<(InodeId, bool)> = attrs.map(|attr| (attr.ino, attr.volatile)).collect();
    assert!(volatile.contains(&(written.handle.ino, true)) && volatile.len() == 2);
    assert_eq!(volatile.iter().filter(|(_, volatile)| !volatile).count(), 1);
    served.rig.close(open).unwrap();
}

/// A connection that can be cut.
struct Wire {
    socket: PathBuf,
    ends: Arc<Mutex<Vec<UnixStream>>>,
    _folder: tempfile::TempDir,
}

impl Wire {
    fn new(server: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let server = server.to_owned();
        let listener = UnixListener::bind(&socket).unwrap();
        let ends = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&ends);
        let run = move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let server = UnixStream::connect(&server).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let mut from = from.try_clone().unwrap();
                    let mut to = to.try_clone().unwrap();
                    let pass = move || {
                        // An end of either connection ends both.
                        drop(io::copy(&mut from, &mut to));
                        drop(to.shutdown(Shutdown::Both));
                    };
                    thread::Builder::new().spawn(pass).unwrap();
                }
                of_thread.lock().push(client);
            }
        };
        thread::Builder::new().spawn(run).unwrap();
        Self { socket, ends, _folder: folder }
    }

    fn cut(&self) {
        self.ends.lock().drain(..).for_each(|end| end.shutdown(Shutdown::Both).unwrap());
    }
}

/// Recalls that were on their way when the connection was lost come over the next one.
#[test]
fn a_recall_is_sent_again_over_the_next_connection() {
    let served = Served::new(TERM);
    let file = served.rig.put(ROOT, "a", b"bytes").unwrap();
    let wire = Wire::new(&served.socket);
    let client = Client::over(&wire.socket);
    assert!(client.attr(file.handle).1);
    let chmod = served.chmod(file.handle, 0o600);
    let (_, first) = client.recall();
    wire.cut();
    let (touched, again) = client.recall();
    assert_eq!(*touched, [ino(file.handle)]);
    again();
    chmod.join().unwrap();
    first();
}

/// A client that has made a file and may keep back what it writes to it.
fn making(served: &Served, text: &str) -> (Client, Entry, OpenId) {
    let client = served.client();
    let open = next_open();
    let flags = OpenFlags::READ_WRITE;
    let mode = NewMode::exactly(0o644);
    let request = Request::Create { dir: ROOT, name: name(text), mode, flags, open };
    let (made, granted) = client.ask(request);
    assert_eq!(granted.leases.bytes, Some(WriteEra::FIRST), "it is alone");
    match made.unwrap() {
        Reply::Created { entry, .. } => (client, entry, open),
        other => panic!("{other:?}"),
    }
}

impl Client {
    /// Writes bytes that were kept back.
    fn write_behind(&self, open: OpenId, offset: u64, bytes: &[u8]) -> Result<(), Code> {
        let (sender, answers) = channel();
        let done = move |result: Result<Reply, pelago_wire::Error>, _granted| {
            let _sent = sender.send(result.map(drop).map_err(|error| error.code));
        };
        let behind = Some(WriteEra::FIRST);
        let flags = WriteFlags { behind, commit: true, ..WriteFlags::NONE };
        let request = Request::Write { open, offset, flags };
        let context = Context::direct(0, 0);
        self.remote.ask_first(&context, request, Bulk::Borrowed(bytes), Box::new(done));
        answers.recv_timeout(DEADLINE).unwrap()
    }
}

/// Whatever shows or opens the file waits until the client has sent what it has kept back.
#[test]
fn others_see_a_file_once_its_bytes_are_not_kept_back_any_more() {
    let served = Served::new(TERM);
    let list = Request::List {
        dir: ROOT,
        after: Cookie::AFTER_DOT_DOT,
        behind: None,
        entries: 100,
        attributes: true,
    };
    let looks: [fn(Handle, &Request) -> Request; 5] = [
        |node, _| Request::GetAttr { node },
        |_, _| lookup("a"),
        |node, _| Request::Open { node, flags: OpenFlags::READ, open: next_open() },
        |node, _| Request::Open { node, flags: OpenFlags::WRITE, open: next_open() },
        |_, list| list.clone(),
    ];
    for (turn, look) in looks.iter().enumerate() {
        let (writer, entry, open) = making(&served, "a");
        let rig = Arc::clone(&served.rig);
        let request = look(entry.handle, &list);
        let other = served.client();
        // By turns another session and the server's own mount.
        let look: JoinHandle<Result<Reply, Code>> = match turn % 2 {
            0 => thread::Builder::new().spawn(move || other.ask(request).0).unwrap(),
            _ => thread::Builder::new().spawn(move || rig.call(request)).unwrap(),
        };
        let (touched, sent) = writer.recall();
        assert_eq!(*touched, [ino(entry.handle)], "{turn}");
        assert!(!look.is_finished(), "{turn}: it waits");
        writer.write_behind(open, 0, b"bytes").unwrap();
        sent();
        let mut shown = look.join().unwrap();
        let mut attrs = shown.iter_mut().flat_map(Reply::attrs_mut);
        let attr = attrs.find(|attr| attr.ino == entry.attr.ino).unwrap();
        assert_eq!(attr.size, 5, "{turn}");
        assert_eq!(writer.write_behind(open, 0, b"late"), Err(Code::LeaseLost));
        writer.ask(unlink("a")).0.unwrap();
    }
}

#[test]
fn bytes_are_leased_to_a_session_that_is_alone_until_it_closes_the_file() {
    let served = Served::new(TERM);
    let (writer, entry, open) = making(&served, "a");
    let bytes = |client: &Client, flags| {
        let open = next_open();
        (client.leases(Request::Open { node: entry.handle, flags, open }).bytes.is_some(), open)
    };
    let sync = OpenFlags { sync: true, ..OpenFlags::WRITE };
    assert!(!bytes(&writer, OpenFlags::READ).0 && !bytes(&writer, sync).0);
    assert!(bytes(&writer, OpenFlags::WRITE).0, "another one of its own");
    writer.write_behind(open, 0, b"bytes").unwrap();
    writer.ask(Request::Release { open }).0.unwrap();
    let (_, open) = bytes(&writer, OpenFlags::READ);
    assert_eq!(writer.write_behind(open, 0, b"x"), Err(Code::LeaseLost), "it has closed it");
    let other = served.client();
    let open = next_open();
    let opening = other.send(Request::Open { node: entry.handle, flags: OpenFlags::WRITE, open });
    // Its creation has leased the attributes, too.
    let (touched, drop_it) = writer.recall();
    assert_eq!(*touched, [ino(entry.handle)]);
    drop_it();
    let (_, granted) = opening.recv_timeout(DEADLINE).unwrap();
    assert_eq!(granted.leases.bytes, None, "the first one still reads it");
    assert_eq!(other.write_behind(open, 0, b"x"), Err(Code::LeaseLost));
    assert!(!writer.has_recall());
}

/// A client that does not answer delays others for a term. What it sends then is too late.
#[test]
fn bytes_that_a_deaf_client_has_kept_back_are_refused() {
    let served = Served::new(SHORT);
    let (deaf, entry, open) = making(&served, "a");
    let look = served.chmod(entry.handle, 0o600);
    let (_, _unanswered) = deaf.recall();
    look.join().unwrap();
    assert_eq!(deaf.write_behind(open, 0, b"late"), Err(Code::LeaseLost));
    assert_eq!(served.rig.lookup(ROOT, "a").unwrap().attr.size, 0);
    let plain = Request::GetAttr { node: entry.handle };
    assert!(deaf.ask(plain).0.is_ok(), "all else goes on");
    deaf.ask(Request::Release { open }).0.unwrap();
    let mut open = next_open();
    until("it is granted leases again", || {
        deaf.ask(Request::Release { open }).0.ok();
        open = next_open();
        let opening = Request::Open { node: entry.handle, flags: OpenFlags::WRITE, open };
        deaf.leases(opening).bytes == Some(WriteEra::FIRST.next())
    });
    assert_eq!(deaf.write_behind(open, 0, b"late"), Err(Code::LeaseLost), "of the last era");
}

/// A program that was interrupted sees no old attributes, and has no open file with old bytes.
#[test]
fn a_look_at_bytes_that_are_kept_back_ends_with_its_caller_and_an_open_waits() {
    let served = Served::new(TERM);
    let (writer, entry, open) = making(&served, "a");
    let service = served.rig.server.service();
    let ask = |number, request| {
        let (sender, answers) = channel();
        let context = Context { request: RequestId(number), ..Context::direct(0, 0) };
        let mut later = || -> Done {
            let sender = sender.clone();
            Box::new(move |result| sender.send(result.map_err(|error| error.code)).unwrap())
        };
        assert!(service.ask(&context, request, Bulk::None, &mut later).is_none());
        (context, answers)
    };
    let (looking, shown) = ask(77, Request::GetAttr { node: entry.handle });
    let (_, sent) = writer.recall();
    service.cancel(&looking);
    assert_eq!(shown.recv_timeout(DEADLINE).unwrap().unwrap_err(), Code::Interrupted);
    let flags = OpenFlags::READ;
    let (opening, opened) = ask(78, Request::Open { node: entry.handle, flags, open: next_open() });
    service.cancel(&opening);
    assert!(opened.try_recv().is_err(), "it would be read too early");
    writer.write_behind(open, 0, b"bytes").unwrap();
    sent();
    let opened = opened.recv_timeout(DEADLINE).unwrap();
    assert!(matches!(opened, Ok(Reply::Opened { attr, .. }) if attr.size == 5));
}
