//! The levels of files: what a sync waits for, who sets a level, and who is held back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_server::{Options, Server, WhenCut};
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Handle, Level, Name, NewMode, OpenFlags, OpenId, Reply,
    Request, WriteFlags, XattrFlags, xattr,
};

use super::image::ROOT;
use super::sending::{World, options};
use crate::harness::requests::{call, call_as, create, lookup, next_open, put, write};
use crate::harness::rig::DEADLINE;

/// A time after which a caller that needs not wait has its reply.
const SOON: Duration = Duration::from_millis(300);
const ADMIN: Context = Context::direct(0, 0);

type Replied = Receiver<Result<Reply, Error>>;

/// Begins a request. Its reply may come later.
fn begin(server: &Server, request: Request, bytes: &[u8]) -> Replied {
    let (sender, replies) = channel();
    let later_sender = sender.clone();
    let mut later = || -> Done {
        let sender = later_sender.clone();
        Box::new(move |reply| drop(sender.send(reply)))
    };
    let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Borrowed(bytes) };
    if let Some(now) = server.service().ask(&Context::direct(10, 20), request, bulk, &mut later) {
        sender.send(now).unwrap();
    }
    replies
}

fn begin_sync(server: &Server, open: OpenId) -> Replied {
    begin(server, Request::Fsync { open, data_only: false }, &[])
}

fn set_level(server: &Server, who: &Context, node: Handle, level: &str) -> Result<(), Code> {
    let request = Request::SetXattr {
        node,
        name: xattr::LEVEL.to_vec(),
        value: level.as_bytes().to_vec(),
        flags: XattrFlags::Any,
        kill_setgid: false,
    };
    call_as(server, who, request, &[]).map(drop)
}

fn make_dir(server: &Server, dir: Handle, text: &str) -> Handle {
    let name = Name::new(text.as_bytes()).unwrap();
    let mode = NewMode::exactly(0o755);
    match call(server, Request::MakeDir { dir, name, mode }, &[]).unwrap() {
        Reply::Entry(entry) => entry.handle,
        other => panic!("{other:?}"),
    }
}

fn has_reply(replies: &Replied) -> bool {
    matches!(replies.recv_timeout(SOON), Ok(Ok(_)))
}

/// Waits until the mirror is cut off, or is back.
fn until_cut_off(server: &Server, is_cut_off: bool) {
    let begun = Instant::now();
    while server.mirror().unwrap().is_cut_off != is_cut_off {
        assert!(begun.elapsed() < DEADLINE);
        // Polled: a thread of the server decides it, several times in a second.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the gate of the mirror's answers.
fn gate(world: &World) -> Arc<Mutex<()>> {
    Arc::clone(&world.place.lock().gate)
}

#[test]
fn a_sync_of_level_remote_returns_when_the_mirror_has_it() {
    let world = World::with(options());
    world.mirrored();
    let server = &world.server;
    set_level(server, &ADMIN, ROOT, "remote").unwrap();
    world.mirrored();
    let (_, open) = create(server, ROOT, "file").unwrap();
    let gate = gate(&world);
    let closed = gate.lock();
    write(server, open, 0, &[7; 100_000]).unwrap();
    let replies = begin_sync(server, open);
    let of_dir = begin(server, Request::FsyncDir { dir: ROOT, since: None }, &[]);
    let node = lookup(server, ROOT, "file").unwrap().handle;
    let synchronous = next_open();
    let flags = OpenFlags { sync: true, ..OpenFlags::READ_WRITE };
    call(server, Request::Open { node, flags, open: synchronous }, &[]).unwrap();
    let end = Request::Write { open: synchronous, offset: 100_000, flags: WriteFlags::NONE };
    let of_write = begin(server, end, &[8; 10]);
    assert!(!has_reply(&replies) && !has_reply(&of_dir) && !has_reply(&of_write));
    assert_eq!(server.mirror().unwrap().waiting, 3);
    drop(closed);
    for replies in [replies, of_dir, of_write] {
        replies.recv_timeout(DEADLINE).unwrap().unwrap();
    }
    let names = world.place.lock().image.names();
    assert!(names["file"][..100_000] == [7; 100_000] && names["file"][100_000..] == [8; 10]);
}

/// The nearest folder above a file that has a level decides, or the file itself; of several names
/// the strongest one.
#[test]
fn a_level_is_that_of_the_nearest_folder() {
    let world = World::with(options());
    let server = &world.server;
    world.mirrored();
    let far = make_dir(server, ROOT, "far");
    let near = make_dir(server, far, "near");
    let below = make_dir(server, near, "below");
    set_level(server, &ADMIN, far, "remote").unwrap();
    set_level(server, &ADMIN, near, "local").unwrap();
    let files = [(ROOT, "a"), (far, "b"), (near, "c"), (below, "d"), (below, "e"), (ROOT, "f")];
    let opens = files.map(|(dir, text)| (create(server, dir, text).unwrap(), text));
    let node = |text: &str| opens.iter().find(|(_, name)| *name == text).unwrap().0.0.handle;
    set_level(server, &ADMIN, node("e"), "remote").unwrap();
    let link = Request::Link { node: node("f"), dir: far, name: Name::new(b"linked").unwrap() };
    call(server, link, &[]).unwrap();
    world.mirrored();
    let gate = gate(&world);
    let closed = gate.lock();
    opens.iter().for_each(|((_, open), _)| write(server, *open, 0, b"bytes").unwrap());
    let replies = opens.map(|((_, open), text)| (begin_sync(server, open), text));
    let waiting = replies.iter().filter(|(replies, _)| !has_reply(replies));
    assert_eq!(waiting.map(|(_, text)| *text).collect::<Vec<_>>(), ["b", "e", "f"]);
    drop(closed);
    world.mirrored();
    let renamed = Request::Rename {
        from_dir: near,
        from: Name::new(b"below").unwrap(),
        to_dir: far,
        to: Name::new(b"moved").unwrap(),
        flags: pelago_wire::RenameFlags::default(),
    };
    call(server, renamed, &[]).unwrap();
    let closed = gate.lock();
    write(server, opens[3].0.1, 5, b"more").unwrap();
    let moved = begin_sync(server, opens[3].0.1);
    assert!(!has_reply(&moved), "its folder has moved below another level");
    drop(closed);
}

/// The folders above a file are looked at up to a limit. Beyond it the strongest level counts.
#[test]
fn a_sync_waits_for_the_mirror_if_too_many_folders_are_above_its_file() {
    let world = World::with(options());
    let server = &world.server;
    world.mirrored();
    let (_, above) = create(server, ROOT, "above").unwrap();
    set_level(server, &ADMIN, lookup(server, ROOT, "above").unwrap().handle, "local").unwrap();
    let mut dir = ROOT;
    for _ in 0..2_100 {
        dir = make_dir(server, dir, "d");
    }
    let (_, below) = create(server, dir, "below").unwrap();
    world.mirrored();
    let gate = gate(&world);
    let closed = gate.lock();
    write(server, above, 0, b"bytes").unwrap();
    write(server, below, 0, b"bytes").unwrap();
    assert!(has_reply(&begin_sync(server, above)));
    let waits = begin_sync(server, below);
    assert!(!has_reply(&waits));
    drop(closed);
    waits.recv_timeout(DEADLINE).unwrap().unwrap();
}

#[test]
fn only_root_and_the_user_of_the_volume_set_a_level_that_there_is() {
    let world = World::with(options());
    let server = &world.server;
    put(server, ROOT, "file", b"bytes").unwrap();
    let node = lookup(server, ROOT, "file").unwrap().handle;
    let other = Context::direct(10, 20);
    assert_eq!(set_level(server, &other, node, "async"), Err(Code::NotPermitted));
    assert_eq!(set_level(server, &ADMIN, node, "Remote"), Err(Code::Invalid));
    assert_eq!(set_level(server, &ADMIN, node, ""), Err(Code::Invalid));
    assert_eq!(set_level(server, &ADMIN, node, "network"), Err(Code::NotSupported));
    set_level(server, &ADMIN, node, "async").unwrap();
    let remove = || Request::RemoveXattr { node, name: xattr::LEVEL.to_vec() };
    assert_eq!(call_as(server, &other, remove(), &[]).err(), Some(Code::NotPermitted));
    call_as(server, &ADMIN, remove(), &[]).unwrap();
}

#[test]
fn a_sync_of_level_async_waits_for_no_disk() {
    let never = Duration::from_hours(1);
    let world = World::with(Options { sync_interval: never, ..options() });
    let server = &world.server;
    set_level(server, &ADMIN, ROOT, "async").unwrap();
    let (_, open) = create(server, ROOT, "file").unwrap();
    write(server, open, 0, &[1; 100_000]).unwrap();
    let before = server.status().progress.safe;
    call(server, Request::Fsync { open, data_only: false }, &[]).unwrap();
    assert_eq!(server.status().progress.safe, before, "nothing became safe by it");
}

/// A program may ask for a level that its file does not have, later or earlier.
#[test]
fn a_program_chooses_the_level_of_a_sync() {
    let world = World::with(options());
    let server = &world.server;
    let (_, open) = create(server, ROOT, "file").unwrap();
    let sync_at = |level| begin(server, Request::FsyncAt { open, level }, &[]);
    let refused = |level| sync_at(level).recv_timeout(DEADLINE).unwrap().err().map(|it| it.code);
    world.mirrored();
    assert_eq!(refused(Level::Network), Some(Code::NotSupported), "there is no relay");
    let gate = gate(&world);
    let closed = gate.lock();
    write(server, open, 0, &[7; 100_000]).unwrap();
    assert!(has_reply(&begin_sync(server, open)), "the level of the file is local");
    let at_mirror = sync_at(Level::Remote);
    assert!(!has_reply(&at_mirror));
    drop(closed);
    at_mirror.recv_timeout(DEADLINE).unwrap().unwrap();
    assert!(world.place.lock().image.names()["file"][..] == [7; 100_000]);
    set_level(server, &ADMIN, ROOT, "remote").unwrap();
    world.mirrored();
    let closed = gate.lock();
    write(server, open, 0, b"more").unwrap();
    let at_mirror = begin_sync(server, open);
    for level in [Level::Async, Level::Local] {
        assert!(has_reply(&sync_at(level)), "{level}");
    }
    assert!(!has_reply(&at_mirror));
    drop(closed);
    at_mirror.recv_timeout(DEADLINE).unwrap().unwrap();
    server.remove_mirror().unwrap();
    assert_eq!(refused(Level::Remote), Some(Code::NotSupported), "there is no mirror");
    assert_eq!(refused(Level::Local), None);
}

/// A level that is set before there is a mirror, or is left after it was given up.
#[test]
fn without_a_mirror_a_sync_of_level_remote_waits_for_the_disk_alone() {
    let world = World::with(options());
    let server = &world.server;
    world.mirrored();
    set_level(server, &ADMIN, ROOT, "remote").unwrap();
    let (_, open) = create(server, ROOT, "file").unwrap();
    let gate = gate(&world);
    let closed = gate.lock();
    let waiting = begin_sync(server, open);
    assert!(!has_reply(&waiting));
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| server.remove_mirror());
        waiting.recv_timeout(DEADLINE).unwrap().unwrap();
        drop(closed);
        removed.join().unwrap().unwrap();
    });
    assert!(has_reply(&begin_sync(server, open)));
    assert_eq!(server.status().progress.safe, server.status().progress.done);
}

#[test]
fn a_mirror_that_is_silent_holds_a_sync_up_for_three_seconds() {
    let world = World::with(options());
    let server = &world.server;
    world.mirrored();
    set_level(server, &ADMIN, ROOT, "remote").unwrap();
    world.mirrored();
    let (_, open) = create(server, ROOT, "file").unwrap();
    let gate = gate(&world);
    let closed = gate.lock();
    let begun = Instant::now();
    begin_sync(server, open).recv_timeout(DEADLINE).unwrap().unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(server.mirror().unwrap().is_cut_off);
    assert!(has_reply(&begin_sync(server, open)), "the next one goes on at once");
    drop(closed);
    world.mirrored();
    until_cut_off(server, false);
    let closed = gate.lock();
    write(server, open, 0, b"bytes").unwrap();
    assert!(!has_reply(&begin_sync(server, open)), "it waits for the mirror again");
    drop(closed);
}

/// On a slow line a group is under way for longer than a mirror may be silent.
#[test]
fn a_mirror_that_takes_what_is_sent_is_not_cut_off() {
    let world = World::with(options());
    let server = &world.server;
    world.mirrored();
    set_level(server, &ADMIN, ROOT, "remote").unwrap();
    world.mirrored();
    let (_, open) = create(server, ROOT, "file").unwrap();
    let gate = gate(&world);
    let closed = gate.lock();
    let taken = Arc::clone(&world.place.lock().taken);
    let waits = begin_sync(server, open);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        taken.fetch_add(1, Ordering::Relaxed);
        // Slower than the group commits, which look at the count.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!server.mirror().unwrap().is_cut_off, "after {:?}", begun.elapsed());
    }
    assert!(!has_reply(&waits));
    until_cut_off(server, true);
    waits.recv_timeout(DEADLINE).unwrap().unwrap();
    drop(closed);
}

#[test]
fn a_volume_that_is_to_wait_waits_for_a_mirror_that_is_cut_off() {
    let world = World::with(Options { when_cut: WhenCut::Wait, ..options() });
    let server = &world.server;
    world.mirrored();
    set_level(server, &ADMIN, ROOT, "remote").unwrap();
    let (_, open) = create(server, ROOT, "file").unwrap();
    let gate = gate(&world);
    let closed = gate.lock();
    let waits = begin_sync(server, open);
    until_cut_off(server, true);
    assert!(!has_reply(&waits));
    drop(closed);
    waits.recv_timeout(DEADLINE).unwrap().unwrap();
}

/// Execution 27: replies are held back, no thread is, and a sync is not.
#[test]
fn a_writer_is_held_back_while_the_mirror_is_too_far_behind() {
    const MIB: usize = 1 << 20;
    let lag = Some(Duration::from_secs(1));
    let world = World::with(Options { lag, ..options() });
    let server = &world.server;
    world.mirrored();
    let (_, open) = create(server, ROOT, "file").unwrap();
    world.mirrored();
    let gate = gate(&world);
    let closed = gate.lock();
    let piece = vec![3; MIB];
    let write_at = |number: u64| {
        let offset = number * MIB as u64;
        begin(server, Request::Write { open, offset, flags: WriteFlags::NONE }, &piece)
    };
    assert!(has_reply(&write_at(0)));
    // It is older than the limit then.
    std::thread::sleep(Duration::from_millis(1_300));
    let held: Vec<_> = (1..20).map(write_at).collect();
    assert!(!has_reply(&held[0]) && held.iter().all(|replies| replies.try_recv().is_err()));
    let reading = Request::Read { open, offset: 0, size: 4096 };
    assert!(has_reply(&begin(server, reading, &[])), "readers go on");
    assert!(has_reply(&begin_sync(server, open)), "so does a sync");
    drop(closed);
    for replies in held {
        replies.recv_timeout(DEADLINE).unwrap().unwrap();
    }
    assert_eq!(world.mirrored().names()["file"].len(), 20 * MIB);
}

/// What the mirror lacks at its promotion may be lost.
#[test]
fn a_sync_that_waits_fails_if_the_mirror_is_promoted() {
    let world = World::with(options());
    let server = &world.server;
    set_level(server, &ADMIN, ROOT, "remote").unwrap();
    world.mirrored();
    let (_, open) = create(server, ROOT, "file").unwrap();
    let gate = gate(&world);
    let closed = gate.lock();
    let waits = begin_sync(server, open);
    assert!(!has_reply(&waits));
    {
        let mut place = world.place.lock();
        place.reign = 9;
        place.lose_answer = true;
    }
    drop(closed);
    let reply = waits.recv_timeout(DEADLINE).unwrap();
    assert_eq!(reply.map_err(|error| error.code).err(), Some(Code::Unavailable));
    let later = begin_sync(server, open).recv_timeout(DEADLINE).unwrap();
    assert_eq!(later.map_err(|error| error.code).err(), Some(Code::Unavailable));
}

/// What has gathered while the mirror was away holds nobody up when it is back.
#[test]
fn a_mirror_that_is_back_is_waited_for_when_it_has_caught_up() {
    let lag = Some(Duration::from_secs(1));
    let world = World::with(Options { lag, ..options() });
    let server = &world.server;
    set_level(server, &ADMIN, ROOT, "remote").unwrap();
    world.mirrored();
    let (_, open) = create(server, ROOT, "file").unwrap();
    world.mirrored();
    {
        let mut place = world.place.lock();
        place.is_away = true;
        place.cut_next = true;
    }
    write(server, open, 0, &[1; 100]).unwrap();
    until_cut_off(server, true);
    let gate = gate(&world);
    let closed = gate.lock();
    world.place.lock().is_away = false;
    // It is connected again, and its first answer is awaited for less than three seconds.
    std::thread::sleep(Duration::from_millis(1_500));
    let write_more = Request::Write { open, offset: 100, flags: WriteFlags::NONE };
    assert!(has_reply(&begin(server, write_more, &[2; 100])));
    assert!(has_reply(&begin_sync(server, open)));
    drop(closed);
    world.mirrored();
    until_cut_off(server, false);
}

/// The connection is lost in the middle of a comparison, which goes on over the next one.
#[test]
fn a_comparison_goes_on_after_a_lost_connection() {
    let world = World::with(options());
    let server = &world.server;
    for number in 0..500 {
        put(server, ROOT, &format!("f{number}"), &[number as u8; 70_000]).unwrap();
    }
    world.mirrored();
    assert!(server.verify_mirror(false, None).unwrap());
    let begun = Instant::now();
    let mut cuts = 0;
    let verified = loop {
        let verified = server.verified().unwrap();
        if verified.finished.is_some() {
            break verified;
        }
        if cuts < 2 && verified.files > 100 * cuts {
            cuts += 1;
            world.place.lock().cut_next = true;
        }
        assert!(begun.elapsed() < DEADLINE, "{verified:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!((verified.differences, verified.changing), (0, Vec::new()));
    assert_eq!(verified.files, 500);
}
