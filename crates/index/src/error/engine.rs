//! Errors of the engine, as those of an index.

use std::io;
use std::path::Path;

use pelago_folder::FolderError;
use tantivy::TantivyError;
use tantivy::directory::error::{LockError, OpenDirectoryError, OpenReadError, OpenWriteError};

use super::Error;

impl Error {
    /// Returns the error for a folder of files that cannot be opened. One that is not of this user
    /// alone, in a folder that is, was not made by us as it is.
    pub(crate) fn of_folder(folder: &Path, error: FolderError) -> Self {
        match error {
            FolderError::Io { source, .. } => Self::of_io(folder, source),
            other => Self::Foreign { folder: folder.to_owned(), what: other.to_string() },
        }
    }

    /// Returns an error of the engine.
    pub(crate) fn of_engine(folder: &Path, error: TantivyError) -> Self {
        let owned = folder.to_owned();
        match error {
            TantivyError::IoError(source)
            | TantivyError::LockFailure(LockError::IoError(source), _)
            | TantivyError::OpenReadError(OpenReadError::IoError { io_error: source, .. })
            | TantivyError::OpenWriteError(OpenWriteError::IoError { io_error: source, .. })
            | TantivyError::OpenDirectoryError(
                OpenDirectoryError::IoError { io_error: source, .. }
                | OpenDirectoryError::FailedToCreateTempDir(source),
            ) => Self::of_io(folder, again(&source)),
            TantivyError::LockFailure(LockError::LockBusy, _) => Self::Busy { folder: owned },
            TantivyError::IncompatibleIndex(_)
            | TantivyError::OpenReadError(OpenReadError::IncompatibleIndex(_))
            | TantivyError::SchemaError(_)
            | TantivyError::MissingPlugin(_)
            | TantivyError::UnexpectedPlugin(_)
            | TantivyError::ConflictingPlugins(_)
            | TantivyError::OpenDirectoryError(_) => {
                Self::Foreign { folder: owned, what: error.to_string() }
            }
            TantivyError::SystemError(what) => {
                Self::Io { folder: owned, source: io::Error::other(what) }
            }
            // What is left are bytes that the engine did not expect.
            error => Self::Damaged { folder: owned, what: error.to_string() },
        }
    }
}

/// Returns an error like one that others share.
fn again(source: &io::Error) -> io::Error {
    match source.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(source.kind(), source.to_string()),
    }
}
