//! Errors of a table.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failure of a call of a table.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system is full, or a quota is used up. Nothing was applied.
    #[error("no space left for the table")]
    NoSpace,
    /// A system call failed.
    #[error("{doing} failed")]
    Io {
        /// The operation, for a message: "syncing the journal".
        doing: &'static str,
        /// The error of the system call.
        #[source]
        source: Arc<io::Error>,
    },
    /// A file of the table is damaged: it does not hold what was written to it.
    #[error("the table is damaged at {path}: {what}")]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// The damage, for a message.
        what: String,
    },
    /// The table was reopened since the snapshot was taken. Take another.
    #[error("the table was reopened since the snapshot was taken")]
    StaleSnapshot,
    /// The table is open already, in this process or another.
    #[error("the table at {path} is in use")]
    InUse {
        /// The locked file.
        path: PathBuf,
    },
    /// Rows to ingest are not sorted, repeat a key, or are in the table already.
    #[error("rows to ingest are not sorted, or one is in the table already")]
    Unsorted,
    /// Another process owns the shard now. What was not safe is not in its table, and this one is
    /// never opened again.
    #[error("another server has taken the table over")]
    Fenced,
    /// The table stopped after a failed write. [`super::Table::reopen`] starts it again.
    #[error("the table stopped after a failed write and was not reopened yet")]
    Stopped,
}

impl Error {
    /// Returns [`Error::NoSpace`] for `ENOSPC` and `EDQUOT`, and [`Error::Io`] for other errors.
    #[must_use]
    pub fn from_io(doing: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Io { doing, source: Arc::new(source) },
        }
    }

    /// Replaces the folder `from` of a path by `to`, which a person can find.
    #[must_use]
    pub(crate) fn with_folder(self, from: &Path, to: &Path) -> Self {
        let moved = |path: PathBuf| match path.strip_prefix(from) {
            Ok(below) => to.join(below),
            Err(_) => path,
        };
        match self {
            Self::Corrupt { path, what } => Self::Corrupt { path: moved(path), what },
            Self::InUse { path } => Self::InUse { path: moved(path) },
            error => error,
        }
    }
}
