//! Small files that a volume has twice, so that one wrong byte costs nothing.
//!
//! Both have the same bytes, and a checksum. The first counts if it is whole, else the copy. A file
//! that is damaged, missing or different is written again from the one that counts, but only after
//! the table has shown that this is right: one of the files may be of another volume.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::VolumeError;
use crate::folder::Folder;

/// The names of two files with the same bytes.
#[derive(Debug)]
pub(super) struct TwoFiles {
    /// The file that counts if it is whole.
    pub(super) first: &'static str,
    pub(super) copy: &'static str,
    /// Either of them before it is renamed.
    pub(super) new: &'static str,
    pub(super) mode: u32,
}

/// The value of two files.
#[derive(Debug)]
pub(super) struct Pair<T> {
    /// The value that counts.
    pub(super) value: T,
    /// The value of the copy, if it is whole and differs from `value`.
    pub(super) other: Option<T>,
    /// The files that are to be written again.
    pub(super) mends: Vec<Mend>,
}

/// A small file that is to be written again from its second one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mend {
    /// The file.
    pub path: PathBuf,
    /// The damage, for a message.
    pub what: &'static str,
    /// True if the file was whole once; false if the program that wrote the volume knows only one
    /// file.
    pub is_damage: bool,
}

/// Reads both files, of at most `max_bytes` each.
///
/// # Errors
/// The error of the first file, if neither can be read; that of the first also if it needs a newer
/// or older program, or may be changed by others.
pub(super) fn read<T: PartialEq>(
    folder: &Folder,
    files: &TwoFiles,
    max_bytes: usize,
    decode: impl Fn(&Path, &[u8]) -> Result<T, VolumeError>,
) -> Result<Pair<T>, VolumeError> {
    let read = |name| {
        let path = folder.path().join(name);
        read_file(folder, name, max_bytes).and_then(|bytes| decode(&path, &bytes))
    };
    let mend = |name, what, is_damage| Mend { path: folder.path().join(name), what, is_damage };
    let mut mends = Vec::new();
    let error = match read(files.first) {
        Ok(value) => {
            let other = match read(files.copy) {
                Ok(other) if other == value => return Ok(Pair { value, other: None, mends }),
                Ok(other) => {
                    mends.push(mend(files.copy, "it differs from the first file", false));
                    Some(other)
                }
                Err(error) => {
                    let what = unreadable(&error).unwrap_or("it cannot be read");
                    mends.push(mend(files.copy, what, what != MISSING));
                    None
                }
            };
            return Ok(Pair { value, other, mends });
        }
        Err(error) => error,
    };
    let Some(what) = unreadable(&error) else { return Err(error) };
    let Ok(value) = read(files.copy) else { return Err(error) };
    mends.push(mend(files.first, what, true));
    Ok(Pair { value, other: None, mends })
}

/// Writes both files, each atomically. The copy comes first: it is never older than the other one.
pub(super) fn write(folder: &Folder, files: &TwoFiles, bytes: &[u8]) -> Result<(), VolumeError> {
    for name in [files.copy, files.first] {
        let mut file = folder.replace_file(files.new, files.mode)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let new = folder.path().join(files.new);
        written.map_err(|error| VolumeError::from_io("writing", &new, error))?;
        folder.rename(files.new, name)?;
        folder.sync()?;
    }
    Ok(())
}

const MISSING: &str = "it is missing";

/// Returns why a file has no bytes that count, if its second one may stand in for it.
fn unreadable(error: &VolumeError) -> Option<&'static str> {
    match error {
        VolumeError::Corrupt { what, .. } => Some(what),
        VolumeError::Io { .. } => Some("the disk cannot read it"),
        _ => None,
    }
}

fn read_file(folder: &Folder, name: &str, max_bytes: usize) -> Result<Vec<u8>, VolumeError> {
    let path = folder.path().join(name);
    let file = match folder.open_file(name, OFlags::RDONLY) {
        Err(error) if error.is_not_found() => {
            return Err(VolumeError::Corrupt { path, what: MISSING });
        }
        opened => opened?,
    };
    let mut bytes = Vec::with_capacity(max_bytes);
    let read = file.take(max_bytes as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| VolumeError::from_io("reading", &path, error))?;
    Ok(bytes)
}
