//! Principals: the keys that authorize, and the keys that are licensed.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hex;
use crate::key::has_small_order;

/// The algorithm of Pelago's keys, with the encoding of their bits (RFC 2792, 2).
const HEX: &str = "ed25519-hex:";
/// The same algorithm with another encoding.
const BASE64: &str = "ed25519-base64:";

/// An Ed25519 public key (RFC 8032). It is written as `ed25519-hex:` and 64 lower-case digits, and
/// read as `ed25519-base64:` with 44 letters too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(pub [u8; 32]);

/// The reason why a text is not a principal of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrincipalError {
    /// It is a key of another algorithm.
    #[error("the key `{0}...` is of an algorithm that this version of pelago does not have")]
    Algorithm(String),
    /// It is a key for which anyone can sign.
    #[error("the key is one for which everybody can sign")]
    SmallOrder,
    /// It is not a key.
    #[error("a principal is `ed25519-hex:` and 64 hexadecimal digits, small ones")]
    NoKey,
}

/// The name of a principal: a key, or a label that only the programs of one application know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identifier {
    /// A key that can sign.
    Key(Principal),
    /// A label, or a key of another algorithm. It cannot sign.
    Opaque(String),
}

impl Identifier {
    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> Option<Principal> {
        match self {
            Self::Key(key) => Some(*key),
            Self::Opaque(_) => None,
        }
    }
}

impl FromStr for Identifier {
    type Err = PrincipalError;

    /// # Errors
    /// [`PrincipalError`] for a text that begins as one of an Ed25519 key and is none.
    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        match text.parse() {
            Ok(key) => Ok(Self::Key(key)),
            Err(PrincipalError::Algorithm(_)) => Ok(Self::Opaque(text.to_owned())),
            Err(PrincipalError::NoKey) if !text.contains(':') => Ok(Self::Opaque(text.to_owned())),
            Err(error @ (PrincipalError::NoKey | PrincipalError::SmallOrder)) => Err(error),
        }
    }
}

impl fmt::Display for Identifier {
    /// Writes the string with its quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => write!(f, "\"{key}\""),
            Self::Opaque(text) => f.write_str(&crate::conditions::quoted(text.as_bytes())),
        }
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        let key = if let Some(digits) = text.strip_prefix(HEX) {
            hex::read(digits)
        } else if let Some(letters) = text.strip_prefix(BASE64) {
            STANDARD.decode(letters).ok().and_then(|key| key.try_into().ok())
        } else {
            return Err(match text.split_once(':') {
                Some((algorithm, _)) => {
                    PrincipalError::Algorithm(format!("{}:", algorithm.escape_debug()))
                }
                None => PrincipalError::NoKey,
            });
        };
        match key.map(Self) {
            Some(Self(key)) if has_small_order(&key) => Err(PrincipalError::SmallOrder),
            key => key.ok_or(PrincipalError::NoKey),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEX)?;
        hex::write(&self.0, f)
    }
}
