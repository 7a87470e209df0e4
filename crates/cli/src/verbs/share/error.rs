//! The errors of `share`.

use std::io;
use std::path::{Path, PathBuf};

use pelago_keynote::{ArmorError, AssertionError, WriteError};
use pelago_net::key::PublicKey;

use crate::control::AskError;
use crate::credential::{ChainError, NarrowError};
use crate::failure::{Exit, Failure};
use crate::key_argument::KeyArgumentError;
use crate::moment::MomentError;

#[derive(Debug, thiserror::Error)]
pub(super) enum ShareError {
    #[error("KEY is not a public key")]
    To(#[source] KeyArgumentError),
    #[error("the time of `--until` cannot be used")]
    Until(#[source] MomentError),
    #[error("the time of `--until`, {0}, is past")]
    Past(String),
    #[error("a folder that was attached has the address of its server: `--at` changes nothing")]
    At,
    #[error("{} is not in the mount of a volume that this machine serves", .0.display())]
    NotHere(PathBuf),
    #[error("the process of the mount {} does not say what was granted to you", point.display())]
    Silent {
        point: PathBuf,
        #[source]
        source: AskError,
    },
    #[error("the credentials of the mount cannot be used")]
    Mounted(#[source] ChainError),
    #[error("{} cannot be shared", path.display())]
    Narrow {
        path: PathBuf,
        #[source]
        source: NarrowError,
    },
    #[error("{} cannot be shared on", path.display())]
    TooLong {
        path: PathBuf,
        #[source]
        source: ArmorError,
    },
    #[error("{} cannot be examined", path.display())]
    Examined {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is a credential", .0.display())]
    Credential(PathBuf),
    #[error("{} is neither a folder nor a regular file", .0.display())]
    NotShared(PathBuf),
    #[error("{} is a folder: only a file is shared by its name", .0.display())]
    FolderByName(PathBuf),
    #[error("{} was shared with you as this file, and not by its name", .0.display())]
    FileByName(PathBuf),
    #[error("{} has names that were attached one by one, and is no folder itself", .0.display())]
    Names(PathBuf),
    #[error("{} cannot be shared by its name", .0.display())]
    NoName(PathBuf),
    #[error("{} has its home in another office", .0.display())]
    Elsewhere(PathBuf),
    #[error("{} is served in the office {office}: `--at` changes nothing", path.display())]
    AtElsewhere { path: PathBuf, office: String },
    #[error("{} is served in the office {office}, which guests cannot reach", path.display())]
    Unreachable { path: PathBuf, office: String },
    #[error("your key {0} is no root of the first office, whose roots count in all")]
    NotOfFirst(PublicKey),
    #[error("your key {0} is not a root of this volume")]
    NoRoot(PublicKey),
    #[error("the volume's file `policy` cannot be used")]
    Policy(#[source] AssertionError),
    #[error(transparent)]
    Written(#[from] WriteError),
}

pub(super) fn written_failed(error: WriteError) -> Failure {
    Failure::new(Exit::Failed, ShareError::Written(error))
}

pub(super) fn not_here(path: PathBuf) -> Failure {
    Failure::new(Exit::NotFound, ShareError::NotHere(path)).hint(
        "run it on the machine of the volume, with a path in its mount, or in a folder that you \
         have attached",
    )
}

pub(super) fn elsewhere(path: &Path) -> Failure {
    Failure::new(Exit::Usage, ShareError::Elsewhere(path.to_owned()))
        .hint("share it in the office in which it was made")
}
