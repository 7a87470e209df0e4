//! The list of clients in its file: read as a whole, and replaced as a whole.

use std::path::PathBuf;

use pelago_wire::{Kind, limits};

use super::{ChangeError, Clients, ClientsError};
use crate::own_file::{FileStamp, OwnFile, OwnFileError, Readers};

/// The reason for which a list of clients is not read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientsFileError {
    /// The file is open to others, is being changed, or a system call failed.
    #[error(transparent)]
    File(#[from] OwnFileError),
    /// A line is wrong.
    #[error("{} cannot be used", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// The line.
        #[source]
        source: ClientsError,
    },
    /// The change does not fit the list.
    #[error(transparent)]
    Change(#[from] ChangeError),
}

impl ClientsFileError {
    /// Returns what the caller can do about the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::File(error) => error.kind(),
            Self::Text { .. } => Kind::Invalid,
            Self::Change(ChangeError::NameTaken { .. }) => Kind::Exists,
            Self::Change(ChangeError::Full) => Kind::Busy,
            Self::Change(ChangeError::NotListed { .. }) => Kind::NotFound,
        }
    }
}

/// Reads the list. A missing file is an empty list.
///
/// # Errors
/// [`ClientsFileError`].
pub fn read(file: &OwnFile) -> Result<Clients, ClientsFileError> {
    read_with_stamp(file).map(|(clients, _)| clients)
}

/// Changes the list, and returns what `change` returns. The file is replaced at once and is safe
/// when this returns; of two processes that change it, one waits for the other. Nothing is written
/// if nothing changed, or if `change` fails.
///
/// # Errors
/// [`ClientsFileError`]; nothing changed then.
pub fn edit<T>(
    file: &OwnFile,
    change: impl FnOnce(&mut Clients) -> Result<T, ChangeError>,
) -> Result<T, ClientsFileError> {
    let edit = file.edit()?;
    let mut clients = read(file)?;
    let before = clients.clone();
    let result = change(&mut clients)?;
    if clients != before {
        edit.finish(&clients.to_text())?;
    }
    Ok(result)
}

/// Reads the list, and the stamp of the file if there is one.
pub(super) fn read_with_stamp(
    file: &OwnFile,
) -> Result<(Clients, Option<FileStamp>), ClientsFileError> {
    let (text, stamp) = match file.read(Readers::Everybody, limits::CLIENTS_BYTES) {
        Err(OwnFileError::Missing { .. }) => return Ok((Clients::default(), None)),
        read => read?,
    };
    let clients = Clients::parse(&text).map_err(|source| {
        let path = file.path().to_owned();
        ClientsFileError::Text { path, source }
    })?;
    Ok((clients, Some(stamp)))
}

/// Returns the stamp of the file, if there is one.
pub(super) fn stamp(file: &OwnFile) -> Result<Option<FileStamp>, OwnFileError> {
    match file.stamp(Readers::Everybody) {
        Err(OwnFileError::Missing { .. }) => Ok(None),
        stamp => stamp.map(Some),
    }
}
