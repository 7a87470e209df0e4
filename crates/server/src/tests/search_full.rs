//! The search index on a disk that fills up: files and searches go on, the log says it once, and
//! with room again the index does too.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use pelago_search::Again;
use pelago_wire::Code;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use super::search::{Indexer, found, work};

use crate::testing::Rig;
use crate::testing::log::Log;

/// A volume on a file system of its own, detached when dropped; the rows are in memory.
struct SmallDisk {
    folder: Arc<TempDir>,
}

impl SmallDisk {
    /// One of 8 MiB; nothing where none can be mounted.
    fn new() -> Option<Self> {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        match mount("none", folder.path(), "tmpfs", MountFlags::empty(), c"size=8m") {
            Ok(()) => Some(Self { folder }),
            Err(error) => {
                println!("skipped: cannot mount a file system that fills up: {error}");
                None
            }
        }
    }

    fn filler(&self) -> PathBuf {
        self.folder.path().join("filler")
    }

    /// Fills it, but for so many blocks.
    fn fill(&self, but: u64) {
        let mut file = File::create(self.filler()).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        let blocks = file.metadata().unwrap().len() / 4096;
        file.set_len((blocks - but) * 4096).unwrap();
    }

    fn make_room(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        unmount(self.folder.path(), UnmountFlags::DETACH).unwrap();
    }
}

/// Runs the worker until it has failed, or has nothing more to do.
fn run(indexer: &mut Indexer<'_>) -> Result<(), Code> {
    while work(indexer.rig, &mut indexer.worker).map_err(|error| error.code)?.again == Again::Soon {
    }
    Ok(())
}

/// How often the worker tries while the disk is full.
const TRIES: usize = 6;

#[test]
fn an_index_that_finds_its_disk_full_stops_until_there_is_room() {
    let Some(disk) = SmallDisk::new() else { return };
    let rig = Rig::in_folder(&disk.folder);
    let log = Log::of_warnings();
    for number in 0..20 {
        rig.file(&format!("f{number}"), b"coral");
    }
    let mut indexer = Indexer::new(&rig);
    for time in 1..=2 {
        disk.fill(0);
        let new = format!("new{time}");
        rig.file(&new, b"reef");
        for _ in 0..TRIES {
            rig.commit.run().unwrap();
            assert_eq!(log.during(|| run(&mut indexer)), Err(Code::NoSpace));
            assert!(rig.router.index().names().is_none(), "searches ask it no more");
            assert_eq!(found(&rig, &format!("name={new}")), [new.as_str()]);
            assert_eq!(found(&rig, "text:reef").len(), time);
        }
        assert_eq!(log.count(), time, "{log}");
        disk.make_room();
        log.during(|| indexer.catch_up());
        assert_eq!(found(&rig, "text:reef").len(), time);
        assert_eq!(found(&rig, "text:coral").len(), 20);
    }
    assert_eq!(log.count(), 2, "{log}");
}

/// Wherever the first files of an index stop, nothing of them is in the way afterwards.
#[test]
fn an_index_that_is_begun_on_a_full_disk_is_built_once_there_is_room() {
    for blocks in 0..16 {
        let Some(disk) = SmallDisk::new() else { return };
        let rig = Rig::in_folder(&disk.folder);
        let log = Log::of_warnings();
        for number in 0..20 {
            rig.file(&format!("f{number}"), b"coral");
        }
        disk.fill(blocks);
        let mut indexer = Indexer::not_built(&rig);
        for _ in 0..TRIES {
            rig.commit.run().unwrap();
            log.during(|| run(&mut indexer)).ok();
            assert_eq!(found(&rig, "text:coral").len(), 20);
        }
        assert!(log.count() <= 1, "{blocks} blocks: {log}");
        disk.make_room();
        log.during(|| indexer.catch_up());
        assert_eq!(found(&rig, "text:coral").len(), 20);
        assert!(log.count() <= 1, "{blocks} blocks: {log}");
    }
}
