//! Shares of one file: by its inode, and by its name in a directory.

use pelago_keynote::{Grant, SharedName, SharedObject};
use pelago_wire::{Code, Cookie, Handle, RenameFlags, Request};

use super::world::{Guest, World};
use crate::harness::rig::name;

/// A file in a directory with another one, and a directory beside it.
struct Files {
    world: World,
    dir: Handle,
    beside: Handle,
    file: Handle,
    other: Handle,
}

impl Files {
    fn new() -> Self {
        let world = World::new();
        let dir = world.make_dir(Handle::ROOT, "dir");
        let beside = world.make_dir(Handle::ROOT, "beside");
        let file = world.put(dir, "report", b"first");
        let other = world.put(dir, "other", b"secret");
        Self { world, dir, beside, file, other }
    }

    fn guest(&self, number: u8, object: SharedObject) -> Guest {
        let share = Grant { object, ..self.world.to_read(self.dir.ino) };
        let text = self.world.signed(1, number, &share);
        self.world.begin(self.world.admit(number, &[&text]).unwrap()).unwrap()
    }

    /// Returns the guest of the file.
    fn of_file(&self) -> Guest {
        self.guest(2, SharedObject::File(self.file.ino.raw()))
    }

    /// Returns the guest of the name `report` in the directory.
    fn of_name(&self) -> Guest {
        let name = SharedName::new(b"report").unwrap();
        self.guest(3, SharedObject::Name { directory: self.dir.ino.raw(), name })
    }

    /// Moves a name; what it replaces is gone.
    fn rename(&self, from_dir: Handle, from: &str, to_dir: Handle, to: &str) {
        let from = name(from);
        let to = name(to);
        let flags = RenameFlags::Replace;
        self.world.call(Request::Rename { from_dir, from, to_dir, to, flags }).unwrap();
    }

    /// Saves the file as programs do: a new one takes the place of the old one.
    fn replace(&self, bytes: &[u8]) -> Handle {
        self.world.put(self.dir, "report~", bytes);
        self.rename(self.dir, "report~", self.dir, "report");
        crate::harness::requests::lookup(&self.world.server, self.dir, "report").unwrap().handle
    }

    /// Returns the bytes of a file as a guest opens it.
    fn bytes(&self, guest: &Guest, node: Handle) -> Result<Vec<u8>, Code> {
        let open = self.world.open(guest, node)?;
        let bytes = self.world.read(guest, open);
        self.world.ask(guest, Request::Release { open })?;
        bytes
    }

    /// Expects that nothing but the file is found by its guest.
    fn expect_alone(&self, guest: &Guest) {
        let Self { world, dir, beside, other, .. } = self;
        for node in [Handle::ROOT, *dir, *beside, *other] {
            assert_eq!(world.attr(guest, node).err(), Some(Code::Stale), "{node:?}");
            let parent = Request::Parent { dir: node };
            assert_eq!(world.ask(guest, parent).err(), Some(Code::Stale), "{node:?}");
            for text in ["other", "none", "dir", "beside"] {
                assert_eq!(world.lookup(guest, node, text).err(), Some(Code::Stale), "{text}");
            }
        }
        let list = Request::List {
            dir: *dir,
            after: Cookie::START,
            behind: None,
            entries: 10,
            attributes: true,
        };
        assert_eq!(world.ask(guest, list).err(), Some(Code::Stale));
        assert_eq!(self.bytes(guest, *other), Err(Code::Stale));
    }
}

#[test]
fn a_guest_of_a_file_finds_it_and_nothing_beside_it() {
    let files = Files::new();
    for guest in [files.of_file(), files.of_name()] {
        for _ in 0..2 {
            assert_eq!(files.bytes(&guest, files.file).unwrap(), b"first");
            let found = files.world.lookup(&guest, files.dir, "report").unwrap();
            assert_eq!(found.handle, files.file);
            files.expect_alone(&guest);
        }
        let parent = Request::Parent { dir: files.file };
        assert!(files.world.ask(&guest, parent).is_err(), "a file has no parent");
        let unlink = Request::Unlink { dir: files.dir, name: name("report") };
        assert_eq!(files.world.ask(&guest, unlink).err(), Some(Code::Stale));
        let make = Request::Create {
            dir: files.dir,
            name: name("report"),
            flags: pelago_wire::OpenFlags::READ_WRITE,
            mode: pelago_wire::NewMode::exactly(0o644),
            open: crate::harness::requests::next_open(),
        };
        assert_eq!(files.world.ask(&guest, make).err(), Some(Code::Stale));
    }
}

#[test]
fn a_share_of_a_file_follows_it_and_ends_with_it() {
    let files = Files::new();
    let guest = files.of_file();
    files.rename(files.dir, "report", files.beside, "elsewhere");
    let moved = Handle::own(files.file.ino);
    for node in [files.file, moved] {
        assert_eq!(files.bytes(&guest, node).unwrap(), b"first");
    }
    let lost = files.world.lookup(&guest, files.dir, "report");
    assert_eq!(lost.err(), Some(Code::Stale));
    let found = files.world.lookup(&guest, files.beside, "elsewhere").unwrap();
    assert_eq!(found.handle.ino, files.file.ino);
    files.rename(files.beside, "elsewhere", files.dir, "report");
    let open = files.world.open(&guest, moved).unwrap();
    let new = files.replace(b"second");
    assert_eq!(files.world.read(&guest, open).unwrap(), b"first", "an open file stays");
    let open_attr = files.world.attr(&guest, moved).unwrap();
    assert_eq!((open_attr.ino, open_attr.links), (moved.ino, 0), "by its handle too");
    files.world.ask(&guest, Request::Release { open }).unwrap();
    assert_eq!(files.world.attr(&guest, moved).err(), Some(Code::Stale), "it has no name");
    assert_eq!(files.world.open(&guest, moved).err(), Some(Code::Stale));
    assert_eq!(files.bytes(&guest, new), Err(Code::Stale), "another file");
    let named = files.world.lookup(&guest, files.dir, "report");
    assert_eq!(named.err(), Some(Code::Stale));
    files.expect_alone(&guest);
}

#[test]
fn a_shared_file_is_granted_under_each_of_its_names() {
    let files = Files::new();
    let guest = files.of_file();
    files.world.link(files.file, files.beside, "second");
    files.world.link(files.other, files.beside, "third");
    for at in [(files.dir, "report"), (files.beside, "second")] {
        let found = files.world.lookup(&guest, at.0, at.1).unwrap();
        assert_eq!(found.handle.ino, files.file.ino);
        assert_eq!(files.bytes(&guest, found.handle).unwrap(), b"first");
    }
    files.world.unlink(files.dir, "report");
    assert_eq!(files.bytes(&guest, Handle::own(files.file.ino)).unwrap(), b"first");
    let third = files.world.lookup(&guest, files.beside, "third");
    assert_eq!(third.err(), Some(Code::Stale));
    files.world.unlink(files.beside, "second");
    let gone = files.world.attr(&guest, Handle::own(files.file.ino));
    assert_eq!(gone.err(), Some(Code::Stale));
}

#[test]
fn a_share_by_name_goes_on_when_the_file_is_replaced() {
    let files = Files::new();
    let guest = files.of_name();
    let old = files.world.open(&guest, files.file).unwrap();
    for round in 0..3_u8 {
        let new = files.replace(&[b'a' + round]);
        let found = files.world.lookup(&guest, files.dir, "report").unwrap();
        assert_eq!(found.handle, new);
        assert_eq!(files.bytes(&guest, new).unwrap(), [b'a' + round]);
    }
    assert_eq!(files.world.read(&guest, old).unwrap(), b"first", "an open file stays");
    files.world.ask(&guest, Request::Release { open: old }).unwrap();
    let gone = files.world.attr(&guest, files.file);
    assert_eq!(gone.err(), Some(Code::Stale));
    files.expect_alone(&guest);
}

/// Each answer is asked for twice: a decision that is kept is for this name alone.
#[test]
fn a_share_by_name_is_for_this_name_in_this_directory() {
    let files = Files::new();
    let guest = files.of_name();
    let file = Handle::own(files.file.ino);
    let expect = |is_granted: bool, why: &str| {
        for _ in 0..2 {
            let granted = files.world.attr(&guest, file);
            assert_eq!(granted.is_ok(), is_granted, "{why}: {granted:?}");
            assert_eq!(files.bytes(&guest, file).is_ok(), is_granted, "{why}");
        }
    };
    expect(true, "it has the name");
    files.rename(files.dir, "report", files.dir, "report.old");
    expect(false, "it has another name");
    let open = files.world.open(&guest, file);
    assert_eq!(open.err(), Some(Code::Stale));
    files.rename(files.dir, "report.old", files.beside, "report");
    expect(false, "it is in another directory");
    let below = files.world.make_dir(files.dir, "below");
    files.rename(files.beside, "report", below, "report");
    expect(false, "a directory below is another one");
    files.rename(below, "report", files.dir, "report");
    expect(true, "it has the name again");
    files.world.link(file, files.dir, "a");
    files.world.link(file, files.dir, "z");
    expect(true, "one name of three suffices");
    files.world.unlink(files.dir, "report");
    expect(false, "two others do not");
    files.world.make_dir(files.dir, "report");
    let found = files.world.lookup(&guest, files.dir, "report");
    assert_eq!(found.err(), Some(Code::Stale), "a directory is no file of this name");
    files.expect_alone(&guest);
}

#[test]
fn a_file_that_is_open_and_loses_its_name_to_another_one_is_out() {
    let files = Files::new();
    let guest = files.of_name();
    let open = files.world.open(&guest, files.file).unwrap();
    files.rename(files.dir, "report", files.dir, "kept");
    assert_eq!(files.world.read(&guest, open), Err(Code::Stale));
    files.world.put(files.dir, "report", b"second");
    assert_eq!(files.world.read(&guest, open), Err(Code::Stale));
    let new = files.world.lookup(&guest, files.dir, "report").unwrap();
    assert_eq!(files.bytes(&guest, new.handle).unwrap(), b"second");
}

/// More names than are examined: one that complies may be among the others.
#[test]
fn of_many_names_the_first_ones_are_examined() {
    let files = Files::new();
    let guest = files.of_name();
    for number in 0..100 {
        files.world.link(files.file, files.beside, &format!("name{number}"));
    }
    let granted = files.world.attr(&guest, Handle::own(files.file.ino));
    assert!(granted.is_ok() || granted == Err(Code::Stale), "{granted:?}");
    for number in 0..100 {
        files.world.unlink(files.beside, &format!("name{number}"));
    }
    assert_eq!(files.bytes(&guest, Handle::own(files.file.ino)).unwrap(), b"first");
}

/// The bytes of a name are the value of its attribute, whatever they mean in the language.
#[test]
fn a_name_of_any_bytes_is_shared() {
    let files = Files::new();
    for text in ["Plän \"A\"", "a\\b$", "(*.+?)|", " x ", "%41", "&&"] {
        let file = files.world.put(files.dir, text, b"bytes");
        let name = SharedName::new(text.as_bytes()).unwrap();
        let guest = files.guest(2, SharedObject::Name { directory: files.dir.ino.raw(), name });
        assert_eq!(files.bytes(&guest, file).unwrap(), b"bytes", "{text}");
        files.expect_alone(&guest);
    }
}

/// A delegate hands on a file of his folder, and no other's.
#[test]
fn a_file_of_a_shared_folder_is_shared_on() {
    let files = Files::new();
    let world = &files.world;
    let rights = "rxg".parse().unwrap();
    let folder = world.signed(1, 2, &Grant { rights, ..world.to_read(files.dir.ino) });
    let of = |file: Handle| {
        let object = SharedObject::File(file.ino.raw());
        Grant { object, ..world.to_read(files.dir.ino) }
    };
    let outside = world.put(files.beside, "outside", b"secret");
    let chain = |file: Handle| world.signed(2, 3, &of(file));
    let begin = |text: &str| world.begin(world.admit(3, &[&folder, text]).unwrap()).unwrap();
    let guest = begin(&chain(files.file));
    assert_eq!(files.bytes(&guest, files.file).unwrap(), b"first");
    files.expect_alone(&guest);
    let guest = begin(&chain(outside));
    assert_eq!(files.bytes(&guest, outside), Err(Code::Stale));
    files.expect_alone(&guest);
}
