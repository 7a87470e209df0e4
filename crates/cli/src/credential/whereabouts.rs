//! The comment of a credential, which says where the volume is.

use std::fmt::Write as _;

use pelago_net::key::address::ServerAddress;
use pelago_wire::InodeId;

/// The first words of the lines of the comment.
const AT: &str = "at ";
const DIRECTORY: &str = "directory ";
const IN: &str = " in ";
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

impl Whereabouts {
    /// Returns the lines of the comment.
    pub(crate) fn to_lines(&self) -> Vec<String> {
        let Self { address, directory, parent, name } = self;
        let directory = format!("{DIRECTORY}{:x}{IN}{:x}", directory.raw(), parent.raw());
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

    /// Returns the parent of the directory in a comment.
    pub(crate) fn parent_in(comment: &[String]) -> Option<InodeId> {
        let line = comment.iter().find_map(|line| line.strip_prefix(DIRECTORY))?;
        let digits = line.split_once(IN)?.1;
        u64::from_str_radix(digits, 16).ok().map(InodeId::from_raw)
    }

    /// Returns the name in a comment, for people. It is never used as a path.
    pub(crate) fn name_in(comment: &[String]) -> Option<&str> {
        let name = comment.iter().find_map(|line| line.strip_prefix(NAME));
        // With blanks in it the line for people could say something else.
        name.filter(|name| !name.contains([' ', '\t']))
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
        let parent = InodeId::from_raw(0x1f);
        let lines = Whereabouts { address: address.clone(), directory, parent, name }.to_lines();
        assert_eq!(Whereabouts::address_in(&lines), Some(address));
        assert_eq!(Whereabouts::parent_in(&lines), Some(parent));
        assert_eq!(Whereabouts::name_in(&lines), Some("%C3%84%20b%25"));
        assert!(lines.iter().all(|line| line.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
    }
}
