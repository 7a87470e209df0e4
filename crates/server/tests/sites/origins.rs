//! Changes that a client repeats through the next run of its server: the other site carries out
//! each once.

use std::time::Duration;

use pelago_server::{Options, Server};
use pelago_wire::{
    Code, Context, FileKind, Handle, InodeId, NewMode, OpenFlags, OpenId, RenameFlags, Reply,
    Request, RequestId, SessionId, SetAttr, WriteFlags,
};

use super::line::Losing;
use super::world::{Offices, ask, ask_as, ask_with, client, lookup, next_number, options};
use crate::harness::rig::name;

const ROOT: Handle = Handle::ROOT;
const DIRECT: SessionId = SessionId::DIRECT;
const MODE: NewMode = NewMode::exactly(0o644);

/// Options of a server that waits for the clients of its last run.
fn waiting() -> Options {
    Options { grace: Duration::from_secs(20), ..options() }
}

/// A change of a client, under its number.
#[derive(Clone)]
struct Change {
    context: Context,
    request: Request,
    bytes: Vec<u8>,
}

impl Change {
    fn by(session: SessionId, request: Request) -> Self {
        let number = next_number();
        let caller = Context::direct(7, 8);
        let context = Context { session, request: RequestId(number), mutation: number, ..caller };
        Self { context, request, bytes: Vec::new() }
    }

    fn ask(&self, server: &Server) -> Result<Reply, Code> {
        ask_as(server, &self.context, self.request.clone(), &self.bytes)
    }
}

fn create(text: &str, open: u64) -> Request {
    let flags = OpenFlags::READ_WRITE;
    Request::Create { dir: ROOT, name: name(text), mode: MODE, flags, open: OpenId(open) }
}

fn unlink(text: &str) -> Request {
    Request::Unlink { dir: ROOT, name: name(text) }
}

fn rename(from: &str, to: &str) -> Request {
    let flags = RenameFlags::Replace;
    let [from, to] = [from, to].map(name);
    Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags }
}

/// Makes a file of the first site.
fn file(offices: &Offices, text: &str, bytes: &[u8]) -> Handle {
    let made = ask(&offices.first, DIRECT, create(text, 1)).unwrap();
    let Reply::Created { entry, .. } = made else { panic!("{made:?}") };
    write(&offices.first, DIRECT, 1, bytes);
    ask(&offices.first, DIRECT, Request::Release { open: OpenId(1) }).unwrap();
    entry.handle
}

fn write(server: &Server, session: SessionId, open: u64, bytes: &[u8]) {
    let write = Request::Write { open: OpenId(open), offset: 0, flags: WriteFlags::NONE };
    ask_with(server, session, write, bytes).unwrap();
}

/// Returns the first bytes of a file of the first site.
fn bytes_of(server: &Server, node: Handle) -> Vec<u8> {
    let open = OpenId(77);
    ask(server, DIRECT, Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
    let read = ask(server, DIRECT, Request::Read { open, offset: 0, size: 100 }).unwrap();
    ask(server, DIRECT, Request::Release { open }).unwrap();
    let Reply::Data(bytes) = read else { panic!("{read:?}") };
    bytes.as_bytes().to_vec()
}

/// The answers were on their way when the server of the client was killed.
#[test]
fn changes_of_names_are_carried_out_once() {
    let offices = Offices::with(waiting());
    offices.dir("berlin");
    let client = client(&offices.berlin);
    for text in ["gone", "moved", "linked", "set"] {
        file(&offices, text, b"");
    }
    let dir = Request::MakeDir { dir: ROOT, name: name("empty"), mode: MODE };
    ask(&offices.first, DIRECT, dir).unwrap();
    let node = |text: &str| lookup(&offices.first, ROOT, text).unwrap();
    let target = b"target".to_vec();
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    let changes = [
        unlink("gone"),
        rename("moved", "there"),
        Request::Link { node: node("linked"), dir: ROOT, name: name("second") },
        Request::RemoveDir { dir: ROOT, name: name("empty") },
        Request::Symlink { dir: ROOT, name: name("symlink"), target },
        Request::MakeNode {
            dir: ROOT,
            name: name("fifo"),
            kind: FileKind::Fifo,
            mode: MODE,
            rdev: 0,
        },
        Request::SetAttr { node: node("set"), open: None, set },
        create("new", 5),
    ];
    let changes = changes.map(|request| Change::by(client, request));
    let first: Vec<_> = changes.iter().map(|it| it.ask(&offices.berlin).unwrap()).collect();
    // Others go on.
    ask(&offices.first, DIRECT, rename("there", "elsewhere")).unwrap();
    ask(&offices.first, DIRECT, unlink("symlink")).unwrap();
    let offices = offices.start_berlin_again(waiting());
    for (change, before) in changes.iter().zip(first) {
        let again = change.ask(&offices.berlin).map_err(|code| (code, &change.request)).unwrap();
        assert_eq!(made(&again), made(&before), "{:?}", change.request);
    }
    for (text, is_there) in [("gone", false), ("there", false), ("symlink", false), ("new", true)] {
        assert_eq!(lookup(&offices.first, ROOT, text).is_ok(), is_there, "{text}");
    }
    // The file that it has created is open.
    write(&offices.berlin, client, 5, b"bytes");
    assert_eq!(bytes_of(&offices.first, node_of(&offices, "new")), b"bytes");
}

/// Returns the node that a change has made.
fn made(reply: &Reply) -> Option<InodeId> {
    match reply {
        Reply::Entry(entry) | Reply::Created { entry, .. } => Some(entry.handle.ino),
        _ => None,
    }
}

fn node_of(offices: &Offices, text: &str) -> Handle {
    lookup(&offices.first, ROOT, text).unwrap()
}

/// Another client has written since: a second time would take that back.
#[test]
fn bytes_are_written_once() {
    let offices = Offices::with(waiting());
    offices.dir("berlin");
    let client = client(&offices.berlin);
    // So many that they are no row, with which the reply would be stored.
    let node = file(&offices, "file", &[7; 1 << 20]);
    let open = Request::Open { node, flags: OpenFlags::READ_WRITE, open: OpenId(9) };
    ask(&offices.berlin, client, open.clone()).unwrap();
    let to = Request::Write { open: OpenId(9), offset: 0, flags: WriteFlags::NONE };
    let change = Change { bytes: b"one".to_vec(), ..Change::by(client, to) };
    change.ask(&offices.berlin).unwrap();
    let append = WriteFlags { append: true, ..WriteFlags::NONE };
    let to = Request::Write { open: OpenId(9), offset: 0, flags: append };
    let added = Change { bytes: b"end".to_vec(), ..Change::by(client, to) };
    added.ask(&offices.berlin).unwrap();
    let Request::Open { node, .. } = open else { panic!() };
    let own = Request::Open { node, flags: OpenFlags::READ_WRITE, open: OpenId(3) };
    ask(&offices.first, DIRECT, own).unwrap();
    write(&offices.first, DIRECT, 3, b"two");
    let reopen = Request::Reopen { node, flags: OpenFlags::READ_WRITE, open: OpenId(9) };
    let offices = offices.start_berlin_again(waiting());
    ask(&offices.berlin, client, reopen.clone()).unwrap();
    for change in [&change, &added] {
        assert!(matches!(change.ask(&offices.berlin), Ok(Reply::Written { bytes: 3, .. })));
    }
    let attr = Request::GetAttr { node };
    let Reply::Attr(attr) = ask(&offices.first, DIRECT, attr).unwrap() else { panic!() };
    assert_eq!(attr.size, (1 << 20) + 3);
    assert_eq!(bytes_of(&offices.first, node)[..4], *b"two\x07");
    // Neither server knows it: the program hears that it may have happened.
    let offices = offices.start_first_again(options()).start_berlin_again(waiting());
    ask(&offices.berlin, client, reopen).unwrap();
    assert_eq!(change.ask(&offices.berlin).err(), Some(Code::Io));
    assert_eq!(bytes_of(&offices.first, node)[..4], *b"two\x07");
}

#[test]
fn a_start_of_both_servers_repeats_no_change_of_names() {
    let offices = Offices::with(waiting());
    offices.dir("berlin");
    let client = client(&offices.berlin);
    file(&offices, "file", b"");
    let moved = Change::by(client, rename("file", "moved"));
    moved.ask(&offices.berlin).unwrap();
    ask(&offices.first, DIRECT, rename("moved", "file")).unwrap();
    let late = Change::by(client, rename("file", "late"));
    let offices = offices.start_first_again(options()).start_berlin_again(waiting());
    moved.ask(&offices.berlin).unwrap();
    assert!(lookup(&offices.first, ROOT, "file").is_ok(), "it was not moved again");
    // One that had not come there is carried out now.
    late.ask(&offices.berlin).unwrap();
    assert!(lookup(&offices.first, ROOT, "late").is_ok());
}

/// Its rows are here, and its name is there.
#[test]
fn a_directory_of_two_sites_is_made_once() {
    let offices = Offices::with(waiting());
    offices.dir("berlin");
    let client = client(&offices.berlin);
    let mkdir = |text: &str| {
        let made = Request::MakeDir { dir: ROOT, name: name(text), mode: NewMode::exactly(0o755) };
        Change::by(client, made)
    };
    let changes = ["made", "removed", "late", "unanswered"].map(mkdir);
    let made: Vec<_> =
        changes[..2].iter().map(|it| made(&it.ask(&offices.berlin).unwrap())).collect();
    let remove = Request::RemoveDir { dir: ROOT, name: name("removed") };
    ask(&offices.berlin, DIRECT, remove).unwrap();
    *offices.losing.lock() = Losing::Answers;
    assert_eq!(changes[3].ask(&offices.berlin).err(), Some(Code::Interrupted));
    let offices = offices.start_berlin_again(waiting());
    *offices.losing.lock() = Losing::Nothing;
    let again = |change: &Change| change.ask(&offices.berlin).map(|reply| self::made(&reply));
    assert_eq!(again(&changes[0]), Ok(made[0]));
    assert_eq!(again(&changes[1]), Err(Code::Io), "it was made, and is gone");
    let inos = [&changes[2], &changes[3]].map(|change| {
        let ino = again(change).unwrap();
        assert_eq!(again(change), Ok(ino));
        ino
    });
    // It waits for no session of the last run any more.
    let service = offices.berlin.session_service();
    service.reclaimed(client);
    service.flushed(client);
    service.end_session(offices.first_at_berlin());
    for (ino, text) in inos.into_iter().zip(["late", "unanswered"]) {
        assert_eq!(lookup(&offices.berlin, ROOT, text).map(|node| node.ino).ok(), ino);
    }
}

/// With the session of a client ends what is known of it: a repetition is refused.
#[test]
fn a_client_that_is_not_known_repeats_nothing() {
    let offices = Offices::with(waiting());
    offices.dir("berlin");
    let client = client(&offices.berlin);
    file(&offices, "file", b"");
    let change = Change::by(client, unlink("file"));
    let offices = offices.start_berlin_again(waiting());
    assert_eq!(change.ask(&offices.berlin).err(), Some(Code::Io), "it never asked before");
    offices.berlin.session_service().reclaimed(client);
    change.ask(&offices.berlin).unwrap();
    assert_eq!(lookup(&offices.first, ROOT, "file"), Err(Code::NotFound));
}
