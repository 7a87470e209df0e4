//! A query as a tree.

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
    /// Every part matches.
    And(Vec<Self>),
    /// A part matches.
    Or(Vec<Self>),
    /// The part does not match.
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
    /// The size of the file compares so.
    Size {
        /// How the size is compared.
        comparison: Comparison,
        /// With so many bytes.
        bytes: u64,
    },
    /// The time of the last change of the bytes compares so.
    Mtime {
        /// How the age of the change is compared with an age, or its day with a day.
        comparison: Comparison,
        /// With this age or day.
        when: When,
    },
    /// The file is of this kind.
    Kind(FileKind),
    /// The file is owned by this user.
    Owner(FileOwner),
    /// The text of the file has all these words, which are as [`words`](crate::words) makes them.
    Text(Vec<String>),
}

/// An age or a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// So many seconds before the evaluation.
    Ago(u64),
    /// A day in UTC, as a whole.
    Day(Day),
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum FileOwner {
    /// The user with this number.
    Uid(u32),
    /// The user with this name, which is resolved where the query is evaluated.
    Name(String),
}

/// The key of a tag: 1 to 64 letters, digits, `.`, `_` and `-` of ASCII. The tag is the extended
/// attribute `user.tag.KEY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagKey(Box<str>);

impl TagKey {
    /// Returns these characters as a key, or `None` if they are none.
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
