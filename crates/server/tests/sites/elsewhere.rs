//! Requests for nodes whose home is the other site.

use std::sync::atomic::Ordering;

use pelago_server::{Options, Server};
use pelago_wire::{
    Code, Cookie, DataPath, Handle, LeasedAnswer, NewMode, OpenFlags, OpenId, RenameFlags, Reply,
    Request, SessionId, WriteFlags,
};

use super::line::Losing;
use super::world::{Offices, ask, ask_with, berlin_dir, client, lookup, options, wait_for};
use crate::harness::rig::{entry, name};

const ROOT: Handle = Handle::ROOT;
const DIRECT: SessionId = SessionId::DIRECT;

/// Creates a file with an open of this number.
fn create(server: &Server, session: SessionId, dir: Handle, text: &str, open: u64) -> Handle {
    let request = Request::Create {
        dir,
        name: name(text),
        mode: NewMode::exactly(0o644),
        flags: OpenFlags::READ_WRITE,
        open: OpenId(open),
    };
    match ask(server, session, request).unwrap() {
        Reply::Created { entry, path } => {
            let is_elsewhere = entry.handle.ino.site() != server.site();
            assert_eq!(path == DataPath::Direct, is_elsewhere);
            assert!(!is_elsewhere || entry.attr.volatile);
            entry.handle
        }
        other => panic!("{other:?}"),
    }
}

fn write(server: &Server, session: SessionId, open: u64, bytes: &[u8]) -> Result<Reply, Code> {
    let flags = WriteFlags { append: true, ..WriteFlags::NONE };
    let request = Request::Write { open: OpenId(open), offset: 0, flags };
    ask_with(server, session, request, bytes)
}

fn read(server: &Server, session: SessionId, open: u64) -> Result<Vec<u8>, Code> {
    let request = Request::Read { open: OpenId(open), offset: 0, size: 100 };
    ask(server, session, request).map(|reply| match reply {
        Reply::Data(buffer) => buffer.as_bytes().to_vec(),
        other => panic!("{other:?}"),
    })
}

#[test]
fn both_sites_see_one_tree() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    let dir = offices.dir("berlin");
    assert_eq!(dir.ino.site(), 1);
    for server in [first, berlin] {
        assert_eq!(lookup(server, ROOT, "berlin"), Ok(dir));
        let up = entry(ask(server, DIRECT, Request::Parent { dir }).unwrap());
        assert_eq!(up.unwrap().handle, ROOT);
    }
    // A file has the home of its directory, at whichever site it is made.
    let here = create(first, DIRECT, dir, "by-first", 1);
    let there = create(berlin, DIRECT, ROOT, "by-berlin", 2);
    assert_eq!((here.ino.site(), there.ino.site()), (1, 0));
    write(first, DIRECT, 1, b"one").unwrap();
    write(berlin, DIRECT, 2, b"two").unwrap();
    for (server, open) in [(first, 1), (berlin, 2)] {
        ask(server, DIRECT, Request::Release { open: OpenId(open) }).unwrap();
        assert_eq!(read(server, DIRECT, open), Err(Code::BadOpen));
    }
    for server in [first, berlin] {
        assert_eq!(lookup(server, dir, "by-first"), Ok(here));
        assert_eq!(lookup(server, ROOT, "by-berlin"), Ok(there));
        assert_eq!(lookup(server, ROOT, "nothing"), Err(Code::NotFound));
        assert_eq!(lookup(server, dir, "nothing"), Err(Code::NotFound));
    }
}

#[test]
fn a_listing_has_the_names_of_both() {
    let offices = Offices::new();
    let dir = offices.dir("berlin");
    create(&offices.first, DIRECT, ROOT, "file", 1);
    for server in [&offices.first, &offices.berlin] {
        let list = Request::List {
            dir: ROOT,
            after: Cookie::AFTER_DOT_DOT,
            behind: None,
            entries: 10,
            attributes: true,
        };
        let Reply::Listed { entries, end } = ask(server, DIRECT, list).unwrap() else { panic!() };
        let found: Vec<_> =
            entries.iter().map(|it| (it.name.to_string(), it.entry.is_some())).collect();
        assert!(end && found.contains(&("file".to_owned(), true)), "{found:?}");
        // Its attributes are at its home.
        assert!(found.contains(&("berlin".to_owned(), false)), "{found:?}");
        assert!(entries.iter().any(|it| it.ino == dir.ino));
    }
}

/// The numbers of opens are those of a session, and all share one at the other site.
#[test]
fn opens_of_two_sessions_do_not_meet() {
    let offices = Offices::new();
    let berlin = &offices.berlin;
    let [one, other] = [client(berlin), client(berlin)];
    let mine = create(berlin, one, ROOT, "mine", 1);
    create(berlin, other, ROOT, "theirs", 1);
    write(berlin, one, 1, b"mine").unwrap();
    write(berlin, other, 1, b"theirs").unwrap();
    ask(berlin, one, Request::Release { open: OpenId(1) }).unwrap();
    assert_eq!(read(berlin, one, 1), Err(Code::BadOpen));
    assert_eq!(read(berlin, other, 1), Ok(b"theirs".to_vec()));
    let open = Request::Open { node: mine, flags: OpenFlags::READ_WRITE, open: OpenId(2) };
    ask(berlin, one, open).unwrap();
    assert_eq!(read(berlin, one, 2), Ok(b"mine".to_vec()));
    // A session that ends takes its opens there with it, and no others.
    let before = offices.first.status().open_files;
    berlin.session_service().end_session(one);
    wait_for("its open is released there", || offices.first.status().open_files == before - 1);
    assert_eq!(read(berlin, other, 1), Ok(b"theirs".to_vec()));
}

#[test]
fn what_would_change_both_sites_is_refused() {
    let offices = Offices::new();
    let dir = offices.dir("berlin");
    let node = create(&offices.berlin, DIRECT, ROOT, "file", 1);
    create(&offices.berlin, DIRECT, dir, "own", 2);
    for server in [&offices.first, &offices.berlin] {
        let rename = Request::Rename {
            from_dir: ROOT,
            from: name("file"),
            to_dir: dir,
            to: name("moved"),
            flags: RenameFlags::Replace,
        };
        assert_eq!(ask(server, DIRECT, rename).err(), Some(Code::CrossHome));
        let link = Request::Link { node, dir, name: name("link") };
        assert_eq!(ask(server, DIRECT, link).err(), Some(Code::CrossHome));
    }
    let copy = Request::CopyRange {
        from: OpenId(1),
        from_offset: 0,
        to: OpenId(2),
        to_offset: 0,
        length: 1,
    };
    assert_eq!(ask(&offices.berlin, DIRECT, copy).err(), Some(Code::CrossHome));
}

#[test]
fn a_silent_site_stops_only_what_is_its_own() {
    let offices = Offices::new();
    let dir = offices.dir("berlin");
    let berlin = &offices.berlin;
    create(berlin, DIRECT, dir, "own", 1);
    let sent = offices.sent.load(Ordering::Acquire);
    offices.cut(true);
    // At once, and without a word.
    assert_eq!(lookup(berlin, ROOT, "file"), Err(Code::HostDown));
    assert_eq!(lookup(berlin, ROOT, "berlin"), Ok(dir), "its own is known");
    let mkdir = Request::MakeDir { dir: ROOT, name: name("x"), mode: NewMode::exactly(0o755) };
    assert_eq!(ask(berlin, DIRECT, mkdir).err(), Some(Code::HostDown));
    for number in 0..100 {
        create(berlin, DIRECT, dir, &format!("f{number}"), 10 + number);
        write(berlin, DIRECT, 10 + number, b"x").unwrap();
        ask(berlin, DIRECT, Request::Release { open: OpenId(10 + number) }).unwrap();
    }
    assert_eq!(offices.sent.load(Ordering::Acquire), sent);
    // A name that the other site has leads here.
    assert_eq!(lookup(&offices.first, ROOT, "berlin"), Err(Code::HostDown));
    offices.cut(false);
    assert_eq!(lookup(berlin, ROOT, "berlin"), Ok(dir));
}

/// The name is asked for once; the directory that did not get it is gone.
#[test]
fn a_directory_that_gets_no_name_is_not_kept() {
    let offices = Offices::new();
    offices.dir("berlin");
    let mkdir = |text: &str| Request::MakeDir {
        dir: ROOT,
        name: name(text),
        mode: NewMode::exactly(0o755),
    };
    for _ in 0..3 {
        assert_eq!(ask(&offices.berlin, DIRECT, mkdir("berlin")).err(), Some(Code::Exists));
    }
    let Offices { first, berlin, folder, .. } = offices;
    for server in [&first, &berlin] {
        server.stop().unwrap();
    }
    let plan = pelago_check::plan(&berlin_dir(&folder)).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    // The one that has its name at the first site.
    assert_eq!(plan.checked.named_elsewhere, 1);
    let plan = pelago_check::plan(&folder.path().join("first")).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
}

#[test]
fn nothing_of_another_site_is_leased() {
    let offices = Offices::new();
    let dir = offices.dir("berlin");
    let session = client(&offices.berlin);
    let service = offices.berlin.session_service();
    let leases = |node: Handle| {
        let since = service.lease_moment();
        let mut result = ask(&offices.berlin, session, Request::GetAttr { node })
            .map_err(pelago_wire::Error::from);
        let answer = LeasedAnswer {
            node: Some(node.ino),
            names: None,
            mutation: 0,
            origin: None,
            opens_for_writing: false,
            result: &mut result,
            changed: None,
        };
        service.lease(session, since, answer)
    };
    assert_eq!(leases(ROOT), pelago_wire::Leases::default());
    assert_ne!(leases(dir), pelago_wire::Leases::default());
}

#[test]
fn a_site_that_refuses_changes_sends_none() {
    let offices = Offices::with(Options { read_only: false, ..options() });
    offices.dir("berlin");
    create(&offices.first, DIRECT, ROOT, "file", 1);
    let Offices { first, berlin, folder, sent, .. } = offices;
    let before = sent.load(Ordering::Acquire);
    drop(berlin);
    let again =
        Server::start(&berlin_dir(&folder), Options { read_only: true, ..options() }).unwrap();
    let unlink = Request::Unlink { dir: ROOT, name: name("file") };
    assert_eq!(ask(&again, DIRECT, unlink).err(), Some(Code::ReadOnly));
    assert_eq!(sent.load(Ordering::Acquire), before);
    assert!(lookup(&first, ROOT, "file").is_ok());
}

/// Its caller was told that it was interrupted; the other site has the name all the same.
#[test]
fn a_name_whose_answer_is_lost_leads_somewhere() {
    let offices = Offices::new();
    *offices.losing.lock() = Losing::Answers;
    let mkdir = Request::MakeDir { dir: ROOT, name: name("berlin"), mode: NewMode::exactly(0o755) };
    assert_eq!(ask(&offices.berlin, DIRECT, mkdir).err(), Some(Code::Interrupted));
    for server in [&offices.first, &offices.berlin] {
        let dir = lookup(server, ROOT, "berlin").unwrap();
        assert_eq!(dir.ino.site(), 1);
    }
}

/// What a session that has ended would open at the other site would stay open there.
#[test]
fn a_session_that_has_ended_opens_nothing_there() {
    let offices = Offices::new();
    let node = create(&offices.berlin, DIRECT, ROOT, "file", 1);
    ask(&offices.berlin, DIRECT, Request::Release { open: OpenId(1) }).unwrap();
    let session = client(&offices.berlin);
    offices.berlin.session_service().end_session(session);
    wait_for("the session has ended", || {
        let open = Request::Open { node, flags: OpenFlags::READ, open: OpenId(2) };
        ask(&offices.berlin, session, open).err() == Some(Code::Unavailable)
    });
    wait_for("nothing is open there", || offices.first.status().open_files == 0);
}
