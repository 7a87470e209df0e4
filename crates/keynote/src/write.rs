//! The writer of policies and credentials.

use std::fmt::Write as _;

use ring::signature::{Ed25519KeyPair, KeyPair as _};

use crate::CREDENTIAL_BYTES;
use crate::assertion::Assertion;
use crate::conditions::Conditions;
use crate::principal::Principal;
use crate::signature;

/// The content of a credential that is not signed yet.
#[derive(Debug, Clone)]
pub struct Credential<'a> {
    /// Lines for people and programs, in printable ASCII. They grant nothing.
    pub comment: &'a [String],
    /// The key that is licensed.
    pub licensee: Principal,
    /// The conditions under which the key is licensed.
    pub conditions: &'a Conditions,
}

/// The reason why a policy or credential cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// A line of the comment has another character than printable ASCII, or a blank at an end.
    #[error("the comment has a line that is not printable ASCII: {0:?}")]
    Comment(String),
    /// A name or a value in it is not valid, so that a reader would get another meaning.
    #[error("the credential would not be read as it is meant")]
    Unreadable,
    /// It would be longer than a credential may be.
    #[error("the credential would be longer than {CREDENTIAL_BYTES} bytes")]
    TooLong,
}

impl Credential<'_> {
    /// Returns the text of the credential, signed by a key, which is its authorizer.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn sign(&self, key: &Ed25519KeyPair) -> Result<String, WriteError> {
        let authorizer = Principal::of(key);
        let mut text = head(self.comment)?;
        let _infallible = writeln!(text, "Authorizer: \"{authorizer}\"");
        let _infallible = writeln!(text, "Licensees: \"{}\"", self.licensee);
        let _infallible = writeln!(text, "Conditions: {}", self.conditions);
        let text = signature::sign(&text, key);
        if text.len() > CREDENTIAL_BYTES {
            return Err(WriteError::TooLong);
        }
        // A reader must get the meaning that the caller has asked to sign.
        let read = Assertion::credential(text.as_bytes()).map_err(|_| WriteError::Unreadable)?;
        let is_meant = read.conditions() == Some(self.conditions)
            && read.licensees().only_key() == Some(self.licensee)
            && !read.has_constants()
            && read.comment() == self.comment;
        if is_meant { Ok(text) } else { Err(WriteError::Unreadable) }
    }
}

/// Returns the text of a policy that trusts these keys.
///
/// # Errors
/// [`WriteError`].
pub fn policy(roots: &[Principal], comment: &[String]) -> Result<String, WriteError> {
    let mut text = head(comment)?;
    text.push_str("Authorizer: \"POLICY\"\nLicensees: ");
    for (at, root) in roots.iter().enumerate() {
        let or = if at > 0 { " ||\n\t" } else { "" };
        let _infallible = write!(text, "{or}\"{root}\"");
    }
    text.push('\n');
    if text.len() > CREDENTIAL_BYTES {
        return Err(WriteError::TooLong);
    }
    let read = Assertion::policy(text.as_bytes()).map_err(|_| WriteError::Unreadable)?;
    if read.licensees().keys().eq(roots.iter().copied()) {
        Ok(text)
    } else {
        Err(WriteError::Unreadable)
    }
}

/// Returns the first fields: the version, and the comment.
fn head(comment: &[String]) -> Result<String, WriteError> {
    let mut text = "KeyNote-Version: 2\n".to_owned();
    for (at, line) in comment.iter().enumerate() {
        let is_printable = line.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !is_printable || line.trim() != line || line.is_empty() {
            return Err(WriteError::Comment(line.clone()));
        }
        let begin = if at > 0 { "\t" } else { "Comment: " };
        let _infallible = writeln!(text, "{begin}{line}");
    }
    Ok(text)
}

impl Principal {
    /// Returns the principal of a key pair.
    #[must_use]
    pub fn of(key: &Ed25519KeyPair) -> Self {
        let mut principal = [0; 32];
        for (to, from) in principal.iter_mut().zip(key.public_key().as_ref()) {
            *to = *from;
        }
        Self(principal)
    }
}
