//! The object of a share: a folder, a file, or a name.

use std::fmt::{self, Display, Formatter, Write as _};

use super::attribute;
use crate::conditions::{Relation, StringExpr, Test};

/// The limit for a name in bytes, as for each name of a volume.
const NAME_BYTES: usize = 255;

/// The object of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedObject {
    /// The directory with this inode number, and all below it.
    Folder(u64),
    /// The file with this inode number, under all its names and wherever it is.
    File(u64),
    /// The file that has this name at the moment.
    Name {
        /// The inode number of the directory in which it is.
        directory: u64,
        /// The name.
        name: SharedName,
    },
}

/// A name by which a file is shared: 1 to 255 bytes, none of them a control character or a slash,
/// and neither `.` nor `..`. So it can be the name of a file wherever it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedName(Vec<u8>);

impl SharedName {
    /// Returns the name with these bytes; `None` if they are none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let is_name = (1..=NAME_BYTES).contains(&bytes.len())
            && !bytes.iter().any(|byte| byte.is_ascii_control() || *byte == b'/')
            && !matches!(bytes, b"." | b"..");
        is_name.then(|| Self(bytes.to_vec()))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Display for SharedName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl SharedObject {
    /// Returns the inode number in the conditions: that of the folder, the file, or the directory
    /// of the name.
    #[must_use]
    pub const fn inode(&self) -> u64 {
        match self {
            Self::Folder(ino) | Self::File(ino) | Self::Name { directory: ino, .. } => *ino,
        }
    }

    /// Adds the tests that an object is this one.
    pub(super) fn add_to(&self, tests: &mut Vec<Test>) {
        match self {
            Self::Folder(ino) => {
                tests.push(Test::matches(attribute::ANCESTORS, &format!("/{ino:x}/")));
            }
            Self::File(ino) => tests.push(Test::equals(attribute::OBJECT, &format!("{ino:x}"))),
            Self::Name { directory, name } => {
                tests.push(Test::matches(attribute::ANCESTORS, &format!("/{directory:x}/$")));
                tests.push(Test::Strings(
                    StringExpr::attribute(attribute::NAME),
                    Relation::Equal,
                    StringExpr::Literal(name.0.clone()),
                ));
            }
        }
    }

    /// Returns the object of a test that needs no other one: a folder or a file.
    pub(super) fn of_test(test: &Test) -> Option<Self> {
        match test.as_match() {
            Some((attribute::ANCESTORS, pattern)) => {
                let digits = pattern.strip_prefix('/')?.strip_suffix('/')?;
                return number(digits).map(Self::Folder);
            }
            Some(_) => return None,
            None => {}
        }
        match test.as_comparison() {
            Some((attribute::OBJECT, Relation::Equal, digits)) => number(digits).map(Self::File),
            _ => None,
        }
    }

    /// Returns the directory of a test that must be followed by one of a name.
    pub(super) fn directory_of_name(test: &Test) -> Option<u64> {
        match test.as_match() {
            Some((attribute::ANCESTORS, pattern)) => {
                number(pattern.strip_prefix('/')?.strip_suffix("/$")?)
            }
            _ => None,
        }
    }

    /// Returns the name in a test of one.
    pub(super) fn name_of(test: &Test) -> Option<SharedName> {
        match test {
            Test::Strings(
                StringExpr::Attribute(attribute),
                Relation::Equal,
                StringExpr::Literal(name),
            ) if attribute == attribute::NAME => SharedName::new(name),
            _ => None,
        }
    }
}

/// Returns a name as printable ASCII without blanks: other bytes, and `%`, are written as `%XX`. So
/// the comment of a credential has it.
#[must_use]
pub fn printable(name: &[u8]) -> String {
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

/// Parses an inode number, which has one text for each number. Patterns have slashes around it:
/// without them they would match longer numbers too.
fn number(digits: &str) -> Option<u64> {
    let number = u64::from_str_radix(digits, 16).ok()?;
    (format!("{number:x}") == digits).then_some(number)
}
