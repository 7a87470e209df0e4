//! Repeated requests: a client that lost its connection does not know which requests were carried
//! out, and sends them again.

use std::thread;
use std::time::{Duration, Instant};

use pelago_server::{Options, Passthrough};
use pelago_wire::{
    Code, Context, DataPath, Entry, Handle, InodeId, NewMode, OpenFlags, OpenId, RenameFlags,
    Reply, Request, RequestId, SessionId, SetAttr, WriteFlags, XattrFlags,
};

use crate::harness::rig::{Rig, by_hand, name};

const SESSION: SessionId = SessionId(7);

fn asks(request: u64) -> Context {
    let mutation = request + 1;
    Context { session: SESSION, request: RequestId(request), mutation, ..Context::direct(10, 20) }
}

/// Requests of every kind that is remembered, in an order in which none can be carried out twice.
fn requests(rig: &Rig) -> Vec<Request> {
    let dir = Handle::ROOT;
    let entry = |text: &str| rig.lookup(dir, text).unwrap().handle;
    let file = rig.put(dir, "file", b"bytes").unwrap().handle;
    rig.put(dir, "target", b"").unwrap();
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let create = XattrFlags::Create;
    let flags = RenameFlags::NoReplace;
    let attribute = || b"user.a".to_vec();
    vec![
        Request::MakeDir { dir, name: name("dir"), mode: NewMode::exactly(0o755) },
        Request::Symlink { dir, name: name("link"), target: b"to".to_vec() },
        Request::Link { node: file, dir, name: name("second") },
        Request::SetAttr { node: entry("target"), open: None, set },
        Request::SetXattr {
            node: file,
            name: attribute(),
            value: vec![1],
            flags: create,
            kill_setgid: false,
        },
        Request::RemoveXattr { node: file, name: attribute() },
        Request::Rename {
            from_dir: dir,
            from: name("link"),
            to_dir: dir,
            to: name("moved"),
            flags,
        },
        Request::Unlink { dir, name: name("target") },
        Request::RemoveDir { dir, name: name("dir") },
    ]
}

/// Returns the reply as text, without the flag that it may be cached: a stored reply may be stale.
fn said(reply: &Reply) -> String {
    format!("{reply:?}").replace("volatile: true", "volatile: false")
}

/// A repeated request gets the first reply and changes nothing, in the same run of the server and
/// in the next one.
#[test]
fn a_request_is_carried_out_once_however_often_it_is_sent() {
    let mut rig = Rig::new(by_hand());
    let requests = requests(&rig);
    let mut replies = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        let who = asks(number as u64);
        replies.push(said(&rig.call_as(&who, request.clone(), &[]).unwrap()));
    }
    let tree = rig.tree();
    for restart in [false, true] {
        if restart {
            rig = rig.restarted(false, by_hand());
        }
        let batches = rig.table.unsafe_batches();
        for (number, request) in requests.iter().enumerate() {
            let again = rig.call_as(&asks(number as u64), request.clone(), &[]).unwrap();
            assert_eq!(said(&again), replies[number], "restarted: {restart}");
        }
        assert_eq!(rig.table.unsafe_batches(), batches, "nothing was written");
    }
    assert_eq!(rig.tree().keys().collect::<Vec<_>>(), tree.keys().collect::<Vec<_>>());
    rig.expect_whole("replies are stored");
}

/// A crash keeps a change and its reply, or neither. If the requests are repeated after it, each
/// change was made once.
#[test]
fn an_answer_and_its_change_stay_together() {
    let rig = Rig::new(by_hand());
    let requests = requests(&rig);
    rig.sync();
    for (number, request) in requests.iter().enumerate() {
        rig.call_as(&asks(number as u64), request.clone(), &[]).unwrap();
    }
    let names: Vec<_> = rig.tree().into_keys().collect();
    for keep in 0..=rig.table.unsafe_batches() {
        let left = rig.crashed(keep, by_hand());
        for (number, request) in requests.iter().enumerate() {
            // The number of an inode that was lost may be another one now.
            let again = left.call_as(&asks(number as u64), request.clone(), &[]);
            assert!(again.is_ok(), "{keep} batches kept, {request:?}: {again:?}");
        }
        assert_eq!(left.tree().into_keys().collect::<Vec<_>>(), names, "{keep} batches kept");
        left.expect_whole("repeated");
    }
}

#[test]
fn other_requests_and_other_sessions_are_not_taken_for_it() {
    let rig = Rig::new(by_hand());
    let make = |text: &str| Request::MakeDir {
        dir: Handle::ROOT,
        name: name(text),
        mode: NewMode::exactly(0o755),
    };
    let entry = |reply| -> Entry {
        match reply {
            Ok(Reply::Entry(entry)) => entry,
            other => panic!("{other:?}"),
        }
    };
    let one = entry(rig.call_as(&asks(1), make("one"), &[]));
    let two = entry(rig.call_as(&asks(2), make("two"), &[]));
    assert_ne!(one.attr.ino, two.attr.ino);
    let other = Context { session: SessionId(8), ..asks(1) };
    assert_eq!(rig.call_as(&other, make("one"), &[]).err(), Some(Code::Exists));
    // What failed is tried again.
    rig.call(Request::RemoveDir { dir: Handle::ROOT, name: name("one") }).unwrap();
    entry(rig.call_as(&other, make("one"), &[]));
}

/// A number of an open means nothing to another session, and ends with its own.
#[test]
fn an_open_belongs_to_its_session() {
    let rig = Rig::new(by_hand());
    let other = |request| Context { session: SessionId(8), ..asks(request) };
    let dir = Handle::ROOT;
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags::READ_WRITE;
    let open = OpenId(1);
    let create = |text: &str| Request::Create { dir, name: name(text), mode, flags, open };
    rig.call_as(&asks(1), create("one"), &[]).unwrap();
    assert_eq!(rig.call_as(&asks(2), create("again"), &[]).err(), Some(Code::Invalid));
    assert_eq!(rig.lookup(dir, "again").err(), Some(Code::NotFound));
    let write = || Request::Write { open, offset: 0, flags: WriteFlags::NONE };
    assert_eq!(rig.call_as(&other(1), write(), b"x").err(), Some(Code::BadOpen));
    rig.call_as(&other(2), create("two"), &[]).unwrap();
    rig.call_as(&asks(3), write(), b"one").unwrap();
    rig.call_as(&other(3), write(), b"other").unwrap();
    rig.server.session_service().end_session(SESSION);
    let deadline = Instant::now() + Duration::from_secs(30);
    while rig.server.status().open_files > 1 {
        assert!(Instant::now() < deadline, "the session's files stay open");
        thread::yield_now();
    }
    assert_eq!(rig.call_as(&asks(4), write(), b"x").err(), Some(Code::BadOpen));
    let size = |text| rig.lookup(dir, text).unwrap().attr.size;
    assert_eq!((size("one"), size("two"), rig.server.status().open_files), (3, 5, 1));
    // What was open is in the rows: a crash loses none of it.
    rig.sync();
    let left = rig.crashed(0, by_hand());
    assert_eq!(left.lookup(dir, "one").unwrap().attr.size, 3);
}

/// Descriptors are for the server's own process.
#[test]
fn another_session_gets_no_descriptor() {
    let rig = Rig::new(Options { passthrough: Passthrough::Always, ..by_hand() });
    let flags = OpenFlags { passthrough: true, ..OpenFlags::READ_WRITE };
    let dir = Handle::ROOT;
    let mode = NewMode::exactly(0o644);
    let open = OpenId(1);
    let create = Request::Create { dir, name: name("file"), mode, flags, open };
    let reply = rig.call_as(&asks(1), create, &[]).unwrap();
    let Reply::Created { entry, path } = reply else { panic!("{reply:?}") };
    assert_eq!(path, DataPath::Cached);
    let again = Request::Open { node: entry.handle, flags, open: OpenId(2) };
    let reply = rig.call_as(&asks(2), again, &[]).unwrap();
    assert!(matches!(reply, Reply::Opened { path: DataPath::Cached, .. }), "{reply:?}");
}

/// Answers do not pile up: those that the client has and that are safe go, and with the session all
/// do.
#[test]
fn old_answers_are_forgotten() {
    let rig = Rig::new(by_hand());
    let node = rig.put(Handle::ROOT, "file", b"").unwrap().handle;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let ask = |rig: &Rig, number: u64, acknowledged: u64| {
        let context = Context { acknowledged, ..asks(number) };
        rig.call_as(&context, Request::SetAttr { node, open: None, set }, &[]).unwrap();
    };
    for number in 0..1000 {
        ask(&rig, number, 0);
    }
    assert_eq!(answers(&rig), 1000, "the client has none of them");
    rig.sync();
    for number in 1000..2000 {
        ask(&rig, number, number - 3);
    }
    // What was answered since the last group commit is kept.
    assert_eq!(answers(&rig), 1000);
    rig.sync();
    for number in 2000..2400 {
        ask(&rig, number, number - 3);
    }
    assert_eq!(answers(&rig), 400);
    let rig = rig.restarted(false, by_hand());
    ask(&rig, 2400, 2390);
    assert_eq!(answers(&rig), 397, "those of the last run go too");
    rig.server.session_service().end_session(SESSION);
    let deadline = Instant::now() + Duration::from_secs(30);
    while answers(&rig) > 0 {
        assert!(Instant::now() < deadline, "the session's answers stay");
        thread::yield_now();
    }
    rig.expect_whole("the session has ended");
    assert!(rig.restarted(false, by_hand()).server.session_service().earlier_sessions().is_empty());
}

fn answers(rig: &Rig) -> usize {
    let range = pelago_store::key::all(pelago_store::key::RowKind::CachedReply);
    let mut answers = 0;
    let count = &mut |_: &[u8], _: &[u8]| {
        answers += 1;
        std::ops::ControlFlow::Continue(())
    };
    pelago_store::table::TableRead::scan(&rig.table, &range.from, &range.to, count).unwrap();
    answers
}

/// The answer to a create is lost with the server: its repetition gets the same inode, and the file
/// is open.
#[test]
fn a_repeated_create_opens_its_file_again() {
    let rig = Rig::new(by_hand());
    let dir = Handle::ROOT;
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags::READ_WRITE;
    let named = || Request::Create { dir, name: name("file"), mode, flags, open: OpenId(1) };
    let unnamed = || Request::CreateUnnamed { dir, mode, flags, open: OpenId(2) };
    let inode = |reply| match reply {
        Ok(Reply::Created { entry, .. }) => Entry { ..entry }.attr.ino,
        other => panic!("{other:?}"),
    };
    let first = inode(rig.call_as(&asks(1), named(), &[]));
    let second = inode(rig.call_as(&asks(2), unnamed(), &[]));
    assert_eq!(inode(rig.call_as(&asks(1), named(), &[])), first, "it is open already");
    let rig = rig.restarted(false, by_hand());
    assert_eq!(inode(rig.call_as(&asks(1), named(), &[])), first);
    assert_eq!(inode(rig.call_as(&asks(2), unnamed(), &[])), second);
    assert_eq!(rig.server.status().open_files, 2);
    for (number, open) in [(3, OpenId(1)), (4, OpenId(2))] {
        let write = Request::Write { open, offset: 0, flags: WriteFlags::NONE };
        rig.call_as(&asks(number), write, b"bytes").unwrap();
    }
    assert_eq!(rig.lookup(dir, "file").unwrap().attr.size, 5);
}

/// What was open is opened again under its number, also a file without a name; bytes that were
/// answered are there, although no group commit came.
#[test]
fn files_are_opened_again_after_a_restart() {
    let rig = Rig::new(by_hand());
    let dir = Handle::ROOT;
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags::READ_WRITE;
    let open = OpenId(1);
    let create = Request::Create { dir, name: name("file"), mode, flags, open };
    let Ok(Reply::Created { entry, .. }) = rig.call_as(&asks(1), create, &[]) else {
        panic!("it is created");
    };
    let write = |at: u64| Request::Write { open, offset: at, flags: WriteFlags::NONE };
    rig.call_as(&asks(2), write(0), b"first").unwrap();
    rig.unlink(dir, "file").unwrap();
    let rig = rig.restarted(false, by_hand());
    let flags = OpenFlags { truncate: true, ..flags };
    let reopen = |open| Request::Reopen { node: entry.handle, flags, open };
    assert_eq!(rig.call_as(&asks(3), write(0), b"x").err(), Some(Code::BadOpen));
    for _ in 0..2 {
        let reply = rig.call_as(&asks(4), reopen(open), &[]);
        assert!(matches!(&reply, Ok(Reply::Opened { attr, .. }) if attr.size == 5), "{reply:?}");
    }
    rig.call_as(&asks(5), write(5), b" second").unwrap();
    let read = Request::Read { open, offset: 0, size: 100 };
    let Ok(Reply::Data(bytes)) = rig.call_as(&asks(6), read, &[]) else { panic!("it is read") };
    assert_eq!(bytes.as_bytes(), b"first second");
    let other = rig.put(dir, "other", b"").unwrap();
    let taken = Request::Reopen { node: other.handle, flags, open };
    assert_eq!(rig.call_as(&asks(7), taken, &[]).err(), Some(Code::Invalid));
    let gone = Request::Reopen { node: Handle::own(InodeId::from_raw(77)), flags, open: OpenId(9) };
    assert_eq!(rig.call_as(&asks(8), gone, &[]).err(), Some(Code::Stale));
}
