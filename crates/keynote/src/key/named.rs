//! The list of named keys of a volume: the persons to whom folders are shared, and the users as
//! whom their guests act.
//!
//! One line for each key: `KEY NAME [user=USER] [# COMMENT]`. KEY is also the line of an OpenSSH
//! key, `ssh-ed25519 AAAA...`. Empty lines, and lines that begin with `#`, mean nothing and are
//! kept. Any other line is an error with its number: a list that is read in part would let guests
//! act as another user than its writer has meant.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::str::{FromStr, SplitWhitespace};

use super::name::{KeyName, KeyNameError};
use super::openssh::line;
use super::{KeyTextError, PublicKey};

/// Bytes of a list.
pub const KEYS_BYTES: usize = 256 << 10;
/// Bytes of the name of a user in it.
const USER_BYTES: usize = 256;
/// What is before the user.
const USER: &str = "user=";

/// The first lines of a new list.
const HEAD: &str = "\
# Names of keys, one a line: KEY NAME [user=USER] [# COMMENT].
# `pelago key name` and `pelago key unname` change this file, and so may you.
# Those to whom KEY shares on act as USER; without it, as KEY does.
";

/// A list of named keys, with all lines of its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedKeys {
    lines: Vec<Line>,
}

/// A key with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedKey {
    /// The key.
    pub key: PublicKey,
    /// Its name.
    pub name: KeyName,
    /// The user as whom guests act that have their rights from this key.
    pub user: Option<UserRef>,
}

/// A user of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UserRef {
    /// By its name in the user database.
    Name(String),
    /// By its number.
    Uid(u32),
}

/// A text does not name a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a user is a name in ASCII, without blanks, colons and #, or a number below 4294967295")]
pub struct UserRefError;

/// The fault of a line of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamedKeyError {
    /// It does not begin with a key.
    #[error("its first word is not a key")]
    Key(#[source] KeyTextError),
    /// It has no name.
    #[error("the key has no name: a line is KEY NAME [user=USER] [# COMMENT]")]
    NoName,
    /// The word after the key is no name.
    #[error(transparent)]
    Name(KeyNameError),
    /// What follows `user=` is no user.
    #[error(transparent)]
    User(#[from] UserRefError),
    /// It has another word after the name.
    #[error("{word:?} is one word too many: a line is KEY NAME [user=USER] [# COMMENT]")]
    Word {
        /// The word.
        word: String,
    },
    /// Another line has the same key.
    #[error("line {first} has the same key")]
    SameKey {
        /// The number of the other line, from 1.
        first: usize,
    },
    /// Another line has the same name.
    #[error("line {first} has the same name")]
    SameName {
        /// The number of the other line, from 1.
        first: usize,
    },
}

/// A wrong line of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is wrong")]
pub struct NamedKeysError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The fault.
    #[source]
    pub source: NamedKeyError,
}

/// The result of [`NamedKeys::set`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// The key was not listed, and is now.
    New,
    /// The key was listed, and has another name or user now.
    Changed,
    /// The key was listed so.
    Unchanged,
}

/// The reason for which a list is not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamedChangeError {
    /// Another key has the name.
    #[error("the name {name} is taken, by {key}")]
    NameTaken {
        /// The name.
        name: KeyName,
        /// The key that has it.
        key: PublicKey,
    },
    /// The list would be larger than a list may be.
    #[error("the list of names is full: it may have {KEYS_BYTES} bytes")]
    Full,
    /// No key has this name.
    #[error("{name} is not a name in the list")]
    NotListed {
        /// The name.
        name: KeyName,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// A line without a key, as it was.
    Other(String),
    /// A line with a key. `text` is the line as it was, and `comment` is with its `#`.
    Key { key: NamedKey, comment: Option<String>, text: String },
}

impl NamedKeys {
    /// Parses a list.
    ///
    /// # Errors
    /// [`NamedKeysError`] with the number of the first wrong line.
    pub fn parse(text: &str) -> Result<Self, NamedKeysError> {
        let mut lines = Vec::new();
        let mut keys = HashMap::new();
        let mut names = HashMap::new();
        for (index, text) in text.lines().enumerate() {
            let number = index + 1;
            let wrong = |source| NamedKeysError { line: number, source };
            let line = Line::parse(text).map_err(wrong)?;
            if let Some(named) = line.key() {
                if let Some(first) = keys.insert(named.key, number) {
                    return Err(wrong(NamedKeyError::SameKey { first }));
                }
                if let Some(first) = names.insert(named.name.clone(), number) {
                    return Err(wrong(NamedKeyError::SameName { first }));
                }
            }
            lines.push(line);
        }
        Ok(Self { lines })
    }

    /// Returns the text. Lines that no change touched are as they were.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            text.push_str(line.text());
            text.push('\n');
        }
        text
    }

    /// Returns the keys with the numbers of their lines, in their order.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &NamedKey)> {
        let lines = self.lines.iter().enumerate();
        lines.filter_map(|(index, line)| line.key().map(|key| (index + 1, key)))
    }

    /// Returns the keys, in the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = &NamedKey> {
        self.lines.iter().filter_map(Line::key)
    }

    /// Returns the key with this name.
    #[must_use]
    pub fn find(&self, name: &KeyName) -> Option<&NamedKey> {
        self.iter().find(|named| named.name == *name)
    }

    /// Gives a key a name and a user. A key that is listed loses those that it had.
    ///
    /// # Errors
    /// [`NamedChangeError`]; nothing changed then.
    pub fn set(&mut self, named: NamedKey) -> Result<Named, NamedChangeError> {
        if let Some(taken) = self.find(&named.name).filter(|taken| taken.key != named.key) {
            return Err(NamedChangeError::NameTaken { name: named.name, key: taken.key });
        }
        let mut lines = self.lines.clone();
        let is_it = |line: &&mut Line| line.key().is_some_and(|listed| listed.key == named.key);
        let change = match lines.iter_mut().find(is_it) {
            Some(line) => line.replace(named),
            None => {
                if lines.is_empty() {
                    lines.extend(HEAD.lines().map(|line| Line::Other(line.to_owned())));
                }
                let text = named.line(None);
                lines.push(Line::Key { key: named, comment: None, text });
                Named::New
            }
        };
        let changed = Self { lines };
        if changed.to_text().len() > KEYS_BYTES {
            return Err(NamedChangeError::Full);
        }
        *self = changed;
        Ok(change)
    }

    /// Removes the key with this name, and returns it.
    ///
    /// # Errors
    /// [`NamedChangeError::NotListed`].
    pub fn remove(&mut self, name: &KeyName) -> Result<NamedKey, NamedChangeError> {
        let is_it = |line: &Line| line.key().is_some_and(|named| named.name == *name);
        let at = self.lines.iter().position(is_it);
        match at.map(|at| self.lines.remove(at)) {
            Some(Line::Key { key, .. }) => Ok(key),
            _ => Err(NamedChangeError::NotListed { name: name.clone() }),
        }
    }
}

impl NamedKey {
    /// Returns the line of a list, without its end.
    fn line(&self, comment: Option<&str>) -> String {
        let mut text = format!("{} {}", self.key, self.name);
        if let Some(user) = &self.user {
            let _infallible = write!(text, " {USER}{user}");
        }
        if let Some(comment) = comment {
            let _infallible = write!(text, " {comment}");
        }
        text
    }
}

impl Line {
    fn parse(text: &str) -> Result<Self, NamedKeyError> {
        let (words, comment) = match text.find('#') {
            Some(at) => (text.get(..at).unwrap_or_default(), text.get(at..)),
            None => (text, None),
        };
        let mut words = words.split_whitespace();
        let Some(first) = words.next() else { return Ok(Self::Other(text.to_owned())) };
        let key = match line::is_meant(first) {
            true => {
                let line: Vec<&str> = std::iter::once(first).chain(words.next()).collect();
                line.join(" ").parse()
            }
            false => first.parse(),
        };
        let key = key.map_err(NamedKeyError::Key)?;
        let name = words.next().ok_or(NamedKeyError::NoName)?;
        let name = name.parse().map_err(NamedKeyError::Name)?;
        let user = user(words)?;
        let comment = comment.map(str::to_owned);
        Ok(Self::Key { key: NamedKey { key, name, user }, comment, text: text.to_owned() })
    }

    const fn key(&self) -> Option<&NamedKey> {
        match self {
            Self::Key { key, .. } => Some(key),
            Self::Other(_) => None,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Key { text, .. } | Self::Other(text) => text,
        }
    }

    fn replace(&mut self, with: NamedKey) -> Named {
        match self {
            Self::Key { key, comment, text } if *key != with => {
                *text = with.line(comment.as_deref());
                *key = with;
                Named::Changed
            }
            Self::Key { .. } | Self::Other(_) => Named::Unchanged,
        }
    }
}

/// Parses what follows the name of a line: `[user=USER]`.
fn user(mut words: SplitWhitespace<'_>) -> Result<Option<UserRef>, NamedKeyError> {
    let too_many = |word: &str| NamedKeyError::Word { word: word.to_owned() };
    let Some(word) = words.next() else { return Ok(None) };
    let user = word.strip_prefix(USER).ok_or_else(|| too_many(word))?.parse()?;
    match words.next() {
        Some(word) => Err(too_many(word)),
        None => Ok(Some(user)),
    }
}

impl FromStr for UserRef {
    type Err = UserRefError;

    /// A text of digits alone is a number.
    fn from_str(text: &str) -> Result<Self, UserRefError> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            // The last number means "no user" in system calls.
            let number = text.parse().ok().filter(|number| *number != u32::MAX);
            return number.map(Self::Uid).ok_or(UserRefError);
        }
        let is_letter = |byte: u8| byte.is_ascii_graphic() && !b":#".contains(&byte);
        let is_name = (1..=USER_BYTES).contains(&text.len()) && text.bytes().all(is_letter);
        if is_name { Ok(Self::Name(text.to_owned())) } else { Err(UserRefError) }
    }
}

impl fmt::Display for UserRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.pad(name),
            Self::Uid(number) => number.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
