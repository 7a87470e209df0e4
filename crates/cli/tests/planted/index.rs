//! The folder of the search index in a volume's folder that other users can write: files that they
//! plant there are never written, emptied or read, and searches go on.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown, symlink,
};
use std::path::Path;

use rustix::process::geteuid;

use super::{NOBODY, PRECIOUS, Scene};
use crate::harness::program::{pelago, run, until};
use crate::harness::volume::cannot_mount;

/// Returns what `pelago find` prints for a word of a private file.
fn found(scene: &Scene) -> String {
    let files = scene.volume.files();
    run(&mut pelago(&scene.volume.root, ["find", "text:bluewhale", files.to_str().unwrap()]))
        .expect_success()
        .out
}

/// Returns a volume of root with a private file, whose folder belongs to another user.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.volume.up(&["--no-find"]).expect_success();
    let private = scene.volume.files().join("private");
    DirBuilder::new().mode(0o700).create(&private).unwrap();
    fs::write(private.join("merger-plan.txt"), "the codename is bluewhale").unwrap();
    scene.volume.run("unmount", &[]).expect_success();
    scene
}

/// Serves the volume for as long as it takes to search it twice, once after its index could be
/// there.
fn search(scene: &Scene) {
    scene.volume.up(&["--find"]).expect_success();
    assert!(found(scene).contains("merger-plan.txt"));
    let log = scene.volume.dir.join("log");
    until("the index is complete, or refused", || {
        let text = fs::read_to_string(&log).unwrap();
        ["is complete", "has stopped"].iter().any(|says| text.contains(says))
    });
    assert!(found(scene).contains("merger-plan.txt"));
    scene.volume.run("unmount", &[]).expect_success();
    scene.volume.check_whole();
}

/// Lays something at a path.
type Plant = fn(&Scene, &Path);

#[test]
fn what_others_lay_in_place_of_the_index_is_not_used() {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    let plants: [(&str, Plant); 5] = [
        ("a link to a folder", |scene, place| symlink(&scene.folder, place).unwrap()),
        ("a link to nothing", |scene, place| symlink(scene.folder.join("new"), place).unwrap()),
        ("a folder of all", |_, place| {
            fs::create_dir(place).unwrap();
            fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
        }),
        ("a folder of another user", |_, place| {
            DirBuilder::new().mode(0o700).create(place).unwrap();
            chown(place, Some(NOBODY), Some(NOBODY)).unwrap();
        }),
        ("a file", |_, place| fs::write(place, "theirs").unwrap()),
    ];
    for (what, plant) in plants {
        if what.contains("another user") && !geteuid().is_root() {
            continue;
        }
        let scene = scene();
        let log = what;
        let place = scene.volume.dir.join("index");
        fs::write(scene.folder.join("addresses.db"), PRECIOUS).unwrap();
        plant(&scene, &place);
        let before = fs::symlink_metadata(&place).unwrap().ino();
        search(&scene);
        assert_eq!(fs::read_dir(&scene.folder).unwrap().count(), 1, "{log}");
        assert_eq!(fs::read(scene.folder.join("addresses.db")).unwrap(), PRECIOUS, "{log}");
        assert_eq!(fs::symlink_metadata(&place).unwrap().ino(), before, "{log}: left as it is");
        if place.is_dir() && !place.is_symlink() {
            assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{log}");
        }
        let log = fs::read_to_string(scene.volume.dir.join("log")).unwrap();
        assert_eq!(log.matches("and is not used as search index").count(), 1, "said once: {log}");
    }
}

/// Within a folder of ours, as it may come out of a backup: what is there is removed and made anew.
#[test]
fn what_lies_in_the_folder_of_the_index_is_not_followed() {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    for half in ["names", "texts"] {
        for of_us in [true, false] {
            let scene = scene();
            let index = scene.volume.dir.join("index");
            DirBuilder::new().mode(0o700).create(&index).unwrap();
            fs::write(scene.folder.join("addresses.db"), PRECIOUS).unwrap();
            symlink(&scene.folder, index.join(half)).unwrap();
            if !of_us && geteuid().is_root() {
                lchown(index.join(half), Some(NOBODY), Some(NOBODY)).unwrap();
            }
            search(&scene);
            assert_eq!(fs::read(scene.folder.join("addresses.db")).unwrap(), PRECIOUS, "{half}");
            assert_eq!(fs::read_dir(&scene.folder).unwrap().count(), 1, "{half}");
            let built = fs::symlink_metadata(index.join(half)).unwrap();
            assert!(built.is_dir() && built.mode() & 0o777 == 0o700, "{half}: built again");
        }
    }
}

/// A private name and a private word are in no file that another user can open.
#[test]
fn no_other_user_reads_the_index() {
    if let Some(reason) = cannot_mount() {
        return println!("skipped: {reason}");
    }
    let scene = scene();
    search(&scene);
    let index = scene.volume.dir.join("index");
    assert_eq!(fs::metadata(&index).unwrap().mode() & 0o777, 0o700);
    for half in ["names", "texts"] {
        assert_eq!(fs::metadata(index.join(half)).unwrap().mode() & 0o777, 0o700);
        for file in fs::read_dir(index.join(half)).unwrap() {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600, "{file:?}");
        }
    }
}
