//! The reasons for which a volume cannot be opened or created. Each message names the file and says
//! what to do.

use std::io;
use std::path::{Path, PathBuf};

use pelago_wire::Kind;

use super::format::{FORMAT_VERSION, FormatError, VolumeId, names_of_features};
use crate::folder::FolderError;

/// A failure to open or create a volume. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// The folder is missing, or has no volume.
    #[error("{} is not a volume yet: make one with `pelago up`", path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
    },
    /// A volume was to be created, and the folder has one.
    #[error("{} is a volume already: open it, or name another folder", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The folder has other files and no volume.
    #[error(
        "{} is not a volume, and {found} is in it: name a volume, or a folder that is empty or \
         missing",
        path.display()
    )]
    NotAVolume {
        /// The folder.
        path: PathBuf,
        /// The name of one of the files, escaped for a message.
        found: String,
    },
    /// The folder of a server of a shared store was to be made, and the folder is a volume.
    #[error("{} is a volume: a server of a shared store needs a folder of its own", path.display())]
    IsVolume {
        /// The folder.
        path: PathBuf,
    },
    /// The folder of a server of a shared store was to be made, and the folder has other files.
    #[error("{} is not the folder of a server, and {found} is in it: name one that is empty or \
         missing", path.display())]
    NotAServer {
        /// The folder.
        path: PathBuf,
        /// The name of one of the files, escaped for a message.
        found: String,
    },
    /// The folder is that of a server of another shared store.
    #[error(
        "{} is the folder of a server of the store {}: name that store, or another folder",
        path.display(), store.display()
    )]
    OtherStore {
        /// The folder.
        path: PathBuf,
        /// The folder of its store.
        store: PathBuf,
    },
    /// The folder of the store of a server has no volume any more.
    #[error(
        "{} has no volume, and this server belongs to one there: is its file system mounted? If \
         the store is lost, use another folder for the server", path.display()
    )]
    StoreGone {
        /// The folder of the store.
        path: PathBuf,
    },
    /// The folder of the store of a server has another volume.
    #[error(
        "{} has the volume {found}, and this server belongs to {wanted}: name its store, or use \
         another folder for the server", path.display()
    )]
    StoreOfOther {
        /// The folder of the store.
        path: PathBuf,
        /// The volume that is there.
        found: VolumeId,
        /// The volume of the server.
        wanted: VolumeId,
    },
    /// The path leads to something else than a folder.
    #[error("{} is not a folder: name a volume, or a folder that is empty or missing",
        path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// A newer program created the volume.
    #[error(
        "{} has format version {found}, and this pelago reads version {known}: use a newer pelago",
        path.display()
    )]
    Newer {
        /// The `format` file.
        path: PathBuf,
        /// The version of the volume.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// An older program created the volume.
    #[error(
        "{} has format version {found}, and this pelago reads version {known} only: copy the files \
         out with the pelago that created it, and into a new volume", path.display()
    )]
    Older {
        /// The `format` file.
        path: PathBuf,
        /// The version of the volume.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// The volume needs features that this program does not have.
    #[error("{} needs what this pelago does not have ({}): use a newer pelago",
        path.display(), names_of_features(*unknown))]
    UnknownFeatures {
        /// The `format` file.
        path: PathBuf,
        /// The bits of these features.
        unknown: u64,
    },
    /// The folder is that of a mirror, or of a primary that was replaced.
    #[error(
        "{} is not the primary of its volume: it is a mirror, which `pelago site promote` makes \
         the primary, or was the primary until its mirror was promoted: then \
         `pelago serve DIR --mirrors --adopt {}` makes it a mirror of that", path.display(),
        path.display()
    )]
    NotPrimary {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is a shared store, and was to be opened as the volume of one server.
    #[error(
        "{} is a shared store: `pelago serve DIR --store {}` serves it, with another folder as DIR",
        path.display(), path.display()
    )]
    SharedStore {
        /// The folder.
        path: PathBuf,
    },
    /// The folder is the volume of one server, and was to be opened as a shared store.
    #[error(
        "{} is the volume of one server and no shared store: serve it with `pelago up`, or name \
         another folder for the store", path.display()
    )]
    NotShared {
        /// The folder.
        path: PathBuf,
    },
    /// The shared store has, or would get, a number of shards that this program does not know.
    #[error("{} has {found} shards, and this pelago knows stores of one only: use a newer pelago",
        path.display())]
    Shards {
        /// The `format` file, or the folder.
        path: PathBuf,
        /// The number of shards.
        found: u16,
    },
    /// The volume hashes names in a way that this program does not know.
    #[error(
        "{} has the hash {found} ({name}), and this pelago knows 1 and 2 only: use a newer pelago",
        path.display()
    )]
    UnknownHash {
        /// The file of the seed.
        path: PathBuf,
        /// The number of the hash.
        found: u32,
        /// The kind of volumes that have it.
        name: &'static str,
    },
    /// A file of the volume is damaged or missing.
    #[error("{} is damaged ({what}): restore a backup, or copy what is whole", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The damage, for a message.
        what: &'static str,
    },
    /// Another process has the volume open.
    #[error("{} is in use{}: unmount it there first", path.display(), by_process(*pid))]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The id of the process, if it is known.
        pid: Option<u32>,
    },
    /// The user of this process has no permission.
    #[error("{} is not accessible: run as its owner, or change its permissions", path.display())]
    PermissionDenied {
        /// The file.
        path: PathBuf,
    },
    /// The file system is read-only.
    #[error("{} is on a read-only file system: remount that file system read-write",
        path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file system is full, or a quota is used up.
    #[error("no space left to write {}: free some on its file system", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
    },
    /// Other users could read or change a file that must belong to this user alone.
    #[error(transparent)]
    Insecure(FolderError),
    /// Another system call failed.
    #[error("{doing} {} failed: look at the system log (`dmesg`), and run `pelago check`",
        path.display())]
    Io {
        /// The operation, for a message: "reading".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

impl VolumeError {
    /// Returns what the caller can do about the error. The exit code of the binary follows from it.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Missing { .. } => Kind::NotFound,
            Self::Exists { .. } => Kind::Exists,
            Self::NotAVolume { .. }
            | Self::NotAFolder { .. }
            | Self::Newer { .. }
            | Self::Older { .. }
            | Self::UnknownFeatures { .. }
            | Self::NotPrimary { .. }
            | Self::SharedStore { .. }
            | Self::NotShared { .. }
            | Self::IsVolume { .. }
            | Self::NotAServer { .. }
            | Self::OtherStore { .. }
            | Self::StoreGone { .. }
            | Self::StoreOfOther { .. }
            | Self::Shards { .. }
            | Self::UnknownHash { .. } => Kind::Invalid,
            Self::InUse { .. } | Self::NoSpace { .. } => Kind::Busy,
            Self::PermissionDenied { .. } | Self::ReadOnly { .. } | Self::Insecure(_) => {
                Kind::Denied
            }
            Self::Corrupt { .. } | Self::Io { .. } => Kind::Corrupt,
        }
    }

    pub(super) fn from_io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::PermissionDenied { path },
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { path },
            io::ErrorKind::NotADirectory => Self::NotAFolder { path },
            _ => Self::Io { doing, path, source },
        }
    }

    pub(super) fn from_format(path: &Path, error: FormatError) -> Self {
        let path = path.to_path_buf();
        match error {
            FormatError::Newer(found) => Self::Newer { path, found, known: FORMAT_VERSION },
            FormatError::Older(found) => Self::Older { path, found, known: FORMAT_VERSION },
            FormatError::UnknownFeatures(unknown) => Self::UnknownFeatures { path, unknown },
            FormatError::Shards(found) => Self::Shards { path, found },
            FormatError::Length => Self::Corrupt { path, what: "its length is wrong" },
            FormatError::Magic => {
                Self::Corrupt { path, what: "its first bytes are not those of a volume" }
            }
            FormatError::Checksum => Self::Corrupt { path, what: "its checksum does not match" },
            FormatError::Field => Self::Corrupt { path, what: "a field is out of range" },
        }
    }
}

fn by_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

impl From<FolderError> for VolumeError {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Io { doing, path, source } => Self::from_io(doing, &path, source),
            insecure => Self::Insecure(insecure),
        }
    }
}
