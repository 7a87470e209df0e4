//! What a folder is before it is touched.

use std::path::Path;

use super::seed::{SEED, SEED_NEW};
use super::{CLEAN, CONTENT, FORMAT, LOCK, LOG, NAMES, RESERVE, TABLE, VolumeError};
use crate::folder::{Folder, FolderError};

/// What was found where a volume is wanted.
#[derive(Debug)]
pub(super) enum Found {
    /// No folder.
    Missing,
    /// A folder with nothing in it, or a volume half made.
    Nothing(Folder),
    /// A volume, as far as one can see from outside.
    Volume(Folder),
}

/// Looks without changing anything.
pub(super) fn look(dir: &Path) -> Result<Found, VolumeError> {
    let folder = match Folder::open(dir) {
        Err(error) if error.is_missing() => return Ok(Found::Missing),
        opened => opened?,
    };
    let names = folder.names()?;
    if folder.has(FORMAT)? {
        return Ok(Found::Volume(folder));
    }
    for name in names {
        // A new file system has a folder of its own in its root.
        let ours = NAMES.iter().any(|known| name == *known) || name == "lost+found";
        if !ours {
            let found = name.to_string_lossy().escape_debug().to_string();
            return Err(VolumeError::NotAVolume { path: dir.into(), found });
        }
    }
    for name in [TABLE, CONTENT] {
        if !is_empty(&folder, name)? {
            let what = "it is missing, and the volume has data";
            return Err(VolumeError::Damaged { path: dir.join(FORMAT), what });
        }
    }
    Ok(Found::Nothing(folder))
}

/// Checks that what has the names of our files is ours, before anything is written.
pub(super) fn expect_ours(folder: &Folder) -> Result<(), VolumeError> {
    for name in [FORMAT, LOCK, CLEAN, RESERVE, LOG] {
        folder.expect_file_or_nothing(name)?;
    }
    Ok(())
}

/// Opens a folder that a volume has.
pub(super) fn expect_folder(folder: &Folder, name: &str) -> Result<Folder, VolumeError> {
    let what = match folder.folder(name) {
        Err(error) if error.is_missing() => "it is missing",
        Err(FolderError::Kind { .. }) => "it is not a folder",
        opened => return Ok(opened?),
    };
    Err(VolumeError::Damaged { path: folder.path().join(name), what })
}

/// Whether a folder is missing, or has nothing in it but a key that nothing was hashed with.
fn is_empty(folder: &Folder, name: &str) -> Result<bool, VolumeError> {
    match folder.folder(name) {
        Err(error) if error.is_missing() => Ok(true),
        opened => Ok(opened?.names()?.iter().all(|name| name == SEED || name == SEED_NEW)),
    }
}
