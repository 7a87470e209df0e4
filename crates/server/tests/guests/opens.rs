//! Files that a guest has open, while others remove and replace them.

use pelago_wire::{Code, Handle, OpenFlags, RenameFlags, Request};

use super::world::World;
use crate::harness::requests::{self, next_open};
use crate::harness::rig::name;

#[test]
fn an_open_file_that_was_removed_inside_goes_on_being_readable() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest = world.guest(2, shared.ino);
    let file = world.put(shared, "f", b"old");
    let open = world.open(&guest, file).unwrap();
    world.unlink(shared, "f");
    assert_eq!(world.read(&guest, open).unwrap(), b"old");
    let again = world.put(shared, "f", b"new");
    assert_ne!(again.ino, file.ino);
    assert_eq!(world.read(&guest, open).unwrap(), b"old");
    // A kernel asks for it by its handle.
    assert_eq!(world.attr(&guest, file).map(|attr| attr.links), Ok(0));
    let stranger = world.guest(3, shared.ino);
    assert_eq!(world.attr(&stranger, file), Err(Code::Stale), "who has it not open");
    let other = world.open(&guest, again).unwrap();
    assert_eq!(world.read(&guest, other).unwrap(), b"new");
    // So does one that another file replaces.
    let from = name("g");
    let to = name("f");
    world.put(shared, "g", b"third");
    let flags = RenameFlags::Replace;
    world.call(Request::Rename { from_dir: shared, from, to_dir: shared, to, flags }).unwrap();
    assert_eq!(world.read(&guest, other).unwrap(), b"new");
    for open in [open, other] {
        world.ask(&guest, Request::Release { open }).unwrap();
        assert_eq!(world.read(&guest, open), Err(Code::BadOpen));
    }
    assert_eq!(world.open(&guest, file).map(drop), Err(Code::Stale), "it has no name");
}

/// Where a file was when it lost its last name decides, also if the guest did not ask since it was
/// granted.
#[test]
fn an_open_file_that_was_removed_outside_is_not_readable() {
    for asks_meanwhile in [false, true] {
        let world = World::new();
        let shared = world.make_dir(Handle::ROOT, "shared");
        let secret = world.make_dir(Handle::ROOT, "secret");
        let guest = world.guest(2, shared.ino);
        let file = world.put(shared, "f", b"public");
        let open = world.open(&guest, file).unwrap();
        assert_eq!(world.read(&guest, open).unwrap(), b"public");
        world.rename(shared, secret, "f");
        if asks_meanwhile {
            assert_eq!(world.read(&guest, open), Err(Code::Stale));
        }
        world.write(file, b"secret");
        world.unlink(secret, "f");
        assert_eq!(world.read(&guest, open), Err(Code::Stale), "asks: {asks_meanwhile}");
    }
}

/// As before, with the last name of two outside, and with a directory that takes the file along.
#[test]
fn the_last_name_decides_and_the_way_up_from_it() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let secret = world.make_dir(Handle::ROOT, "secret");
    let moved = world.make_dir(shared, "moved");
    let guest = world.guest(2, shared.ino);
    let file = world.put(shared, "f", b"public");
    world.link(file, secret, "g");
    let file = Handle::own(file.ino);
    let open = world.open(&guest, file).unwrap();
    world.unlink(shared, "f");
    world.write(file, b"secret");
    world.unlink(secret, "g");
    assert_eq!(world.read(&guest, open), Err(Code::Stale), "the last name was outside");
    let file = world.put(moved, "f", b"public");
    let open = world.open(&guest, file).unwrap();
    world.unlink(moved, "f");
    assert_eq!(world.read(&guest, open).unwrap(), b"public");
    world.rename(shared, secret, "moved");
    assert_eq!(world.read(&guest, open), Err(Code::Stale), "its directory is outside");
    world.rename(secret, shared, "moved");
    assert_eq!(world.read(&guest, open).unwrap(), b"public");
}

/// A program may remove its file for good before it writes a secret there.
#[test]
fn a_removed_file_that_others_have_open_is_not_granted_to_who_has_not() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest = world.guest(2, shared.ino);
    let (entry, open) = requests::create(&world.server, shared, "temporary").unwrap();
    assert!(world.attr(&guest, entry.handle).is_ok());
    world.unlink(shared, "temporary");
    requests::write(&world.server, open, 0, b"secret").unwrap();
    for node in [entry.handle, Handle::own(entry.handle.ino)] {
        assert_eq!(world.open(&guest, node).map(drop), Err(Code::Stale));
        assert_eq!(world.attr(&guest, node), Err(Code::Stale));
    }
    requests::close(&world.server, open).unwrap();
}

/// A file without a name can be read by the session that has made it alone.
#[test]
fn a_file_that_never_had_a_name_is_not_granted() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest = world.guest(2, shared.ino);
    let open = next_open();
    let mode = pelago_wire::NewMode::exactly(0o644);
    let flags = OpenFlags::READ_WRITE;
    let made = world.call(Request::CreateUnnamed { dir: shared, mode, flags, open });
    let Ok(pelago_wire::Reply::Created { entry, .. }) = made else { panic!("{made:?}") };
    assert_eq!(world.open(&guest, entry.handle).map(drop), Err(Code::Stale));
    assert_eq!(world.attr(&guest, entry.handle), Err(Code::Stale));
    requests::close(&world.server, open).unwrap();
}

#[test]
fn an_open_belongs_to_its_session() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let file = world.put(shared, "f", b"bytes");
    let first = world.guest(2, shared.ino);
    let second = world.guest(2, shared.ino);
    let open = world.open(&first, file).unwrap();
    assert_eq!(world.read(&second, open), Err(Code::BadOpen));
    assert_eq!(world.ask(&second, Request::Release { open }).map(drop), Err(Code::BadOpen));
    assert_eq!(world.read(&first, open).unwrap(), b"bytes");
    let again = Request::Open { node: file, flags: OpenFlags::READ, open };
    assert_eq!(world.ask(&first, again).map(drop), Err(Code::Invalid), "it is in use");
    assert_eq!(world.read(&first, open).unwrap(), b"bytes");
    world.server.session_service().end_session(first.session);
    crate::harness::until("the open has ended", || world.server.status().open_files == 0);
}
