//! A mirror that is read before it is promoted: readers see each group of the primary, one at a
//! time, and change nothing.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pelago_server::MirrorError;
use pelago_wire::mirror::{Mirrors as _, Via};
use pelago_wire::{
    Code, Context, Entry, NewMode, OpenFlags, Recalled, Reply, Request, SessionId, SetAttr,
    Touched, XattrFlags,
};

use super::expect_served;
use super::primary::{put, read, send_all};
use super::readers::{
    ROOT, Reading, attr, bytes, carry_out, leased, make_dir, name, open, read_at, rename,
    session_of, table_files,
};
use crate::harness::requests::{self, call, call_as, close, lookup, next_open, unlink, write};
use crate::harness::until;

#[test]
fn readers_see_each_group_and_nothing_is_written() {
    let mut reading = Reading::new();
    let path = reading.world.path();
    let before = table_files(&path);
    let reader = reading.reader();
    assert_eq!(read(&reader, "small").unwrap(), b"bytes");
    assert_eq!(read(&reader, "large").unwrap(), [1; 300_000]);
    assert_eq!(read(&reader, "sparse").unwrap()[199_999..][..2], [0, 2]);
    let session = SessionId::new(1, 1);
    let who = Context { session, ..Context::direct(10, 20) };
    call_as(&reader, &who, Request::StatFs, &[]).unwrap();
    for (request, what) in [
        (Request::Unlink { dir: ROOT, name: name("small") }, "unlink"),
        (Request::MakeDir { dir: ROOT, name: name("d"), mode: NewMode::exactly(0o755) }, "mkdir"),
        (
            Request::SetAttr {
                node: lookup(&reader, ROOT, "small").unwrap().handle,
                open: None,
                set: SetAttr { mode: Some(0o600), ..SetAttr::default() },
            },
            "chmod",
        ),
    ] {
        let refused = call_as(&reader, &who, request.clone(), &[]);
        assert_eq!(refused.err(), Some(Code::ReadOnly), "{what}");
        assert_eq!(call(&reader, request, &[]).err(), Some(Code::ReadOnly), "{what}");
    }
    reader.session_service().end_session(session);
    // Longer than the time between two group commits.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(table_files(&path), before, "reading has written");
    reading.change(|server| {
        put(server, "new", &[4; 150_000]);
        unlink(server, ROOT, "removed").unwrap();
        unlink(server, ROOT, "large").unwrap();
        put(server, "large", &[5; 10_000]);
    });
    assert_eq!(read(&reader, "new").unwrap(), [4; 150_000]);
    assert_eq!(read(&reader, "large").unwrap(), [5; 10_000]);
    assert_eq!(read(&reader, "removed").err(), Some(Code::NotFound));
    drop(reader);
    reading.expect_equal();
}

#[test]
fn all_kinds_of_facts_are_read() {
    let mut reading = Reading::new();
    let reader = reading.reader();
    assert_eq!(lookup(&reader, ROOT, "dir").err(), Some(Code::NotFound));
    reading.change(|server| {
        let dir = make_dir(server, ROOT, "dir");
        requests::put(server, dir, "file", b"text").unwrap();
        let node = lookup(server, dir, "file").unwrap().handle;
        let link = Request::Link { node, dir: ROOT, name: name("linked") };
        call(server, link, &[]).unwrap();
        let target = b"dir/file".to_vec();
        call(server, Request::Symlink { dir: ROOT, name: name("soft"), target }, &[]).unwrap();
        let set = Request::SetXattr {
            node,
            name: b"user.tag".to_vec(),
            value: b"red".to_vec(),
            flags: XattrFlags::default(),
            kill_setgid: false,
        };
        call(server, set, &[]).unwrap();
    });
    let dir = lookup(&reader, ROOT, "dir").unwrap();
    let file = lookup(&reader, dir.handle, "file").unwrap();
    assert_eq!((file.attr.links, file.attr.size), (2, 4));
    assert_eq!(lookup(&reader, ROOT, "linked").unwrap().attr.ino, file.attr.ino);
    let soft = lookup(&reader, ROOT, "soft").unwrap().handle;
    assert_eq!(bytes(&reader, Request::ReadLink { node: soft }), b"dir/file");
    let node = file.handle;
    let name_of = b"user.tag".to_vec();
    assert_eq!(bytes(&reader, Request::GetXattr { node, name: name_of.clone() }), b"red");
    assert_eq!(bytes(&reader, Request::ListXattr { node }), b"user.tag\0");
    reading.change(|server| {
        let node = lookup(server, ROOT, "linked").unwrap().handle;
        call(server, Request::RemoveXattr { node, name: name_of.clone() }, &[]).unwrap();
        let dir = lookup(server, ROOT, "dir").unwrap().handle;
        unlink(server, dir, "file").unwrap();
    });
    let get = Request::GetXattr { node, name: name_of };
    assert_eq!(call(&reader, get, &[]).err(), Some(Code::NoXattr));
    assert_eq!(attr(&reader, node).unwrap().links, 1);
    drop(reader);
    reading.expect_equal();
}

#[test]
fn a_directory_that_was_renamed_over_another_is_found_there() {
    let mut reading = Reading::new();
    reading.change(|server| {
        let old = make_dir(server, ROOT, "old");
        let new = make_dir(server, ROOT, "new");
        make_dir(server, old, "empty");
        requests::put(server, new, "file", b"text").unwrap();
    });
    let reader = reading.reader();
    let old = lookup(&reader, ROOT, "old").unwrap().handle;
    let empty = lookup(&reader, old, "empty").unwrap();
    let new = lookup(&reader, ROOT, "new").unwrap();
    let file = lookup(&reader, new.handle, "file").unwrap();
    assert_eq!(attr(&reader, empty.handle).unwrap().links, 2);
    reading.change(|server| {
        let old = lookup(server, ROOT, "old").unwrap().handle;
        rename(server, (ROOT, "new"), (old, "empty"));
        let moved = lookup(server, old, "empty").unwrap().handle;
        rename(server, (moved, "file"), (old, "file"));
    });
    assert_eq!(lookup(&reader, old, "empty").unwrap().attr.ino, new.attr.ino);
    assert_eq!(lookup(&reader, ROOT, "new").err(), Some(Code::NotFound));
    assert_eq!(lookup(&reader, new.handle, "file").err(), Some(Code::NotFound));
    assert_eq!(attr(&reader, empty.handle).err(), Some(Code::Stale));
    assert_eq!(attr(&reader, file.handle).unwrap().size, 4, "by its old handle");
    match call(&reader, Request::Parent { dir: new.handle }, &[]).unwrap() {
        Reply::Entry(Entry { attr, .. }) => assert_eq!(attr.ino, old.ino),
        other => panic!("{other:?}"),
    }
    drop(reader);
    reading.expect_equal();
}

#[test]
fn an_open_file_that_a_group_removes_is_read_until_its_close() {
    let mut reading = Reading::new();
    let reader = reading.reader();
    let [small, large] = ["small", "large"].map(|name| lookup(&reader, ROOT, name).unwrap());
    // Its bytes were not read before the group.
    let unread = open(&reader, large.handle);
    let opens = [small, large].map(|entry| open(&reader, entry.handle));
    assert_eq!(read_at(&reader, opens[0], 0, 10).unwrap(), b"bytes");
    reading.change(|server| {
        unlink(server, ROOT, "small").unwrap();
        unlink(server, ROOT, "large").unwrap();
        put(server, "small", b"other");
    });
    assert_eq!(read(&reader, "small").unwrap(), b"other");
    assert_eq!(lookup(&reader, ROOT, "large").err(), Some(Code::NotFound));
    for _ in 0..2 {
        assert_eq!(read_at(&reader, opens[0], 0, 10).unwrap(), b"bytes");
        assert_eq!(read_at(&reader, opens[1], 299_999, 10).unwrap(), [1]);
        assert_eq!(read_at(&reader, unread, 0, 1 << 20).unwrap(), [1; 300_000]);
        assert_eq!(attr(&reader, large.handle).unwrap().links, 0);
        assert_eq!(attr(&reader, small.handle).unwrap().size, 5);
        reading.change(|server| put(server, "more", b"x"));
        reading.change(|server| unlink(server, ROOT, "more").unwrap());
    }
    for open in opens.into_iter().chain([unread]) {
        close(&reader, open).unwrap();
    }
    reading.change(|server| put(server, "last", b"x"));
    assert_eq!(attr(&reader, large.handle).err(), Some(Code::Stale));
    drop(reader);
    reading.expect_equal();
}

/// Each request of 300,000 bytes sees one group, whatever is changed: the bytes in place, the size,
/// or the content file.
#[test]
fn a_read_sees_one_group() {
    let mut reading = Reading::new();
    let reader = reading.reader();
    let node = lookup(&reader, ROOT, "large").unwrap().handle;
    let is_over = AtomicBool::new(false);
    let size_of = |byte: u8| 300_000 - 10_000 * usize::from(byte.is_multiple_of(2));
    let read_all = || {
        let open = open(&reader, node);
        let mut seen = [false; 256];
        while !is_over.load(Ordering::Relaxed) {
            let bytes = read_at(&reader, open, 0, 300_000).unwrap();
            let first = bytes[0];
            assert!(bytes.iter().all(|byte| *byte == first), "of two groups");
            assert_eq!(bytes.len(), size_of(first));
            seen[usize::from(first)] = true;
        }
        close(&reader, open).unwrap();
        seen.iter().filter(|seen| **seen).count()
    };
    thread::scope(|scope| {
        let readers = [scope.spawn(read_all), scope.spawn(read_all)];
        for round in 2..12_u8 {
            reading.change(|server| {
                let node = lookup(server, ROOT, "large").unwrap().handle;
                let open = next_open();
                let flags =
                    OpenFlags { truncate: round.is_multiple_of(3), ..OpenFlags::READ_WRITE };
                call(server, Request::Open { node, flags, open }, &[]).unwrap();
                let size = size_of(round);
                write(server, open, 0, &vec![round; size]).unwrap();
                let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                call(server, Request::SetAttr { node, open: Some(open), set }, &[]).unwrap();
                close(server, open).unwrap();
            });
        }
        is_over.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 1, "no reader has seen a change");
        }
    });
    drop(reader);
    reading.expect_equal();
}

#[test]
fn a_group_waits_until_readers_have_dropped_what_it_changes() {
    let mut reading = Reading::new();
    let reader = reading.reader();
    let (service, recalls, session) = session_of(&reader);
    let (small, leases) = leased(&reader, session, ROOT, "small");
    assert!(leases.node && leases.names, "{leases:?}");
    assert_eq!(reading.world.store().list()[0].readers, 1);
    reading.send(|server| {
        let node = lookup(server, ROOT, "small").unwrap().handle;
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        call(server, Request::SetAttr { node, open: None, set }, &[]).unwrap();
    });
    let node = small.handle;
    let mode = small.attr.mode;
    thread::scope(|scope| {
        let carried_out = scope.spawn(|| reading.groups.carry_out().unwrap());
        until("the recall", || !recalls.unanswered.lock().is_empty());
        assert_eq!(attr(&reader, node).unwrap().mode, mode, "it is not carried out yet");
        let (_, late) = leased(&reader, session, ROOT, "small");
        assert!(!late.node, "nothing is leased that is about to change");
        while !carried_out.is_finished() {
            for (number, recalled) in std::mem::take(&mut *recalls.unanswered.lock()) {
                let of_node = |things: &[Touched]| things.contains(&Touched::Node(node.ino));
                assert!(matches!(&recalled, Recalled::Things(things) if of_node(things)));
                service.recalled(session, number);
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(attr(&reader, node).unwrap().mode, 0o600);
    let (again, leases) = leased(&reader, session, ROOT, "small");
    assert!(leases.node && again.attr.mode == 0o600);
    service.end_session(session);
    drop((service, reader));
    reading.expect_equal();
}

/// A resync may change anything, and so may a group with too many changes: all is read again.
#[test]
fn a_resync_and_a_large_group_change_everything_at_once() {
    let mut reading = Reading::new();
    let reader = reading.reader();
    let (service, recalls, session) = session_of(&reader);
    let [small, large] = ["small", "large"].map(|name| lookup(&reader, ROOT, name).unwrap());
    let opens = [small, large].map(|entry| open(&reader, entry.handle));
    assert!(leased(&reader, session, ROOT, "small").1.node);
    let before = reading.state.clone();
    let state = reading.world.primary.change(|server| {
        unlink(server, ROOT, "small").unwrap();
        rename(server, (ROOT, "large"), (ROOT, "moved"));
        put(server, "small", b"other");
    });
    reading.send_resync(&before, state);
    carry_out(&mut reading, &*service, &recalls, session);
    let told = |recalled: &Recalled| matches!(recalled, Recalled::Everything);
    assert!(recalls.all.lock().iter().any(told), "{:?}", recalls.all.lock());
    assert_eq!(read(&reader, "small").unwrap(), b"other");
    assert_eq!(read(&reader, "moved").unwrap(), [1; 300_000]);
    assert_eq!(read(&reader, "large").err(), Some(Code::NotFound));
    assert_eq!(read_at(&reader, opens[0], 0, 10).unwrap(), b"bytes", "its name has another file");
    reading.send(|server| {
        for number in 0..1_100 {
            put(server, &format!("many-{number}"), b"x");
        }
        unlink(server, ROOT, "moved").unwrap();
    });
    carry_out(&mut reading, &*service, &recalls, session);
    assert_eq!(read(&reader, "many-1099").unwrap(), b"x");
    let state = reading.state.clone();
    reading.send_resync(&state, state.clone());
    carry_out(&mut reading, &*service, &recalls, session);
    assert_eq!(read_at(&reader, opens[0], 0, 10).unwrap(), b"bytes");
    assert_eq!(read_at(&reader, opens[1], 299_999, 10).unwrap(), [1]);
    service.end_session(session);
    drop((service, reader));
    reading.expect_equal();
}

/// A group that cannot be carried out to its end may be there in part.
#[test]
fn a_group_that_fails_ends_the_readers_until_the_mirror_is_whole() {
    let mut reading = Reading::new();
    let reader = reading.reader();
    assert_eq!(read(&reader, "small").unwrap(), b"bytes");
    reading.send(|server| put(server, "new", &[4; 150_000]));
    // No content file can be made.
    let [content, aside] = ["content", "aside"].map(|name| reading.world.path().join(name));
    fs::create_dir(&aside).unwrap();
    let folders: Vec<String> = (0..=255).map(|number| format!("{number:02x}")).collect();
    for folder in &folders {
        let _missing = fs::rename(content.join(folder), aside.join(folder));
        fs::write(content.join(folder), b"no folder").unwrap();
    }
    let failed = reading.groups.carry_out();
    for folder in &folders {
        fs::remove_file(content.join(folder)).unwrap();
        let _missing = fs::rename(aside.join(folder), content.join(folder));
    }
    fs::remove_dir(&aside).unwrap();
    failed.unwrap_err();
    assert_eq!(read(&reader, "small").err(), Some(Code::Unavailable));
    let store = reading.world.store();
    assert!(matches!(store.reader(reading.world.id()), Err(MirrorError::Missing { .. })));
    drop((reading.groups, reader));
    reading.groups = reading.world.offer(1);
    let reader = reading.reader();
    assert_eq!(read(&reader, "new").unwrap(), [4; 150_000]);
    drop(reader);
    reading.expect_equal();
}

#[test]
fn a_promotion_ends_the_readers() {
    let mut reading = Reading::new();
    let reader = reading.reader();
    reading.change(|server| put(server, "new", &[4; 150_000]));
    assert_eq!(read(&reader, "new").unwrap(), [4; 150_000]);
    drop(reading.groups);
    assert_eq!(reading.world.promote().unwrap(), 2);
    assert_eq!(read(&reader, "new").err(), Some(Code::Unavailable));
    let world = reading.world;
    assert!(matches!(world.store().reader(world.id()), Err(MirrorError::Missing { .. })));
    expect_served(&world.path(), &[1; 300_000], Some(&[4; 150_000]));
}

#[test]
fn a_copy_that_replaces_the_mirror_is_read_after_it() {
    let mut reading = Reading::new();
    let reader = reading.reader();
    assert_eq!(read(&reader, "small").unwrap(), b"bytes");
    let state = reading.world.primary.change(|server| {
        unlink(server, ROOT, "small").unwrap();
        put(server, "small", b"other");
    });
    drop(reading.groups);
    let store = reading.world.store();
    let mut groups = store.offer(reading.world.primary.id(), 1, [9; 16], Via::Primary).unwrap();
    send_all(&mut *groups, 1, &state);
    assert_eq!(read(&reader, "small").err(), Some(Code::Unavailable));
    let after = store.reader(reading.world.id()).unwrap();
    assert_eq!(read(&after, "small").unwrap(), b"other");
    drop((after, groups));
    reading.world.expect_mirror(&state);
}
