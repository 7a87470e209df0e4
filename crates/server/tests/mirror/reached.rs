//! The stage that the last change of a file has reached, as its attribute says.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pelago_server::{Options, Server};
use pelago_wire::{
    Code, Handle, InodeId, MirrorStage, OpenFlags, Reached, Reply, Request, XattrFlags, xattr,
};

use super::image::ROOT;
use super::sending::{World, options};
use crate::harness::requests::{call, close, create, lookup, next_open, put, unlink, write};
use crate::harness::rig::DEADLINE;

fn reached(server: &Server, node: Handle) -> Reached {
    match call(server, Request::GetXattr { node, name: xattr::REACHED.to_vec() }, &[]).unwrap() {
        Reply::Bytes(text) => Reached::decode(&text).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn stage(server: &Server, node: Handle) -> MirrorStage {
    reached(server, node).stage
}

fn until(server: &Server, node: Handle, stage: MirrorStage) -> Reached {
    let begun = Instant::now();
    loop {
        let found = reached(server, node);
        if found.stage == stage {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "{found}");
        // Polled: other threads decide it.
        thread::sleep(Duration::from_millis(2));
    }
}

fn node_of(server: &Server, text: &str) -> Handle {
    lookup(server, ROOT, text).unwrap().handle
}

#[test]
fn without_a_mirror_a_change_is_done_and_then_local() {
    let world = World::with(Options { sync_interval: Duration::from_hours(1), ..options() });
    let server = &world.server;
    server.remove_mirror().unwrap();
    put(server, ROOT, "small", b"bytes").unwrap();
    put(server, ROOT, "large", &[1; 100_000]).unwrap();
    let nodes = ["small", "large"].map(|text| node_of(server, text));
    for node in nodes.into_iter().chain([ROOT]) {
        assert_eq!(stage(server, node), MirrorStage::Done);
    }
    server.make_safe().unwrap();
    for node in nodes.into_iter().chain([ROOT]) {
        until(server, node, MirrorStage::Local);
    }
    unlink(server, ROOT, "small").unwrap();
    assert_eq!(stage(server, ROOT), MirrorStage::Done, "of a folder a name that is gone counts");
    let name = || xattr::REACHED.to_vec();
    let never = Handle::own(InodeId::from_raw(999_999));
    let answer = call(server, Request::GetXattr { node: never, name: name() }, &[]);
    assert_eq!(answer.err(), Some(Code::Stale));
    let value = b"mirrored".to_vec();
    let flags = XattrFlags::Any;
    let set = Request::SetXattr { node: ROOT, name: name(), value, flags, kill_setgid: false };
    assert_eq!(call(server, set, &[]).err(), Some(Code::NotSupported));
}

/// While the mirror gives no answer, what it was sent is on the link, and what has changed since is
/// queued.
#[test]
fn a_change_is_queued_and_on_the_link_and_mirrored() {
    let world = World::with(options());
    let server = &world.server;
    let files = [("small", 100), ("large", 100_000), ("untouched", 100)];
    for (text, bytes) in files {
        put(server, ROOT, text, &vec![1; bytes]).unwrap();
    }
    world.mirrored();
    let [small, large, untouched] = files.map(|(text, _)| node_of(server, text));
    for node in [small, large, untouched, ROOT] {
        assert_eq!(reached(server, node), Reached::at(MirrorStage::Mirrored));
    }
    let gate = Arc::clone(&world.place.lock().gate);
    let closed = gate.lock();
    let opens = ["small", "large"].map(|text| {
        let node = node_of(server, text);
        let open = next_open();
        let flags = OpenFlags::READ_WRITE;
        call(server, Request::Open { node, flags, open }, &[]).unwrap();
        open
    });
    write(server, opens[0], 0, b"new").unwrap();
    write(server, opens[1], 50_000, &[2; 10]).unwrap();
    for node in [small, large] {
        assert!(stage(server, node) < MirrorStage::Edge);
        // It has a number once all of it is safe here.
        let begun = Instant::now();
        while until(server, node, MirrorStage::Link).group.is_none() {
            assert!(begun.elapsed() < DEADLINE);
        }
    }
    // Its next change is not in that group, whatever the row says.
    write(server, opens[1], 60_000, &[3; 10]).unwrap();
    let (_, open) = create(server, ROOT, "new").unwrap();
    close(server, open).unwrap();
    server.make_safe().unwrap();
    assert!(matches!(stage(server, large), MirrorStage::Done | MirrorStage::Queued));
    assert_eq!(stage(server, node_of(server, "new")), MirrorStage::Queued);
    assert_eq!(stage(server, ROOT), MirrorStage::Queued);
    assert_eq!(stage(server, untouched), MirrorStage::Mirrored);
    drop(closed);
    for node in [small, large, ROOT, node_of(server, "new")] {
        until(server, node, MirrorStage::Mirrored);
    }
    for open in opens {
        close(server, open).unwrap();
    }
    for node in [small, large] {
        until(server, node, MirrorStage::Mirrored);
    }
}
