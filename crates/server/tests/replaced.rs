//! Files that a rename of a session has replaced: a late open still finds them.

use pelago_server::Options;
use pelago_wire::{
    Code, Context, FileKind, Handle, NewMode, RenameFlags, Reply, Request, RequestId, SessionId,
};

use crate::harness::rig::{Rig, entry, name};

const ROOT: Handle = Handle::ROOT;
const LARGE: usize = 100_000;

/// The options of most tests, with the worker that releases replaced files.
fn with_workers() -> Options {
    Options { workers: true, ..Options::default() }
}

fn session(request: u64) -> Context {
    let session = SessionId(7);
    let mutation = request + 1;
    Context { session, request: RequestId(request), mutation, ..Context::direct(10, 20) }
}

fn rename(rig: &Rig, who: &Context, from: &str, to: &str) {
    let from = name(from);
    let to = name(to);
    let flags = RenameFlags::Replace;
    let request = Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags };
    rig.call_as(who, request, &[]).unwrap();
}

fn open_files(rig: &Rig) -> u64 {
    rig.server.status().open_files
}

/// The bytes of a large file are gone within some time; those of a small one are rows.
#[test]
fn a_replaced_file_can_be_opened_for_a_while_and_goes_then() {
    let rig = Rig::new(with_workers());
    for size in [3, LARGE] {
        let old = rig.put(ROOT, "file", &vec![1; size]).unwrap();
        rig.put(ROOT, "new", b"new").unwrap();
        rename(&rig, &session(size as u64), "new", "file");
        // Each open reads it as it was, also that of another session.
        for _ in 0..2 {
            assert_eq!(rig.read(old.handle, size as u64).unwrap(), vec![1; size]);
        }
        assert_eq!(open_files(&rig), 0, "no program has it open");
        crate::harness::until("it is gone", || rig.read(old.handle, 1) == Err(Code::Stale));
        let found = rig.lookup(ROOT, "file").unwrap();
        assert_eq!(rig.read(found.handle, 10).unwrap(), b"new");
        rig.unlink(ROOT, "file").unwrap();
    }
    crate::harness::until("its bytes are gone", || rig.check().checked.content_files == 0);
    rig.expect_whole("after replaced files");
}

#[test]
fn a_replaced_symbolic_link_can_be_read_for_a_while() {
    let rig = Rig::new(with_workers());
    let link = |text: &str, target: &[u8]| {
        let target = target.to_vec();
        entry(rig.call(Request::Symlink { dir: ROOT, name: name(text), target }).unwrap()).unwrap()
    };
    let old = link("link", b"old");
    link("new", b"new");
    rename(&rig, &session(1), "new", "link");
    let read = || match rig.call(Request::ReadLink { node: old.handle }) {
        Ok(Reply::Bytes(target)) => Some(target),
        result => {
            assert_eq!(result.map(drop), Err(Code::Stale));
            None
        }
    };
    assert_eq!(read().as_deref(), Some(&b"old"[..]));
    crate::harness::until("it is gone", || read().is_none());
}

/// What is open keeps the file without that, and after it.
#[test]
fn an_open_file_outlives_its_replacement() {
    let rig = Rig::new(with_workers());
    let (old, open) = rig.create(ROOT, "file").unwrap();
    rig.write(open, 0, b"old").unwrap();
    rig.put(ROOT, "new", b"new").unwrap();
    rename(&rig, &session(1), "new", "file");
    let probe = rig.put(ROOT, "probe", b"probe").unwrap();
    rig.put(ROOT, "new", b"new").unwrap();
    rename(&rig, &session(2), "new", "probe");
    crate::harness::until("later ones are gone", || rig.read(probe.handle, 1) == Err(Code::Stale));
    assert_eq!(rig.read(old.handle, 10).unwrap(), b"old");
    rig.close(open).unwrap();
    crate::harness::until("it is gone", || rig.read(old.handle, 10) == Err(Code::Stale));
}

/// The server's own mount opens what it replaces by itself, and a file with another name is not
/// gone. A rename that fails leaves the file as it was.
#[test]
fn only_what_a_session_has_replaced_is_held() {
    let rig = Rig::new(with_workers());
    let held = || {
        let workers = rig.server.status().workers;
        workers.iter().find(|worker| worker.name == "replaced").unwrap().items
    };
    let file = rig.put(ROOT, "file", &[1; LARGE]).unwrap();
    rig.put(ROOT, "new", b"new").unwrap();
    rename(&rig, &Context::direct(10, 20), "new", "file");
    crate::harness::until("it is gone", || rig.read(file.handle, 1) == Err(Code::Stale));
    let file = rig.lookup(ROOT, "file").unwrap();
    let link = Request::Link { node: file.handle, dir: ROOT, name: name("other") };
    rig.call(link).unwrap();
    rig.put(ROOT, "new", b"newer").unwrap();
    rename(&rig, &session(1), "new", "file");
    rig.unlink(ROOT, "other").unwrap();
    crate::harness::until("it is gone", || rig.read(file.handle, 1) == Err(Code::Stale));
    assert_eq!(held(), 0);
    let file = rig.lookup(ROOT, "file").unwrap();
    rig.make_dir(ROOT, "dir").unwrap();
    let from = name("dir");
    let to = name("file");
    let flags = RenameFlags::Replace;
    let request = Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags };
    let failed = rig.call_as(&session(2), request, &[]);
    assert_eq!(failed.map(drop), Err(Code::NotDirectory));
    crate::harness::until("it is not held any more", || held() == 1);
    assert_eq!(rig.read(file.handle, 10).unwrap(), b"newer");
    rig.expect_whole("after renames");
}

/// However many are replaced, a bounded number is held, and the newest are among them.
#[test]
fn a_server_holds_a_bounded_number_of_replaced_files() {
    const RENAMES: u64 = 5000;
    let rig = Rig::new(with_workers());
    let make = |number: u64, text: &str| {
        let kind = FileKind::Regular;
        let mode = NewMode::exactly(0o600);
        let request = Request::MakeNode { dir: ROOT, name: name(text), kind, mode, rdev: 0 };
        entry(rig.call_as(&session(number), request, &[]).unwrap()).unwrap()
    };
    let mut old = make(0, "file");
    for number in 1..=RENAMES {
        let new = make(number * 2, "new");
        rename(&rig, &session(number * 2 + 1), "new", "file");
        if number % 1000 == 1 {
            assert_eq!(rig.read(old.handle, 1), Ok(Vec::new()), "{number}");
        }
        old = new;
    }
    rig.expect_whole("after many renames");
}

/// A clean stop leaves nothing of them, and a kill leaves nothing behind the next start.
#[test]
fn replaced_files_end_with_the_server() {
    for cleanly in [true, false] {
        let rig = Rig::new(with_workers());
        let old = rig.put(ROOT, "file", &[1; LARGE]).unwrap();
        rig.put(ROOT, "new", b"new").unwrap();
        rename(&rig, &session(1), "new", "file");
        assert_eq!(rig.read(old.handle, 1).unwrap(), [1]);
        let grace = std::time::Duration::ZERO;
        let left = rig.restarted(cleanly, Options { grace, ..with_workers() });
        crate::harness::until("it is gone", || left.read(old.handle, 1) == Err(Code::Stale));
        crate::harness::until("its bytes are gone", || left.check().checked.content_files == 0);
        left.expect_whole("restarted");
    }
}
