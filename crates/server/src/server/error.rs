//! The errors of a start and of a stop. Each message says what to do.

use std::io;
use std::path::{Path, PathBuf};

use pelago_store::owner::OwnerError;
use pelago_store::volume::{VolumeError, VolumeId};
use pelago_store::{content, reserve, table};
use pelago_wire::Kind;

use pelago_meta::recovery::RecoverError;

/// The error of a start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The volume cannot be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The table is damaged.
    #[error("the table of {} is damaged: restore a backup, or copy what is whole", path.display())]
    TableDamaged {
        /// The volume's folder.
        path: PathBuf,
        /// The damage.
        #[source]
        source: table::Error,
    },
    /// The disk is too full to start.
    #[error("no space left to start {}: free some on its file system", path.display())]
    Full {
        /// The volume's folder.
        path: PathBuf,
    },
    /// The table cannot be opened.
    #[error("cannot open the table of {}: the system log may say why", path.display())]
    Table {
        /// The volume's folder.
        path: PathBuf,
        /// The error of the engine or the system.
        #[source]
        source: table::Error,
    },
    /// The table belongs to another volume.
    #[error("the table in {} belongs to volume {found}, not to {wanted}: put back the right one",
        path.display())]
    ForeignTable {
        /// The volume's folder.
        path: PathBuf,
        /// The volume that the table belongs to.
        found: VolumeId,
        /// The volume that was to be started.
        wanted: VolumeId,
    },
    /// Rows that every volume needs are damaged or missing.
    #[error("{} is damaged and cannot be served: run `pelago check --apply`", path.display())]
    Damaged {
        /// The volume's folder.
        path: PathBuf,
        /// The damage.
        #[source]
        source: RecoverError,
    },
    /// The volume could not be recovered after a crash.
    #[error("cannot recover {} after a crash: the log says why", path.display())]
    Recover {
        /// The volume's folder.
        path: PathBuf,
        /// The error of the operation; its cause is in the log.
        #[source]
        source: pelago_wire::Error,
    },
    /// The folder was that of a site which has left its volume.
    #[error("{} was the folder of an office that has left its volume: remove it", path.display())]
    HasLeft {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of content files cannot be opened.
    #[error("cannot open the content files")]
    Content(#[from] content::Error),
    /// The reserve cannot be allocated.
    #[error("cannot allocate the reserve of disk space")]
    Reserve(#[from] reserve::Error),
    /// The shared store cannot be used.
    #[error(transparent)]
    Store(OwnerError),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
}

/// The error of a stop that was not clean. The next start recovers the volume.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// Changes of open files, or counts, could not be written to the table.
    #[error("cannot write the last changes")]
    Commit(#[source] pelago_wire::Error),
    /// The table could not be synced or closed.
    #[error("cannot make the last changes safe (sync or close the table)")]
    Table(#[source] table::Error),
    /// Content files could not be synced.
    #[error("cannot make the last bytes safe (sync the content files)")]
    Content(#[from] content::Error),
    /// The volume could not be marked as clean.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The shared store could not be given to another server.
    #[error(transparent)]
    Store(#[from] OwnerError),
}

impl StartError {
    /// Returns the kind of the error, which says what the caller must do and gives the exit code of
    /// the binary.
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
            Self::Store(error) => error.kind(),
            Self::HasLeft { .. } => Kind::Invalid,
            Self::Thread(_) => Kind::Busy,
        }
    }

    /// Returns whether the next try may succeed although no person has done anything: the store was
    /// full or away.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Content(_) | Self::Reserve(_) | Self::Thread(_) => true,
            Self::Table { source, .. } => matches!(source, table::Error::Io { .. }),
            Self::Volume(error) => {
                matches!(error, VolumeError::Io { .. } | VolumeError::StoreGone { .. })
            }
            Self::Store(error) => error.is_no_space() || matches!(error, OwnerError::Io { .. }),
            Self::TableDamaged { .. }
            | Self::HasLeft { .. }
            | Self::ForeignTable { .. }
            | Self::Damaged { .. }
            | Self::Recover { .. } => false,
        }
    }

    pub(crate) fn from_table(path: &Path, source: table::Error) -> Self {
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
