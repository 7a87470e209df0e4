//! Copies of other sites' files on the disk of this one.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pelago_server::{Options, Server};
use pelago_wire::{Code, FileKind, Handle, NewMode, OpenFlags, OpenId, Reply, Request, SessionId};
use pelago_wire::{SetAttr, WriteFlags, limits};

use super::world::{
    FAR, Offices, TICKET, ask, ask_with, berlin_dir, founded, lookup, options, public, wait_for,
};
use crate::harness::rig::{entry, name};

const DIRECT: SessionId = SessionId::DIRECT;
/// A file of two blocks and a part.
const SIZE: usize = 2 * limits::FETCH_BLOCK_BYTES + 1000;
/// The bytes of a program's read.
const READ: usize = 128 << 10;

pub(super) fn with_copies(copy_bytes: u64) -> Offices {
    Offices::with(Options { copy_bytes, ..options() })
}

/// Returns bytes that differ from place to place, and by `seed`.
pub(super) fn content(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 777) as u8 ^ seed).collect()
}

/// The first site.
pub(super) struct Office<'a> {
    pub(super) first: &'a Server,
}

impl Office<'_> {
    /// Makes a file with these bytes.
    fn written(&self, text: &str, bytes: &[u8]) -> Handle {
        let made = Request::MakeNode {
            dir: Handle::ROOT,
            name: name(text),
            mode: NewMode::exactly(0o644),
            kind: FileKind::Regular,
            rdev: 0,
        };
        let file = entry(ask(self.first, DIRECT, made).unwrap()).unwrap().handle;
        self.write(file, 0, bytes);
        file
    }

    /// Writes bytes into a file.
    pub(super) fn write(&self, node: Handle, offset: u64, bytes: &[u8]) {
        let open = OpenId(900);
        let flags = OpenFlags::WRITE;
        ask(self.first, DIRECT, Request::Open { node, flags, open }).unwrap();
        for (at, part) in bytes.chunks(limits::IO_BYTES).enumerate() {
            let offset = offset + (at * limits::IO_BYTES) as u64;
            let write = Request::Write { open, offset, flags: WriteFlags::default() };
            ask_with(self.first, DIRECT, write, part).unwrap();
        }
        ask(self.first, DIRECT, Request::Flush { open, owner: None }).unwrap();
        ask(self.first, DIRECT, Request::Release { open }).unwrap();
    }
}

impl Offices {
    pub(super) fn written(&self, text: &str, bytes: &[u8]) -> Handle {
        Office { first: &self.first }.written(text, bytes)
    }

    pub(super) fn write(&self, node: Handle, offset: u64, bytes: &[u8]) {
        Office { first: &self.first }.write(node, offset, bytes);
    }

    /// Reads a range of a file of the first site at berlin, in pieces. Returns how many requests
    /// for bytes that took. An open through which none is sent is not reported.
    pub(super) fn reads(&self, text: &str, range: std::ops::Range<usize>, expected: &[u8]) -> u64 {
        let node = lookup(&self.berlin, Handle::ROOT, text).unwrap();
        ask(&self.berlin, DIRECT, Request::GetAttr { node }).unwrap();
        let before = self.sent.load(Ordering::Acquire);
        let open = OpenId(7);
        ask(&self.berlin, DIRECT, Request::Open { node, flags: OpenFlags::READ, open }).unwrap();
        let mut read = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let size = READ.min(range.end - at) as u32;
            let request = Request::Read { open, offset: at as u64, size };
            let Ok(Reply::Data(part)) = ask(&self.berlin, DIRECT, request) else { panic!() };
            read.extend_from_slice(part.as_bytes());
            at += READ;
        }
        ask(&self.berlin, DIRECT, Request::Release { open }).unwrap();
        assert!(read == expected[range], "other bytes");
        let sent = self.sent.load(Ordering::Acquire) - before;
        let open_and_release = 2;
        sent.saturating_sub(open_and_release)
    }

    /// Waits until there are copies of so many bytes that count: their map is written.
    pub(super) fn wait_for_copies(&self, files: usize) {
        wait_for("the copies are remembered", || {
            let maps = entries(&self.copies()).into_iter().filter(|name| name.ends_with(".map"));
            maps.count() == files
        });
    }

    pub(super) fn copies(&self) -> PathBuf {
        berlin_dir(&self.folder).join("copies")
    }

    /// Ends the leases, as a cut line does.
    pub(super) fn lose_leases(&self) {
        self.cut(true);
        self.cut(false);
    }
}

/// Waits for longer than a lease must last until a copy counts.
pub(super) fn settle() {
    std::thread::sleep(Duration::from_millis(1700));
}

fn entries(folder: &std::path::Path) -> Vec<String> {
    let found = fs::read_dir(folder).into_iter().flatten();
    found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_second_reader_moves_no_bytes() {
    let offices = with_copies(1 << 30);
    let bytes = content(1, SIZE);
    offices.written("file", &bytes);
    assert_eq!(offices.reads("file", 0..SIZE, &bytes), 3);
    offices.wait_for_copies(1);
    // The leases have ended, and the memory with them.
    for _ in 0..2 {
        offices.lose_leases();
        assert_eq!(offices.reads("file", 0..SIZE, &bytes), 0);
        // Also in another order, and a part.
        offices.lose_leases();
        assert_eq!(offices.reads("file", SIZE - 5..SIZE, &bytes), 0);
        assert_eq!(offices.reads("file", 300_000..300_100, &bytes), 0);
    }
    let status = offices.berlin.copies();
    assert_eq!((status.files, status.bytes), (1, SIZE as u64));
}

#[test]
fn a_copy_is_of_the_bytes_as_they_are_now() {
    let offices = with_copies(1 << 30);
    let mut bytes = content(1, SIZE);
    let file = offices.written("file", &bytes);
    offices.reads("file", 0..SIZE, &bytes);
    offices.wait_for_copies(1);
    // One byte in the last block.
    bytes[SIZE - 1] ^= 1;
    offices.write(file, SIZE as u64 - 1, &bytes[SIZE - 1..]);
    assert_eq!(offices.reads("file", 0..SIZE, &bytes), 3);
    settle();
    offices.lose_leases();
    assert_eq!(offices.reads("file", 0..SIZE, &bytes), 0);
    // Times that are set back do not bring the old version back.
    let old = SetAttr {
        mtime: Some(pelago_wire::SetTime::To(pelago_wire::Time::default())),
        ..SetAttr::default()
    };
    bytes[0] ^= 1;
    offices.write(file, 0, &bytes[..1]);
    ask(&offices.first, DIRECT, Request::SetAttr { node: file, open: None, set: old }).unwrap();
    assert_ne!(offices.reads("file", 0..SIZE, &bytes), 0);
    // A file that becomes shorter, and is as long as before again.
    let cut = SetAttr { size: Some(10), ..SetAttr::default() };
    ask(&offices.first, DIRECT, Request::SetAttr { node: file, open: None, set: cut }).unwrap();
    assert_ne!(offices.reads("file", 0..10, &bytes[..10]), 0);
    let grown = SetAttr { size: Some(SIZE as u64), ..SetAttr::default() };
    ask(&offices.first, DIRECT, Request::SetAttr { node: file, open: None, set: grown }).unwrap();
    bytes[10..].fill(0);
    offices.reads("file", 0..SIZE, &bytes);
}

/// A write that comes within a tick of the clock could have the times of the version before.
#[test]
fn what_was_leased_for_a_moment_only_is_no_copy() {
    let offices = with_copies(1 << 30);
    let bytes = content(1, SIZE);
    offices.written("file", &bytes);
    assert_eq!(offices.reads("file", 0..SIZE, &bytes), 3);
    offices.lose_leases();
    settle();
    assert_eq!(offices.berlin.copies().files, 1, "it was written");
    assert_ne!(offices.reads("file", 0..SIZE, &bytes), 0, "and does not count");
}

#[test]
fn a_damaged_copy_is_fetched_again() {
    let offices = with_copies(1 << 30);
    let bytes = content(1, SIZE);
    let file = offices.written("file", &bytes);
    offices.reads("file", 0..SIZE, &bytes);
    offices.wait_for_copies(1);
    let path = offices.copies().join(format!("{:016x}.bytes", file.ino.raw()));
    let copy = fs::OpenOptions::new().write(true).open(&path).unwrap();
    copy.write_all_at(b"damage", limits::FETCH_BLOCK_BYTES as u64 + 7).unwrap();
    offices.lose_leases();
    assert_eq!(offices.reads("file", 0..SIZE, &bytes), 1);
    // Cut, and gone.
    copy.set_len(10).unwrap();
    offices.lose_leases();
    offices.reads("file", 0..SIZE, &bytes);
    fs::remove_file(&path).unwrap();
    offices.lose_leases();
    assert_eq!(offices.reads("file", 0..SIZE, &bytes), 3);
}

#[test]
fn copies_make_room_for_others() {
    let offices = with_copies(5 << 19);
    let files = ["one", "two", "three", "four", "five"];
    for (at, text) in files.iter().enumerate() {
        let bytes = content(at as u8, SIZE);
        offices.written(text, &bytes);
        offices.reads(text, 0..SIZE, &bytes);
        settle();
        offices.lose_leases();
        assert_eq!(offices.reads(text, 0..SIZE, &bytes), 0);
    }
    wait_for("others are gone", || offices.berlin.copies().bytes <= 5 << 19);
    let is_here = |at: usize| {
        offices.lose_leases();
        offices.reads(files[at], 0..SIZE, &content(at as u8, SIZE)) == 0
    };
    assert!(is_here(4), "the last one");
    assert!(!is_here(0), "the first one");
    // One that is too large for all others.
    let large = content(9, 3 << 19);
    offices.written("large", &large);
    offices.reads("large", 0..large.len(), &large);
    settle();
    offices.lose_leases();
    assert_ne!(offices.reads("large", 0..large.len(), &large), 0);
}

/// With the power, bytes can be lost whose size and times stay: another site has a copy of them.
#[test]
fn what_was_not_safe_is_another_version_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let ctime = |server: &Server, node| match ask(server, DIRECT, Request::GetAttr { node }) {
        Ok(Reply::Attr(attr)) => attr.ctime,
        other => panic!("{other:?}"),
    };
    let first = founded(&folder);
    first.invite_site("berlin", public(TICKET), FAR).unwrap();
    let offices = Office { first: &first };
    let written = offices.written("written", &content(1, SIZE));
    let safe = offices.written("inline", b"small");
    let before = [written, safe].map(|node| ctime(&first, node));
    // As a crash: not stopped.
    drop(first);
    let again = founded(&folder);
    let after = [written, safe].map(|node| ctime(&again, node));
    assert!(after[0] > before[0]);
    assert_eq!(after[1], before[1]);
}

/// Reads go on if nothing can be written, and if what is there is none of ours.
#[test]
fn a_folder_of_copies_that_cannot_be_used_stops_no_read() {
    let offices = with_copies(1 << 30);
    fs::write(offices.copies(), "a file in its place").unwrap();
    let bytes = content(1, SIZE);
    offices.written("file", &bytes);
    for _ in 0..2 {
        assert_eq!(offices.reads("file", 0..SIZE, &bytes), 3);
        offices.lose_leases();
    }
    fs::remove_file(offices.copies()).unwrap();
    offices.reads("file", 0..SIZE, &bytes);
    offices.wait_for_copies(1);
    let gone = lookup(&offices.berlin, Handle::ROOT, "nothing");
    assert_eq!(gone.err(), Some(Code::NotFound));
}
