//! Real files in a folder of each test's own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

const LIMIT: usize = 100;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    (folder, path)
}

fn names(folder: &tempfile::TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(path: &Path, readers: Readers) -> Result<String, OwnFileError> {
    OwnFile::of(path)?.read(readers, LIMIT).map(|(text, _)| text)
}

#[test]
fn a_new_file_is_readable_by_its_user_only_and_is_never_overwritten() {
    let (folder, path) = folder();
    let file = OwnFile::of(&path).unwrap();
    assert!(matches!(file.read(Readers::Nobody, LIMIT), Err(OwnFileError::Missing { .. })));
    file.create("first").unwrap();
    assert!(matches!(file.create("second"), Err(OwnFileError::Exists { .. })));
    assert_eq!(read(&path, Readers::Nobody).unwrap(), "first");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(names(&folder), ["file"]);
}

/// The check at the start of `create` is not what protects a file.
#[test]
fn a_file_that_appears_during_a_create_stays() {
    let (folder, path) = folder();
    let file = OwnFile::of(&path).unwrap();
    let (name, _new) = file.create_unnamed().unwrap();
    fs::write(&path, "other").unwrap();
    assert!(matches!(file.rename_new(&name), Err(OwnFileError::Exists { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "other");
    assert_eq!(names(&folder).len(), 2);
}

#[test]
fn a_dangling_link_is_not_followed_by_a_create() {
    let (folder, path) = folder();
    symlink("target", &path).unwrap();
    assert!(matches!(OwnFile::of(&path).unwrap().create("x"), Err(OwnFileError::Exists { .. })));
    assert_eq!(names(&folder), ["file"]);
}

#[test]
fn a_file_that_others_can_read_is_refused_as_a_secret() {
    let (_folder, path) = folder();
    fs::write(&path, "text").unwrap();
    for (mode, secret, public) in
        [(0o600, true, true), (0o400, true, true), (0o640, false, true), (0o604, false, true)]
    {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(read(&path, Readers::Nobody).is_ok(), secret, "{mode:o}");
        assert_eq!(read(&path, Readers::Everybody).is_ok(), public, "{mode:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    let error = read(&path, Readers::Everybody).unwrap_err();
    assert!(matches!(error, OwnFileError::Permissions { mode: 0o620, .. }));
    assert!(error.to_string().ends_with(&format!("`chmod 600 {}`", path.display())));
}

#[test]
fn links_and_folders_in_a_folder_of_others_are_refused() {
    let (folder, path) = folder();
    let target = folder.path().join("target");
    let dir = File::open(folder.path()).unwrap();
    let file = OwnFile::at(&dir, folder.path(), "file").unwrap();
    let refused = || {
        let read = file.read(Readers::Everybody, LIMIT);
        assert!(matches!(read, Err(OwnFileError::Type { .. })), "{read:?}");
    };
    fs::write(&target, "text").unwrap();
    symlink("target", &path).unwrap();
    refused();
    fs::remove_file(&path).unwrap();
    fs::hard_link(&target, &path).unwrap();
    refused();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused();
}

/// A link that another user puts where the new file goes.
#[test]
fn an_edit_writes_to_no_other_file() {
    let (folder, path) = folder();
    let target = folder.path().join("target");
    let new = folder.path().join("file.new");
    fs::write(&target, "precious").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    let file = OwnFile::of(&path).unwrap();
    fs::hard_link(&target, &new).unwrap();
    assert!(matches!(file.edit(), Err(OwnFileError::Type { .. })));
    fs::remove_file(&new).unwrap();
    symlink("target", &new).unwrap();
    assert!(matches!(file.edit(), Err(OwnFileError::Type { .. })));
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
}

#[test]
fn a_path_that_a_user_gave_may_be_a_link() {
    let (folder, path) = folder();
    OwnFile::of(&folder.path().join("target")).unwrap().create("text").unwrap();
    symlink("target", &path).unwrap();
    assert_eq!(read(&path, Readers::Nobody).unwrap(), "text");
}

#[test]
fn too_long_and_binary_files_are_refused() {
    let (_folder, path) = folder();
    for (bytes, is_text) in [(vec![b'a'; LIMIT], true), (vec![b'a'; LIMIT + 1], false)] {
        fs::write(&path, bytes).unwrap();
        assert_eq!(read(&path, Readers::Everybody).is_ok(), is_text);
    }
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(read(&path, Readers::Everybody), Err(OwnFileError::NotText { .. })));
}

#[test]
fn an_edit_replaces_the_file_and_leaves_no_other() {
    let (folder, path) = folder();
    let file = OwnFile::of(&path).unwrap();
    file.edit().unwrap().finish("a longer text").unwrap();
    let before = file.stamp(Readers::Nobody).unwrap();
    file.edit().unwrap().finish("text").unwrap();
    assert_ne!(file.stamp(Readers::Nobody).unwrap(), before);
    drop(file.edit().unwrap());
    assert_eq!(read(&path, Readers::Nobody).unwrap(), "text");
    assert_eq!(names(&folder), ["file"]);
}

/// A crash in the middle of an edit leaves its file behind.
#[test]
fn an_edit_continues_after_a_crash() {
    let (folder, path) = folder();
    let new = folder.path().join("file.new");
    fs::write(&new, "half of a much longer text").unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    OwnFile::of(&path).unwrap().edit().unwrap().finish("text").unwrap();
    assert_eq!(read(&path, Readers::Nobody).unwrap(), "text");
    assert_eq!(names(&folder), ["file"]);
}

/// Each of several threads adds its letters, one for each edit; none is lost.
#[test]
fn edits_exclude_each_other() {
    let (folder, path) = folder();
    let add = |letter: char| {
        let file = OwnFile::of(&path).unwrap();
        for _ in 0..10 {
            let edit = loop {
                match file.edit() {
                    Err(OwnFileError::Busy { .. }) => {}
                    begun => break begun.unwrap(),
                }
            };
            let mut text = match file.read(Readers::Nobody, LIMIT) {
                Err(OwnFileError::Missing { .. }) => String::new(),
                read => read.unwrap().0,
            };
            text.push(letter);
            edit.finish(&text).unwrap();
        }
    };
    thread::scope(|scope| {
        for letter in ['a', 'b', 'c', 'd'] {
            scope.spawn(move || add(letter));
        }
    });
    let text = read(&path, Readers::Nobody).unwrap();
    for letter in ['a', 'b', 'c', 'd'] {
        assert_eq!(text.matches(letter).count(), 10, "{text}");
    }
    assert_eq!(names(&folder), ["file"]);
}
