//! What can go wrong between the file system and its engine.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a table could not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The medium has no space left. Nothing was applied.
    #[error("no space left for the table")]
    Full,
    /// The medium answered an error.
    #[error("the table's medium failed while {doing}")]
    Io {
        /// What was tried, for a person to read.
        doing: &'static str,
        /// What the system answered.
        #[source]
        source: Arc<io::Error>,
    },
    /// What is on the medium is not what was written.
    #[error("the table is damaged at {place}: {what}")]
    Corrupt {
        /// The file.
        place: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The table was opened again since the snapshot was taken.
    #[error("the snapshot is of the table before it was opened again")]
    Stale,
    /// Another process, or another table of this one, has the table open.
    #[error("the table at {place} is in use")]
    InUse {
        /// The file that is locked.
        place: PathBuf,
    },
    /// Rows to ingest were not sorted, repeated a key, or named a row that exists.
    #[error("rows to ingest are not sorted, or one exists already")]
    Unsorted,
    /// A write failed earlier; the table must be opened again.
    #[error("the table stopped after a failed write and was not opened again yet")]
    Stopped,
}

impl Error {
    /// An [`Error::Io`], or [`Error::Full`] where that is what the system said.
    #[must_use]
    pub fn from_io(doing: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Io { doing, source: Arc::new(source) },
        }
    }

    /// Names a place below `home` as one below `folder`, which a person can find.
    #[must_use]
    pub(crate) fn shown(self, home: &Path, folder: &Path) -> Self {
        let shown = |place: PathBuf| match place.strip_prefix(home) {
            Ok(below) => folder.join(below),
            Err(_) => place,
        };
        match self {
            Self::Corrupt { place, what } => Self::Corrupt { place: shown(place), what },
            Self::InUse { place } => Self::InUse { place: shown(place) },
            error => error,
        }
    }
}
