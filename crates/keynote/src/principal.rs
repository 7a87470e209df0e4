//! Principals: the keys that authorize and are licensed.

use std::fmt;
use std::str::FromStr;

use crate::hex;

/// The algorithm of our keys, with the encoding of their bits (RFC 2792, 2).
const ALGORITHM: &str = "ed25519-hex:";

/// A key: an Ed25519 public key (RFC 8032). Its text is `ed25519-hex:` and 64 digits, small ones
/// only, so that a key has one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(pub [u8; 32]);

/// Why a text is no principal of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// It is a key of another algorithm.
    #[error("the key `{0}...` is of an algorithm that this version of pelago does not have")]
    Algorithm(String),
    /// It is no key at all.
    #[error("a principal is `ed25519-hex:` and 64 hexadecimal digits, small ones")]
    NoKey,
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        match text.strip_prefix(ALGORITHM) {
            Some(digits) => hex::read(digits).map(Self).ok_or(PrincipalError::NoKey),
            None => match text.split_once(':') {
                Some((algorithm, _)) => Err(PrincipalError::Algorithm(format!("{algorithm}:"))),
                None => Err(PrincipalError::NoKey),
            },
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ALGORITHM)?;
        hex::write(&self.0, f)
    }
}
