//! Revocations: signed sentences that take a credential back.
//!
//! ```text
//! Pelago-Revocation: 1
//! Volume: <32 digits>
//! Credential: <64 digits>
//! By: "ed25519-hex:<64 digits>"
//! At: <seconds since 1970>
//! Signature: "sig-ed25519-hex:<128 digits>"
//! ```

use ring::signature::Ed25519KeyPair;

use crate::REVOCATION_BYTES;
use crate::assertion::CredentialId;
use crate::hex;
use crate::principal::Principal;
use crate::signature::{self, BadSignature, Signature};

/// A sentence that takes a credential back, for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// The credential that is taken back.
    pub credential: CredentialId,
    /// The key that takes it back.
    pub by: Principal,
    /// The time of the signature, in seconds since 1970.
    pub at: u64,
    unsigned: String,
    signature: Signature,
}

/// The reason why a text is not a revocation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevocationError {
    /// It is too long, or not ASCII.
    #[error("a revocation is a text of at most {REVOCATION_BYTES} bytes")]
    NoText,
    /// A line is missing, or has a wrong value.
    #[error("the line `{0}` of the revocation is missing, or not as it must be")]
    Line(&'static str),
}

impl Revocation {
    /// Writes and signs the revocation of a credential by the holder of `key`.
    #[must_use]
    pub fn sign(
        volume: [u8; 16],
        credential: CredentialId,
        at: u64,
        key: &Ed25519KeyPair,
    ) -> String {
        let by = Principal::of(key);
        let volume = hex::text(&volume);
        let unsigned = format!(
            "Pelago-Revocation: 1\nVolume: {volume}\nCredential: {credential}\nBy: \"{by}\"\n\
             At: {at}\n"
        );
        signature::sign(&unsigned, key)
    }

    /// Parses a revocation. Its signature is not verified yet.
    ///
    /// # Errors
    /// [`RevocationError`].
    pub fn parse(text: &[u8]) -> Result<Self, RevocationError> {
        let text = str::from_utf8(text).ok().filter(|text| text.len() <= REVOCATION_BYTES);
        let text = text.ok_or(RevocationError::NoText)?;
        let mut rest = text;
        let mut line = |name: &'static str, begin: &str| {
            let after = rest.strip_prefix(begin).and_then(|after| after.split_once('\n'));
            let (value, next) = after.ok_or(RevocationError::Line(name))?;
            rest = next;
            Ok(value)
        };
        if line("Pelago-Revocation", "Pelago-Revocation: ")? != "1" {
            return Err(RevocationError::Line("Pelago-Revocation"));
        }
        let volume = hex::read(line("Volume", "Volume: ")?);
        let credential = hex::read(line("Credential", "Credential: ")?).map(CredentialId);
        let by = line("By", "By: \"")?.strip_suffix('"').and_then(|by| by.parse().ok());
        let at = number(line("At", "At: ")?);
        let signature = Signature::read(line("Signature", signature::FIELD)?);
        if !rest.is_empty() {
            return Err(RevocationError::Line("Signature"));
        }
        let end = text.find(signature::FIELD).ok_or(RevocationError::Line("Signature"))?;
        Ok(Self {
            volume: volume.ok_or(RevocationError::Line("Volume"))?,
            credential: credential.ok_or(RevocationError::Line("Credential"))?,
            by: by.ok_or(RevocationError::Line("By"))?,
            at: at.ok_or(RevocationError::Line("At"))?,
            unsigned: text.get(..end).unwrap_or_default().to_owned(),
            signature: signature.ok_or(RevocationError::Line("Signature"))?,
        })
    }

    /// Verifies the signature by [`Revocation::by`].
    ///
    /// # Errors
    /// [`BadSignature`].
    pub fn verify(&self) -> Result<(), BadSignature> {
        self.signature.verify(&self.unsigned, &self.by)
    }
}

/// Parses a number in its canonical form, without a sign or leading zeros.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}
