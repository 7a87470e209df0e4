//! A volume's folder that other users can write: symbolic links, files and folders that they plant
//! are not followed, not written and not mounted over.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::harness::program::Ran;
use crate::harness::volume::{Volume, cannot_mount};

mod index;
mod seen;

const NOBODY: u32 = 65_534;
const PRECIOUS: &[u8] = b"precious\n";

/// The names of files and of folders in a volume's folder.
const FILES: [&str; 9] = [
    "clean",
    "lock",
    "reserve",
    "log",
    "format",
    "format.copy",
    "format.new",
    "control.sock",
    "pelago.sock",
];
const FOLDERS: [&str; 3] = ["content", "table", "files"];

/// Files that a volume that is used may have.
const OWN_FILES: [&str; 8] =
    ["key", "clients", "clients.new", "keys", "keys.new", "policy", "charter", "charter.new"];
/// Names that other tests plant.
const OTHERS: [&str; 3] = ["index", "seed", "store"];

/// Returns whether a test here plants this name. A process of ours uses no other in a volume's
/// folder.
fn is_planted(name: &str) -> bool {
    let all = FILES.iter().chain(&FOLDERS).chain(&OWN_FILES);
    all.chain(&OTHERS).any(|planted| *planted == name)
}

/// A volume whose folder all users can write, and a file and a folder outside of it.
struct Scene {
    volume: Volume,
    file: PathBuf,
    folder: PathBuf,
}

impl Scene {
    /// Returns one without a volume yet, whose folder as root belongs to another user.
    fn new() -> Self {
        let volume = Volume::new();
        let outside = volume.root.join("outside");
        let file = outside.join("file");
        let folder = outside.join("folder");
        fs::create_dir_all(&folder).unwrap();
        fs::write(&file, PRECIOUS).unwrap();
        fs::create_dir(&volume.dir).unwrap();
        let scene = Self { volume, file, folder };
        scene.give_away();
        scene
    }

    /// Returns one whose volume was up and is down.
    fn used() -> Self {
        let scene = Self::new();
        scene.volume.up(&[]).expect_success();
        scene.volume.run("unmount", &[]).expect_success();
        scene
    }

    fn give_away(&self) {
        let dir = &self.volume.dir;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        if geteuid().is_root() {
            chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Replaces the file of this name by a symbolic link.
    fn plant(&self, name: &str, to: &Path) {
        let place = self.volume.dir.join(name);
        if place.exists() {
            fs::rename(&place, self.volume.root.join("moved away")).unwrap();
        }
        symlink(to, &place).unwrap();
        if geteuid().is_root() {
            lchown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Starts the volume: nothing outside may change, and a refusal must name the planted file.
    fn expect_untouched(&self, name: &str) -> Ran {
        let ran = self.volume.up(&[]);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.folder.to_str().unwrap()), "{name}: mounted outside");
        if ran.code == Some(0) {
            fs::write(self.volume.files().join("f"), vec![7; 100_000]).unwrap();
            self.volume.run("unmount", &[]).expect_success();
        } else {
            let place = self.volume.dir.join(name);
            assert!(ran.err.contains(place.to_str().unwrap()), "{name}: {ran:?}");
            assert!(ran.err.contains("symbolic link"), "{name}: {ran:?}");
        }
        assert_eq!(fs::read(&self.file).unwrap(), PRECIOUS, "{name}: {ran:?}");
        assert_eq!(fs::read_dir(&self.folder).unwrap().count(), 0, "{name}: {ran:?}");
        ran
    }
}

macro_rules! needs {
    ($reason:expr) => {
        if let Some(reason) = $reason {
            println!("skipped: {reason}");
            return;
        }
    };
}

fn not_root() -> Option<&'static str> {
    (!geteuid().is_root()).then_some("only root has files of several users")
}

/// The file that says of which shared store a folder is a server.
#[test]
fn a_link_to_another_store_is_not_followed() {
    needs!(cannot_mount());
    for scene in [Scene::new(), Scene::used()] {
        let elsewhere = format!("{}\n{}\n", scene.folder.display(), "0".repeat(32));
        let named = scene.folder.with_file_name("named");
        fs::write(&named, &elsewhere).unwrap();
        scene.plant("store", &named);
        let ran = scene.volume.up(&[]);
        if ran.code == Some(0) {
            scene.volume.run("unmount", &[]).expect_success();
        } else {
            assert!(ran.err.contains("store is in it"), "{ran:?}");
        }
        assert_eq!(fs::read_to_string(&named).unwrap(), elsewhere);
        assert_eq!(fs::read_dir(&scene.folder).unwrap().count(), 0, "{ran:?}");
    }
}

#[test]
fn symbolic_links_in_the_folder_of_a_new_volume_are_not_followed() {
    needs!(cannot_mount());
    for name in FILES {
        let scene = Scene::new();
        scene.plant(name, &scene.file);
        scene.expect_untouched(name);
    }
    for name in FOLDERS {
        let scene = Scene::new();
        scene.plant(name, &scene.folder);
        scene.expect_untouched(name).expect_code(4);
    }
}

#[test]
fn symbolic_links_in_a_volume_are_not_followed() {
    needs!(cannot_mount());
    for name in FILES.into_iter().chain(OWN_FILES) {
        let scene = Scene::used();
        scene.plant(name, &scene.file);
        scene.expect_untouched(name);
    }
    for name in FOLDERS {
        let scene = Scene::used();
        scene.plant(name, &scene.folder);
        scene.expect_untouched(name).expect_code(4);
    }
}

/// Following a dangling link would create a file outside.
#[test]
fn dangling_symbolic_links_create_nothing() {
    needs!(cannot_mount());
    for name in ["clean", "lock", "reserve", "log", "format.new"] {
        let scene = Scene::new();
        scene.plant(name, &scene.folder.join("new"));
        scene.expect_untouched(name);
    }
}

/// A hard link is the file outside.
#[test]
fn hard_links_are_not_written() {
    needs!(cannot_mount());
    for name in ["clean", "lock", "reserve", "log", "format.new"] {
        let scene = Scene::new();
        fs::hard_link(&scene.file, scene.volume.dir.join(name)).unwrap();
        let ran = scene.volume.up(&[]);
        if ran.code == Some(0) {
            scene.volume.run("unmount", &[]).expect_success();
        } else {
            assert_eq!(ran.code, Some(4), "{name}: {ran:?}");
            assert!(ran.err.contains("hard link"), "{name}: {ran:?}");
        }
        assert_eq!(fs::read(&scene.file).unwrap(), PRECIOUS, "{name}");
    }
}

#[test]
fn files_of_another_user_are_refused_and_unchanged() {
    needs!(cannot_mount());
    needs!(not_root());
    for name in ["content", "table", "files", "clean", "lock", "reserve", "log"] {
        let scene = Scene::new();
        let place = scene.volume.dir.join(name);
        match FOLDERS.contains(&name) {
            true => fs::create_dir(&place).unwrap(),
            false => fs::write(&place, b"theirs").unwrap(),
        }
        chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
        let ran = scene.volume.up(&[]).expect_code(4);
        assert!(ran.err.contains(place.to_str().unwrap()), "{name}: {ran:?}");
        assert!(ran.err.contains("uid 65534"), "{name}: {ran:?}");
        assert!(ran.err.contains("chown -R"), "{name}: {ran:?}");
        match FOLDERS.contains(&name) {
            true => assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "{name}"),
            false => assert_eq!(fs::read(&place).unwrap(), b"theirs", "{name}"),
        }
    }
}

/// The owner of the folder sees names only, and the volume is served.
#[test]
fn a_volume_in_a_folder_of_another_user_is_served() {
    needs!(cannot_mount());
    needs!(not_root());
    let scene = Scene::used();
    let dir = &scene.volume.dir;
    for name in ["content", "table"] {
        assert_eq!(fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777, 0o700);
    }
    for name in ["clean", "lock", "reserve", "log"] {
        let mode = fs::metadata(dir.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    scene.volume.up(&[]).expect_success();
    fs::write(scene.volume.files().join("f"), vec![7; 100_000]).unwrap();
    scene.volume.run("unmount", &[]).expect_success();
    scene.volume.up(&[]).expect_success();
    assert_eq!(fs::read(scene.volume.files().join("f")).unwrap(), vec![7; 100_000]);
}

#[test]
fn a_folder_of_ours_that_others_may_enter_is_refused() {
    needs!(cannot_mount());
    for name in ["content", "table"] {
        let scene = Scene::used();
        let place = scene.volume.dir.join(name);
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        let ran = scene.volume.up(&[]).expect_code(4);
        let typed = format!("chmod 700 {}", place.display());
        assert!(ran.err.contains(&typed), "{name}: {ran:?}");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
        scene.volume.up(&[]).expect_success();
    }
}
