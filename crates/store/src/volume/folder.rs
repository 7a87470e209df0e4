//! What a folder is before it is touched.

use std::fs;
use std::io;
use std::path::Path;

use super::{CONTENT, FORMAT, NAMES, TABLE, VolumeError, is_there};

/// What was found where a volume is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// No folder.
    Missing,
    /// A folder with nothing in it, or a volume half made.
    Nothing,
    /// A volume, as far as one can see from outside.
    Volume,
}

/// Looks without changing anything.
pub(super) fn look(dir: &Path) -> Result<Found, VolumeError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
        Err(error) => return Err(VolumeError::from_io("listing", dir, error)),
    };
    if is_there(&dir.join(FORMAT))? {
        return Ok(Found::Volume);
    }
    for entry in entries {
        let name = entry.map_err(|error| VolumeError::from_io("listing", dir, error))?.file_name();
        // A new file system has a folder of its own in its root.
        let ours = NAMES.iter().any(|known| name == *known) || name == "lost+found";
        if !ours {
            let found = name.to_string_lossy().escape_debug().to_string();
            return Err(VolumeError::NotAVolume { path: dir.into(), found });
        }
    }
    for folder in [TABLE, CONTENT] {
        if !is_empty(&dir.join(folder))? {
            let what = "it is missing, and the volume has data";
            return Err(VolumeError::Damaged { path: dir.join(FORMAT), what });
        }
    }
    Ok(Found::Nothing)
}

/// That `path` is a folder of a volume.
pub(super) fn expect_folder(path: &Path) -> Result<(), VolumeError> {
    let what = match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Ok(()),
        Ok(_) => "it is not a folder",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "it is missing",
        Err(error) => return Err(VolumeError::from_io("looking for", path, error)),
    };
    Err(VolumeError::Damaged { path: path.into(), what })
}

/// Whether a folder has nothing in it or is missing.
fn is_empty(path: &Path) -> Result<bool, VolumeError> {
    match fs::read_dir(path) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(VolumeError::from_io("listing", path, error)),
    }
}
