//! The comment of a credential, which says where the volume is.

pub(crate) use pelago_keynote::share::printable;
use pelago_net::key::address::ServerAddress;
use pelago_wire::InodeId;

/// The first words of the lines of the comment.
const AT: &str = "at ";
const DIRECTORY: &str = "directory ";
const FILE: &str = "file ";
const IN: &str = " in ";
const NAME: &str = "name ";

/// The comment of a credential. It grants nothing, and its reader does not trust it: the machine at
/// the address proves that it has the key, and the signed conditions name the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// The address of the server, with its key.
    pub(crate) address: ServerAddress,
    /// The shared folder or file.
    pub(crate) object: InodeId,
    /// True for a folder.
    pub(crate) is_folder: bool,
    /// The parent of the object when the credential was written.
    pub(crate) parent: InodeId,
    /// The name of the object, with bytes other than printable ASCII written as `%XX`.
    pub(crate) name: String,
}

impl Whereabouts {
    /// Returns the lines of the comment.
    pub(crate) fn to_lines(&self) -> Vec<String> {
        let Self { address, object, is_folder, parent, name } = self;
        let kind = if *is_folder { DIRECTORY } else { FILE };
        vec![
            format!("a {kind}shared by pelago; `pelago attach FILE DIR` shows it"),
            format!("{AT}{address}"),
            format!("{kind}{:x}{IN}{:x}", object.raw(), parent.raw()),
            format!("{NAME}{name}"),
        ]
    }

    /// Returns the address in a comment.
    pub(crate) fn address_in(comment: &[String]) -> Option<ServerAddress> {
        comment.iter().find_map(|line| line.strip_prefix(AT)?.parse().ok())
    }

    /// Returns the object in a comment.
    pub(crate) fn object_in(comment: &[String]) -> Option<InodeId> {
        inode(Self::place_in(comment)?.0)
    }

    /// Returns the parent of the object in a comment.
    pub(crate) fn parent_in(comment: &[String]) -> Option<InodeId> {
        inode(Self::place_in(comment)?.1)
    }

    /// Returns the digits of the object and of its parent.
    fn place_in(comment: &[String]) -> Option<(&str, &str)> {
        let of_object = |line: &'_ String| -> Option<usize> {
            let prefix = [DIRECTORY, FILE].into_iter().find(|prefix| line.starts_with(prefix));
            prefix.map(str::len)
        };
        let found = comment.iter().find_map(|line| Some((line, of_object(line)?)));
        let (line, digits) = found?;
        line.get(digits..)?.split_once(IN)
    }

    /// Returns the bytes of the name in a comment.
    pub(crate) fn raw_name_in(comment: &[String]) -> Option<Vec<u8>> {
        raw(Self::name_in(comment)?)
    }

    /// Returns the name in a comment, for people.
    pub(crate) fn name_in(comment: &[String]) -> Option<&str> {
        let name = comment.iter().find_map(|line| line.strip_prefix(NAME));
        // With blanks in it the line for people could say something else.
        name.filter(|name| !name.contains([' ', '\t']))
    }
}

fn inode(digits: &str) -> Option<InodeId> {
    u64::from_str_radix(digits, 16).ok().map(InodeId::from_raw)
}

/// Returns the bytes that [`printable`] has written; `None` if it has not written the text.
pub(crate) fn raw(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        name.push(match byte {
            b'%' => {
                let digits = str::from_utf8(rest.get(..2)?).ok()?;
                rest = rest.get(2..)?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => *byte,
        });
    }
    (printable(&name) == text).then_some(name)
}

#[cfg(test)]
mod tests {
    use pelago_net::key::PrivateKey;

    use super::*;

    #[test]
    fn a_comment_says_where_the_volume_is() {
        let key = PrivateKey::from_seed([7; 32]).public();
        let address = ServerAddress::new(key, "10.0.0.1", 7440).unwrap();
        let object = InodeId::from_raw(0x2a);
        let name = printable("Ä b%".as_bytes());
        assert_eq!(name, "%C3%84%20b%25");
        let parent = InodeId::from_raw(0x1f);
        for is_folder in [true, false] {
            let name = name.clone();
            let address = address.clone();
            let lines = Whereabouts { address: address.clone(), object, is_folder, parent, name };
            let lines = lines.to_lines();
            assert_eq!(Whereabouts::address_in(&lines), Some(address));
            assert_eq!(Whereabouts::parent_in(&lines), Some(parent));
            assert_eq!(Whereabouts::name_in(&lines), Some("%C3%84%20b%25"));
            assert_eq!(Whereabouts::raw_name_in(&lines), Some("Ä b%".as_bytes().to_vec()));
            let is_printable =
                |line: &String| line.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            assert!(lines.iter().all(is_printable));
        }
    }

    #[test]
    fn a_name_has_one_text() {
        for text in ["%c3", "%4", "%", "%41", "%zz", "%+1"] {
            assert_eq!(raw(text), None, "{text}");
        }
        let all: Vec<u8> = (1..=255).collect();
        assert_eq!(raw(&printable(&all)), Some(all));
    }
}
