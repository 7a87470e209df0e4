//! The folder of a mirror: a volume that only its primary changes, by the groups that it sends,
//! until the mirror is promoted.

use std::io::{Read as _, Write as _};
use std::path::Path;

use pelago_wire::limits;
use pelago_wire::mirror::VolumeFile;
use rustix::fs::OFlags;

use super::detect::{self, Detected};
use super::format::{Format, NOT_PRIMARY};
use super::layout::{
    CHARTER, CHARTER_NEW, CLIENTS, CLIENTS_NEW, CONTENT, FORMAT, KEYS, KEYS_NEW, POLICY,
    POLICY_NEW, SECRET, SEED, TABLE,
};
use super::lock::Lock;
use super::seed::HashSeed;
use super::{Volume, VolumeError, create_dir, read_format, write_clean, write_format};
use crate::folder::Folder;

impl Volume {
    /// Creates the folder of a mirror in `dir`, which must be missing or empty, and opens it.
    /// `format` and `seed` are the bytes of the files of the primary.
    ///
    /// # Errors
    /// [`VolumeError`]; [`VolumeError::Exists`] if there is a volume already.
    pub fn create_mirror(dir: &Path, format: &[u8], seed: &[u8]) -> Result<Self, VolumeError> {
        let mut format =
            Format::decode(format).map_err(|error| VolumeError::from_format(dir, error))?;
        if format.is_shared() {
            return Err(VolumeError::SharedStore { path: dir.into() });
        }
        format.needed_features |= NOT_PRIMARY;
        let folder = match detect::detect(dir)? {
            Detected::Volume(_) => return Err(VolumeError::Exists { path: dir.into() }),
            Detected::Missing => {
                create_dir(dir)?;
                Folder::open(dir)?
            }
            Detected::Empty(folder) => folder,
        };
        let lock = Lock::take(&folder)?;
        let table = folder.create_folder(TABLE)?;
        let content = folder.create_folder(CONTENT)?;
        let seed = HashSeed::put(seed, &table)?;
        write_clean(&folder)?;
        write_format(&folder, &format)?;
        Ok(Self {
            folder,
            table,
            content,
            format,
            seed,
            other_seed: None,
            mends: Vec::new(),
            was_clean: true,
            _lock: Some(lock),
        })
    }

    /// Opens a volume that may be a mirror.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_mirror(dir: &Path) -> Result<Self, VolumeError> {
        Self::open_if(dir, |_| Ok(()))
    }

    /// Takes over the `format` of the primary, on stable storage. The folder stays that of a
    /// mirror.
    ///
    /// # Errors
    /// [`VolumeError`], [`VolumeError::Corrupt`] if it is of another volume.
    pub fn take_format(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        let path = self.folder.path().join(FORMAT);
        let format =
            Format::decode(bytes).map_err(|error| VolumeError::from_format(&path, error))?;
        if format.id != self.format.id {
            return Err(VolumeError::Corrupt { path, what: "it is of another volume" });
        }
        if format.is_shared() {
            return Err(VolumeError::Corrupt { path, what: "it is of a shared store" });
        }
        let needed_features = format.needed_features | NOT_PRIMARY;
        self.format = Format { needed_features, ..format };
        write_format(&self.folder, &self.format)
    }

    /// Makes the folder the primary of its volume, on stable storage.
    ///
    /// # Errors
    /// [`VolumeError`]. Whether it is the primary is unknown then; the call can be repeated.
    pub fn set_primary(&mut self) -> Result<(), VolumeError> {
        let mut format = read_format(&self.folder)?.value;
        format.needed_features &= !NOT_PRIMARY;
        write_format(&self.folder, &format)?;
        self.format = format;
        Ok(())
    }
}

/// Replaces the file [`POLICY`], [`CLIENTS`], [`KEYS`] or [`CHARTER`] of the volume in `folder`, on
/// stable storage; `None` removes it.
///
/// # Errors
/// [`VolumeError`]. The file has one of both contents then.
pub fn replace_file(
    folder: &Folder,
    file: ReplacedFile,
    bytes: Option<&[u8]>,
) -> Result<(), VolumeError> {
    let (name, new) = match file {
        ReplacedFile::Policy => (POLICY, POLICY_NEW),
        ReplacedFile::Clients => (CLIENTS, CLIENTS_NEW),
        ReplacedFile::Keys => (KEYS, KEYS_NEW),
        ReplacedFile::Charter => (CHARTER, CHARTER_NEW),
    };
    let Some(bytes) = bytes else {
        folder.remove(name)?;
        return Ok(folder.sync()?);
    };
    let failed = |error| VolumeError::from_io("writing", &folder.path().join(new), error);
    let mut file = folder.replace_file(new, SECRET)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    folder.rename(new, name)?;
    Ok(folder.sync()?)
}

/// Returns the bytes of a file beside the table that a mirror has too; `None` if there is none.
///
/// # Errors
/// [`VolumeError`], [`VolumeError::Corrupt`] if it is longer than a mirror takes.
pub fn read_mirrored(folder: &Folder, file: VolumeFile) -> Result<Option<Vec<u8>>, VolumeError> {
    let beside = match file {
        VolumeFile::Seed => Some(folder.open_folder(TABLE)?),
        VolumeFile::Format | VolumeFile::Policy | VolumeFile::Clients | VolumeFile::Keys => None,
    };
    let folder = beside.as_ref().unwrap_or(folder);
    let name = match file {
        VolumeFile::Format => FORMAT,
        VolumeFile::Seed => SEED,
        VolumeFile::Policy => POLICY,
        VolumeFile::Clients => CLIENTS,
        VolumeFile::Keys => KEYS,
    };
    let path = folder.path().join(name);
    let opened = match folder.open_file(name, OFlags::RDONLY) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    let read = opened.take(limits::VOLUME_FILE_BYTES as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| VolumeError::from_io("reading", &path, error))?;
    match bytes.len() > limits::VOLUME_FILE_BYTES {
        true => Err(VolumeError::Corrupt { path, what: "it is longer than a mirror takes" }),
        false => Ok(Some(bytes)),
    }
}

/// Returns whether `dir` is the folder of a volume that has its primary elsewhere: a mirror, or the
/// folder of a primary that was replaced. False if it cannot be read.
#[must_use]
pub fn is_not_primary(dir: &Path) -> bool {
    let format = Folder::open(dir).map_err(VolumeError::from);
    let format = format.and_then(|folder| read_format(&folder));
    format.is_ok_and(|format| format.value.is_not_primary())
}

/// A file beside the table that a server takes over from another one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplacedFile {
    /// [`POLICY`].
    Policy,
    /// [`CLIENTS`].
    Clients,
    /// [`KEYS`].
    Keys,
    /// [`CHARTER`].
    Charter,
}
