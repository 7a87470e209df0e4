//! New versions of other sites' files, of which only the changed blocks are fetched.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_server::Options;
use pelago_wire::{Code, Handle, OpenFlags, OpenId, Reply, Request, SessionId, SetAttr, limits};

use super::copies::{content, settle, with_copies};
use super::world::{Offices, ask, client, lookup, options, wait_for};

const DIRECT: SessionId = SessionId::DIRECT;
const BLOCK: usize = limits::FETCH_BLOCK_BYTES;
/// The bytes of a program's read.
const READ: usize = 128 << 10;
/// A file of more blocks than one request asks for, and a part of one.
const SIZE: usize = 70 * BLOCK + 1000;

/// The second site with a copy of all bytes of a file of the first one, whose leases have ended.
struct Copied {
    offices: Offices,
    file: Handle,
    bytes: Vec<u8>,
}

impl Copied {
    fn new() -> Self {
        Self::of(SIZE)
    }

    fn of(size: usize) -> Self {
        let offices = with_copies(1 << 30);
        // No block has the bytes of another one.
        let mut bytes = content(1, size);
        for (at, block) in bytes.chunks_mut(BLOCK).enumerate() {
            block[0] = at as u8;
        }
        let file = offices.written("file", &bytes);
        let copied = Self { offices, file, bytes };
        assert!(copied.moved() >= size as u64);
        copied.settle();
        copied
    }

    /// Waits until all bytes are copies of the version that was read. Blocks are left out while the
    /// disk is slower than the line.
    fn settle(&self) {
        for _ in 0..5 {
            settle();
            if self.read_again() == 0 {
                return;
            }
        }
        panic!("blocks are fetched again and again");
    }

    /// Reads the file at the second site. Returns the bytes that have crossed the line for it.
    fn moved(&self) -> u64 {
        let before = self.received();
        self.offices.reads("file", 0..self.bytes.len(), &self.bytes);
        self.received() - before
    }

    /// Does that once nothing is in memory any more.
    fn read_again(&self) -> u64 {
        self.offices.lose_leases();
        self.moved()
    }

    fn received(&self) -> u64 {
        self.offices.line_to_first().received.load(Ordering::Acquire)
    }

    /// Changes bytes at the first site.
    fn change(&mut self, at: usize, bytes: usize) {
        self.bytes[at..at + bytes].iter_mut().for_each(|byte| *byte ^= 0x55);
        self.offices.write(self.file, at as u64, &self.bytes[at..at + bytes]);
    }

    /// Sets the size at the first site.
    fn resize(&mut self, size: usize) {
        self.bytes.resize(size, 0);
        self.set(SetAttr { size: Some(size as u64), ..SetAttr::default() });
    }

    fn set(&self, set: SetAttr) {
        let request = Request::SetAttr { node: self.file, open: None, set };
        ask(&self.offices.first, DIRECT, request).unwrap();
    }

    /// Returns the requests for hashes that were sent.
    fn asked(&self) -> usize {
        self.offices.line_to_first().hashing.lock().asked.len()
    }

    /// Returns the hashes of all blocks: what is moved of a file that has not changed.
    fn hashes(&self) -> u64 {
        32 * self.bytes.len().div_ceil(BLOCK) as u64
    }
}

#[test]
fn only_the_changed_blocks_of_a_new_version_are_fetched() {
    let mut copied = Copied::new();
    // 64 KiB, in two blocks.
    copied.change(5 * BLOCK - 1000, 64 << 10);
    let moved = copied.moved();
    assert_eq!(moved, 2 * BLOCK as u64 + copied.hashes());
    assert!(moved < 2 << 20);
    // Of the head, of the rest of the first 64, and of those after them.
    assert_eq!(copied.asked(), 3);
    // All of it is a copy of the new version by then.
    copied.settle();
    let status = copied.offices.berlin.copies();
    assert_eq!((status.files, status.bytes), (1, SIZE as u64));
    // Again, and both ends of the file.
    copied.change(0, 10);
    copied.change(SIZE - 1, 1);
    assert_eq!(copied.moved(), BLOCK as u64 + 1000 + copied.hashes());
}

#[test]
fn of_a_file_whose_mode_was_changed_no_byte_is_fetched() {
    let copied = Copied::new();
    copied.set(SetAttr { mode: Some(0o600), ..SetAttr::default() });
    assert_eq!(copied.moved(), copied.hashes());
    copied.settle();
}

#[test]
fn a_file_that_has_grown_or_was_cut_keeps_what_it_had() {
    let mut copied = Copied::new();
    let old = copied.bytes.len();
    copied.resize(old + 3 * BLOCK);
    // The last block of before is longer now. Of those after it there are no copies to compare.
    let known = 32 * (SIZE / BLOCK) as u64;
    assert_eq!(copied.moved(), 3 * BLOCK as u64 + 1000 + known);
    copied.settle();
    copied.resize(10 * BLOCK + 5);
    assert_eq!(copied.moved(), 5 + 32 * 10);
    copied.settle();
    assert_eq!(copied.offices.berlin.copies().bytes, 10 * BLOCK as u64 + 5);
    let path = copied.offices.copies().join(format!("{:016x}.bytes", copied.file.ino.raw()));
    assert_eq!(fs::metadata(path).unwrap().len(), 10 * BLOCK as u64 + 5, "the disk has it back");
    // Zeros come back, not what was cut off.
    copied.resize(old);
    copied.moved();
}

#[test]
fn a_file_whose_bytes_have_moved_is_fetched_as_a_whole() {
    let mut copied = Copied::new();
    copied.bytes.insert(0, 7);
    copied.bytes.truncate(SIZE);
    copied.offices.write(copied.file, 0, &copied.bytes);
    assert_eq!(copied.moved(), SIZE as u64 + copied.hashes());
    copied.settle();
}

/// Of a small file, and of one that was never here, no hash is asked for.
#[test]
fn what_is_not_worth_it_costs_no_round_trip() {
    let size = limits::HASHED_FILE_BYTES as usize - 1;
    let mut copied = Copied::of(size);
    copied.change(5, 1);
    assert_eq!(copied.moved(), size as u64);
    let copied = Copied::new();
    assert_eq!(copied.asked(), 0);
}

#[test]
fn a_damaged_block_is_not_taken_over() {
    let copied = Copied::new();
    let path = copied.offices.copies().join(format!("{:016x}.bytes", copied.file.ino.raw()));
    let copy = fs::OpenOptions::new().write(true).open(&path).unwrap();
    copy.write_all_at(b"damage", 3 * BLOCK as u64 + 7).unwrap();
    copied.set(SetAttr { mode: Some(0o600), ..SetAttr::default() });
    assert_eq!(copied.moved(), BLOCK as u64 + copied.hashes());
    // What was fetched has taken its place.
    copied.settle();
    // Cut, and gone.
    copy.set_len(10).unwrap();
    copied.set(SetAttr { mode: Some(0o640), ..SetAttr::default() });
    assert_eq!(copied.moved(), SIZE as u64 + copied.hashes());
    fs::remove_file(&path).unwrap();
    copied.set(SetAttr { mode: Some(0o600), ..SetAttr::default() });
    copied.moved();
}

/// The older copies outlive the server, unless the new version has taken their place.
#[test]
fn older_copies_are_there_after_a_restart() {
    let mut copied = Copied::new();
    copied.change(BLOCK, 10);
    let Copied { offices, file, bytes } = copied;
    let again = Options { copy_bytes: 1 << 30, ..options() };
    let offices = offices.start_berlin_again(again);
    lookup(&offices.berlin, Handle::ROOT, "file").unwrap();
    wait_for("the maps are read", || offices.berlin.copies().files == 1);
    let copied = Copied { offices, file, bytes };
    assert_eq!(copied.moved(), BLOCK as u64 + copied.hashes());
}

/// A home that refuses, or an earlier version of the program, costs a round trip once.
#[test]
fn a_home_that_tells_no_hashes_is_asked_once_for_a_file() {
    let mut copied = Copied::new();
    copied.offices.line_to_first().hashing.lock().error = Some(Code::NotSupported);
    copied.change(BLOCK, 10);
    assert_eq!(copied.moved(), SIZE as u64);
    assert_eq!(copied.asked(), 1);
    // One that is too slow to hash is asked for the bytes.
    copied.offices.lose_leases();
    copied.offices.line_to_first().hashing.lock().error = Some(Code::TimedOut);
    copied.change(BLOCK, 10);
    assert_eq!(copied.moved(), SIZE as u64);
    // A line that fails is not.
    copied.offices.lose_leases();
    copied.offices.line_to_first().hashing.lock().error = Some(Code::HostDown);
    copied.change(BLOCK, 10);
    let node = lookup(&copied.offices.berlin, Handle::ROOT, "file").unwrap();
    let berlin = &copied.offices.berlin;
    ask(berlin, DIRECT, Request::GetAttr { node }).unwrap();
    let open = OpenId(8);
    ask(berlin, DIRECT, Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
    let before = copied.received();
    let read = Request::Read { open, offset: 0, size: 4096 };
    assert_eq!(ask(berlin, DIRECT, read).err(), Some(Code::HostDown));
    assert_eq!(copied.received(), before);
    ask(berlin, DIRECT, Request::Release { open }).unwrap();
    copied.offices.line_to_first().hashing.lock().error = None;
    assert_eq!(copied.moved(), BLOCK as u64 + copied.hashes());
}

/// The hash is of another version than the bytes that a reader would take over for it.
#[test]
fn a_version_that_moves_while_it_is_hashed_is_not_mixed() {
    for is_before in [true, false] {
        let mut copied = Copied::new();
        let open = OpenId(8);
        let Copied { offices, file, bytes } = &mut copied;
        offices.write(*file, 0, b"one");
        bytes[..3].copy_from_slice(b"one");
        let old = bytes.clone();
        let berlin = &offices.berlin;
        let node = lookup(berlin, Handle::ROOT, "file").unwrap();
        ask(berlin, DIRECT, Request::GetAttr { node }).unwrap();
        ask(berlin, DIRECT, Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
        // All blocks change.
        bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        let new = bytes.clone();
        let first = Arc::clone(&offices.first);
        let ino = *file;
        let change: Box<dyn FnOnce() + Send> = Box::new(move || {
            let office = super::copies::Office { first: &first };
            office.write(ino, 0, &new);
        });
        let line = offices.line_to_first();
        match is_before {
            true => line.hashing.lock().before = Some(change),
            false => line.hashing.lock().after = Some(change),
        }
        let read = Request::Read { open, offset: 0, size: READ as u32 };
        let Ok(Reply::Data(read)) = ask(berlin, DIRECT, read) else { panic!() };
        assert!(read.as_bytes() != &old[..READ], "it is older than the change");
        assert!(read.as_bytes() == &bytes[..READ]);
        assert!(line.hashing.lock().before.is_none() && line.hashing.lock().after.is_none());
        ask(berlin, DIRECT, Request::Release { open }).unwrap();
        copied.moved();
        copied.settle();
    }
}

/// Requests that no reader of ours sends.
#[test]
fn the_home_tells_hashes_of_its_own_files_to_sites_only() {
    let offices = with_copies(1 << 30);
    let bytes = content(3, 2 * BLOCK + 10);
    let node = offices.written("file", &bytes);
    let first = &offices.first;
    let site = offices.line_to_first().session;
    let open = OpenId(70);
    let hashes = |offset: usize, blocks: u32| {
        let request = Request::Hashes { open, offset: offset as u64, blocks };
        match ask(first, site, request) {
            Ok(Reply::Hashes(hashes)) => Ok(hashes),
            Ok(other) => panic!("{other:?}"),
            Err(code) => Err(code),
        }
    };
    assert_eq!(hashes(0, 1), Err(Code::BadOpen));
    ask(first, site, Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
    let expected: Vec<_> = bytes.chunks(BLOCK).map(|it| *blake3::hash(it).as_bytes()).collect();
    assert_eq!(hashes(0, 64), Ok(expected.clone()));
    assert_eq!(hashes(BLOCK, 1), Ok(expected[1..2].to_vec()));
    assert_eq!(hashes(2 * BLOCK, 9), Ok(expected[2..].to_vec()));
    assert_eq!(hashes(3 * BLOCK, 1), Ok(Vec::new()));
    let most = limits::HASHED_BLOCKS as u32;
    for (offset, blocks) in [(0, 0), (0, most + 1), (0, u32::MAX), (1, 1), (BLOCK - 1, 1)] {
        assert_eq!(hashes(offset, blocks), Err(Code::Invalid), "{offset} {blocks}");
    }
    let last = u64::MAX / BLOCK as u64 * BLOCK as u64;
    let far = Request::Hashes { open, offset: last, blocks: most };
    assert!(matches!(ask(first, site, far), Ok(Reply::Hashes(hashes)) if hashes.is_empty()));
    // A file that is open for writing has no version.
    let flags = OpenFlags::WRITE;
    ask(first, DIRECT, Request::Open { node, flags, open: OpenId(71) }).unwrap();
    assert_eq!(hashes(0, 1), Err(Code::Busy));
    ask(first, DIRECT, Request::Release { open: OpenId(71) }).unwrap();
    assert!(hashes(0, 1).is_ok());
    for session in [client(first), DIRECT] {
        ask(first, session, Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
        let request = Request::Hashes { open, offset: 0, blocks: 1 };
        assert_eq!(ask(first, session, request).err(), Some(Code::AccessDenied));
    }
}

#[test]
fn the_home_tells_no_hashes_of_bytes_that_are_elsewhere() {
    let offices = Offices::new();
    let node = offices.new_file("file", &content(1, 2 * BLOCK));
    assert_eq!(offices.berlin.stays().files, 1);
    let first = &offices.first;
    let site = offices.line_to_first().session;
    let open = OpenId(70);
    ask(first, site, Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
    let request = Request::Hashes { open, offset: 0, blocks: 1 };
    assert_eq!(ask(first, site, request).err(), Some(Code::Elsewhere));
    ask(first, site, Request::Release { open }).unwrap();
}
