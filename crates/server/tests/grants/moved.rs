//! What is moved out of a shared directory is out, also while it is read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_wire::{
    Code, Context, Handle, OpenFlags, OpenId, RenameFlags, Reply, Request, SetAttr, WriteFlags,
    limits,
};

use super::world::{World, done, name};

const OPEN: OpenId = OpenId(5);
/// Directories below each other, more than a climb takes under one hold of the lock.
const DEEP: usize = 150;

#[test]
fn a_file_that_is_renamed_out_is_out_for_its_opens_too() {
    let world = World::with_guest();
    let file = world.entry(world.docs, "file").handle;
    world.open(file, OPEN).unwrap();
    assert_eq!(world.read(OPEN), Ok(b"shown".to_vec()));
    world.rename(world.docs, "file", world.secret, "moved");
    assert_eq!(world.read(OPEN), Err(Code::Stale));
    assert_eq!(done(world.guest(Request::GetAttr { node: file })), Err(Code::Stale));
    assert_eq!(done(world.open(file, OpenId(6))), Err(Code::Stale));
    world.rename(world.secret, "moved", world.docs, "back");
    assert_eq!(world.read(OPEN), Ok(b"shown".to_vec()));
}

#[test]
fn what_is_below_a_directory_that_moves_out_is_out() {
    let world = World::with_guest();
    let sub = world.entry(world.docs, "sub").handle;
    let deep = world.entry(sub, "deep").handle;
    world.open(deep, OPEN).unwrap();
    world.rename(world.docs, "sub", world.secret, "sub");
    assert_eq!(world.read(OPEN), Err(Code::Stale));
    assert_eq!(
        done(world.guest(Request::Lookup { dir: sub, name: name("deep") })),
        Err(Code::Stale)
    );
    world.rename(world.secret, "sub", world.docs, "sub");
    assert_eq!(world.read(OPEN), Ok(b"deep".to_vec()));
}

#[test]
fn a_file_is_granted_while_one_of_its_names_is() {
    let world = World::with_guest();
    let node = world.entry(world.secret, "file").handle;
    world.own(Request::Link { node, dir: world.docs, name: name("second") }).unwrap();
    let linked = world.entry(world.docs, "second").handle;
    world.open(linked, OPEN).unwrap();
    assert_eq!(world.read(OPEN), Ok(b"secret".to_vec()));
    world.own(Request::Unlink { dir: world.docs, name: name("second") }).unwrap();
    assert_eq!(world.read(OPEN), Err(Code::Stale), "its other name is elsewhere");
}

#[test]
fn an_open_file_that_is_removed_is_read_until_it_is_closed() {
    let world = World::with_guest();
    let file = world.entry(world.docs, "file").handle;
    world.open(file, OPEN).unwrap();
    world.own(Request::Unlink { dir: world.docs, name: name("file") }).unwrap();
    assert_eq!(world.read(OPEN), Ok(b"shown".to_vec()));
    world.put(world.docs, "file", b"another");
    assert_eq!(world.read(OPEN), Ok(b"shown".to_vec()));
    assert_eq!(done(world.guest(Request::Release { open: OPEN })), Ok(()));
    assert_eq!(world.read(OPEN), Err(Code::BadOpen));
    assert_eq!(done(world.guest(Request::GetAttr { node: file })), Err(Code::Stale));
}

#[test]
fn depth_is_no_hiding_place() {
    let world = World::with_guest();
    let deepest = |mut dir: Handle| {
        for level in 0..DEEP {
            dir = world.make_dir(dir, &format!("d{level}"));
        }
        world.put(dir, "file", b"far down")
    };
    let inside = deepest(world.docs);
    let outside = deepest(world.secret);
    world.open(inside, OPEN).unwrap();
    assert_eq!(world.read(OPEN), Ok(b"far down".to_vec()));
    assert_eq!(done(world.open(outside, OpenId(6))), Err(Code::Stale));
    world.rename(world.docs, "d0", world.secret, "out");
    assert_eq!(world.read(OPEN), Err(Code::Stale));
}

/// Bytes of the file, so that reading it takes as long as some changes of the owner.
const SIZE: usize = limits::IO_BYTES;
/// Where the owner writes the secret.
const AT: usize = SIZE - 4096;

/// Writes over the file that the owner has open as 1.
fn overwrite(world: &World, bytes: &[u8]) {
    let who = Context::direct(0, 0);
    let request = Request::Write { open: OpenId(1), offset: AT as u64, flags: WriteFlags::NONE };
    world.ask(&who, request, bytes).unwrap();
}

/// Returns what the guest reads where the secret would be.
fn read_there(world: &World) -> Result<Vec<u8>, Code> {
    match world.guest(Request::Read { open: OPEN, offset: 0, size: SIZE as u32 })? {
        Reply::Data(bytes) => Ok(bytes.as_bytes()[AT..AT + 4].to_vec()),
        other => panic!("{other:?}"),
    }
}

/// Ends the other thread, also if a test has failed.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The owner moves a directory out, writes a secret into a file there, takes it away and moves the
/// directory back, again and again. No answer to the guest has the secret.
fn never_sees_the_secret(move_out: &(dyn Fn(&World) + Sync), move_back: &(dyn Fn(&World) + Sync)) {
    const ROUNDS: Duration = Duration::from_secs(2);
    let world = World::with_guest();
    let sub = world.entry(world.docs, "sub").handle;
    let deep = world.put(sub, "large", &vec![b'.'; SIZE]);
    world.open(deep, OPEN).unwrap();
    world.own(Request::Open { node: deep, flags: OpenFlags::READ_WRITE, open: OpenId(1) }).unwrap();
    let is_over = AtomicBool::new(false);
    let mut read = 0_u32;
    let mut refused = 0_u32;
    thread::scope(|scope| {
        let world = &world;
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                move_out(world);
                overwrite(world, b"PASS");
                overwrite(world, b"....");
                move_back(world);
                // As long as the guest needs to read it, at times.
                thread::sleep(Duration::from_micros(200));
            }
        });
        let _end = SetAtEnd(is_over);
        let begun = Instant::now();
        while begun.elapsed() < ROUNDS {
            match read_there(world) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"....", "the guest has read the secret");
                    read += 1;
                }
                Err(Code::Stale | Code::Busy) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
        }
    });
    assert!(read > 10 && refused > 10, "both happen: {read} read, {refused} refused");
}

#[test]
fn a_secret_that_is_outside_for_a_moment_is_not_read_below_a_directory_that_moves() {
    never_sees_the_secret(
        &|world| world.rename(world.docs, "sub", world.secret, "sub"),
        &|world| world.rename(world.secret, "sub", world.docs, "sub"),
    );
}

#[test]
fn a_secret_that_is_outside_for_a_moment_is_not_read_in_a_file_that_moves() {
    let from = |world: &World| world.entry(world.docs, "sub").handle;
    never_sees_the_secret(
        &|world| world.rename(from(world), "large", world.secret, "large"),
        &|world| world.rename(world.secret, "large", from(world), "large"),
    );
}

#[test]
fn an_exchange_moves_both() {
    let world = World::with_guest();
    let file = world.entry(world.docs, "file").handle;
    let secret = world.entry(world.secret, "file").handle;
    world.open(file, OPEN).unwrap();
    let exchange = Request::Rename {
        from_dir: world.docs,
        from: name("file"),
        to_dir: world.secret,
        to: name("file"),
        flags: RenameFlags::Exchange,
    };
    world.own(exchange).unwrap();
    assert_eq!(world.read(OPEN), Err(Code::Stale));
    world.open(secret, OpenId(6)).unwrap();
    assert_eq!(world.read(OpenId(6)), Ok(b"secret".to_vec()));
    let set = SetAttr { mode: Some(0), ..SetAttr::default() };
    world.own(Request::SetAttr { node: secret, open: None, set }).unwrap();
    assert_eq!(world.read(OpenId(6)), Ok(b"secret".to_vec()), "modes are the owner's");
}
