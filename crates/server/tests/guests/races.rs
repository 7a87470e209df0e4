//! Guests that read all the time, while a file and a directory move out of the granted directory
//! and in again. Bytes that are written while these are outside, and removed before they are back,
//! are never seen.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_wire::{Code, Handle, OpenFlags, OpenId, Request};

use super::world::{Guest, World};
use crate::harness::requests::{self, next_open};

/// How long each race goes on.
const TIME: Duration = Duration::from_secs(3);

/// What moves, and what is in it.
struct Moving {
    /// The directory of the moving name, inside and outside.
    inside: Handle,
    outside: Handle,
    text: &'static str,
    file: Handle,
    /// Bytes of the file.
    bytes: usize,
}

/// What guests were told.
#[derive(Default)]
struct Told {
    is_over: AtomicBool,
    bytes: AtomicUsize,
    nothing: AtomicUsize,
    busy: AtomicUsize,
}

impl Told {
    fn note(&self, told: Result<Vec<u8>, Code>, moving: &Moving) {
        match told {
            Ok(bytes) => {
                assert_eq!(bytes.len(), moving.bytes);
                assert!(bytes.iter().all(|byte| *byte == b'p'), "a guest has read a secret");
                self.bytes.fetch_add(1, Ordering::Relaxed);
            }
            Err(Code::Stale | Code::NotFound) => drop(self.nothing.fetch_add(1, Ordering::Relaxed)),
            Err(Code::Busy) => drop(self.busy.fetch_add(1, Ordering::Relaxed)),
            Err(code) => panic!("{code:?}"),
        }
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

/// Moves it out, writes a secret, removes that, and moves it in again.
fn move_it(world: &World, moving: &Moving, open: OpenId) {
    let Moving { inside, outside, text, bytes, .. } = moving;
    let secret = vec![b's'; *bytes];
    let public = vec![b'p'; *bytes];
    world.rename(*inside, *outside, text);
    requests::write(&world.server, open, 0, &secret).unwrap();
    requests::write(&world.server, open, 0, &public).unwrap();
    world.rename(*outside, *inside, text);
}

fn read_by_open(world: &World, guest: &Guest, open: OpenId, moving: &Moving, told: &Told) {
    while told.goes_on() {
        told.note(world.read(guest, open), moving);
    }
}

fn read_by_name(world: &World, guest: &Guest, moving: &Moving, told: &Told) {
    while told.goes_on() {
        let found = world.lookup(guest, moving.inside, moving.text);
        let found = found.and_then(|found| match found.handle.ino == moving.file.ino {
            true => Ok(found),
            false => world.lookup(guest, found.handle, "f"),
        });
        let opened = found.and_then(|found| world.open(guest, found.handle));
        let bytes = opened.and_then(|open| {
            let bytes = world.read(guest, open);
            world.ask(guest, Request::Release { open }).unwrap();
            bytes
        });
        told.note(bytes, moving);
    }
}

fn race(world: &World, top: Handle, moving: &Moving) {
    let told = Told::default();
    let open = next_open();
    let flags = OpenFlags::READ_WRITE;
    world.call(Request::Open { node: moving.file, flags, open }).unwrap();
    let guests = [2, 2, 3].map(|number| world.guest(number, top.ino));
    let read = [0, 1].map(|reader| world.open(&guests[reader], moving.file).unwrap());
    let opens = world.server.status().open_files;
    thread::scope(|scope| {
        let readers = [
            scope.spawn(|| read_by_open(world, &guests[0], read[0], moving, &told)),
            scope.spawn(|| read_by_open(world, &guests[1], read[1], moving, &told)),
            scope.spawn(|| read_by_name(world, &guests[2], moving, &told)),
        ];
        let began = Instant::now();
        let mut rounds = 0;
        while began.elapsed() < TIME && !readers.iter().any(|reader| reader.is_finished()) {
            move_it(world, moving, open);
            rounds += 1;
            if rounds % 7 == 0 {
                // Else it is outside most of the time.
                thread::sleep(Duration::from_micros(500));
            }
        }
        told.is_over.store(true, Ordering::Relaxed);
        println!("{rounds} rounds");
    });
    let [bytes, nothing, busy] =
        [&told.bytes, &told.nothing, &told.busy].map(|count| count.load(Ordering::Relaxed));
    println!("{bytes} reads, {nothing} refused, {busy} busy");
    assert!(bytes > 100 && nothing > 0, "both places were seen");
    requests::close(&world.server, open).unwrap();
    assert_eq!(world.server.status().open_files, opens - 1, "no open is left behind");
}

fn of_directory(bytes: usize) {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let outside = world.make_dir(Handle::ROOT, "secret");
    let inside = world.make_dir(shared, "inside");
    let dir = world.make_dir(inside, "moving");
    let file = world.put(dir, "f", &vec![b'p'; bytes]);
    race(&world, shared, &Moving { inside, outside, text: "moving", file, bytes });
}

fn of_file(bytes: usize) {
    let world = World::new();
    let inside = world.make_dir(Handle::ROOT, "shared");
    let outside = world.make_dir(Handle::ROOT, "secret");
    let file = world.put(inside, "moving", &vec![b'p'; bytes]);
    race(&world, inside, &Moving { inside, outside, text: "moving", file, bytes });
}

#[test]
fn a_secret_below_a_directory_that_moves_out_and_in_is_never_read() {
    of_directory(300);
}

#[test]
fn a_large_secret_below_a_directory_that_moves_out_and_in_is_never_read() {
    of_directory(200_000);
}

#[test]
fn a_secret_in_a_file_that_moves_out_and_in_is_never_read() {
    of_file(300);
}

#[test]
fn a_large_secret_in_a_file_that_moves_out_and_in_is_never_read() {
    of_file(200_000);
}

/// A file that is opened while directories move is open once, and is closed again.
#[test]
fn files_are_opened_and_closed_while_other_directories_move() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let other = world.make_dir(Handle::ROOT, "other");
    world.make_dir(Handle::ROOT, "moving");
    let file = world.put(shared, "f", b"bytes");
    let guest = world.guest(2, shared.ino);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.rename(Handle::ROOT, other, "moving");
                world.rename(other, Handle::ROOT, "moving");
            }
        });
        let began = Instant::now();
        let mut refused = Vec::new();
        while began.elapsed() < TIME {
            let opened = world.open(&guest, file);
            let read = opened.and_then(|open| {
                let read = world.read(&guest, open);
                world.ask(&guest, Request::Release { open }).unwrap();
                read
            });
            refused.extend(read.err());
        }
        is_over.store(true, Ordering::Relaxed);
        mover.join().unwrap();
        let other = refused.iter().find(|code| **code != Code::Busy);
        assert_eq!(other, None);
        println!("{} busy", refused.len());
    });
    assert_eq!(world.server.status().open_files, 0, "no open is left behind");
}

/// Each commit of a file that others write is a change of its row, and no reason to refuse a read.
#[test]
fn a_file_that_others_write_all_the_time_can_be_read() {
    for bytes in [300, 200_000] {
        let world = World::new();
        let shared = world.make_dir(Handle::ROOT, "shared");
        let file = world.put(shared, "f", &vec![b'p'; bytes]);
        let guest = world.guest(2, shared.ino);
        let open = world.open(&guest, file).unwrap();
        let is_over = AtomicBool::new(false);
        let mut read = 0;
        let mut busy = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    world.write(file, b"pppp");
                }
            });
            let began = Instant::now();
            while began.elapsed() < TIME / 3 {
                match world.read(&guest, open) {
                    Ok(_) => read += 1,
                    Err(Code::Busy) => busy += 1,
                    Err(code) => panic!("{code:?}"),
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        println!("{bytes} bytes: {read} read, {busy} busy");
        assert!(read > 100 && busy * 100 < read, "{read} read, {busy} busy");
    }
}
