//! Reads of another site's files while its server is silent.

use std::sync::atomic::Ordering;

use pelago_server::Options;
use pelago_wire::{
    Code, Cookie, Handle, NewMode, OpenFlags, OpenId, Reply, Request, SessionId, SetAttr,
    WriteFlags, limits,
};

use super::copies::{content, settle};
use super::world::{Offices, ask, ask_with, client, lookup, options};
use crate::harness::rig::name;

const DIRECT: SessionId = SessionId::DIRECT;
/// A file of two blocks and a part.
const SIZE: usize = 2 * limits::FETCH_BLOCK_BYTES + 1000;
const OPEN: OpenId = OpenId(31);

/// What a program of berlin gets.
type Answer = Result<Reply, Code>;

impl Offices {
    fn at_berlin(&self, request: Request) -> Answer {
        ask(&self.berlin, DIRECT, request)
    }

    fn listed(&self, dir: Handle) -> Result<Vec<String>, Code> {
        let request = Request::List {
            dir,
            after: Cookie::AFTER_DOT_DOT,
            behind: None,
            entries: 100,
            attributes: false,
        };
        match self.at_berlin(request) {
            Ok(Reply::Listed { entries, end: true }) => {
                let names = entries.iter().map(|entry| entry.name.to_string());
                let mut names: Vec<String> = names.collect();
                names.sort_unstable();
                Ok(names)
            }
            Ok(other) => panic!("{other:?}"),
            Err(code) => Err(code),
        }
    }

    /// Reads a file from the beginning through this open.
    fn read(&self, open: OpenId, size: usize) -> Result<Vec<u8>, Code> {
        let mut bytes = Vec::new();
        while bytes.len() < size {
            let part = (100 << 10).min(size - bytes.len()) as u32;
            let request = Request::Read { open, offset: bytes.len() as u64, size: part };
            match self.at_berlin(request) {
                Ok(Reply::Data(part)) => bytes.extend_from_slice(part.as_bytes()),
                Ok(other) => panic!("{other:?}"),
                Err(code) => return Err(code),
            }
        }
        Ok(bytes)
    }

    fn opens(&self, node: Handle, open: OpenId, flags: OpenFlags) -> Result<(), Code> {
        match self.at_berlin(Request::Open { node, flags, open }) {
            Ok(_) => Ok(()),
            Err(code) => Err(code),
        }
    }

    fn stale_answers(&self) -> u64 {
        self.berlin.sites()[0].stale_answers
    }
}

fn code(answer: Answer) -> Code {
    answer.unwrap_err()
}

/// Offices of which berlin has seen a file, its listing and its bytes, and has copies of these.
fn seen() -> (Offices, Handle, Vec<u8>) {
    let offices = Offices::with(Options { copy_bytes: 1 << 30, ..options() });
    let bytes = content(3, SIZE);
    let file = offices.written("file", &bytes);
    offices.written("unseen", b"bytes");
    offices.reads("file", 0..SIZE, &bytes);
    offices.wait_for_copies(1);
    settle();
    offices.at_berlin(Request::GetAttr { node: Handle::ROOT }).unwrap();
    assert_eq!(offices.listed(Handle::ROOT).unwrap(), ["file", "unseen"]);
    (offices, file, bytes)
}

#[test]
fn what_was_leased_at_the_cut_is_read_on_and_nothing_is_changed() {
    let (offices, file, bytes) = seen();
    let absent = Request::Lookup { dir: Handle::ROOT, name: name("absent") };
    assert_eq!(code(offices.at_berlin(absent.clone())), Code::NotFound);
    offices.cut(true);
    let before = offices.sent.load(Ordering::Acquire);
    assert_eq!(lookup(&offices.berlin, Handle::ROOT, "file").unwrap().ino, file.ino);
    assert_eq!(code(offices.at_berlin(absent)), Code::NotFound);
    assert_eq!(offices.listed(Handle::ROOT).unwrap(), ["file", "unseen"]);
    let Ok(Reply::Attr(attr)) = offices.at_berlin(Request::GetAttr { node: file }) else {
        panic!("no attributes")
    };
    assert!(attr.volatile, "nothing above may keep it");
    assert_eq!(attr.size, SIZE as u64);
    offices.opens(file, OPEN, OpenFlags::READ).unwrap();
    assert!(offices.read(OPEN, SIZE).unwrap() == bytes);
    let end = Request::Read { open: OPEN, offset: SIZE as u64, size: 10 };
    assert!(matches!(offices.at_berlin(end), Ok(Reply::Data(none)) if none.as_bytes().is_empty()));
    offices.at_berlin(Request::Flush { open: OPEN, owner: None }).unwrap();
    offices.at_berlin(Request::Release { open: OPEN }).unwrap();
    assert_eq!(offices.sent.load(Ordering::Acquire), before, "nothing was sent");
    assert!(offices.stale_answers() > 8, "{}", offices.stale_answers());
    // A client of this office reads it, too.
    let client = client(&offices.berlin);
    ask(&offices.berlin, client, Request::Open { node: file, flags: OpenFlags::READ, open: OPEN })
        .unwrap();
    let read = Request::Read { open: OPEN, offset: 0, size: 1000 };
    let Ok(Reply::Data(read)) = ask(&offices.berlin, client, read) else { panic!("no bytes") };
    assert!(read.as_bytes() == &bytes[..1000]);
    // Changes fail.
    assert_eq!(offices.opens(file, OpenId(32), OpenFlags::WRITE), Err(Code::HostDown));
    let truncate = SetAttr { size: Some(0), ..SetAttr::default() };
    let truncate = Request::SetAttr { node: file, open: None, set: truncate };
    assert_eq!(code(offices.at_berlin(truncate)), Code::HostDown);
    let unlink = Request::Unlink { dir: Handle::ROOT, name: name("file") };
    assert_eq!(code(offices.at_berlin(unlink)), Code::HostDown);
    let made = Request::MakeNode {
        dir: Handle::ROOT,
        name: name("new"),
        mode: NewMode::exactly(0o644),
        kind: pelago_wire::FileKind::Regular,
        rdev: 0,
    };
    assert_eq!(code(offices.at_berlin(made)), Code::HostDown);
}

#[test]
fn what_was_not_seen_or_not_copied_is_not_read() {
    let (offices, _, _) = seen();
    let large = offices.written("large", &content(4, SIZE));
    // One block of three.
    offices.reads("large", 0..1000, &content(4, SIZE));
    offices.wait_for_copies(2);
    settle();
    offices.written("later", b"bytes");
    offices.cut(true);
    let looked_up = |text| lookup(&offices.berlin, Handle::ROOT, text).map(|_| ());
    assert_eq!(looked_up("never"), Err(Code::NotFound), "all names were listed");
    assert_eq!(looked_up("later"), Err(Code::HostDown), "except this one, which was recalled");
    assert_eq!(offices.listed(Handle::ROOT), Err(Code::HostDown));
    offices.opens(large, OPEN, OpenFlags::READ).unwrap();
    assert!(offices.read(OPEN, 1000).unwrap() == content(4, SIZE)[..1000]);
    assert_eq!(offices.read(OPEN, SIZE), Err(Code::HostDown));
}

/// The first answer ends what is stale, and an open that was made meanwhile shows what is there
/// now.
#[test]
fn once_the_line_is_back_nothing_is_stale() {
    let (offices, file, bytes) = seen();
    offices.cut(true);
    offices.opens(file, OPEN, OpenFlags::READ).unwrap();
    assert!(offices.read(OPEN, SIZE).unwrap() == bytes);
    let other = content(5, SIZE + 10);
    offices.write(file, 0, &other);
    assert_eq!(offices.listed(Handle::ROOT).unwrap(), ["file", "unseen"]);
    let unlink = Request::Unlink { dir: Handle::ROOT, name: name("unseen") };
    ask(&offices.first, DIRECT, unlink).unwrap();
    offices.cut(false);
    offices.at_berlin(Request::GetAttr { node: Handle::ROOT }).unwrap();
    assert_eq!(offices.listed(Handle::ROOT).unwrap(), ["file"]);
    assert!(offices.read(OPEN, SIZE + 10).unwrap() == other);
    offices.at_berlin(Request::Release { open: OPEN }).unwrap();
    // A second cut has only what was seen since.
    let before = offices.stale_answers();
    offices.cut(true);
    assert_eq!(offices.listed(Handle::ROOT).unwrap(), ["file"]);
    assert_eq!(offices.stale_answers(), before + 1);
}

#[test]
fn a_file_that_is_written_here_is_not_read_stale() {
    let (offices, file, _) = seen();
    offices.opens(file, OpenId(40), OpenFlags::WRITE).unwrap();
    let write = Request::Write { open: OpenId(40), offset: 0, flags: WriteFlags::default() };
    ask_with(&offices.berlin, DIRECT, write, b"held back").unwrap();
    offices.cut(true);
    assert_eq!(code(offices.at_berlin(Request::GetAttr { node: file })), Code::HostDown);
    assert_eq!(offices.opens(file, OPEN, OpenFlags::READ), Err(Code::HostDown));
    assert_eq!(offices.listed(Handle::ROOT).unwrap(), ["file", "unseen"], "others are read");
}
