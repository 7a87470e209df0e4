//! The tokens by which two sites notice that the folder of one of them is a copy, or older than
//! what the other one has seen of it.
//!
//! Each site gives the other one a new token now and then, which that keeps in its folder and shows
//! with each hello. Who shows an older one has an older folder; who shows a newer one than was
//! given talks to an older folder.

use std::fmt;

use crate::codec::DecodeError;
use crate::codec::field::{Field as _, Reader};

/// A token that one site gives to another.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteToken {
    /// One more than that of the token before; 0 is no token.
    pub number: u64,
    /// Random bytes, chosen by the site that gives it: two folders that go on from one state do not
    /// give the same.
    pub random: [u8; 16],
}

impl SiteToken {
    /// No token: none was given yet.
    pub const NONE: Self = Self { number: 0, random: [0; 16] };
    /// A token that was given, and whose row is damaged. It is taken for any.
    pub const LOST: Self = Self { number: u64::MAX, random: [0; 16] };
}

impl fmt::Debug for SiteToken {
    /// Shows the number, and so much of the random bytes that two can be told apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, ..] = self.random;
        write!(f, "{}-{first:02x}{second:02x}", self.number)
    }
}

/// The tokens that a site shows with its hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShownTokens {
    /// The last one that the other site has given to this one, and that is safe here.
    pub held: SiteToken,
    /// The last one that this site has given to the other one, and knows to be safe there.
    pub known: SiteToken,
}

impl ShownTokens {
    /// Bytes of the encoded tokens.
    pub const BYTES: usize = 48;

    /// Encodes the tokens.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::BYTES);
        for token in [&self.held, &self.known] {
            let put = SiteToken::put(token, &mut out);
            debug_assert!(put.is_ok(), "each field has a value of any length");
        }
        out
    }

    /// Decodes tokens.
    ///
    /// # Errors
    /// [`DecodeError`] if these are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes, "ShownTokens");
        let held = SiteToken::take(from.at("ShownTokens.held"))?;
        let known = SiteToken::take(from.at("ShownTokens.known"))?;
        from.finish("ShownTokens")?;
        Ok(Self { held, known })
    }
}

/// The folder whose tokens show that it is a copy, or older than another site has seen of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OlderFolder {
    /// That of the site which shows the tokens.
    OfAsker,
    /// That of the site to which they are shown.
    OfAnswerer,
}

/// The tokens that the server of a site shows when it connects to another one.
pub trait SitePass: fmt::Debug + Send + Sync {
    /// Returns the tokens that are shown now; `None` if the site's server has ended.
    fn shown(&self) -> Option<ShownTokens>;

    /// Records that the other server has refused these tokens, and whose folder it takes for older.
    fn refused(&self, shown: &ShownTokens, older: OlderFolder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_tokens_are_two_tokens_one_after_the_other() {
        let shown = ShownTokens {
            held: SiteToken { number: 0x0102, random: [7; 16] },
            known: SiteToken { number: 3, random: [9; 16] },
        };
        let bytes = shown.encode();
        assert_eq!(bytes.len(), ShownTokens::BYTES);
        assert_eq!(bytes[..9], [2, 1, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(ShownTokens::decode(&bytes), Ok(shown));
        assert_eq!(format!("{:?}", shown.held), "258-0707");
    }

    #[test]
    fn no_other_bytes_are_tokens() {
        for length in [0, 1, 47, 49, 100] {
            assert!(ShownTokens::decode(&vec![1; length]).is_err(), "{length}");
        }
    }
}
