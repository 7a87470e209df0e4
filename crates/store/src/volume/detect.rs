//! The content of a folder: a volume, the beginning of one, or other files.

use std::ffi::OsString;
use std::path::Path;

use super::error::VolumeError;
use super::layout::{
    CHARTER, CLEAN, CLIENTS, CONTENT, FORMAT, FORMAT_COPY, ISSUER, KEY, KEYS, LISTEN, LOCK, LOG,
    NAMES, POLICY, RESERVE, SEED, SEED_COPY, SEED_NEW, TABLE,
};
use crate::folder::{Folder, FolderError};

/// The content of the folder at a path.
#[derive(Debug)]
pub(super) enum Detected {
    /// Nothing.
    Missing,
    /// A folder that is empty, or in which a volume was half created.
    Empty(Folder),
    /// A folder with a file `format` or `format.copy`.
    Volume(Folder),
}

/// Examines the folder `dir` without changing it.
///
/// # Errors
/// [`VolumeError::NotAVolume`] if it has other files than a volume; [`VolumeError::Corrupt`] if it
/// has data but no `format`.
pub(super) fn detect(dir: &Path) -> Result<Detected, VolumeError> {
    let folder = match Folder::open(dir) {
        Err(error) if error.is_not_found() => return Ok(Detected::Missing),
        opened => opened?,
    };
    let names = folder.entries()?;
    if is_volume(&folder)? {
        return Ok(Detected::Volume(folder));
    }
    for name in names {
        // The root of a new ext4 file system has `lost+found`.
        let is_allowed = NAMES.iter().any(|known| name == *known) || name == "lost+found";
        if !is_allowed {
            let found = name.to_string_lossy().escape_debug().to_string();
            return Err(VolumeError::NotAVolume { path: dir.into(), found });
        }
    }
    for name in [TABLE, CONTENT] {
        if !has_no_data(&folder, name)? {
            let what = "it is missing, and the volume has data";
            return Err(VolumeError::Corrupt { path: dir.join(FORMAT), what });
        }
    }
    // These are added to a volume that has `format`. Here they belong to something else.
    for name in [KEY, CLIENTS, POLICY, KEYS, ISSUER, CHARTER, LISTEN] {
        if folder.contains(name)? {
            return Err(VolumeError::NotAVolume { path: dir.into(), found: name.to_owned() });
        }
    }
    Ok(Detected::Empty(folder))
}

/// Returns whether a folder has one of the two files that make it a volume.
pub(super) fn is_volume(folder: &Folder) -> Result<bool, VolumeError> {
    Ok(folder.contains(FORMAT)? || folder.contains(FORMAT_COPY)?)
}

/// Checks before anything is written that existing files with names of a volume's files are safe to
/// use.
pub(super) fn check_files(folder: &Folder) -> Result<(), VolumeError> {
    for name in [FORMAT, FORMAT_COPY, LOCK, CLEAN, RESERVE, LOG, KEY, CLIENTS] {
        folder.check_file(name)?;
    }
    Ok(())
}

/// Opens a folder that every volume has.
pub(super) fn open_subfolder(folder: &Folder, name: &str) -> Result<Folder, VolumeError> {
    let what = match folder.open_folder(name) {
        Err(error) if error.is_not_found() => "it is missing",
        Err(FolderError::WrongType { .. }) => "it is not a folder",
        opened => return Ok(opened?),
    };
    Err(VolumeError::Corrupt { path: folder.path().join(name), what })
}

/// Returns whether a folder is missing or empty. A seed does not count: no name was hashed with it
/// yet.
fn has_no_data(folder: &Folder, name: &str) -> Result<bool, VolumeError> {
    match folder.open_folder(name) {
        Err(error) if error.is_not_found() => Ok(true),
        opened => {
            let is_seed =
                |name: &OsString| [SEED, SEED_NEW, SEED_COPY].into_iter().any(|seed| name == seed);
            Ok(opened?.entries()?.iter().all(is_seed))
        }
    }
}
