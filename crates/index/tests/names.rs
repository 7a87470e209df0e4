//! The index of names by itself: it answers with its documents, also after it was opened again.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::path::Path;

use pelago_find::Query;
use pelago_folder::Folder;
use pelago_index::{Candidates, Covered, Document, Names, Origin};
use pelago_wire::{FileKind, Handle, InodeId, NameHash, Time};

use every_name::every_name;

#[path = "common/every_name.rs"]
mod every_name;

const COVERED: Covered = Covered {
    origin: Origin { volume: [7; 16], commit: 1 },
    epoch: 1,
    sequence: 2,
    as_of: Time { seconds: 3, nanos: 4 },
    is_complete: true,
};

/// Returns an open folder.
fn at(folder: &Path) -> Folder {
    Folder::open(folder).unwrap()
}

fn handle(ino: u64, dir: u64) -> Handle {
    Handle::at(InodeId::from_raw(ino), InodeId::from_raw(dir), NameHash(ino ^ dir << 32))
}

fn document(ino: u64, dir: u64, name: &[u8]) -> Document {
    Document {
        handle: handle(ino, dir),
        name: name.to_vec(),
        kind: FileKind::Regular,
        size: ino * 1000,
        mtime: Time { seconds: 1_700_000_000, nanos: 5 },
        uid: 1000,
    }
}

fn replace(names: &Names, documents: &[Document]) {
    names.replace(documents[0].handle.ino, documents).unwrap();
}

fn candidates(names: &Names, query: &str) -> Candidates {
    let query = Query::parse(query.as_bytes()).unwrap();
    let uid_of = |name: &str| (name == "ann").then_some(1000);
    let now = Time { seconds: 1_700_000_100, nanos: 0 };
    let found = names.candidates(query.expr(), now, &uid_of).unwrap();
    let count = names.count(query.expr(), now, &uid_of).unwrap();
    match &found {
        Candidates::Any => assert_eq!(count, names.total().unwrap()),
        Candidates::These(handles) => assert!(count >= handles.len() as u64),
    }
    found
}

fn these(handles: &[Handle]) -> Candidates {
    Candidates::These(handles.to_vec())
}

fn all(names: &Names) -> Vec<Handle> {
    every_name(names).unwrap()
}

fn open(folder: &Path) -> Names {
    Names::open(&at(folder)).unwrap()
}

#[test]
fn names_are_found_by_each_term() {
    let folder = tempfile::tempdir().unwrap();
    let names = open(folder.path());
    replace(&names, &[document(7, 1, b"lib.rs"), document(7, 2, b"other")]);
    replace(&names, &[document(5, 1, b"libx\xff.rs")]);
    replace(&names, &[Document { kind: FileKind::Directory, ..document(9, 1, b"src") }]);
    assert!(all(&names).is_empty());
    names.commit(&COVERED).unwrap();
    assert_eq!(all(&names), [handle(5, 1), handle(7, 1), handle(7, 2), handle(9, 1)]);
    for (query, expected) in [
        ("name=lib.rs", &[handle(7, 1)][..]),
        ("name~*.rs", &[handle(5, 1), handle(7, 1)]),
        ("name~lib.rs", &[handle(7, 1)]),
        ("name~[l]ib*", &[handle(5, 1), handle(7, 1)]),
        ("name~src", &[handle(9, 1)]),
        ("name=none or name~*none*", &[]),
        ("kind=dir", &[handle(9, 1)]),
        ("kind=file size>5000", &[handle(7, 1), handle(7, 2)]),
        ("not size>5000", &[handle(5, 1)]),
        ("not (size<=5000 or size>=9000)", &[handle(7, 1), handle(7, 2)]),
        ("owner=ann", &[handle(5, 1), handle(7, 1), handle(7, 2), handle(9, 1)]),
        ("owner=bob or owner=3", &[]),
        ("mtime>=100s", &[handle(5, 1), handle(7, 1), handle(7, 2), handle(9, 1)]),
        ("mtime<99s", &[]),
        ("mtime>=2023-11-15", &[]),
        ("tag:a name=other", &[handle(7, 2)]),
    ] {
        assert_eq!(candidates(&names, query), these(expected), "{query}");
    }
    for query in ["a=1", "text:word", "not name=x", "name~l*", "size>=0", "a=1 or name=x"] {
        assert_eq!(candidates(&names, query), Candidates::Any, "{query}");
    }
}

#[test]
fn an_inode_is_replaced_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let names = open(folder.path());
    // Twice before a commit, and once behind it.
    replace(&names, &[document(7, 1, b"first"), document(7, 2, b"link")]);
    replace(&names, &[document(7, 1, b"second")]);
    replace(&names, &[document(8, 1, b"stays")]);
    names.commit(&COVERED).unwrap();
    assert_eq!(all(&names), [handle(7, 1), handle(8, 1)]);
    assert_eq!(names.documents_of(InodeId::from_raw(7)).unwrap(), [document(7, 1, b"second")]);
    replace(&names, &[document(7, 3, b"third"), document(7, 2, b"\xff\xfe")]);
    assert_eq!(candidates(&names, "name=second"), these(&[handle(7, 1)]));
    names.commit(&COVERED).unwrap();
    let expected = [document(7, 2, b"\xff\xfe"), document(7, 3, b"third")];
    assert_eq!(names.documents_of(InodeId::from_raw(7)).unwrap(), expected);
    assert_eq!(candidates(&names, "name=second"), these(&[]));
    names.replace(InodeId::from_raw(7), &[]).unwrap();
    names.commit(&COVERED).unwrap();
    assert_eq!(all(&names), [handle(8, 1)]);
    assert!(names.documents_of(InodeId::from_raw(7)).unwrap().is_empty());
}

#[test]
fn a_commit_is_there_when_the_index_is_opened_again_and_nothing_else_is() {
    let folder = tempfile::tempdir().unwrap();
    let names = open(folder.path());
    assert_eq!(names.covered(), None);
    replace(&names, &[document(7, 1, b"lost")]);
    drop(names);
    let names = open(folder.path());
    assert_eq!((names.covered(), names.total().unwrap()), (None, 0));
    replace(&names, &[document(7, 1, b"kept")]);
    names.commit(&COVERED).unwrap();
    replace(&names, &[document(7, 1, b"lost")]);
    assert_eq!(names.covered(), Some(COVERED));
    drop(names);
    let names = open(folder.path());
    assert_eq!(names.covered(), Some(COVERED));
    assert_eq!(names.documents_of(InodeId::from_raw(7)).unwrap(), [document(7, 1, b"kept")]);
    // What the committed document of the inode was, is replaced also after the opening.
    replace(&names, &[document(7, 2, b"moved")]);
    let later = Covered { sequence: 9, is_complete: false, ..COVERED };
    names.commit(&later).unwrap();
    assert_eq!((all(&names), names.covered()), (vec![handle(7, 2)], Some(later)));
}
