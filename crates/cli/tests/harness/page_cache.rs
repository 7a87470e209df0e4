//! The page cache of the disk under a volume.

use std::fs::{self, File};
use std::path::Path;

use rustix::fs::{Advice, fadvise};

/// Takes all files below a folder out of the page cache. To unmount would not do it: another mount
/// namespace may have a copy of the mount.
pub(crate) fn forget(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            forget(&entry.path());
        } else if kind.is_file() {
            let file = File::open(entry.path()).unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }
}
