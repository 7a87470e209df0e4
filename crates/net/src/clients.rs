//! The list of clients of a volume: the machines that may connect to its server.
//!
//! One line for each machine: `KEY [NAME] [DATE] [# COMMENT]`. KEY is also the line of an OpenSSH
//! key, `ssh-ed25519 AAAA...`; what follows it is a comment as well if it is no name and date.
//! Empty lines, and lines that begin with `#`, mean nothing and are kept. Any other line is an
//! error with its number: a list that is read in part would refuse machines that an administrator
//! allowed. This module parses and changes the text; [`mod@file`] keeps it in a file, and
//! [`list`] watches that file for a server.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::str::{FromStr, SplitWhitespace};

use pelago_keynote::key::openssh::line;
use pelago_wire::limits::CLIENTS_BYTES;

use crate::key::{KeyTextError, PublicKey};
use date::Date;

pub use pelago_keynote::key::name::{KeyName, KeyNameError};

pub mod date;
pub mod file;
pub mod list;

/// The first lines of a new list.
const HEAD: &str = "\
# Machines that may connect to this volume, one a line: KEY [NAME] [DATE] [# COMMENT].
# `pelago key allow` and `pelago key remove` change this file, and so may you.
# A listed machine is believed its user ids, root included, as NFS with sec=sys does.
";

/// A list of clients, with all lines of its text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clients {
    lines: Vec<Line>,
}

/// A machine that may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedClient {
    /// Its key.
    pub key: PublicKey,
    /// Its name, for people.
    pub name: Option<KeyName>,
    /// The day on which it was allowed.
    pub since: Option<Date>,
}

/// The fault of a line of a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It does not begin with a key.
    #[error("its first word is not a key")]
    Key(#[source] KeyTextError),
    /// Its second word is neither a name nor a date.
    #[error(transparent)]
    Name(KeyNameError),
    /// It has another word after name and date.
    #[error("{word:?} is one word too many: a line is KEY [NAME] [DATE] [# COMMENT]")]
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
pub struct ClientsError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The fault.
    #[source]
    pub source: LineError,
}

/// The result of [`Clients::allow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// The client was not listed, and is now.
    New,
    /// The client was listed, and has another name now.
    Renamed,
    /// The client was listed, and nothing changed.
    Unchanged,
}

/// The reason for which a client is not added or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// Another client has the name.
    #[error("the name {name} is taken, by {key}")]
    NameTaken {
        /// The name.
        name: KeyName,
        /// The key of that client.
        key: PublicKey,
    },
    /// The list would be larger than a list may be.
    #[error("the list is full: it may have {CLIENTS_BYTES} bytes")]
    Full,
    /// No client has this key or name.
    #[error("{client} is not listed")]
    NotListed {
        /// The key or name.
        client: ClientRef,
    },
}

/// A client as a user names it: by its key or by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientRef {
    /// By its key.
    Key(PublicKey),
    /// By its name.
    Name(KeyName),
}

/// The reason for which a text names no client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientRefError {
    /// It begins as a key, and is none.
    #[error(transparent)]
    Key(KeyTextError),
    /// It is no name either.
    #[error(transparent)]
    Name(KeyNameError),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// A line without a client, as it was.
    Other(String),
    /// A line with a client. `text` is the line as it was, and `comment` is with its `#`.
    Client { client: AllowedClient, comment: Option<String>, text: String },
}

impl Clients {
    /// Parses a list.
    ///
    /// # Errors
    /// [`ClientsError`] with the number of the first wrong line.
    pub fn parse(text: &str) -> Result<Self, ClientsError> {
        let mut lines = Vec::new();
        let mut keys = HashMap::new();
        let mut names = HashMap::new();
        for (index, text) in text.lines().enumerate() {
            let number = index + 1;
            let wrong = |source| ClientsError { line: number, source };
            let line = Line::parse(text).map_err(wrong)?;
            if let Line::Client { client, .. } = &line {
                if let Some(first) = keys.insert(client.key, number) {
                    return Err(wrong(LineError::SameKey { first }));
                }
                let first = client.name.clone().and_then(|name| names.insert(name, number));
                if let Some(first) = first {
                    return Err(wrong(LineError::SameName { first }));
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

    /// Returns the clients, in the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = &AllowedClient> {
        self.lines.iter().filter_map(Line::client)
    }

    /// Adds a client, or gives a listed one another name. Without `name` a listed one keeps its
    /// own.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing changed then.
    pub fn allow(
        &mut self,
        key: PublicKey,
        name: Option<KeyName>,
        today: Date,
    ) -> Result<Allowed, ChangeError> {
        if let Some(name) = &name
            && let Some(taken) = self.iter().find(|client| client.name.as_ref() == Some(name))
            && taken.key != key
        {
            return Err(ChangeError::NameTaken { name: name.clone(), key: taken.key });
        }
        let mut lines = self.lines.clone();
        let listed = lines.iter_mut().find(|line| line.client().is_some_and(|c| c.key == key));
        let allowed = match (listed, name) {
            (Some(line), Some(name)) => line.rename(name),
            (Some(_), None) => Allowed::Unchanged,
            (None, name) => {
                if lines.is_empty() {
                    lines.extend(HEAD.lines().map(|line| Line::Other(line.to_owned())));
                }
                let client = AllowedClient { key, name, since: Some(today) };
                let text = client.line(None);
                lines.push(Line::Client { client, comment: None, text });
                Allowed::New
            }
        };
        let changed = Self { lines };
        if changed.to_text().len() > CLIENTS_BYTES {
            return Err(ChangeError::Full);
        }
        *self = changed;
        Ok(allowed)
    }

    /// Removes a client, and returns it.
    ///
    /// # Errors
    /// [`ChangeError::NotListed`].
    pub fn remove(&mut self, which: &ClientRef) -> Result<AllowedClient, ChangeError> {
        let is_meant = |client: &AllowedClient| match which {
            ClientRef::Key(key) => client.key == *key,
            ClientRef::Name(name) => client.name.as_ref() == Some(name),
        };
        let at = self.lines.iter().position(|line| line.client().is_some_and(is_meant));
        match at.map(|at| self.lines.remove(at)) {
            Some(Line::Client { client, .. }) => Ok(client),
            _ => Err(ChangeError::NotListed { client: which.clone() }),
        }
    }
}

impl AllowedClient {
    /// Returns the line of a list, without its end.
    fn line(&self, comment: Option<&str>) -> String {
        let mut text = self.key.to_string();
        if let Some(name) = &self.name {
            let _infallible = write!(text, " {name}");
        }
        if let Some(since) = self.since {
            let _infallible = write!(text, " {since}");
        }
        if let Some(comment) = comment {
            let _infallible = write!(text, " {comment}");
        }
        text
    }
}

impl Line {
    fn parse(text: &str) -> Result<Self, LineError> {
        let (words, comment) = match text.find('#') {
            Some(at) => (text.get(..at).unwrap_or_default(), text.get(at..)),
            None => (text, None),
        };
        let mut words = words.split_whitespace();
        let Some(first) = words.next() else { return Ok(Self::Other(text.to_owned())) };
        let of_client = |client, comment: Option<String>| {
            Ok(Self::Client { client, comment, text: text.to_owned() })
        };
        let own_comment = comment.map(str::to_owned);
        if !line::is_meant(first) {
            let key = first.parse().map_err(LineError::Key)?;
            let (name, since) = name_and_date(words)?;
            return of_client(AllowedClient { key, name, since }, own_comment);
        }
        let line: Vec<&str> = std::iter::once(first).chain(words.next()).collect();
        let key = line.join(" ").parse().map_err(LineError::Key)?;
        // A comment of OpenSSH is any text; `user@host`, its default, is a name.
        match name_and_date(words.clone()) {
            Ok((name, since)) => of_client(AllowedClient { key, name, since }, own_comment),
            Err(_) => {
                let mut comment = format!("# {}", words.collect::<Vec<&str>>().join(" "));
                comment.extend(own_comment.map(|own| format!(" {own}")));
                of_client(AllowedClient { key, name: None, since: None }, Some(comment))
            }
        }
    }

    const fn client(&self) -> Option<&AllowedClient> {
        match self {
            Self::Client { client, .. } => Some(client),
            Self::Other(_) => None,
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Client { text, .. } | Self::Other(text) => text,
        }
    }

    fn rename(&mut self, to: KeyName) -> Allowed {
        match self {
            Self::Client { client, comment, text } if client.name.as_ref() != Some(&to) => {
                client.name = Some(to);
                *text = client.line(comment.as_deref());
                Allowed::Renamed
            }
            _ => Allowed::Unchanged,
        }
    }
}

/// Parses what follows the key of a line: `[NAME] [DATE]`.
fn name_and_date(words: SplitWhitespace<'_>) -> Result<(Option<KeyName>, Option<Date>), LineError> {
    let mut words = words.peekable();
    let name = words.next_if(|word| !Date::is_meant(word));
    let name = name.map(str::parse).transpose().map_err(LineError::Name)?;
    let since = words.next_if(|word| Date::is_meant(word)).and_then(|word| word.parse().ok());
    match words.next() {
        Some(word) => Err(LineError::Word { word: word.to_owned() }),
        None => Ok((name, since)),
    }
}

impl FromStr for ClientRef {
    type Err = ClientRefError;

    fn from_str(text: &str) -> Result<Self, ClientRefError> {
        if PublicKey::is_meant(text) {
            return text.parse().map(Self::Key).map_err(ClientRefError::Key);
        }
        text.parse().map(Self::Name).map_err(ClientRefError::Name)
    }
}

impl fmt::Display for ClientRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests;
