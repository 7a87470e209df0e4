//! Why a volume cannot be used, in a sentence that names the file and says what to do.

use std::io;
use std::path::{Path, PathBuf};

use pelago_wire::Kind;

use super::format::{FORMAT_VERSION, FormatFault};
use crate::folder::FolderError;

/// Why a volume cannot be used. Nothing was changed in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// There is none.
    #[error("{} is not a volume yet: make one with `pelago up`", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// There is one, and a new one was to be made.
    #[error("{} is a volume already: open it, or name another folder", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has files of somebody else.
    #[error(
        "{} is not a volume, and {found} is in it: name a volume, or a folder that is empty or \
         missing",
        path.display()
    )]
    NotAVolume {
        /// The folder.
        path: PathBuf,
        /// One of the files, for a person to read.
        found: String,
    },
    /// It is no folder.
    #[error("{} is not a folder: name a volume, or a folder that is empty or missing",
        path.display())]
    NotAFolder {
        /// What was named.
        path: PathBuf,
    },
    /// A newer program made it.
    #[error("{} has format {found}, and this pelago knows {known}: use a newer pelago",
        path.display())]
    Newer {
        /// The `format` file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that is known here.
        known: u32,
    },
    /// An older program made it.
    #[error("{} has format {found}, and this pelago knows only {known}: copy the files out with \
        the pelago that made it, and into a new volume", path.display())]
    Older {
        /// The `format` file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is known here.
        known: u32,
    },
    /// It needs abilities that this program does not have.
    #[error("{} needs features {unknown:#x}, which this pelago does not have: use a newer pelago",
        path.display())]
    Features {
        /// The `format` file.
        path: PathBuf,
        /// The feature bits that are not known here.
        unknown: u64,
    },
    /// A file of the volume is damaged or missing.
    #[error("{} is damaged ({what}): restore it from a backup of the volume, or make a new one",
        path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Another process has it open.
    #[error("{} is in use{}: unmount it there first", path.display(), by(*pid))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process, where it could be read.
        pid: Option<u32>,
    },
    /// The user may not use it.
    #[error("{} is not accessible: run as its owner, or change its permissions", path.display())]
    NoPermission {
        /// The file.
        path: PathBuf,
    },
    /// The medium takes no changes.
    #[error("{} is on a read-only file system: mount that one for writing", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The medium has no space left.
    #[error("no space left to write {}: free some on its file system", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// Other users can change something that has to be ours alone.
    #[error(transparent)]
    Refused(FolderError),
    /// The medium answered another error.
    #[error("{doing} {} failed: look into the system log, and run `pelago check`", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
}

impl VolumeError {
    /// What a caller must do about it; the binary's exit code follows from it.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Missing { .. } => Kind::NotFound,
            Self::Exists { .. } => Kind::Exists,
            Self::NotAVolume { .. }
            | Self::NotAFolder { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::Features { .. } => Kind::Invalid,
            Self::InUse { .. } | Self::Full { .. } => Kind::Busy,
            Self::NoPermission { .. } | Self::ReadOnly { .. } | Self::Refused(_) => Kind::Denied,
            Self::Damaged { .. } | Self::Io { .. } => Kind::Corrupt,
        }
    }

    pub(super) fn from_io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NoPermission { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            io::ErrorKind::NotADirectory => Self::NotAFolder { path },
            _ => Self::Io { doing, path, source },
        }
    }

    pub(super) fn from_fault(path: &Path, fault: FormatFault) -> Self {
        let path = path.to_path_buf();
        match fault {
            FormatFault::Version(found) => Self::Newer { path, found, known: FORMAT_VERSION },
            FormatFault::Older(found) => Self::Older { path, found, known: FORMAT_VERSION },
            FormatFault::Features(unknown) => Self::Features { path, unknown },
            FormatFault::Length => Self::Damaged { path, what: "its length is wrong" },
            FormatFault::Magic => Self::Damaged { path, what: "it does not begin as it must" },
            FormatFault::Checksum => Self::Damaged { path, what: "its checksum does not match" },
            FormatFault::Field => Self::Damaged { path, what: "a field is out of range" },
        }
    }
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

impl From<FolderError> for VolumeError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Io { doing, path, source } => Self::from_io(doing, &path, source),
            refused => Self::Refused(refused),
        }
    }
}
