//! Real files in a folder of each test's own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn folder() -> (tempfile::TempDir, Folder) {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(place.path()).unwrap();
    (place, folder)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn only_a_regular_file_of_ours_with_one_name_is_opened() {
    let (place, folder) = folder();
    let path = place.path().join("file");
    let open = || folder.open_file("file", OFlags::RDWR).map(|_| ());
    assert!(open().unwrap_err().is_not_found());
    drop(folder.create_new("file", 0o600).unwrap());
    assert!(folder.create_new("file", 0o600).unwrap_err().is_found());
    open().unwrap();
    set_mode(&path, 0o620);
    assert!(matches!(open(), Err(FolderError::TooPermissive { mode: 0o620, .. })));
    set_mode(&path, 0o644);
    fs::hard_link(&path, place.path().join("other")).unwrap();
    assert!(matches!(open(), Err(FolderError::HardLinked { .. })));
    fs::remove_file(&path).unwrap();
    symlink("other", &path).unwrap();
    assert!(matches!(open(), Err(FolderError::Symlink { .. })));
    assert!(folder.create_new("file", 0o600).unwrap_err().is_found());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(matches!(open(), Err(FolderError::WrongType { .. })));
}

#[test]
fn a_folder_is_ours_alone_or_refused() {
    let (place, folder) = folder();
    let path = place.path().join("inner");
    folder.create_folder("inner").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    set_mode(&path, 0o711);
    assert!(matches!(folder.create_folder("inner"), Err(FolderError::TooPermissive { .. })));
    fs::remove_dir(&path).unwrap();
    symlink(place.path(), &path).unwrap();
    assert!(matches!(folder.create_folder("inner"), Err(FolderError::Symlink { .. })));
}

/// The target of a link stays, in every depth.
#[test]
fn a_tree_is_removed_without_what_links_lead_to() {
    let (place, folder) = folder();
    let path = |name: &str| place.path().join(name);
    fs::create_dir_all(path("kept/inner")).unwrap();
    fs::create_dir_all(path("tree/a/b")).unwrap();
    fs::write(path("kept/file"), "").unwrap();
    fs::write(path("tree/a/file"), "").unwrap();
    symlink(path("kept"), path("tree/a/b/link")).unwrap();
    symlink(path("kept"), path("tree/link")).unwrap();
    symlink(path("kept"), path("link")).unwrap();
    folder.remove_tree("tree").unwrap();
    folder.remove_tree("link").unwrap();
    folder.remove_tree("none").unwrap();
    assert!(path("kept/inner").exists() && path("kept/file").exists());
    assert_eq!(folder.entries().unwrap(), ["kept"]);
}

#[test]
fn a_folder_is_locked_once() {
    let (_place, folder) = folder();
    let inner = folder.create_folder("inner").unwrap();
    assert!(inner.try_lock().unwrap());
    let other = folder.open_folder("inner").unwrap();
    assert!(!other.try_lock().unwrap());
    drop(inner);
    assert!(other.try_lock().unwrap());
}

/// Rights to act as another user are not passed on.
#[test]
fn a_new_version_keeps_mode_and_group() {
    let (place, folder) = folder();
    assert_eq!(folder.kept_of("file").unwrap(), None);
    fs::write(place.path().join("file"), "").unwrap();
    set_mode(&place.path().join("file"), 0o4750);
    assert_eq!(folder.kept_of("file").unwrap().unwrap().mode, 0o750);
    symlink("file", place.path().join("link")).unwrap();
    assert_eq!(folder.kept_of("link").unwrap(), None);
    let file = folder.open_file("file", OFlags::RDONLY).unwrap();
    assert!(folder.is_named("file", &file).unwrap());
    assert!(!folder.is_named("link", &file).unwrap() && !folder.is_named("no", &file).unwrap());
}
