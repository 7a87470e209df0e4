//! The message by which a guest presents its credentials, and a site its tokens and its invitation.
//!
//! It follows a hello with the role of a guest or a site, once. Credentials and the invitation are
//! KeyNote assertions (RFC 2704), which this crate does not read.

use crate::codec::DecodeError;
use crate::codec::field::{Field as _, Reader};
use crate::codec::lists::Credentials;
use crate::error::Error;
use crate::session_service::SiteHello;
use crate::site_token::ShownTokens;

/// The credentials of a guest, from the one of a root of the volume to the one for the guest's key;
/// or the tokens of a site ([`ShownTokens`]), and its invitation if it may not have joined yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Present {
    /// At most [`CHAIN_LINKS`] texts of 1 to [`CREDENTIAL_BYTES`] bytes each.
    ///
    /// [`CHAIN_LINKS`]: crate::limits::CHAIN_LINKS
    /// [`CREDENTIAL_BYTES`]: crate::limits::CREDENTIAL_BYTES
    pub chain: Vec<Vec<u8>>,
}

impl Present {
    /// Encodes the message: the number of texts u16, and for each its length u16 and its bytes.
    ///
    /// # Errors
    /// `TooBig` if a limit is exceeded, the whole message included.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        Credentials::put(&self.chain, &mut out)?;
        Ok(out)
    }

    /// Decodes the message.
    ///
    /// # Errors
    /// [`DecodeError`] if the body is no such message.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(body, "Present");
        let chain = Credentials::take(from.at("Present.chain"))?;
        from.finish("Present")?;
        Ok(Self { chain })
    }

    /// Returns the message of a site's server.
    #[must_use]
    pub fn of_site(shown: &ShownTokens, invitation: Option<&[u8]>) -> Self {
        let tokens = shown.encode();
        Self { chain: [tokens].into_iter().chain(invitation.map(<[u8]>::to_vec)).collect() }
    }

    /// Returns what the server of a site presents. One without any text has no tokens.
    ///
    /// # Errors
    /// [`DecodeError`] if the first text has no tokens.
    pub fn of_site_hello(&self) -> Result<SiteHello<'_>, DecodeError> {
        let shown = self.chain.first().map(|tokens| ShownTokens::decode(tokens)).transpose()?;
        let invitation = self.chain.get(1).map(Vec::as_slice);
        Ok(SiteHello { shown: shown.unwrap_or_default(), invitation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::limits;
    use crate::site_token::SiteToken;

    fn of(texts: &[&[u8]]) -> Present {
        Present { chain: texts.iter().map(|text| text.to_vec()).collect() }
    }

    #[test]
    fn a_chain_is_decoded_as_it_was_encoded() {
        let longest = vec![b'x'; limits::CREDENTIAL_BYTES];
        let most = vec![&b"y"[..]; limits::CHAIN_LINKS];
        for chain in [of(&[b"one"]), of(&[b"one", b"two"]), of(&[&longest]), of(&most)] {
            let body = chain.encode().unwrap();
            assert_eq!(Present::decode(&body), Ok(chain));
        }
    }

    #[test]
    fn a_site_presents_its_tokens_and_then_its_invitation() {
        let held = SiteToken { number: 5, random: [1; 16] };
        let shown = ShownTokens { held, known: SiteToken::NONE };
        for invitation in [None, Some(&b"sentence"[..])] {
            let present = Present::of_site(&shown, invitation);
            let hello = present.of_site_hello().unwrap();
            assert_eq!((hello.shown, hello.invitation), (shown, invitation));
        }
        assert_eq!(of(&[]).of_site_hello().unwrap().shown, ShownTokens::default());
        assert!(of(&[b"sentence"]).of_site_hello().is_err());
    }

    #[test]
    fn what_is_beyond_a_limit_is_not_sent() {
        let long = vec![b'x'; limits::CREDENTIAL_BYTES + 1];
        let many = vec![&b"y"[..]; limits::CHAIN_LINKS + 1];
        let longest = &long[1..];
        let together = [longest; 4];
        for chain in [of(&[b""]), of(&[&long]), of(&many), of(&together)] {
            assert_eq!(chain.encode(), Err(Code::TooBig.into()), "{}", chain.chain.len());
        }
    }

    /// The limit of a chain holds for its reader too, in a frame that has room for more.
    #[test]
    fn a_chain_has_as_many_bytes_as_its_limit_says() {
        let longest = vec![b'x'; limits::CREDENTIAL_BYTES];
        let body = |last: usize| {
            let mut body = vec![4, 0];
            for text in [&longest, &longest, &longest, &longest[..last].to_vec()] {
                body.extend(u16::try_from(text.len()).unwrap().to_le_bytes());
                body.extend(text);
            }
            body
        };
        let last = limits::CREDENTIAL_BYTES - 10;
        let most = Present::decode(&body(last)).unwrap();
        assert_eq!(most.encode().map(|body| body.len()), Ok(limits::CHAIN_BYTES));
        for more in 1..=10 {
            assert!(Present::decode(&body(last + more)).is_err(), "{more} bytes more");
        }
    }

    #[test]
    fn a_body_of_other_bytes_is_refused() {
        let body = of(&[b"one", b"two"]).encode().unwrap();
        for length in 0..body.len() {
            assert!(Present::decode(&body[..length]).is_err(), "cut after {length} bytes");
        }
        let longer = [&body[..], &[0]].concat();
        for wrong in [&longer[..], &[0, 0, 0], &[1, 0, 0, 0], &[17, 0, 1, 0, 7], &[1, 0, 1, 32]] {
            assert!(Present::decode(wrong).is_err(), "{wrong:?}");
        }
    }
}
