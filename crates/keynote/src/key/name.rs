//! Names of keys, for people: of the machines that may connect, and of the persons to whom folders
//! are shared.

use std::fmt;
use std::str::FromStr;

use super::{NAME_BYTES, PublicKey};

/// The name of a key: 1 to [`NAME_BYTES`] letters, digits, `.`, `-`, `_` and `@`. It is no date and
/// does not begin like a key, so that a list and a command line can tell them apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName(String);

/// A text is not the name of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a name: use 1 to {NAME_BYTES} letters, digits, dots, hyphens, underscores \
     and @, and neither a date nor a key"
)]
pub struct KeyNameError {
    /// The text.
    pub name: String,
}

impl KeyName {
    /// Returns the name as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KeyName {
    type Err = KeyNameError;

    fn from_str(text: &str) -> Result<Self, KeyNameError> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@".contains(&byte);
        let is_name = (1..=NAME_BYTES).contains(&text.len())
            && text.bytes().all(is_letter)
            // It would be an option of a command line.
            && !text.starts_with('-')
            && !is_date(text)
            && !PublicKey::is_meant(text);
        if is_name { Ok(Self(text.to_owned())) } else { Err(KeyNameError { name: text.into() }) }
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Returns whether a text has the form of a date, `2026-02-03`.
fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut number = |digits: usize| {
        let part = parts.next().filter(|part| part.len() == digits)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u16>().ok()).flatten()
    };
    let is_date =
        matches!([number(4), number(2), number(2)], [Some(_), Some(1..=12), Some(1..=31)]);
    is_date && parts.next().is_none()
}
