//! The folder of a shared store: made once, by however many servers at once, completed after a
//! crash, and told apart from the volume of one server.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use pelago_store::volume::{Remains, SharedOptions, Volume, VolumeError, VolumeOptions};

const FILES: [&str; 4] = ["seed.copy", "seed", "format.copy", "format"];
const FIRST_BATON: &str = "00000000.0000000000000000.0000000000000000";

fn open(dir: &Path) -> Result<Volume, VolumeError> {
    Volume::open_or_create_shared(dir, SharedOptions::default())
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn assert_is_whole(dir: &Path) {
    let all =
        ["alive", "content", "format", "format.copy", "seed", "seed.copy", "servers", "shard"];
    assert_eq!(names(dir), all);
    assert_eq!(names(&dir.join("shard")), ["0"]);
    assert_eq!(names(&dir.join("shard/0")), [FIRST_BATON]);
}

#[test]
fn what_was_made_is_opened_again_and_by_several() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("some/where");
    let made = open(&dir).unwrap();
    assert_is_whole(&dir);
    let opened = open(&dir).unwrap();
    assert_eq!((opened.id(), opened.hasher()), (made.id(), made.hasher()));
    assert!(opened.is_shared() && !opened.was_clean() && opened.mends().is_empty());
    assert_eq!(opened.format().shards, 1);
    assert!(opened.format().tags_are_complete());
    opened.mark_unclean().unwrap();
    opened.mark_clean().unwrap();
    assert_is_whole(&dir);
}

/// Each finds an empty folder, and prepares a store.
#[test]
fn servers_that_make_a_store_at_once_make_one() {
    for _ in 0..40 {
        let temp = tempfile::tempdir().unwrap();
        let barrier = Barrier::new(6);
        let made: Vec<Volume> = thread::scope(|scope| {
            let make = || {
                barrier.wait();
                open(temp.path()).unwrap()
            };
            let start = |number: u32| {
                let builder = thread::Builder::new().name(format!("server {number}"));
                builder.spawn_scoped(scope, make).unwrap()
            };
            let servers: Vec<_> = (0..6).map(start).collect();
            servers.into_iter().map(|server| server.join().unwrap()).collect()
        });
        for volume in &made {
            assert_eq!((volume.id(), volume.hasher()), (made[0].id(), made[0].hasher()));
        }
        let last = open(temp.path()).unwrap();
        assert_eq!((last.id(), last.hasher()), (made[0].id(), made[0].hasher()));
        assert_is_whole(temp.path());
    }
}

/// A server may die after each of its steps.
#[test]
fn what_a_server_has_left_is_completed() {
    for moved in 0..=FILES.len() {
        let temp = tempfile::tempdir().unwrap();
        let made = open(temp.path()).unwrap();
        let dir = temp.path();
        for name in &FILES[moved..] {
            fs::rename(dir.join(name), dir.join("shard").join(name)).unwrap();
        }
        if moved == 0 {
            for name in ["alive", "content", "servers"] {
                fs::remove_dir(dir.join(name)).unwrap();
            }
        }
        let opened = open(dir).unwrap();
        assert_eq!((opened.id(), opened.hasher()), (made.id(), made.hasher()), "{moved}");
        assert!(opened.mends().is_empty(), "{moved}");
        assert_is_whole(dir);
    }
    // One that had not decided has no part in the store.
    let temp = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let prepared = open(other.path()).unwrap();
    let own = temp.path().join("new.0123456789abcdef");
    fs::create_dir(&own).unwrap();
    for name in FILES {
        fs::copy(other.path().join(name), own.join(name)).unwrap();
    }
    let made = open(temp.path()).unwrap();
    assert_ne!(made.id(), prepared.id());
    assert_is_whole(temp.path());
}

#[test]
fn a_store_and_the_volume_of_one_server_are_told_apart() {
    let temp = tempfile::tempdir().unwrap();
    let [plain, shared] = ["plain", "shared"].map(|name| temp.path().join(name));
    drop(Volume::create(&plain, VolumeOptions::default()).unwrap());
    drop(open(&shared).unwrap());
    assert!(matches!(open(&plain), Err(VolumeError::NotShared { .. })));
    assert!(!plain.join("alive").exists(), "nothing was changed");
    let error = Volume::open(&shared).unwrap_err();
    assert!(error.to_string().contains("pelago serve DIR --store"), "{error}");
    for refused in [
        Volume::open(&shared).map(drop),
        Volume::open_or_create(&shared, VolumeOptions::default()).map(drop),
        Volume::open_mirror(&shared).map(drop),
        Remains::open(&shared).map(drop),
        {
            let [format, seed] =
                ["format", "seed"].map(|name| fs::read(shared.join(name)).unwrap());
            Volume::create_mirror(&temp.path().join("mirror"), &format, &seed).map(drop)
        },
    ] {
        assert!(matches!(refused, Err(VolumeError::SharedStore { .. })), "{refused:?}");
    }
    let created = Volume::create(&shared, VolumeOptions::default());
    assert!(matches!(created, Err(VolumeError::Exists { .. })));
    assert_is_whole(&shared);
    // The key of one kind is no key of the other.
    let seeds = ["seed", "seed.copy"];
    for name in seeds {
        fs::copy(plain.join("table").join(name), shared.join(name)).unwrap();
    }
    assert!(matches!(open(&shared), Err(VolumeError::Corrupt { .. })));
}

#[test]
fn other_folders_are_refused_and_stay_as_they_are() {
    let temp = tempfile::tempdir().unwrap();
    let many = SharedOptions { shards: 2, ..SharedOptions::default() };
    let refused = Volume::open_or_create_shared(temp.path(), many);
    assert!(matches!(refused, Err(VolumeError::Shards { found: 2, .. })));
    assert!(names(temp.path()).is_empty());
    for foreign in ["letter.txt", "seed", "table"] {
        let file = temp.path().join(foreign);
        fs::write(&file, "dear").unwrap();
        let refused = open(temp.path());
        assert!(matches!(refused, Err(VolumeError::NotAVolume { .. })), "{foreign}: {refused:?}");
        assert_eq!(names(temp.path()), [foreign]);
        fs::remove_file(file).unwrap();
    }
    drop(open(temp.path()).unwrap());
    for name in ["format", "format.copy"] {
        fs::remove_file(temp.path().join(name)).unwrap();
    }
    assert!(matches!(open(temp.path()), Err(VolumeError::Corrupt { .. })));
    assert!(matches!(Volume::open(temp.path()), Err(VolumeError::NotAVolume { .. })));
}

#[test]
fn a_small_file_that_is_damaged_is_mended() {
    for name in FILES {
        let temp = tempfile::tempdir().unwrap();
        let made = open(temp.path()).unwrap();
        let before = fs::read(temp.path().join(name)).unwrap();
        fs::write(temp.path().join(name), "damage").unwrap();
        let opened = open(temp.path()).unwrap();
        assert_eq!((opened.id(), opened.hasher()), (made.id(), made.hasher()));
        assert_eq!(opened.mends().len(), 1, "{name}");
        opened.mend().unwrap();
        assert_eq!(fs::read(temp.path().join(name)).unwrap(), before, "{name}");
        assert!(open(temp.path()).unwrap().mends().is_empty());
    }
}
