//! Requests that the server of a site answers under its leases from the other one.

use std::sync::atomic::Ordering;

use pelago_wire::{
    Code, Cookie, Error, Handle, InodeId, LeasedAnswer, NewMode, OpenFlags, OpenId, RenameFlags,
    Reply, Request, SessionId, SetAttr, WriteFlags,
};

use super::world::{Offices, ask, ask_with, client};
use crate::harness::rig::{entry, name};

const ROOT: Handle = Handle::ROOT;
const DIRECT: SessionId = SessionId::DIRECT;

impl Offices {
    /// Returns the number of requests that `act` has sent from berlin to the first site.
    fn counted(&self, act: impl FnOnce()) -> u64 {
        let before = self.sent.load(Ordering::Acquire);
        act();
        self.sent.load(Ordering::Acquire) - before
    }

    fn lookup(&self, text: &str) -> Result<InodeId, Code> {
        let found = ask(&self.berlin, DIRECT, Request::Lookup { dir: ROOT, name: name(text) })?;
        Ok(entry(found)?.attr.ino)
    }

    /// Returns the permission bits of a node, as berlin has them.
    fn mode(&self, node: Handle) -> u32 {
        match ask(&self.berlin, DIRECT, Request::GetAttr { node }).unwrap() {
            Reply::Attr(attr) => {
                assert!(attr.volatile, "no recall reaches a cache above the server of berlin");
                u32::from(attr.mode)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Creates a file in the root, at the first site.
    fn file_at_first(&self, text: &str) -> Handle {
        let request = Request::MakeNode {
            dir: ROOT,
            name: name(text),
            mode: NewMode::exactly(0o644),
            kind: pelago_wire::FileKind::Regular,
            rdev: 0,
        };
        entry(ask(&self.first, DIRECT, request).unwrap()).unwrap().handle
    }
}

fn list() -> Request {
    let after = Cookie::AFTER_DOT_DOT;
    Request::List { dir: ROOT, after, behind: None, entries: 100, attributes: true }
}

fn chmod(node: Handle, mode: u16) -> Request {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    Request::SetAttr { node, open: None, set }
}

#[test]
fn what_was_seen_is_not_asked_again() {
    let offices = Offices::new();
    let file = offices.file_at_first("file");
    let dir = offices.dir("berlin");
    let look = || {
        assert_eq!(offices.lookup("file"), Ok(file.ino));
        assert_eq!(offices.lookup("berlin"), Ok(dir.ino));
        assert_eq!(offices.lookup("nothing"), Err(Code::NotFound));
        assert_eq!(offices.mode(file), 0o644);
        let Reply::Listed { entries, end } = ask(&offices.berlin, DIRECT, list()).unwrap() else {
            panic!()
        };
        assert_eq!((entries.len(), end), (2, true));
    };
    assert_ne!(offices.counted(look), 0);
    assert_eq!(offices.counted(look), 0);
    offices.cut(true);
    // The leases have ended with the line: what is answered now is stale.
    assert_eq!(offices.counted(look), 0);
    assert_eq!(ask(&offices.berlin, DIRECT, chmod(file, 0o600)).err(), Some(Code::HostDown));
    offices.cut(false);
    assert_ne!(offices.counted(look), 0);
}

#[test]
fn a_change_at_the_home_is_seen_by_the_next_call() {
    let offices = Offices::new();
    let Offices { first, .. } = &offices;
    let file = offices.file_at_first("file");
    let other = offices.file_at_first("other");
    for mode in [0o600, 0o640, 0o644] {
        ask(first, DIRECT, chmod(file, mode)).unwrap();
        assert_eq!(offices.mode(file), u32::from(mode));
        assert_eq!(offices.counted(|| assert_ne!(offices.mode(file), 0)), 0);
    }
    assert_eq!(offices.lookup("new"), Err(Code::NotFound));
    let rename = |from: &str, to: &str| Request::Rename {
        from_dir: ROOT,
        from: name(from),
        to_dir: ROOT,
        to: name(to),
        flags: RenameFlags::Replace,
    };
    ask(first, DIRECT, rename("file", "new")).unwrap();
    assert_eq!(
        (offices.lookup("file"), offices.lookup("new")),
        (Err(Code::NotFound), Ok(file.ino))
    );
    ask(first, DIRECT, rename("other", "new")).unwrap();
    assert_eq!(offices.lookup("new"), Ok(other.ino));
    // A directory whose home is berlin, by its name in the root.
    let dir = offices.dir("berlin");
    assert_eq!(offices.lookup("berlin"), Ok(dir.ino));
    ask(first, DIRECT, rename("berlin", "munich")).unwrap();
    assert_eq!(
        (offices.lookup("berlin"), offices.lookup("munich")),
        (Err(Code::NotFound), Ok(dir.ino))
    );
}

/// A file is opened to be read without a word to its home, and known there before it is removed.
#[test]
fn a_file_that_is_open_in_another_office_outlives_its_name() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    let file = offices.file_at_first("file");
    assert_eq!(offices.lookup("file"), Ok(file.ino));
    let open = Request::Open { node: file, flags: OpenFlags::READ, open: OpenId(7) };
    let sent = offices.counted(|| drop(ask(berlin, DIRECT, open).unwrap()));
    assert_eq!(sent, 0);
    ask(first, DIRECT, Request::Unlink { dir: ROOT, name: name("file") }).unwrap();
    let read = Request::Read { open: OpenId(7), offset: 0, size: 10 };
    assert!(matches!(ask(berlin, DIRECT, read), Ok(Reply::Data(_))));
    ask(berlin, DIRECT, Request::Release { open: OpenId(7) }).unwrap();
    assert_eq!(offices.lookup("file"), Err(Code::NotFound));
}

/// Creates a file in the root by this open, and writes 4 KiB to it so many times.
fn write_file(offices: &Offices, session: SessionId, text: &str, open: OpenId, times: u64) {
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags::READ_WRITE;
    let create = Request::Create { dir: ROOT, name: name(text), mode, flags, open };
    ask(&offices.berlin, session, create).unwrap();
    for at in 0..times {
        let write = Request::Write { open, offset: at * 4096, flags: WriteFlags::NONE };
        ask_with(&offices.berlin, session, write, &[at as u8; 4096]).unwrap();
    }
}

impl Offices {
    /// Returns the size of a file, as the first site shows it.
    fn size_at_first(&self, file: InodeId) -> u64 {
        let get = Request::GetAttr { node: Handle::own(file) };
        match ask(&self.first, DIRECT, get).unwrap() {
            Reply::Attr(attr) => attr.size,
            other => panic!("{other:?}"),
        }
    }
}

/// The first read of a file that was opened without a word to its home comes while the line is cut.
#[test]
fn a_file_that_is_open_is_read_after_a_cut() {
    let offices = Offices::new();
    let berlin = &offices.berlin;
    let file = offices.written("file", b"bytes");
    assert_eq!(offices.lookup("file"), Ok(file.ino));
    let open = Request::Open { node: file, flags: OpenFlags::READ, open: OpenId(7) };
    assert_eq!(offices.counted(|| drop(ask(berlin, DIRECT, open).unwrap())), 0);
    let read = || ask(berlin, DIRECT, Request::Read { open: OpenId(7), offset: 0, size: 10 });
    offices.cut(true);
    assert_eq!(read().err(), Some(Code::HostDown));
    offices.cut(false);
    assert!(matches!(read(), Ok(Reply::Data(_))));
    ask(berlin, DIRECT, Request::Release { open: OpenId(7) }).unwrap();
    // One that was never read is closed without a word.
    assert_eq!(offices.lookup("file"), Ok(file.ino));
    let open = Request::Open { node: file, flags: OpenFlags::READ, open: OpenId(8) };
    ask(berlin, DIRECT, open).unwrap();
    offices.cut(true);
    ask(berlin, DIRECT, Request::Release { open: OpenId(8) }).unwrap();
}

/// A program on the machine of the server would end with the mount, if that is killed.
#[test]
fn what_the_own_mount_writes_is_held_back_until_it_is_looked_at() {
    let offices = Offices::new();
    let open = OpenId(1);
    let sent = offices.counted(|| write_file(&offices, DIRECT, "file", open, 10));
    assert_eq!(sent, 1, "the creation");
    let file = offices.lookup("file").unwrap();
    assert_eq!(offices.size_at_first(file), 10 * 4096);
    // After that each write goes to the home.
    let write = Request::Write { open, offset: 10 * 4096, flags: WriteFlags::NONE };
    ask_with(&offices.berlin, DIRECT, write, b"more").unwrap();
    assert_eq!(offices.size_at_first(file), 10 * 4096 + 4);
    let close = |offices: &Offices| {
        ask(&offices.berlin, DIRECT, Request::Flush { open, owner: None }).unwrap();
        ask(&offices.berlin, DIRECT, Request::Release { open }).unwrap();
    };
    close(&offices);
    // The bytes of another one are there once it is closed: one request for all.
    write_file(&offices, DIRECT, "other", open, 10);
    let flush = Request::Flush { open, owner: None };
    assert_eq!(offices.counted(|| drop(ask(&offices.berlin, DIRECT, flush))), 1);
    let Reply::Entry(found) =
        ask(&offices.first, DIRECT, Request::Lookup { dir: ROOT, name: name("other") }).unwrap()
    else {
        panic!()
    };
    assert_eq!(found.attr.size, 10 * 4096);
}

/// Before a connection ends, because this server stops. That of a server which has moved does not.
#[test]
fn what_is_held_back_is_sent_before_the_connection_ends() {
    let offices = Offices::new();
    write_file(&offices, DIRECT, "one", OpenId(1), 3);
    assert_eq!(offices.counted(|| offices.berlin.flush_sites()), 1);
    write_file(&offices, DIRECT, "two", OpenId(2), 3);
    let file = offices.lookup("two").unwrap();
    let moved = Request::SiteAddress { address: b"moved:1".to_vec() };
    ask(&offices.berlin, offices.first_at_berlin(), moved).unwrap();
    let write = Request::Write { open: OpenId(2), offset: 0, flags: WriteFlags::NONE };
    ask_with(&offices.berlin, DIRECT, write, b"new").unwrap();
    assert_eq!(offices.size_at_first(file), 3 * 4096);
}

/// A recall would have a client send what it holds back, at each listing.
#[test]
fn a_listing_does_not_stop_the_writers_of_the_other_office() {
    let offices = Offices::new();
    ask(&offices.berlin, DIRECT, Request::GetAttr { node: ROOT }).unwrap();
    let writer = client(&offices.first);
    let service = offices.first.session_service();
    let since = service.lease_moment();
    let mode = NewMode::exactly(0o644);
    let open = OpenId(1);
    let flags = OpenFlags::READ_WRITE;
    let create = Request::Create { dir: ROOT, name: name("file"), mode, flags, open };
    let mut result = ask(&offices.first, writer, create).map_err(Error::from);
    let answer = LeasedAnswer {
        node: None,
        names: None,
        mutation: 0,
        origin: None,
        opens_for_writing: true,
        result: &mut result,
        changed: None,
    };
    assert!(service.lease(writer, since, answer).bytes.is_some());
    // No one would answer the recall.
    let Reply::Listed { entries, end } = ask(&offices.berlin, DIRECT, list()).unwrap() else {
        panic!()
    };
    assert_eq!((entries.len(), end), (1, true));
    assert!(entries[0].entry.is_none());
}

/// What is held back would be lost with the server of the site, although its client lives.
#[test]
fn what_a_client_writes_is_at_the_home_when_it_is_answered() {
    let offices = Offices::new();
    let session = client(&offices.berlin);
    let sent = offices.counted(|| write_file(&offices, session, "file", OpenId(1), 20));
    assert_eq!(sent, 21);
    let file = offices.lookup("file").unwrap();
    assert_eq!(offices.size_at_first(file), 20 * 4096);
}

/// The kernel below the mount has no pages of such a file, and reads nothing ahead.
#[test]
fn a_file_is_read_ahead() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    write_file(&offices, DIRECT, "file", OpenId(1), 256);
    ask(berlin, DIRECT, Request::Release { open: OpenId(1) }).unwrap();
    let node = Handle::own(offices.lookup("file").unwrap());
    let open = Request::Open { node, flags: OpenFlags::READ, open: OpenId(2) };
    ask(berlin, DIRECT, open).unwrap();
    let read = |at: u64| {
        let read = Request::Read { open: OpenId(2), offset: at * 4096, size: 4096 };
        match ask(berlin, DIRECT, read).unwrap() {
            Reply::Data(buffer) => buffer.as_bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    };
    let sent = offices.counted(|| {
        for at in 0..256 {
            assert_eq!(read(at), [at as u8; 4096], "{at}");
        }
    });
    // One for the open, and one for each window: 4 KiB, then 16 KiB, and twice as many each time.
    assert!(sent <= 10, "{sent}");
    // A write at the home ends what is here.
    let flags = OpenFlags::READ_WRITE;
    ask(first, DIRECT, Request::Open { node, flags, open: OpenId(3) }).unwrap();
    let write = Request::Write { open: OpenId(3), offset: 255 * 4096, flags: WriteFlags::NONE };
    ask_with(first, DIRECT, write, &[77; 4096]).unwrap();
    assert_eq!(read(255), [77; 4096]);
    let write = Request::Write { open: OpenId(3), offset: 254 * 4096, flags: WriteFlags::NONE };
    assert_eq!(read(253), [253; 4096]);
    ask_with(first, DIRECT, write, &[78; 4096]).unwrap();
    assert_eq!(read(254), [78; 4096]);
}

/// `ls -l` and then `cat` of each file, twice: what each costs when nothing is known, and then.
#[test]
fn a_folder_of_small_files_is_read_once() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    for at in 0..20 {
        let create = Request::Create {
            dir: ROOT,
            name: name(&format!("file{at}")),
            mode: NewMode::exactly(0o644),
            flags: OpenFlags::READ_WRITE,
            open: OpenId(at),
        };
        ask(first, DIRECT, create).unwrap();
        let write = Request::Write { open: OpenId(at), offset: 0, flags: WriteFlags::NONE };
        ask_with(first, DIRECT, write, b"bytes").unwrap();
        ask(first, DIRECT, Request::Release { open: OpenId(at) }).unwrap();
    }
    // As the mount lists a folder of another site.
    let list = Request::List {
        dir: ROOT,
        after: Cookie::AFTER_DOT_DOT,
        behind: None,
        entries: 100,
        attributes: false,
    };
    let get_root = || drop(ask(berlin, DIRECT, Request::GetAttr { node: ROOT }).unwrap());
    let listed = offices.counted(|| {
        get_root();
        let Reply::Listed { entries, .. } = ask(berlin, DIRECT, list).unwrap() else { panic!() };
        assert!(entries.len() == 20 && entries.iter().all(|entry| entry.entry.is_none()));
        (0..20).for_each(|at| assert!(offices.lookup(&format!("file{at}")).is_ok()));
    });
    assert_eq!(listed, 2);
    let cat_all = || {
        for at in 0..20 {
            let node = Handle::own(offices.lookup(&format!("file{at}")).unwrap());
            let open = OpenId(100 + at);
            ask(berlin, DIRECT, Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
            for offset in [0, 5] {
                let read = Request::Read { open, offset, size: 1 << 17 };
                let Reply::Data(bytes) = ask(berlin, DIRECT, read).unwrap() else { panic!() };
                assert_eq!(bytes.as_bytes(), if offset == 0 { &b"bytes"[..] } else { b"" });
            }
            ask(berlin, DIRECT, Request::Release { open }).unwrap();
        }
    };
    // The open and the read go together, and the close waits for nothing.
    assert_eq!(offices.counted(cat_all), 60);
    let again = offices.counted(cat_all);
    assert_eq!(again, 0);
}
