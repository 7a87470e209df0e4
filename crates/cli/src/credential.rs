//! Credentials of the verbs `share`, `attach` and `revoke`: chains of them, the comment with the
//! volume's address, and the file or mail that contains a chain.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use pelago_keynote::{ArmorError, SharedName, SharedObject, armor, unarmor};
use pelago_net::key::address::ServerAddress;

pub(crate) use chain::{Chain, ChainError, Link, NarrowError, Wanted};
pub(crate) use whereabouts::{Whereabouts, printable, raw};
pub(crate) use words::{granted, until};

use crate::failure::{Exit, Failure, Outcome};

mod chain;
mod whereabouts;
mod words;

/// The limit for a file with a chain: a mail.
const FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error("{name} cannot be read")]
    File {
        name: String,
        #[source]
        source: io::Error,
    },
    #[error("{name} has no credential")]
    Armor {
        name: String,
        #[source]
        source: ArmorError,
    },
    #[error("{name}")]
    Chain {
        name: String,
        #[source]
        source: ChainError,
    },
    #[error("the credential does not say where the volume is")]
    NoAddress,
}

/// Reads the chain in a file, or in the standard input for `-`, and verifies its signatures. The
/// licensees of the last credential are not checked.
pub(crate) fn read(path: &Path) -> Outcome<Chain> {
    let is_input = is_input(path);
    let name = if is_input { "the input".to_owned() } else { path.display().to_string() };
    let invalid = |error| {
        Failure::new(Exit::Failed, error).hint("ask for it again, all lines from BEGIN to END")
    };
    let text = match is_input {
        true => text_of(io::stdin()),
        false => File::open(path).and_then(text_of),
    };
    let text = text.map_err(|source| {
        let exit = match source.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::Denied,
            _ => Exit::Failed,
        };
        Failure::new(exit, CredentialError::File { name: name.clone(), source })
    })?;
    let texts = unarmor(&text)
        .map_err(|source| invalid(CredentialError::Armor { name: name.clone(), source }))?;
    Chain::parse(&texts).map_err(|source| invalid(CredentialError::Chain { name, source }))
}

/// Returns whether a path is the standard input or a pipe, or a file with a credential, be that
/// whole or not.
pub(crate) fn is_in(path: &Path) -> bool {
    let is_pipe = || path.metadata().is_ok_and(|meta| meta.file_type().is_fifo());
    is_input(path) || is_pipe() || is_file(path)
}

/// Returns whether a path is a file with a credential, be that whole or not.
pub(crate) fn is_file(path: &Path) -> bool {
    let may_be = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= FILE_BYTES);
    let text = || File::open(path).and_then(text_of);
    may_be && text().is_ok_and(|text| text.contains(armor::BEGIN))
}

/// Returns whether a path is the standard input.
pub(crate) fn is_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn text_of(file: impl Read) -> io::Result<String> {
    let mut text = String::new();
    file.take(FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

impl Chain {
    /// Returns the name of the object, if it can be the name of a file: that in the signed
    /// conditions, else that in the comment.
    pub(crate) fn name(&self) -> Option<Vec<u8>> {
        let named = match &self.last.share.object {
            SharedObject::Name { name, .. } => Some(name.clone()),
            SharedObject::Folder(_) | SharedObject::File(_) => {
                let comment = self.last.credential.comment();
                Whereabouts::raw_name_in(comment).and_then(|bytes| SharedName::new(&bytes))
            }
        };
        named.map(|name| name.as_bytes().to_vec())
    }

    /// Returns the address of the volume's server.
    pub(crate) fn address(&self) -> Outcome<ServerAddress> {
        Whereabouts::address_in(self.last.credential.comment()).ok_or_else(|| {
            Failure::new(Exit::Failed, CredentialError::NoAddress)
                .hint("ask for one that `pelago share` has written")
        })
    }
}
