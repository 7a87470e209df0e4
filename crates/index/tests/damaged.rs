//! Files of an index that are not as they were written: an error says so, or the answers are right.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};

use pelago_folder::Folder;
use pelago_index::{Covered, Document, Error, Names, Origin, Texts};
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
/// Bytes of a file that are changed, one at a time.
const FLIPS: usize = 12;

/// Returns an open folder.
fn at(folder: &Path) -> Folder {
    Folder::open(folder).unwrap()
}

fn handle(ino: u64) -> Handle {
    Handle::at(InodeId::from_raw(ino), InodeId::from_raw(1), NameHash(ino))
}

fn document(ino: u64, name: &str) -> Document {
    Document {
        handle: handle(ino),
        name: name.as_bytes().to_vec(),
        kind: FileKind::Regular,
        size: ino,
        mtime: Time { seconds: 1_700_000_000, nanos: 5 },
        uid: 1000,
    }
}

/// Makes an index with two parts, one of them with a deleted document.
fn make(folder: &Path) {
    let names = Names::open(&at(folder)).unwrap();
    let texts = Texts::open(&at(folder)).unwrap();
    for (from, to) in [(0, 40), (20, 30)] {
        for ino in from..to {
            let name = format!("name-{ino}-{to}");
            names.replace(InodeId::from_raw(ino), &[document(ino, &name)]).unwrap();
            texts.replace(handle(ino), to, &format!("some words {ino} {to}")).unwrap();
        }
        names.commit(&COVERED).unwrap();
        texts.commit(&COVERED).unwrap();
    }
}

/// Reads everything, and writes; returns whether the index has what it was told.
fn is_whole(folder: &Path) -> Result<bool, Error> {
    let names = Names::open(&at(folder))?;
    let texts = Texts::open(&at(folder))?;
    let is_covered = (names.covered(), texts.covered()) == (Some(COVERED), Some(COVERED));
    let mut is_whole = is_covered && every_name(&names)? == (0..40).map(handle).collect::<Vec<_>>();
    for ino in 0..40 {
        let to = if (20..30).contains(&ino) { 30 } else { 40 };
        let ino = InodeId::from_raw(ino);
        is_whole &=
            names.documents_of(ino)? == [document(ino.raw(), &format!("name-{}-{to}", ino.raw()))];
        is_whole &= texts.version(ino)? == Some(to);
        let hits = texts.search(&["words".to_owned(), ino.raw().to_string()], 100)?;
        is_whole &= hits.iter().any(|hit| hit.handle.ino == ino);
    }
    let ino = InodeId::from_raw(5);
    names.replace(ino, &[document(5, "after")])?;
    names.commit(&COVERED)?;
    texts.replace(handle(5), 99, "after")?;
    texts.commit(&COVERED)?;
    is_whole &= names.documents_of(ino)? == [document(5, "after")];
    Ok(is_whole && texts.version(ino)? == Some(99))
}

fn copy(from: &Path, to: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name))
        } else {
            drop(fs::copy(path, to.join(name)))
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for half in ["names", "texts"] {
        for entry in fs::read_dir(folder.join(half)).unwrap() {
            files.push(Path::new(half).join(entry.unwrap().file_name()));
        }
    }
    files
}

/// Changes a copy of a file of an index, and checks what the index says then.
fn check(whole: &Path, file: &Path, what: &str, change: impl FnOnce(&Path)) -> bool {
    let folder = tempfile::tempdir().unwrap();
    copy(whole, folder.path());
    change(&folder.path().join(file));
    match is_whole(folder.path()) {
        Ok(is_whole) => {
            assert!(is_whole, "{}: {what}", file.display());
            false
        }
        Err(error) => {
            assert!(error.is_of_files(), "{}: {what}: {error}", file.display());
            true
        }
    }
}

#[test]
fn a_changed_byte_is_an_error_or_changes_nothing() {
    let whole = tempfile::tempdir().unwrap();
    make(whole.path());
    assert!(is_whole(whole.path()).unwrap());
    let whole = tempfile::tempdir().unwrap();
    make(whole.path());
    let mut changes = 0;
    let mut errors = 0;
    for file in files(whole.path()) {
        let bytes = fs::read(whole.path().join(&file)).unwrap();
        for step in 0..FLIPS.min(bytes.len()) {
            let place = step * (bytes.len() - 1) / FLIPS.min(bytes.len()).max(2);
            let mut bytes = bytes.clone();
            bytes[place] ^= 1 << (step % 8);
            changes += 1;
            errors += usize::from(check(whole.path(), &file, &format!("byte {place}"), |path| {
                fs::write(path, bytes).unwrap();
            }));
        }
    }
    println!("{changes} changes, {errors} errors");
    assert!(changes > 100 && errors > changes / 2);
}

#[test]
fn a_short_or_missing_file_is_an_error_or_changes_nothing() {
    let whole = tempfile::tempdir().unwrap();
    make(whole.path());
    for file in files(whole.path()) {
        let length = fs::metadata(whole.path().join(&file)).unwrap().len();
        for left in [0, 1, length / 2, length.saturating_sub(1)] {
            check(whole.path(), &file, &format!("{left} of {length} bytes"), |path| {
                File::options().write(true).open(path).unwrap().set_len(left).unwrap();
            });
        }
        check(whole.path(), &file, "removed", |path| fs::remove_file(path).unwrap());
    }
}

#[test]
fn an_index_of_something_else_is_foreign_or_damaged() {
    let whole = tempfile::tempdir().unwrap();
    make(whole.path());
    let folder = tempfile::tempdir().unwrap();
    copy(&whole.path().join("texts"), &folder.path().join("names"));
    let error = Names::open(&at(folder.path())).err().unwrap();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    let folder = tempfile::tempdir().unwrap();
    at(folder.path()).create_folder("names").unwrap();
    fs::write(folder.path().join("names/meta.json"), "{}").unwrap();
    assert!(Names::open(&at(folder.path())).err().unwrap().is_of_files());
}

/// A file, a link or a folder of others in the place of its folder is not used, and can be removed.
#[test]
fn what_is_no_folder_of_ours_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("names");
    let outside = folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let refused = || {
        let error = Names::open(&at(folder.path())).err().unwrap();
        assert!(matches!(error, Error::Foreign { .. }) && error.is_of_files(), "{error}");
        at(folder.path()).remove_tree("names").unwrap();
    };
    fs::write(&place, "").unwrap();
    refused();
    symlink(&outside, &place).unwrap();
    refused();
    DirBuilder::new().mode(0o755).create(&place).unwrap();
    refused();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    Names::open(&at(folder.path())).unwrap();
}

/// A file of an open index that gets shorter, as after a bad block, is an error and no signal.
#[test]
fn a_file_that_gets_shorter_while_it_is_open_is_an_error() {
    for end in ["term", "idx", "fast", "pos", "store", "fieldnorm"] {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path());
        let names = Names::open(&at(folder.path())).unwrap();
        let texts = Texts::open(&at(folder.path())).unwrap();
        for half in ["names", "texts"] {
            for file in fs::read_dir(folder.path().join(half)).unwrap() {
                let path = file.unwrap().path();
                if path.extension().is_some_and(|it| it == end) {
                    File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
                }
            }
        }
        // What is in memory may still answer.
        let asked = [
            names.documents_of(InodeId::from_raw(7)).map(|_| ()),
            texts.search(&["words".to_owned()], 100).map(|_| ()),
            names.replace(InodeId::from_raw(7), &[]).and_then(|()| names.commit(&COVERED)),
        ];
        for error in asked.into_iter().filter_map(Result::err) {
            assert!(error.is_of_files(), "{end}: {error}");
        }
        drop((names, texts));
        assert!(
            Names::open(&at(folder.path())).is_err_and(|error| error.is_of_files())
                || Texts::open(&at(folder.path())).is_err_and(|error| error.is_of_files())
                || end == "store",
            "{end}"
        );
    }
}

#[test]
fn an_index_is_open_once() {
    let folder = tempfile::tempdir().unwrap();
    let names = Names::open(&at(folder.path())).unwrap();
    let error = Names::open(&at(folder.path())).err().unwrap();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(names);
    Names::open(&at(folder.path())).unwrap();
}
