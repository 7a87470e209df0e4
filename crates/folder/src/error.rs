//! Errors of the opener.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The reason why a file or folder is not used. It was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// It belongs to another user.
    #[error(
        "{} belongs to uid {owner}, and this process runs as uid {user}: run it as the owner, or \
         take the volume over with `chown -R {user} {}`", path.display(), folder.display()
    )]
    WrongOwner {
        /// The file or folder.
        path: PathBuf,
        /// The folder that has it.
        folder: PathBuf,
        /// The uid of its owner.
        owner: u32,
        /// The uid of this process.
        user: u32,
    },
    /// Its permissions let other users read or write it.
    #[error(
        "{} is open to other users (mode {mode:04o}): close it with `chmod {wanted:o} {}`",
        path.display(), path.display()
    )]
    TooPermissive {
        /// The file or folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// The permissions that it must have.
        wanted: u32,
    },
    /// It is a symbolic link.
    #[error("{} is a symbolic link, which is not followed: remove it", path.display())]
    Symlink {
        /// The symbolic link.
        path: PathBuf,
    },
    /// It is a file with several names.
    #[error("{} has other names (hard links): remove it, or copy it and put back the copy",
        path.display())]
    HardLinked {
        /// The file.
        path: PathBuf,
    },
    /// It is of another type than expected.
    #[error("{} is not {wanted}: move it away", path.display())]
    WrongType {
        /// The file or folder.
        path: PathBuf,
        /// The type that is expected, for a message: "a file".
        wanted: &'static str,
    },
    /// A system call failed.
    #[error("{doing} {} failed", path.display())]
    Io {
        /// The operation, for a message: "opening".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    /// Returns whether the file or folder does not exist (`ENOENT`).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether a file was to be created and the folder has its name (`EEXIST`).
    #[must_use]
    pub fn is_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    /// Returns the file or folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::WrongOwner { path, .. }
            | Self::TooPermissive { path, .. }
            | Self::Symlink { path }
            | Self::HardLinked { path }
            | Self::WrongType { path, .. }
            | Self::Io { path, .. } => path,
        }
    }

    /// Returns a description of the file that is there instead of an acceptable one, for a message:
    /// "a symbolic link"; `None` if a system call failed.
    #[must_use]
    pub const fn found(&self) -> Option<&'static str> {
        match self {
            Self::WrongOwner { .. } => Some("of another user"),
            Self::TooPermissive { .. } => Some("open to other users"),
            Self::Symlink { .. } => Some("a symbolic link"),
            Self::HardLinked { .. } => Some("a file with other names (hard links)"),
            Self::WrongType { .. } => Some("of another type"),
            Self::Io { .. } => None,
        }
    }
}

pub(crate) fn io_error(doing: &'static str, path: PathBuf, error: Errno) -> FolderError {
    FolderError::Io { doing, path, source: error.into() }
}
