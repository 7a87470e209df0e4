//! The reasons for which a process does not own, or no longer owns, a shared store.

use std::io;
use std::path::{Path, PathBuf};

use pelago_wire::Kind;

use crate::folder::FolderError;
use crate::table;

/// A failure of a call about the ownership of a shared store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// Another process took this one for dead, and has renamed away the file that the call renames.
    #[error("another server has taken the store over")]
    Fenced,
    /// The process was told to stop while the store did not answer.
    #[error("the store did not answer until this server was stopped")]
    Stopped,
    /// The store lacks an operation that the servers rely on.
    #[error("{} cannot be a shared store ({what}): use another file system", path.display())]
    Unfit {
        /// The folder.
        path: PathBuf,
        /// The missing operation, for a message.
        what: &'static str,
    },
    /// Something in the folder is damaged or missing.
    #[error("{} is damaged ({what}): restore a backup, or copy what is whole", path.display())]
    Corrupt {
        /// The file or folder.
        path: PathBuf,
        /// The damage, for a message.
        what: String,
    },
    /// The store is full, or a quota is used up.
    #[error("no space left to write {}: free some on the store", path.display())]
    NoSpace {
        /// The file or folder.
        path: PathBuf,
    },
    /// A text or name cannot be written to the store.
    #[error("{what} cannot be recorded in the store")]
    Invalid {
        /// The text.
        what: &'static str,
    },
    /// Other users could change a file that must belong to this user alone.
    #[error(transparent)]
    Insecure(FolderError),
    /// The files of a table cannot be taken over.
    #[error(transparent)]
    Table(#[from] table::Error),
    /// A system call failed. The call can be repeated.
    #[error("{doing} {} failed", path.display())]
    Io {
        /// The operation, for a message: "reading".
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

impl OwnerError {
    /// Returns what the caller can do about the error.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Fenced => Kind::Fenced,
            Self::Stopped | Self::NoSpace { .. } => Kind::Busy,
            Self::Unfit { .. } | Self::Invalid { .. } => Kind::Invalid,
            Self::Insecure(_) => Kind::Denied,
            Self::Table(table::Error::NoSpace) => Kind::Busy,
            Self::Table(table::Error::Fenced) => Kind::Fenced,
            Self::Corrupt { .. } | Self::Table(_) | Self::Io { .. } => Kind::Corrupt,
        }
    }

    /// Returns whether the store is full.
    #[must_use]
    pub const fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::Table(table::Error::NoSpace))
    }

    pub(super) fn from_io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path },
            _ => Self::Io { doing, path, source },
        }
    }

    pub(super) fn corrupt(path: &Path, what: &str) -> Self {
        Self::Corrupt { path: path.to_path_buf(), what: what.to_owned() }
    }
}

impl From<FolderError> for OwnerError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Io { doing, path, source } => Self::from_io(doing, &path, source),
            insecure => Self::Insecure(insecure),
        }
    }
}
