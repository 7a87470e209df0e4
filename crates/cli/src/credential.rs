//! Credentials of the verbs `share`, `attach` and `revoke`: the comment with the volume's address,
//! and the file or mail that contains a credential.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pelago_keynote::{
    ArmorError, Assertion, AssertionError, Authorizer, Principal, SharedFolder, SharedFolderError,
    unarmor,
};
use pelago_net::key::PublicKey;
use pelago_net::key::address::ServerAddress;
use pelago_wire::InodeId;

use crate::failure::{Exit, Failure, Outcome};

/// The limit for a file with a credential: a mail.
const FILE_BYTES: u64 = 1 << 20;
/// The first words of the lines of the comment.
const AT: &str = "at ";
const DIRECTORY: &str = "directory ";
const NAME: &str = "name ";

/// The comment of a credential. It grants nothing, and its reader does not trust it: the machine at
/// the address proves that it has the key, and the signed conditions name the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// The address of the server, with its key.
    pub(crate) address: ServerAddress,
    /// The shared directory.
    pub(crate) directory: InodeId,
    /// The parent of the directory when the credential was written.
    pub(crate) parent: InodeId,
    /// The name of the directory, with bytes other than printable ASCII written as `%XX`.
    pub(crate) name: String,
}

/// A credential that was read from a file or the input.
#[derive(Debug)]
pub(crate) struct Received {
    /// The texts of the chain, which are presented to the server.
    pub(crate) chain: Vec<Vec<u8>>,
    /// The last credential of the chain.
    pub(crate) credential: Assertion,
    /// The folder that the credential grants.
    pub(crate) share: SharedFolder,
}

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
    #[error("{name} has a credential that cannot be used")]
    Text {
        name: String,
        #[source]
        source: AssertionError,
    },
    #[error("{name} has a credential that cannot be used")]
    Form {
        name: String,
        #[source]
        source: SharedFolderError,
    },
    #[error("{0} has a chain of several credentials: this version of pelago takes one")]
    Chain(String),
    #[error("{0} has a credential whose signature is wrong: it was changed, or is cut")]
    Signature(String),
    #[error("the credential does not say where the volume is")]
    NoAddress,
}

impl Whereabouts {
    /// Returns the lines of the comment.
    pub(crate) fn to_lines(&self) -> Vec<String> {
        let Self { address, directory, parent, name } = self;
        let directory = format!("{DIRECTORY}{:x} in {:x}", directory.raw(), parent.raw());
        vec![
            "a directory shared by pelago; `pelago attach FILE DIR` shows it".to_owned(),
            format!("{AT}{address}"),
            directory,
            format!("{NAME}{name}"),
        ]
    }

    /// Returns the address in a comment.
    pub(crate) fn address_in(comment: &[String]) -> Option<ServerAddress> {
        comment.iter().find_map(|line| line.strip_prefix(AT)?.parse().ok())
    }

    /// Returns the name in a comment, for people. It is never used as a path.
    pub(crate) fn name_in(comment: &[String]) -> Option<&str> {
        comment.iter().find_map(|line| line.strip_prefix(NAME))
    }
}

/// Returns a name as printable ASCII without blanks.
pub(crate) fn printable(name: &[u8]) -> String {
    let mut text = String::new();
    for byte in name {
        match byte {
            b'!'..=b'~' if *byte != b'%' => text.push(char::from(*byte)),
            byte => {
                let _infallible = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

/// Reads the credential in a file, or in the standard input for `-`, and verifies its signature.
/// The licensees are not checked.
pub(crate) fn read(path: &Path) -> Outcome<Received> {
    let is_input = path.as_os_str() == "-";
    let name = if is_input { "the input".to_owned() } else { path.display().to_string() };
    let invalid = |error| {
        Failure::new(Exit::Failed, error).hint("ask for it again, all lines from BEGIN to END")
    };
    let mut text = String::new();
    let read = match is_input {
        true => io::stdin().take(FILE_BYTES).read_to_string(&mut text),
        false => File::open(path).and_then(|file| file.take(FILE_BYTES).read_to_string(&mut text)),
    };
    read.map_err(|source| {
        let exit = match source.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::PermissionDenied => Exit::Denied,
            _ => Exit::Failed,
        };
        Failure::new(exit, CredentialError::File { name: name.clone(), source })
    })?;
    let texts = unarmor(&text)
        .map_err(|source| invalid(CredentialError::Armor { name: name.clone(), source }))?;
    let [text] = texts.as_slice() else { return Err(invalid(CredentialError::Chain(name))) };
    let credential = Assertion::parse(text.as_bytes())
        .map_err(|source| invalid(CredentialError::Text { name: name.clone(), source }))?;
    if credential.verify().is_err() {
        return Err(invalid(CredentialError::Signature(name)));
    }
    let share = SharedFolder::of(&credential)
        .map_err(|source| invalid(CredentialError::Form { name, source }))?;
    let chain = texts.iter().map(|text| text.clone().into_bytes()).collect();
    Ok(Received { chain, credential, share })
}

impl Received {
    /// Returns the key that has signed the credential.
    pub(crate) fn signer(&self) -> Option<PublicKey> {
        match self.credential.authorizer() {
            Authorizer::Key(Principal(key)) => Some(PublicKey::new(*key)),
            Authorizer::Policy => None,
        }
    }

    /// Returns the keys that may use the credential.
    pub(crate) fn licensees(&self) -> Vec<PublicKey> {
        self.credential.licensees().iter().map(|Principal(key)| PublicKey::new(*key)).collect()
    }

    /// Returns the address of the volume's server.
    pub(crate) fn address(&self) -> Outcome<ServerAddress> {
        Whereabouts::address_in(self.credential.comment()).ok_or_else(|| {
            Failure::new(Exit::Failed, CredentialError::NoAddress)
                .hint("ask for one that `pelago share` has written")
        })
    }
}

#[cfg(test)]
mod tests {
    use pelago_net::key::PrivateKey;

    use super::*;

    #[test]
    fn a_comment_says_where_the_volume_is() {
        let key = PrivateKey::from_seed([7; 32]).public();
        let address = ServerAddress::new(key, "10.0.0.1", 7440).unwrap();
        let directory = InodeId::from_raw(0x2a);
        let name = printable("Ä b%".as_bytes());
        assert_eq!(name, "%C3%84%20b%25");
        let parent = InodeId::ROOT;
        let lines = Whereabouts { address: address.clone(), directory, parent, name }.to_lines();
        assert_eq!(Whereabouts::address_in(&lines), Some(address));
        assert_eq!(Whereabouts::name_in(&lines), Some("%C3%84%20b%25"));
        assert!(lines.iter().all(|line| line.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
    }
}
