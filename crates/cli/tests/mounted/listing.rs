//! Directories with many names.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use rustix::fs::Dir;

use crate::mounted::{on_mount, on_volume};

/// A nightly run uses more.
const MANY: usize = 10_000;

fn fill(dir: &Path, count: usize) {
    fs::create_dir_all(dir).unwrap();
    for number in 0..count {
        File::create_new(dir.join(format!("name{number}"))).unwrap();
    }
}

fn names(dir: &Path) -> Vec<OsString> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Each name is listed once, in an order that a restart does not change.
#[test]
fn many_names_come_once_each_and_always_in_one_order() {
    on_volume(|volume| {
        let dir = volume.files().join("many");
        fill(&dir, MANY);
        let first = names(&dir);
        let set: BTreeSet<&OsString> = first.iter().collect();
        assert_eq!((first.len(), set.len()), (MANY, MANY));
        assert_eq!(fs::metadata(&dir).unwrap().len(), MANY as u64);
        volume.kill();
        volume.up(&[]).expect_success();
        assert_eq!(names(&dir), first);
    });
}

/// A name that stays is listed once while others are created and removed.
#[test]
fn a_listing_bears_changes() {
    on_mount(|root| {
        let dir = root.join("d");
        fill(&dir, 3000);
        let mut seen = Vec::new();
        for (number, entry) in fs::read_dir(&dir).unwrap().enumerate() {
            let name = entry.unwrap().file_name();
            if number % 10 == 0 {
                fs::write(dir.join(format!("new{number}")), "").unwrap();
                let gone = dir.join(format!("name{}", 2999 - number / 10));
                fs::remove_file(gone).unwrap();
            }
            seen.push(name.into_string().unwrap());
        }
        let set: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(set.len(), seen.len(), "a name came twice");
        for number in 0..2600 {
            assert!(set.contains(&format!("name{number}")), "name{number} was left out");
        }
    });
}

/// A position in a listing stays valid while names before it change.
#[test]
fn a_listing_continues_at_its_position() {
    on_mount(|root| {
        let dir = root.join("d");
        fill(&dir, 2000);
        let mut listing = Dir::read_from(File::open(&dir).unwrap()).unwrap();
        let mut before = Vec::new();
        let mut position = 0;
        for _ in 0..1000 {
            let entry = listing.read().unwrap().unwrap();
            position = entry.offset();
            before.push(entry.file_name().to_owned());
        }
        let behind: Vec<_> =
            listing.by_ref().map(|entry| entry.unwrap().file_name().to_owned()).collect();
        for name in before.iter().filter(|name| name.to_bytes().starts_with(b"name")).take(500) {
            fs::remove_file(dir.join(name.to_str().unwrap())).unwrap();
        }
        listing.seek(position).unwrap();
        let again: Vec<_> =
            listing.by_ref().map(|entry| entry.unwrap().file_name().to_owned()).collect();
        assert_eq!(again, behind);
    });
}

#[test]
fn rm_r_removes_everything() {
    on_mount(|root| {
        for dir in ["d/a/b/c", "d/e"] {
            fill(&root.join(dir), 200);
        }
        fs::remove_dir_all(root.join("d")).unwrap();
        assert_eq!(names(root), Vec::<OsString>::new());
    });
}

#[test]
fn a_deep_tree_can_be_walked() {
    on_mount(|root| {
        let mut path = root.to_owned();
        for depth in 0..200 {
            path.push(format!("d{depth}"));
            fs::create_dir(&path).unwrap();
        }
        fs::write(path.join("f"), "deep").unwrap();
        assert_eq!(fs::read(path.join("f")).unwrap(), b"deep");
        let top = fs::canonicalize(path.join("../".repeat(200))).unwrap();
        assert_eq!(top, root);
    });
}
