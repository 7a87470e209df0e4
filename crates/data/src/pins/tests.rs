//! Pins over real content files.

use std::fs::File;
use std::os::unix::fs::FileExt;

use pelago_wire::{Caching, DataPath, Handle, OpenFlags, PinError, Pinned, SetAttr};
use proptest::prelude::*;

use super::*;
use crate::blocking::{MayBlock, OpError};
use crate::open_key::OpenKey;
use crate::pins::budget::PinLimits;
use crate::testing::{READ, READ_WRITE, Rig, pattern, reopened};
use crate::write::Write;

const LARGE: usize = 10_000;
/// Files in the tests are copied up to this size.
const COPY: u64 = 20_000;

fn rig() -> Rig {
    let pins = PinLimits { pins: 6, memory: 1000, copy: COPY, copies: 2 * COPY };
    Rig::with_pins(pins)
}

/// Returns all bytes, which are the same on both ways.
fn bytes_of(pin: &Pin) -> Result<Vec<u8>, PinError> {
    let size = pin.attr().size as usize;
    let mut bytes = vec![0; size + 1];
    let read = pin.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let blocks = pin.read_extent(0, size, Caching::Bypass)?;
    let mut blocks = blocks.iter().flat_map(|block| (**block).as_ref().iter());
    assert!(blocks.by_ref().eq(&bytes) && pin.read_extent(0, size + 1, Caching::Bypass).is_err());
    Ok(bytes)
}

fn truncate(rig: &Rig, handle: Handle, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    let now = pelago_store::clock::now();
    rig.files.set_attr(handle, None, &set, now.into(), MayBlock::Yes).unwrap();
}

/// A program that writes the file without requests. Another one reads it so: else a pinned file
/// would be written by requests.
struct Program {
    opens: [OpenKey; 2],
    file: File,
}

impl Program {
    fn of(rig: &Rig, handle: Handle) -> Self {
        let open = |flags: OpenFlags| {
            let flags = OpenFlags { passthrough: true, ..flags };
            let (open, opening) = rig.opening(handle, flags).unwrap();
            let DataPath::Passthrough(backing) = &opening.path else { panic!("{opening:?}") };
            (open, reopened(backing, flags))
        };
        let (reader, _) = open(READ);
        let (writer, file) = open(READ_WRITE);
        Self { opens: [reader, writer], file }
    }

    /// Closes both; the file stays open for writing if `file` is kept.
    fn close(self, rig: &Rig) -> File {
        self.opens.into_iter().for_each(|open| rig.close(open));
        self.file
    }
}

#[test]
fn a_pin_has_the_bytes_of_its_version_whatever_is_written() {
    let rig = rig();
    for size in [100, LARGE] {
        let before = pattern(size);
        let file = rig.file(&format!("f{size}"), &before);
        let pins = [(); 2].map(|()| rig.files.pin(file.handle).unwrap());
        let open = rig.open(file.handle, READ_WRITE).unwrap();
        assert_eq!(rig.files.pin(file.handle).unwrap_err(), PinError::Written);
        rig.write(open, 5, b"other").unwrap();
        assert_eq!(rig.read(open, 5, 5).unwrap(), b"other");
        rig.close(open);
        let after = rig.files.pin(file.handle).unwrap();
        for pin in &pins {
            assert_eq!(bytes_of(pin), Ok(before.clone()));
            assert!(!pin.is_changed() && pin.attr().ctime < after.attr().ctime);
        }
        assert_eq!(bytes_of(&after).unwrap()[5..10], *b"other");
        drop(pins);
        assert_eq!(rig.files.pins.budget.copied(), 0);
    }
    assert_eq!(rig.files.pins.budget.pinned(), 0);
}

#[test]
fn a_larger_file_than_may_be_copied_ends_its_pins_and_its_writer_goes_on() {
    let rig = rig();
    let file = rig.file("f", &vec![1; COPY as usize + 1]);
    let pin = rig.files.pin(file.handle).unwrap();
    let open = rig.open(file.handle, READ_WRITE).unwrap();
    assert_eq!(bytes_of(&pin).map(|bytes| bytes.len()), Ok(COPY as usize + 1), "nothing changed");
    rig.write(open, 0, b"x").unwrap();
    assert_eq!(bytes_of(&pin), Err(PinError::Changed));
    assert_eq!(pin.read_cached(&mut [0], 0), Err(PinError::Changed));
    assert!(pin.is_changed());
    rig.close(open);
}

#[test]
fn all_copies_together_have_a_limit_too() {
    let rig = rig();
    let files = [0, 1, 2].map(|number| rig.file(&format!("f{number}"), &vec![7; LARGE * 3 / 2]));
    let pins = files.map(|file| rig.files.pin(file.handle).unwrap());
    for file in files {
        truncate(&rig, file.handle, 1);
    }
    assert_eq!(pins.each_ref().map(Pin::is_changed), [false, false, true]);
    drop(pins);
    assert_eq!(rig.files.pins.budget.copied(), 0);
}

#[test]
fn a_truncation_to_nothing_copies_nothing() {
    let rig = rig();
    let before = pattern(COPY as usize * 2);
    let file = rig.file("f", &before);
    let pin = rig.files.pin(file.handle).unwrap();
    truncate(&rig, file.handle, 0);
    assert_eq!(rig.shard.attr(file.handle).unwrap().size, 0);
    let open = rig.open(file.handle, READ_WRITE).unwrap();
    rig.write(open, 3, b"new").unwrap();
    rig.fsync(open).unwrap();
    assert_eq!(bytes_of(&pin), Ok(before.clone()));
    assert_eq!(rig.read(open, 0, 10).unwrap(), b"\0\0\0new");
    rig.close(open);
    rig.files.write_back().unwrap();
    assert!(!rig.has_writing_row(file.handle));
    let again = rig.files.pin(file.handle).unwrap();
    let emptied = rig.open(file.handle, OpenFlags { truncate: true, ..READ_WRITE }).unwrap();
    assert_eq!(rig.read(emptied, 0, 10).unwrap(), b"");
    assert_eq!((bytes_of(&again).unwrap(), bytes_of(&pin).unwrap()), (b"\0\0\0new".into(), before));
    assert_eq!(rig.files.pins.budget.copied(), 0);
    assert_eq!(rig.content_files(), 1);
}

#[test]
fn a_program_that_writes_without_a_request_changes_no_pin() {
    let rig = rig();
    let before = pattern(LARGE);
    let file = rig.file("f", &before);
    let pin = rig.files.pin(file.handle).unwrap();
    let program = Program::of(&rig, file.handle);
    assert_eq!(rig.files.pin(file.handle).unwrap_err(), PinError::Written);
    program.file.write_all_at(b"other", 0).unwrap();
    assert_eq!(bytes_of(&pin), Ok(before));
    let descriptor = program.close(&rig);
    assert_eq!(rig.files.pin(file.handle).unwrap_err(), PinError::Written, "it is still open");
    drop(descriptor);
    rig.files.release_closed().unwrap();
    let after = rig.files.pin(file.handle).unwrap();
    assert_eq!(bytes_of(&after).unwrap()[..5], *b"other");
}

/// The kernel opens a file and truncates it then.
#[test]
fn a_pinned_file_is_opened_to_write_by_requests_and_emptied_without_a_copy() {
    let rig = rig();
    let before = pattern(COPY as usize + 1);
    let file = rig.file("f", &before);
    let pin = rig.files.pin(file.handle).unwrap();
    let flags = OpenFlags { passthrough: true, ..READ_WRITE };
    let (open, opening) = rig.opening(file.handle, flags).unwrap();
    assert!(matches!(opening.path, DataPath::Cached), "{opening:?}");
    truncate(&rig, file.handle, 0);
    assert_eq!(bytes_of(&pin), Ok(before));
    rig.close(open);
    let (_, opening) = rig.opening(file.handle, flags).unwrap();
    assert!(matches!(opening.path, DataPath::Passthrough(_)), "{opening:?}");
}

/// The kernel of a mount has the content file of a reader: it cannot get another one.
#[test]
fn a_truncation_beside_a_reader_without_requests_copies() {
    let rig = rig();
    let before = pattern(LARGE);
    let file = rig.file("f", &before);
    let flags = OpenFlags { passthrough: true, ..READ };
    let (_open, opening) = rig.opening(file.handle, flags).unwrap();
    let DataPath::Passthrough(backing) = &opening.path else { panic!("{opening:?}") };
    let reader = reopened(backing, flags);
    let pin = rig.files.pin(file.handle).unwrap();
    truncate(&rig, file.handle, 0);
    assert_eq!(reader.metadata().unwrap().len(), 0);
    assert_eq!(bytes_of(&pin), Ok(before));
    assert!(rig.files.pins.budget.copied() > 0);
}

#[test]
fn pins_have_limits_and_their_end_makes_room() {
    let rig = rig();
    let small = rig.file("small", &[7; 600]);
    let large = rig.file("large", &[7; LARGE]);
    let one = rig.files.pin(small.handle).unwrap();
    let too_many = PinError::Failed(Code::TooManyOpen.into());
    assert_eq!(rig.files.pin(small.handle).unwrap_err(), too_many, "there is no memory");
    let pins = [(); 5].map(|()| rig.files.pin(large.handle).unwrap());
    assert_eq!(rig.files.pin(large.handle).unwrap_err(), too_many);
    drop((one, pins));
    assert!(rig.files.pin(small.handle).is_ok() && rig.files.pin(large.handle).is_ok());
    assert!(!rig.files.is_pinned(large.handle.ino));
}

#[test]
fn a_caller_that_may_not_block_copies_nothing() {
    let rig = rig();
    let file = rig.file("f", &[7; LARGE]);
    let pin = rig.files.pin(file.handle).unwrap();
    let open = rig.open(file.handle, READ_WRITE).unwrap();
    let bytes = b"x".as_slice();
    let write = Write { offset: 0, append: false, once: None, bytes, kill_privileges: false };
    assert_eq!(rig.files.write(open, write, MayBlock::No), Err(OpError::WouldBlock));
    let flags = OpenFlags { truncate: true, ..READ_WRITE };
    let key = OpenKey { open: pelago_wire::OpenId(99), ..open };
    let opened = rig.files.open(key, file.handle, flags, MayBlock::No);
    assert_eq!(opened.unwrap_err(), OpError::WouldBlock);
    assert!(!pin.is_changed() && rig.files.is_pinned(file.handle.ino));
    drop(pin);
    assert!(rig.files.write(open, write, MayBlock::No).is_ok());
}

#[test]
fn a_removed_file_is_read_to_its_end() {
    let rig = rig();
    let before = pattern(LARGE);
    let file = rig.file("f", &before);
    let pin = rig.files.pin(file.handle).unwrap();
    rig.remove_content(file.handle);
    assert_eq!(bytes_of(&pin), Ok(before));
}

/// What a program does to the file, or a delivery.
#[derive(Debug, Clone, Copy)]
enum Act {
    Pin,
    Unpin(usize),
    Read(usize),
    Write { at: u64, byte: u8 },
    Truncate(u64),
    Store { at: u64, byte: u8 },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let at = 0..COPY + 2000;
    let act = prop_oneof![
        3 => Just(Act::Pin),
        1 => (0..6_usize).prop_map(Act::Unpin),
        3 => (0..6_usize).prop_map(Act::Read),
        2 => (at.clone(), 1..=255_u8).prop_map(|(at, byte)| Act::Write { at, byte }),
        1 => prop_oneof![Just(0), at.clone()].prop_map(Act::Truncate),
        2 => (at, 1..=255_u8).prop_map(|(at, byte)| Act::Store { at, byte }),
    ];
    proptest::collection::vec(act, 1..40)
}

fn put(model: &mut Vec<u8>, at: u64, byte: u8) {
    let at = at as usize;
    if model.len() <= at {
        model.resize(at + 1, 0);
    }
    model[at] = byte;
}

/// A pin with the bytes that it must have.
struct Held {
    pin: Pin,
    bytes: Vec<u8>,
}

fn check(held: &Held) {
    match bytes_of(&held.pin) {
        Ok(bytes) => assert!(bytes == held.bytes, "a mixture"),
        Err(PinError::Changed) => assert!(held.pin.is_changed()),
        Err(error) => panic!("{error:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever programs do, each pin has the bytes of its version or says that they are gone.
    #[test]
    fn a_pin_is_one_version_or_changed(acts in acts()) {
        let rig = rig();
        let mut model = pattern(LARGE);
        let file = rig.file("f", &model);
        let mut pins: Vec<Held> = Vec::new();
        for act in acts {
            match act {
                Act::Pin => {
                    let Ok(pin) = rig.files.pin(file.handle) else { continue };
                    prop_assert_eq!(pin.attr().size, model.len() as u64);
                    pins.push(Held { pin, bytes: model.clone() });
                }
                Act::Unpin(number) if number < pins.len() => drop(pins.remove(number)),
                Act::Read(number) if number < pins.len() => check(&pins[number]),
                Act::Unpin(_) | Act::Read(_) => {}
                Act::Write { at, byte } => {
                    let open = rig.open(file.handle, READ_WRITE).unwrap();
                    rig.write(open, at, &[byte]).unwrap();
                    rig.close(open);
                    put(&mut model, at, byte);
                }
                Act::Truncate(size) => {
                    truncate(&rig, file.handle, size);
                    model.resize(size as usize, 0);
                }
                Act::Store { at, byte } => {
                    let program = Program::of(&rig, file.handle);
                    program.file.write_all_at(&[byte], at).unwrap();
                    drop(program.close(&rig));
                    rig.files.release_closed().unwrap();
                    put(&mut model, at, byte);
                }
            }
            pins.iter().for_each(check);
        }
        drop(pins);
        prop_assert_eq!((rig.files.pins.budget.pinned(), rig.files.pins.budget.copied()), (0, 0));
        prop_assert_eq!(rig.content_files(), 1);
    }
}
