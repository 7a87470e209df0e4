//! A list and its file, with an invented clock.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::super::{ClientRef, file};
use super::*;
use crate::clients::date::Date;
use crate::key::PrivateKey;

struct Watched {
    list: ClientList,
    path: PathBuf,
    now: Instant,
    _folder: tempfile::TempDir,
}

impl Watched {
    /// Returns a list with the keys 1 and 2.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clients");
        for number in [1, 2] {
            allow(&path, number);
        }
        let list = ClientList::open(OwnFile::of(&path).unwrap()).unwrap();
        let now = list.state.lock().next_look;
        Self { list, path, now, _folder: folder }
    }

    /// Returns which of the keys 1 to 3 may connect, after the time of a look.
    fn allowed(&mut self) -> Vec<u8> {
        self.now += POLL;
        (1..=3).filter(|number| self.list.allows_at(&key(*number), self.now)).collect()
    }
}

fn key(number: u8) -> PublicKey {
    PrivateKey::from_seed([number; 32]).public()
}

fn allow(path: &Path, number: u8) {
    let file = OwnFile::of(path).unwrap();
    file::edit(&file, |clients| clients.allow(key(number), None, Date::of_seconds(0))).unwrap();
}

fn remove(path: &Path, number: u8) {
    let file = OwnFile::of(path).unwrap();
    file::edit(&file, |clients| clients.remove(&ClientRef::Key(key(number)))).unwrap();
}

#[test]
fn a_change_of_the_file_is_followed() {
    let mut watched = Watched::new();
    assert_eq!(watched.allowed(), [1, 2]);
    allow(&watched.path, 3);
    remove(&watched.path, 1);
    assert_eq!(watched.allowed(), [2, 3]);
    let all = [key(1), key(2), key(3)];
    assert_eq!(watched.list.removed_at(&all, watched.now), [key(1)]);
    assert_eq!(watched.list.count(), 2);
}

/// Questions between two looks do not read the file.
#[test]
fn the_file_is_examined_each_half_second() {
    let mut watched = Watched::new();
    assert_eq!(watched.allowed(), [1, 2]);
    remove(&watched.path, 1);
    let before = watched.now + POLL - Duration::from_nanos(1);
    assert!(watched.list.allows_at(&key(1), before));
    assert!(!watched.list.allows_at(&key(1), watched.now + POLL));
}

#[test]
fn a_removed_file_allows_nobody() {
    let mut watched = Watched::new();
    fs::remove_file(&watched.path).unwrap();
    assert!(watched.allowed().is_empty());
    allow(&watched.path, 3);
    assert_eq!(watched.allowed(), [3]);
}

/// An editor that writes in place, and makes a mistake.
#[test]
fn a_wrong_line_leaves_the_last_good_list_in_force() {
    let mut watched = Watched::new();
    let good = fs::read_to_string(&watched.path).unwrap();
    fs::write(&watched.path, format!("{}\noops\n", key(3))).unwrap();
    assert_eq!(watched.allowed(), [1, 2]);
    let problem = watched.list.problem().unwrap();
    assert!(problem.contains("line 2 is wrong"), "{problem}");
    // The same file is no news.
    assert_eq!(watched.allowed(), [1, 2]);
    fs::write(&watched.path, format!("{good}{}\n", key(3))).unwrap();
    assert_eq!(watched.allowed(), [1, 2, 3]);
    assert_eq!(watched.list.problem(), None);
}

#[test]
fn a_file_that_others_can_write_is_not_believed() {
    let mut watched = Watched::new();
    fs::write(&watched.path, format!("{}\n", key(3))).unwrap();
    fs::set_permissions(&watched.path, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(watched.allowed(), [1, 2]);
    assert!(watched.list.problem().unwrap().contains("`chmod 600"));
    fs::set_permissions(&watched.path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(watched.allowed(), [3]);
}

#[test]
fn a_missing_file_is_an_empty_list_and_a_wrong_one_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clients");
    let open = || ClientList::open(OwnFile::of(&path).unwrap());
    assert_eq!(open().unwrap().count(), 0);
    fs::write(&path, "oops\n").unwrap();
    let error = open().unwrap_err();
    assert!(matches!(&error, ClientsFileError::Text { source, .. } if source.line == 1), "{error}");
}

/// A change that fails, or changes nothing, does not replace the file.
#[test]
fn an_edit_without_a_change_writes_nothing() {
    let watched = Watched::new();
    let file = OwnFile::of(&watched.path).unwrap();
    let before = stamp(&file).unwrap();
    allow(&watched.path, 1);
    let missing = ClientRef::Key(key(9));
    assert!(file::edit(&file, |clients| clients.remove(&missing)).is_err());
    assert_eq!(stamp(&file).unwrap(), before);
    assert_eq!(fs::read_dir(watched.path.parent().unwrap()).unwrap().count(), 1);
}
