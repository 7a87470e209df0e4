//! An index on a disk that fills up: the error says so, the last commit answers, and there is a
//! way on.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use pelago_folder::Folder;
use pelago_index::{Covered, Document, Error, Names, Origin};
use pelago_wire::{FileKind, Handle, InodeId, NameHash, Time};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const FIRST: Covered = Covered {
    origin: Origin { volume: [7; 16], commit: 1 },
    epoch: 1,
    sequence: 1,
    as_of: Time { seconds: 3, nanos: 4 },
    is_complete: true,
};
const LATER: Covered = Covered { sequence: 2, ..FIRST };

/// A file system of its own, detached when dropped.
struct SmallDisk<'a>(&'a Path);

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        unmount(self.0, UnmountFlags::DETACH).unwrap();
    }
}

impl<'a> SmallDisk<'a> {
    /// One of 3 MiB, of which a file takes 1; nothing where none can be mounted.
    fn new(path: &'a Path) -> Option<Self> {
        match mount("none", path, "tmpfs", MountFlags::empty(), c"size=3m") {
            Ok(()) => {
                fs::write(path.join("filler"), vec![0; 1 << 20]).unwrap();
                Some(Self(path))
            }
            Err(error) => {
                println!("skipped: cannot mount a file system that fills up: {error}");
                None
            }
        }
    }
}

/// Returns an open folder.
fn at(folder: &Path) -> Folder {
    Folder::open(folder).unwrap()
}

fn replace(names: &Names, ino: u64) -> Result<(), Error> {
    let handle = Handle::at(InodeId::from_raw(ino), InodeId::from_raw(1), NameHash(ino));
    let document = Document {
        handle,
        name: format!("{:x}", ino.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes(),
        kind: FileKind::Regular,
        size: ino,
        mtime: Time { seconds: 1_700_000_000, nanos: 5 },
        uid: 1000,
    };
    names.replace(handle.ino, &[document])
}

/// Adds names until an error, with a commit behind so many of them.
fn fill(folder: &Path, commit: u64) -> Option<()> {
    let _disk = SmallDisk::new(folder)?;
    let names = Names::open(&at(folder)).unwrap();
    replace(&names, 1).unwrap();
    names.commit(&FIRST).unwrap();
    let mut ino = 1;
    let error = loop {
        ino += 1;
        let is_commit = ino % commit == 0;
        let done = replace(&names, ino)
            .and_then(|()| if is_commit { names.commit(&FIRST) } else { Ok(()) });
        if let Err(error) = done {
            break error;
        }
        assert!(ino < 2_000_000, "the disk is not full");
    };
    assert!(error.is_full() && !error.is_of_files(), "{ino}: {error}");
    assert!(matches!(replace(&names, 1).unwrap_err(), Error::Stopped { .. }));
    assert!(matches!(names.commit(&LATER).unwrap_err(), Error::Stopped { .. }));
    let before = names.total().unwrap();
    assert!(before >= 1 && names.covered() == Some(FIRST));
    assert_eq!(names.documents_of(InodeId::from_raw(1)).unwrap().len(), 1);
    drop(names);
    fs::remove_file(folder.join("filler")).unwrap();
    let names = Names::open(&at(folder)).unwrap();
    assert_eq!((names.total().unwrap(), names.covered()), (before, Some(FIRST)));
    replace(&names, u64::MAX).unwrap();
    names.commit(&LATER).unwrap();
    assert_eq!((names.total().unwrap(), names.covered()), (before + 1, Some(LATER)));
    Some(())
}

#[test]
fn a_commit_on_a_full_disk_leaves_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 2000);
}

#[test]
fn names_that_are_written_before_their_commit_leave_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), u64::MAX);
}

/// Wherever the first files of an index stop, they are not taken for a damaged one.
#[test]
fn an_index_that_cannot_be_made_leaves_nothing() {
    for blocks in 0..16 {
        let folder = tempfile::tempdir().unwrap();
        let Some(_disk) = SmallDisk::new(folder.path()) else { return };
        let filler = folder.path().join("filler");
        let index = folder.path().join("index");
        fs::create_dir(&index).unwrap();
        let mut file = File::options().append(true).open(&filler).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        let most = file.metadata().unwrap().len() / 4096;
        file.set_len((most - blocks) * 4096).unwrap();
        drop(file);
        for _ in 0..3 {
            match Names::open(&at(&index)) {
                Ok(_) => assert!(blocks > 0),
                Err(error) => assert!(error.is_full(), "{blocks} blocks: {error}"),
            }
        }
        fs::remove_file(filler).unwrap();
        let names = Names::open(&at(&index)).unwrap();
        replace(&names, 1).unwrap();
        names.commit(&FIRST).unwrap();
    }
}
