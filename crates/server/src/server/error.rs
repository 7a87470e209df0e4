//! Why a server does not start, or does not end well, in a sentence that says what to do.

use std::io;
use std::path::{Path, PathBuf};

use pelago_store::volume::{VolumeError, VolumeId};
use pelago_store::{content, reserve, table};
use pelago_wire::Kind;

use pelago_meta::recovery::RecoverError;

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The volume cannot be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The table is damaged.
    #[error("the table of {} is damaged: run `pelago check`, or restore a backup", path.display())]
    TableDamaged {
        /// The volume's folder.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: table::Error,
    },
    /// There is no space to start.
    #[error("no space left to start {}: free some on its file system", path.display())]
    Full {
        /// The volume's folder.
        path: PathBuf,
    },
    /// The table cannot be opened.
    #[error("the table of {} cannot be opened: look into the system log", path.display())]
    Table {
        /// The volume's folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: table::Error,
    },
    /// The table is another volume's.
    #[error("the table in {} belongs to volume {found}, not to {wanted}: put back the right one",
        path.display())]
    ForeignTable {
        /// The volume's folder.
        path: PathBuf,
        /// Whose table it is.
        found: VolumeId,
        /// Whose it should be.
        wanted: VolumeId,
    },
    /// Rows without which nothing can be served are damaged.
    #[error("{} cannot be served as it is: run `pelago check --apply`", path.display())]
    Damaged {
        /// The volume's folder.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: RecoverError,
    },
    /// What a crash has left could not be recovered.
    #[error("what a crash has left in {} cannot be recovered: the log says why", path.display())]
    Recover {
        /// The volume's folder.
        path: PathBuf,
        /// What failed.
        #[source]
        source: pelago_wire::Error,
    },
    /// The content files cannot be read.
    #[error("the content files cannot be opened")]
    Content(#[from] content::Error),
    /// The reserve cannot be kept.
    #[error("space cannot be reserved")]
    Reserve(#[from] reserve::Error),
    /// The system gives no thread.
    #[error("a thread cannot be started")]
    Thread(#[from] io::Error),
}

/// Why a server did not end well. The next start recovers the volume.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// What was open, or the last counts, could not be written.
    #[error("the last changes could not be written")]
    Commit(#[source] pelago_wire::Error),
    /// The table could not be made safe or closed.
    #[error("the last changes could not be made safe")]
    Table(#[source] table::Error),
    /// Bytes could not be made safe.
    #[error("the last bytes could not be made safe")]
    Content(#[from] content::Error),
    /// The volume could not be marked as clean.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl StartError {
    /// What a caller must do about it; the binary's exit code follows from it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Volume(error) => error.kind(),
            Self::TableDamaged { .. } | Self::Damaged { .. } => Kind::Corrupt,
            Self::ForeignTable { .. } => Kind::Corrupt,
            Self::Full { .. } => Kind::Busy,
            Self::Table { source: table::Error::InUse { .. }, .. } => Kind::Busy,
            Self::Table { .. } | Self::Reserve(_) => Kind::Corrupt,
            Self::Recover { source, .. } => source.kind(),
            Self::Content(error) if error.is_read_only() => Kind::Denied,
            Self::Content(_) => Kind::Corrupt,
            Self::Thread(_) => Kind::Busy,
        }
    }

    pub(super) fn from_table(path: &Path, source: table::Error) -> Self {
        let path = path.to_path_buf();
        match source {
            table::Error::NoSpace => Self::Full { path },
            table::Error::Corrupt { .. } => Self::TableDamaged { path, source },
            _ => Self::Table { path, source },
        }
    }

    pub(super) fn from_recover(path: &Path, error: RecoverError) -> Self {
        match error {
            RecoverError::Table(source) => Self::from_table(path, source),
            RecoverError::Foreign { found, wanted } => {
                Self::ForeignTable { path: path.to_path_buf(), found, wanted }
            }
            source => Self::Damaged { path: path.to_path_buf(), source },
        }
    }
}
