//! The file that says that a mirror was promoted: its reign, as a decimal number. And the one that
//! says that the adoption of a folder has begun, so that its rows are no sign of a promotion.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use pelago_store::folder::Folder;
use pelago_store::spool::SpoolError;
use pelago_store::volume::VolumeId;
use rustix::fs::OFlags;

use super::error::MirrorError;

/// Permissions of the file.
const MODE: u32 = 0o600;
/// The longest number, and a newline.
const BYTES: u64 = 21;

/// Returns the reign with which the mirror of a volume was promoted; `None` if it was not.
pub(super) fn read(folder: &Folder, volume: VolumeId) -> Result<Option<u64>, MirrorError> {
    let mut file = match folder.open_file(&name(volume), OFlags::RDONLY) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?.take(BYTES),
    };
    let path = folder.path().join(name(volume));
    let mut text = String::new();
    let read = file.read_to_string(&mut text);
    read.map_err(|source| SpoolError::Io { doing: "reading", path: path.clone(), source })?;
    match text.trim_end().parse() {
        Ok(reign) => Ok(Some(reign)),
        Err(_) => Err(MirrorError::NoReign { path }),
    }
}

/// Writes the file, on stable storage.
pub(super) fn write(folder: &Folder, volume: VolumeId, reign: u64) -> Result<(), MirrorError> {
    let new = format!("{}.new", name(volume));
    let path = folder.path().join(name(volume));
    let mut file = folder.replace_file(&new, MODE)?;
    let written = file.write_all(format!("{reign}\n").as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|source| SpoolError::Io { doing: "writing", path, source })?;
    folder.rename(&new, &name(volume))?;
    Ok(folder.sync()?)
}

/// Removes the file: the volume is a mirror again.
pub(super) fn remove(folder: &Folder, volume: VolumeId) -> Result<(), MirrorError> {
    folder.remove(&name(volume))?;
    Ok(folder.sync()?)
}

/// Records that the adoption of a folder of this volume begins, on stable storage.
pub(super) fn begin_adoption(folder: &Folder, volume: VolumeId) -> Result<(), MirrorError> {
    drop(folder.replace_file(&adopting(volume), MODE)?);
    Ok(folder.sync()?)
}

/// Records that it is complete.
pub(super) fn end_adoption(folder: &Folder, volume: VolumeId) -> Result<(), MirrorError> {
    folder.remove(&adopting(volume))?;
    Ok(folder.sync()?)
}

/// Returns the path of the file that says that an adoption has begun, if it is there.
pub(super) fn begun_adoption(
    folder: &Folder,
    volume: VolumeId,
) -> Result<Option<PathBuf>, MirrorError> {
    let name = adopting(volume);
    Ok(folder.contains(&name)?.then(|| folder.path().join(name)))
}

fn adopting(volume: VolumeId) -> String {
    format!("{volume}.adopting")
}

fn name(volume: VolumeId) -> String {
    format!("{volume}.promoted")
}
