//! The errors of mirrors. Each message says what to do, or names the file.

use std::error::Error;
use std::path::PathBuf;

use pelago_store::folder::FolderError;
use pelago_store::rows::RowError;
use pelago_store::spool::SpoolError;
use pelago_store::volume::{VolumeError, VolumeId};
use pelago_store::{content, reserve, table};
use pelago_wire::codec::DecodeError;
use pelago_wire::{Kind, limits};

use crate::server::StartError;

/// The error of keeping or promoting a mirror.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MirrorError {
    /// The folder of a mirror cannot be opened or changed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A file or folder beside the mirrors cannot be opened or changed.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A relay offers the groups of a primary that is connected itself.
    #[error("the primary itself is connected to the mirror")]
    HasPrimary,
    /// The spool cannot be written or read.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The table of a mirror failed.
    #[error("the table of {} failed", path.display())]
    Table {
        /// The folder of the mirror.
        path: PathBuf,
        /// The error of the engine.
        #[source]
        source: table::Error,
    },
    /// A content file cannot be written.
    #[error(transparent)]
    Content(#[from] content::Error),
    /// Content files cannot be made safe.
    #[error(transparent)]
    Sync(#[from] content::SyncError),
    /// The reserve cannot be allocated.
    #[error("cannot allocate the reserve of disk space")]
    Reserve(#[from] reserve::Error),
    /// A row of a mirror is damaged.
    #[error("a row of {} is damaged: remove that folder, and its primary copies all again",
        path.display())]
    Damaged {
        /// The folder of the mirror.
        path: PathBuf,
        /// The damage.
        #[source]
        source: RowError,
    },
    /// A row is missing that the folder of a mirror, or any volume, must have.
    #[error("{} has no row {row}: remove that folder, and its primary copies all again",
        path.display())]
    NoRow {
        /// The folder of the mirror.
        path: PathBuf,
        /// The row.
        row: &'static str,
    },
    /// The mirror of another volume is in the folder.
    #[error("{} has the volume {found}: rename it to that", path.display())]
    OtherVolume {
        /// The folder.
        path: PathBuf,
        /// The volume that it has.
        found: VolumeId,
    },
    /// A body is no part of a group.
    #[error("the primary sent a message that is none")]
    Malformed(#[from] DecodeError),
    /// A part of a group does not fit those before it.
    #[error("the primary sent what does not fit: {0}")]
    Unfit(&'static str),
    /// There is no mirror of the volume.
    #[error("there is no mirror of the volume {volume} in {}", path.display())]
    Missing {
        /// The volume.
        volume: VolumeId,
        /// The folder with the mirrors.
        path: PathBuf,
    },
    /// The disk has no room for what a group changes.
    #[error(
        "{} has no room for a group of {bytes} bytes: free some on its file system, beyond {} MiB",
        path.display(),
        limits::RESERVE_BYTES >> 20
    )]
    NoRoom {
        /// The folder of the mirror.
        path: PathBuf,
        /// Bytes of the group.
        bytes: u64,
    },
    /// The mirror was promoted before.
    #[error("{} was promoted before, with the reign {reign}: serve it with `pelago serve {}`",
        path.display(), path.display())]
    Promoted {
        /// The folder of the mirror.
        path: PathBuf,
        /// Its reign.
        reign: u64,
    },
    /// The promotion of a mirror may have begun, and was cut short.
    #[error("the promotion of {} is not complete: it is when its primary connects again, or by \
        `pelago site promote` with --force", path.display())]
    Unfinished {
        /// The folder of the mirror.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<Self>,
    },
    /// The volume is a primary here, and has another primary.
    #[error("{} was promoted with the reign {reign}: if another primary has replaced it, \
        `pelago serve DIR --mirrors --adopt {}` makes it a mirror of that",
        path.display(), path.display())]
    WasPromoted {
        /// The folder of the mirror.
        path: PathBuf,
        /// Its reign.
        reign: u64,
    },
    /// The file that says that a mirror was promoted has no reign.
    #[error("{} has no reign: remove it if that mirror was never promoted",
        path.display())]
    NoReign {
        /// The file.
        path: PathBuf,
    },
    /// The folder that was to be adopted is that of a mirror.
    #[error("{} is a mirror already: leave out --adopt", path.display())]
    IsMirror {
        /// The folder.
        path: PathBuf,
    },
    /// The folder that was to be adopted has bytes of files of other sites.
    #[error("{} has bytes of files of other offices, which no mirror has: see `pelago conflicts`, \
        or give the new primary a mirror in another folder", path.display())]
    HasStays {
        /// The folder.
        path: PathBuf,
    },
    /// There is a folder where the adopted one belongs.
    #[error("{} is there already: move it away, or adopt into another folder of mirrors",
        path.display())]
    Taken {
        /// The folder in the way.
        path: PathBuf,
    },
    /// The folder is on another file system.
    #[error("{} is on another file system than {}: name a folder for mirrors beside it",
        path.display(), mirrors.display())]
    OtherFileSystem {
        /// The folder that was to be adopted.
        path: PathBuf,
        /// The folder of the mirrors.
        mirrors: PathBuf,
    },
    /// The folder that was to be adopted cannot be recovered.
    #[error("{} cannot be recovered, so it cannot become a mirror", path.display())]
    NotRecovered {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A copy was sent to a folder that has changes of its own.
    #[error("{} was the primary, and its own changes are not kept yet: it takes no copy",
        path.display())]
    NotKept {
        /// The folder.
        path: PathBuf,
    },
    /// An adoption was cut short: what the folder is cannot be told from its rows.
    #[error("the adoption of a folder was cut short: repeat `pelago serve DIR --mirrors --adopt \
        FOLDER`; if the folder is gone, remove {}", path.display())]
    HalfAdopted {
        /// The file that says so.
        path: PathBuf,
    },
    /// A primary offers itself to a folder that it has not replaced.
    #[error("{} was a primary of the reign {reign} too: which of both counts is not known",
        path.display())]
    SameReign {
        /// The folder.
        path: PathBuf,
        /// The reign of both.
        reign: u64,
    },
    /// There are more changes of its own than are listed.
    #[error("{} has more changes of its own than are listed: move it away, and its primary copies \
        all again", path.display())]
    TooManyChanges {
        /// The folder.
        path: PathBuf,
    },
    /// What only a replaced primary had cannot be written or read.
    #[error("{doing} {} failed", path.display())]
    Kept {
        /// The operation, for a message: "writing".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// There are no inode ids left for new files.
    #[error("{} has given out too many inode ids to be promoted: copy its files into a new volume",
        path.display())]
    Ids {
        /// The folder of the mirror.
        path: PathBuf,
    },
    /// Another process keeps the mirrors of this folder.
    #[error("another process keeps the mirrors in {}: stop it with `pelago unmount`",
        path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The server keeps as many mirrors as it can.
    #[error("the server keeps as many mirrors as it can have")]
    TooMany,
    /// The mirror cannot be read.
    #[error("{} cannot be read", path.display())]
    Readers {
        /// The folder of the mirror.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<StartError>,
    },
    /// A newer connection of the primary has replaced this one.
    #[error("another connection of the primary has taken the place of this one")]
    Superseded,
}

impl MirrorError {
    /// Returns the kind of the error, which says what the caller can do.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Volume(error) => error.kind(),
            Self::Readers { source, .. } => source.kind(),
            Self::Unfinished { source, .. } => source.kind(),
            Self::Missing { .. } => Kind::NotFound,
            Self::Promoted { .. }
            | Self::WasPromoted { .. }
            | Self::IsMirror { .. }
            | Self::Taken { .. } => Kind::Exists,
            Self::Malformed(_)
            | Self::Unfit(_)
            | Self::Ids { .. }
            | Self::OtherVolume { .. }
            | Self::HasStays { .. }
            | Self::OtherFileSystem { .. }
            | Self::NotKept { .. }
            | Self::SameReign { .. }
            | Self::HalfAdopted { .. }
            | Self::TooManyChanges { .. } => Kind::Invalid,
            Self::InUse { .. }
            | Self::TooMany
            | Self::NoRoom { .. }
            | Self::HasPrimary
            | Self::Superseded => Kind::Busy,
            Self::Folder(_)
            | Self::Spool(_)
            | Self::Table { .. }
            | Self::Content(_)
            | Self::Sync(_)
            | Self::Reserve(_)
            | Self::Damaged { .. }
            | Self::NoRow { .. }
            | Self::NotRecovered { .. }
            | Self::Kept { .. }
            | Self::NoReign { .. } => Kind::Corrupt,
        }
    }

    /// Returns the message, with those of its causes.
    #[must_use]
    pub fn says(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(&format!(": {error}"));
            cause = error.source();
        }
        text
    }

    /// Returns whether the connection ends without a reply: the primary broke the protocol, or must
    /// not believe that its mirror was not promoted.
    pub(super) const fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::Malformed(_) | Self::Unfit(_) | Self::Superseded | Self::Unfinished { .. }
        )
    }
}
