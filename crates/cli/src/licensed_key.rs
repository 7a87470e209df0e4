//! The private key that a credential names, in the files of this user.

use std::fmt;
use std::path::{Path, PathBuf};

use pelago_net::key::file::{self, KeyFileError};
use pelago_net::key::openssh::private::PrivateFileError;
use pelago_net::key::{PrivateKey, PublicKey};

use crate::failure::{Exit, Failure, Outcome};
use crate::verbs::key::own_key_path;

/// No file has the private half of the key.
#[derive(Debug, thiserror::Error)]
#[error("the credential is for {wanted}, and none of your files can be used as that key: {tried}")]
struct NotYours {
    wanted: PublicKey,
    tried: Tried,
}

/// The files that were read, with what each has.
#[derive(Debug)]
struct Tried(Vec<(PathBuf, Found)>);

/// The content of a file that was read for the key.
#[derive(Debug)]
enum Found {
    /// No file.
    Nothing,
    /// Another key.
    Other(PublicKey),
    /// The key, encrypted.
    Locked,
    /// A file that is not used.
    Failed(KeyFileError),
}

/// Returns the key of this user that is one of `licensees`: the own one, else that of OpenSSH.
pub(crate) fn licensed_key(licensees: &[PublicKey]) -> Outcome<PrivateKey> {
    let own = own_key_path()?;
    let openssh = file::openssh_path(|name| std::env::var_os(name)).filter(|path| *path != own);
    let mut tried = Vec::new();
    for path in std::iter::once(own).chain(openssh) {
        match file::read(&path) {
            Ok(key) if licensees.contains(&key.public()) => return Ok(key),
            read => {
                let found = Found::of(read, licensees);
                tried.push((path, found));
            }
        }
    }
    Err(not_yours(licensees, tried))
}

fn not_yours(licensees: &[PublicKey], tried: Vec<(PathBuf, Found)>) -> Failure {
    let Some(wanted) = licensees.first().copied() else {
        return Failure::new(Exit::Denied, NoLicensee).hint("ask for it again");
    };
    let is_locked = tried.iter().any(|(_, found)| matches!(found, Found::Locked));
    let failure = Failure::new(Exit::Denied, NotYours { wanted, tried: Tried(tried) });
    if is_locked {
        return failure.hint(
            "ask for a credential for a key without a passphrase: `pelago key new` makes one",
        );
    }
    failure.hint("set PELAGO_KEY to the file of that key, or ask for one for yours")
}

/// The credential is for no key.
#[derive(Debug, thiserror::Error)]
#[error("the credential is for nobody")]
struct NoLicensee;

impl Found {
    fn of(read: Result<PrivateKey, KeyFileError>, licensees: &[PublicKey]) -> Self {
        match read {
            Ok(key) => Self::Other(key.public()),
            Err(error) if error.is_missing() => Self::Nothing,
            Err(KeyFileError::OpenSsh {
                source: PrivateFileError::Passphrase { public }, ..
            }) if licensees.contains(&public) => Self::Locked,
            Err(error) => Self::Failed(error),
        }
    }

    fn write(&self, path: &Path, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = path.display();
        match self {
            Self::Nothing => write!(f, "{path} does not exist"),
            Self::Other(key) => write!(f, "{path} has {key}"),
            Self::Locked => {
                write!(f, "{path} has it, with a passphrase, which pelago does not ask for")
            }
            Self::Failed(error) => {
                write!(f, "{error}")?;
                let mut next = std::error::Error::source(error);
                while let Some(cause) = next {
                    write!(f, ": {cause}")?;
                    next = cause.source();
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(files) = self;
        for (number, (path, found)) in files.iter().enumerate() {
            f.write_str(if number > 0 { "; " } else { "" })?;
            found.write(path, f)?;
        }
        Ok(())
    }
}
