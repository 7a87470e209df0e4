//! Revocations: signed sentences that take a credential back, or a key.
//!
//! ```text
//! Pelago-Revocation: 1
//! Volume: <32 digits>
//! Credential: <64 digits>                or   Key: "ed25519-hex:<64 digits>"
//! By: "ed25519-hex:<64 digits>"
//! At: <seconds since 1970>
//! Signature: "sig-ed25519-hex:<128 digits>"
//! ```

use ring::signature::Ed25519KeyPair;

use crate::REVOCATION_BYTES;
use crate::assertion::CredentialId;
use crate::decimal::number;
use crate::hex;
use crate::principal::Principal;
use crate::signature::{self, BadSignature, Signature};

/// What a revocation takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationSubject {
    /// One credential.
    Credential(CredentialId),
    /// A key: it is no guest, and no credential that it has signed counts.
    Key(Principal),
}

/// A sentence that takes a credential or a key back, for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// The credential or key that is taken back.
    pub subject: RevocationSubject,
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
    /// Writes and signs a revocation by the holder of `key`.
    #[must_use]
    pub fn sign(
        volume: [u8; 16],
        subject: impl Into<RevocationSubject>,
        at: u64,
        key: &Ed25519KeyPair,
    ) -> String {
        let by = Principal::of(key);
        let volume = hex::text(&volume);
        let subject = match subject.into() {
            RevocationSubject::Credential(credential) => format!("Credential: {credential}"),
            RevocationSubject::Key(key) => format!("Key: \"{key}\""),
        };
        let unsigned =
            format!("Pelago-Revocation: 1\nVolume: {volume}\n{subject}\nBy: \"{by}\"\nAt: {at}\n");
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
        let is_of_key = text.lines().nth(2).is_some_and(|line| line.starts_with("Key: "));
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
        let subject = match is_of_key {
            true => key(line("Key", "Key: \"")?).map(RevocationSubject::Key),
            false => hex::read(line("Credential", "Credential: ")?)
                .map(|id| RevocationSubject::Credential(CredentialId(id))),
        };
        let by = key(line("By", "By: \"")?);
        let at = number(line("At", "At: ")?);
        let signature = Signature::read(line("Signature", signature::FIELD)?);
        if !rest.is_empty() {
            return Err(RevocationError::Line("Signature"));
        }
        let end = text.find(signature::FIELD).ok_or(RevocationError::Line("Signature"))?;
        Ok(Self {
            volume: volume.ok_or(RevocationError::Line("Volume"))?,
            subject: subject.ok_or(RevocationError::Line(if is_of_key {
                "Key"
            } else {
                "Credential"
            }))?,
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

impl RevocationSubject {
    /// Returns the 32 bytes by which what is taken back is known: the id, or the key.
    #[must_use]
    pub const fn bytes(&self) -> [u8; 32] {
        match self {
            Self::Credential(CredentialId(id)) => *id,
            Self::Key(Principal(key)) => *key,
        }
    }
}

impl From<CredentialId> for RevocationSubject {
    fn from(credential: CredentialId) -> Self {
        Self::Credential(credential)
    }
}

impl From<Principal> for RevocationSubject {
    fn from(key: Principal) -> Self {
        Self::Key(key)
    }
}

/// Parses a key with the quotation mark after it.
fn key(text: &str) -> Option<Principal> {
    text.strip_suffix('"')?.parse().ok()
}
