//! The tree of a query: expressions and terms.

use std::fmt;

use pelago_wire::xattr::is_tag_key;
use pelago_wire::{FileKind, Name};

use crate::comparison::Comparison;
use crate::day::Day;
use crate::glob::Glob;

/// An expression of a query. In the tree of a parsed query `And` has no `And` as a part, `Or` no
/// `Or`, and each has two parts or more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expr {
    /// True if every part matches.
    And(Vec<Self>),
    /// True if at least one part matches.
    Or(Vec<Self>),
    /// True if the part does not match.
    Not(Box<Self>),
    /// One question about a file.
    Term(Term),
}

/// One question about a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Term {
    /// The file has this tag with exactly this value.
    Tag {
        /// The key of the tag.
        key: TagKey,
        /// Its value.
        value: Box<[u8]>,
    },
    /// The file has a tag with this key.
    HasTag(TagKey),
    /// The last component of the file's path is this name.
    Name(Name),
    /// The last component of the file's path matches this pattern.
    NameLike(Glob),
    /// The size of the file compares with a number of bytes.
    Size {
        /// The operator.
        comparison: Comparison,
        /// The number of bytes.
        bytes: u64,
    },
    /// The time of the last change of the bytes compares with an age or a day.
    Mtime {
        /// The operator, for the age of the change or its day.
        comparison: Comparison,
        /// The age or day.
        when: When,
    },
    /// The file is of this kind.
    Kind(FileKind),
    /// The file is owned by this user.
    Owner(FileOwner),
    /// The text of the file has all these words, in the form that [`words`](crate::words) returns.
    Text(Vec<String>),
}

/// An age or a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// An age in seconds before the evaluation.
    Ago(u64),
    /// A whole day in UTC.
    Day(Day),
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FileOwner {
    /// The user with this number.
    Uid(u32),
    /// The user with this name. The machine that evaluates the query resolves it.
    Name(String),
}

/// The key of a tag: 1 to 64 letters, digits, `.`, `_` and `-` of ASCII. The tag is the extended
/// attribute `user.tag.KEY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagKey(Box<str>);

impl TagKey {
    /// Returns a key of these characters, or `None` if they are not a key.
    #[must_use]
    pub fn new(key: &str) -> Option<Self> {
        is_tag_key(key).then(|| Self(key.into()))
    }

    /// Returns the characters of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_letters_digits_and_three_signs() {
        for key in ["a", "A.b_c-9", "-", &"k".repeat(64)] {
            assert_eq!(TagKey::new(key).unwrap().as_str(), key);
        }
        for none in ["", "a b", "a=b", "ä", "a:b", &"k".repeat(65)] {
            assert_eq!(TagKey::new(none), None, "{none}");
        }
    }
}
