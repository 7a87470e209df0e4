//! Principals: the keys that authorize, and the keys that are licensed.

use std::fmt;
use std::str::FromStr;

use crate::hex;

/// The algorithm of Pelago's keys, with the encoding of their bits (RFC 2792, 2).
const ALGORITHM: &str = "ed25519-hex:";

/// The points of small order, without the sign of x; libsodium refuses the same. For such a key
/// there are signatures that verify and that need no private half.
const SMALL_ORDER: [&str; 7] = [
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
];

/// An Ed25519 public key (RFC 8032). Its text is `ed25519-hex:` and 64 lower-case digits, so that a
/// key has one text.
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

impl FromStr for Principal {
    type Err = PrincipalError;

    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        match text.strip_prefix(ALGORITHM) {
            Some(digits) => match hex::read(digits).map(Self) {
                Some(key) if key.has_small_order() => Err(PrincipalError::SmallOrder),
                key => key.ok_or(PrincipalError::NoKey),
            },
            None => match text.split_once(':') {
                Some((algorithm, _)) => {
                    Err(PrincipalError::Algorithm(format!("{}:", algorithm.escape_debug())))
                }
                None => Err(PrincipalError::NoKey),
            },
        }
    }
}

impl Principal {
    fn has_small_order(&self) -> bool {
        let Self(mut point) = *self;
        point[31] &= 0x7f;
        SMALL_ORDER.iter().any(|digits| hex::read(digits) == Some(point))
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ALGORITHM)?;
        hex::write(&self.0, f)
    }
}
