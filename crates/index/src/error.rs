//! Errors of an index.

use std::io;
use std::path::{Path, PathBuf};

use pelago_folder::FolderError;
use pelago_wire::limits::INDEX_TEXT_BYTES;

#[cfg(feature = "search")]
mod engine;

/// An error of an index. The rows have all that it has, so nothing is lost with it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes of its files are not those that were written, or a file is missing.
    #[error("the index in {folder} is damaged: delete the folder, and build it again ({what})")]
    Damaged {
        /// The folder of the index.
        folder: PathBuf,
        /// What was found, for the log.
        what: String,
    },
    /// Its files are of another version, or no index.
    #[error("{folder} has another kind of index: delete the folder, and build it again ({what})")]
    Foreign {
        /// The folder of the index.
        folder: PathBuf,
        /// What was found, for the log.
        what: String,
    },
    /// The folder of the index, or a file in its place, does not belong to this user alone.
    #[error("{path} is {found}, and is not used as search index: remove it")]
    NotOurs {
        /// The folder, or the file in its place.
        path: PathBuf,
        /// What was found.
        found: &'static str,
    },
    /// The disk is full. Changes that were not committed are lost; the last commit is whole.
    #[error("the disk of the index in {folder} is full: free space, and open the index again")]
    Full {
        /// The folder of the index.
        folder: PathBuf,
    },
    /// The system returned another error. Changes that were not committed are lost.
    #[error("cannot use the index in {folder}: {source}")]
    Io {
        /// The folder of the index.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process, or another part of this one, writes to the index.
    #[error("the index in {folder} is open elsewhere: close it there first")]
    Busy {
        /// The folder of the index.
        folder: PathBuf,
    },
    /// A write failed before, and the index takes no more. It still answers.
    #[error("the index in {folder} has stopped after an error: open it again")]
    Stopped {
        /// The folder of the index.
        folder: PathBuf,
    },
    /// The program was built without the engine.
    #[error("this pelago was built without a search index: build it with the feature `search`")]
    NoEngine,
    /// A text is too long.
    #[error(
        "a text of {bytes} bytes is too long for the index: give it {INDEX_TEXT_BYTES} at most"
    )]
    LongText {
        /// Its bytes.
        bytes: usize,
    },
}

impl From<FolderError> for Error {
    /// Returns the error for the folder of both halves, which is in one that others may write.
    fn from(error: FolderError) -> Self {
        let path = error.path().to_owned();
        let found = error.found();
        match error {
            FolderError::Io { source, .. } => Self::of_io(&path, source),
            _ => Self::NotOurs { path, found: found.unwrap_or("no folder of this user") },
        }
    }
}

impl Error {
    /// Returns whether the files themselves are wrong, so that opening them again cannot help: the
    /// caller deletes the folder and builds the index again.
    #[must_use]
    pub const fn is_of_files(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Foreign { .. })
    }

    /// Returns whether the disk is full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Returns an error of the system. The engine has hidden some: see `directory::Files`.
    pub(crate) fn of_io(folder: &Path, source: io::Error) -> Self {
        let folder = folder.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { folder },
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound => {
                Self::Damaged { folder, what: source.to_string() }
            }
            _ => Self::Io { folder, source },
        }
    }
}
