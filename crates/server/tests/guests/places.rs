//! Nodes that move: a grant holds for the present place of a node, not for the place in its handle.

use pelago_keynote::{Conditions, Test};
use pelago_wire::{Code, Handle};

use super::world::{Guest, World, conditioned};

/// A shared directory and a secret one.
struct Dirs {
    world: World,
    shared: Handle,
    secret: Handle,
    guest: Guest,
}

impl Dirs {
    fn new() -> Self {
        let world = World::new();
        let shared = world.make_dir(Handle::ROOT, "shared");
        let secret = world.make_dir(Handle::ROOT, "secret");
        let guest = world.guest(2, shared.ino);
        Self { world, shared, secret, guest }
    }

    fn expect(&self, node: Handle, is_granted: bool, why: &str) {
        let told = self.world.attr(&self.guest, node).map(|attr| attr.ino);
        let wanted = if is_granted { Ok(node.ino) } else { Err(Code::Stale) };
        assert_eq!(told, wanted, "{why}");
        assert_eq!(self.world.open(&self.guest, node).map(drop), wanted.map(drop), "{why}");
    }
}

#[test]
fn the_hint_of_a_handle_grants_nothing_and_takes_nothing_away() {
    let dirs = Dirs::new();
    let inside = dirs.world.put(dirs.shared, "f", b"inside");
    let outside = dirs.world.put(dirs.secret, "f", b"outside");
    let hints = [inside, outside, dirs.shared, dirs.secret, Handle::ROOT];
    for hint in hints {
        for hash in [inside.hash, outside.hash] {
            let dir = hint.dir;
            dirs.expect(Handle { ino: inside.ino, dir, hash }, true, "inside");
            dirs.expect(Handle { ino: outside.ino, dir, hash }, false, "outside");
        }
    }
}

#[test]
fn a_file_is_granted_as_long_as_one_of_its_names_is() {
    let dirs = Dirs::new();
    let file = dirs.world.put(dirs.secret, "f", b"bytes");
    dirs.expect(file, false, "outside");
    let below = dirs.world.make_dir(dirs.shared, "below");
    dirs.world.link(file, below, "g");
    let file = Handle::own(file.ino);
    dirs.expect(file, true, "a second name is inside");
    let open = dirs.world.open(&dirs.guest, file).unwrap();
    dirs.world.unlink(dirs.secret, "f");
    dirs.expect(file, true, "its only name is inside");
    dirs.world.rename(below, dirs.secret, "g");
    dirs.expect(file, false, "its only name is outside");
    assert_eq!(dirs.world.read(&dirs.guest, open), Err(Code::Stale));
    dirs.world.link(file, dirs.shared, "h");
    assert_eq!(dirs.world.read(&dirs.guest, open).unwrap(), b"bytes");
    dirs.world.unlink(dirs.shared, "h");
    dirs.expect(file, false, "outside again");
    assert_eq!(dirs.world.read(&dirs.guest, open), Err(Code::Stale));
}

#[test]
fn a_file_that_moves_out_is_not_granted_until_it_is_back() {
    let dirs = Dirs::new();
    let file = dirs.world.put(dirs.shared, "f", b"bytes");
    let open = dirs.world.open(&dirs.guest, file).unwrap();
    for _ in 0..3 {
        dirs.expect(file, true, "inside");
        assert_eq!(dirs.world.read(&dirs.guest, open).unwrap(), b"bytes");
        dirs.world.rename(dirs.shared, dirs.secret, "f");
        dirs.expect(file, false, "outside");
        assert_eq!(dirs.world.read(&dirs.guest, open), Err(Code::Stale));
        let named = dirs.world.lookup(&dirs.guest, dirs.shared, "f").map(drop);
        assert_eq!(named, Err(Code::NotFound));
        dirs.world.rename(dirs.secret, dirs.shared, "f");
    }
}

#[test]
fn what_is_below_a_directory_moves_with_it() {
    let dirs = Dirs::new();
    let moved = dirs.world.make_dir(dirs.shared, "moved");
    let deep = dirs.world.make_dir(moved, "deep");
    let file = dirs.world.put(deep, "f", b"bytes");
    let open = dirs.world.open(&dirs.guest, file).unwrap();
    for _ in 0..3 {
        for node in [moved, deep] {
            assert!(dirs.world.attr(&dirs.guest, node).is_ok());
        }
        dirs.expect(file, true, "inside");
        assert_eq!(dirs.world.read(&dirs.guest, open).unwrap(), b"bytes");
        dirs.world.rename(dirs.shared, dirs.secret, "moved");
        for node in [moved, deep] {
            assert_eq!(dirs.world.attr(&dirs.guest, node), Err(Code::Stale));
            let named = dirs.world.lookup(&dirs.guest, node, "f").map(drop);
            assert_eq!(named, Err(Code::Stale));
        }
        dirs.expect(file, false, "outside");
        assert_eq!(dirs.world.read(&dirs.guest, open), Err(Code::Stale));
        dirs.world.rename(dirs.secret, dirs.shared, "moved");
    }
}

/// The first steps up are those that take what is in memory; the rest reads the table.
#[test]
fn a_path_may_be_as_deep_as_it_likes() {
    const DEPTH: usize = 3 * pelago_wire::limits::CLIMB_STEPS;
    let dirs = Dirs::new();
    for (top, is_granted) in [(dirs.shared, true), (dirs.secret, false)] {
        let first = dirs.world.make_dir(top, "d");
        let mut dir = first;
        for depth in 2..DEPTH {
            dir = dirs.world.make_dir(dir, "d");
            let told = dirs.world.attr(&dirs.guest, dir).is_ok();
            assert_eq!(told, is_granted, "{depth} levels below");
        }
        let file = dirs.world.put(dir, "f", b"bytes");
        dirs.expect(file, is_granted, "at the bottom");
    }
    // Another guest's top is in the middle of the way.
    let middle = dirs.world.lookup(&dirs.guest, dirs.shared, "d").unwrap().handle;
    let inner = dirs.world.guest(3, middle.ino);
    assert!(dirs.world.attr(&inner, middle).is_ok());
    assert_eq!(dirs.world.attr(&inner, dirs.shared), Err(Code::Stale));
}

/// The top is one directory, wherever it is and however it is called.
#[test]
fn the_top_stays_granted_where_it_moves_and_is_gone_once_it_is_removed() {
    let dirs = Dirs::new();
    let file = dirs.world.put(dirs.shared, "f", b"bytes");
    dirs.world.rename(Handle::ROOT, dirs.secret, "shared");
    dirs.expect(file, true, "below the moved top");
    assert_eq!(dirs.world.attr(&dirs.guest, dirs.secret), Err(Code::Stale));
    dirs.world.unlink(dirs.shared, "f");
    let dir = dirs.secret;
    let name = crate::harness::rig::name("shared");
    dirs.world.call(pelago_wire::Request::RemoveDir { dir, name }).unwrap();
    assert_eq!(dirs.world.attr(&dirs.guest, dirs.shared), Err(Code::Stale));
    let again = dirs.world.make_dir(Handle::ROOT, "shared");
    assert_eq!(dirs.world.attr(&dirs.guest, again), Err(Code::Stale), "it is another directory");
}

#[test]
fn a_credential_for_the_root_directory_grants_all_and_for_a_file_that_file() {
    let dirs = Dirs::new();
    let file = dirs.world.put(dirs.secret, "f", b"bytes");
    let all = dirs.world.guest(3, Handle::ROOT.ino);
    assert!(dirs.world.attr(&all, file).is_ok());
    assert!(dirs.world.attr(&all, Handle::ROOT).is_ok());
    let is_file = Test::equals("object", &format!("{:x}", file.ino.raw()));
    let text = conditioned(1, 4, &Conditions::new(vec![is_file]));
    let one = dirs.world.begin(dirs.world.admit(4, &[&text]).unwrap()).unwrap();
    let open = dirs.world.open(&one, file).unwrap();
    assert_eq!(dirs.world.read(&one, open).unwrap(), b"bytes");
    assert_eq!(dirs.world.attr(&one, dirs.secret), Err(Code::Stale));
}
