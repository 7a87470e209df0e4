//! The remains of a damaged volume, for readers that change nothing.

use std::path::Path;

use super::detect;
use super::error::VolumeError;
use super::format::Format;
use super::layout::{CONTENT, TABLE};
use super::lock::Lock;
use crate::folder::Folder;

/// The remains of a volume. No server can open it until this is dropped, unless its file `lock` is
/// missing; nothing in it is changed.
#[derive(Debug)]
pub struct Remains {
    table: Result<Folder, VolumeError>,
    content: Result<Folder, VolumeError>,
    format: Result<Format, VolumeError>,
    /// `None` if the volume has no file `lock`.
    _lock: Option<Lock>,
}

impl Remains {
    /// Opens what is left of the volume in `dir`.
    ///
    /// # Errors
    /// [`VolumeError::Missing`] if there is neither a folder of rows nor one of content files;
    /// [`VolumeError::SharedStore`]; also if another version of the program is needed, if the
    /// volume is in use, if it is another user's or others can change it, or if neither folder can
    /// be opened.
    pub fn open(dir: &Path) -> Result<Self, VolumeError> {
        let missing = || VolumeError::Missing { path: dir.into() };
        let folder = match Folder::open(dir) {
            Err(error) if error.is_not_found() => return Err(missing()),
            opened => opened?,
        };
        let format = match super::read_format(&folder) {
            Ok(pair) if pair.value.is_shared() => {
                return Err(VolumeError::SharedStore { path: dir.into() });
            }
            Ok(pair) => Ok(pair.value),
            // What is damaged can be done without; what this program may not read cannot.
            Err(error @ (VolumeError::Corrupt { .. } | VolumeError::Io { .. })) => Err(error),
            Err(error) => return Err(error),
        };
        let lock = Lock::share(&folder)?;
        let open = |name| match detect::open_subfolder(&folder, name) {
            Err(error @ (VolumeError::Corrupt { .. } | VolumeError::Io { .. })) => Ok(Err(error)),
            opened => opened.map(Ok),
        };
        let table = open(TABLE)?;
        let content = open(CONTENT)?;
        match (table, &content) {
            (Err(_), Err(_)) if !folder.contains(TABLE)? && !folder.contains(CONTENT)? => {
                Err(missing())
            }
            // Both are there, and the disk gives neither.
            (Err(error), Err(_)) => Err(error),
            (table, _) => Ok(Self { table, content, format, _lock: lock }),
        }
    }

    /// Returns the folder of the engine's files.
    ///
    /// # Errors
    /// Why there is none.
    pub const fn table(&self) -> Result<&Folder, &VolumeError> {
        self.table.as_ref()
    }

    /// Returns the folder of the content files.
    ///
    /// # Errors
    /// Why there is none.
    pub const fn content(&self) -> Result<&Folder, &VolumeError> {
        self.content.as_ref()
    }

    /// Returns id, version and features.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub const fn format(&self) -> Result<&Format, &VolumeError> {
        self.format.as_ref()
    }
}
