//! Signatures of sentences (RFC 2704, 4.6.7; RFC 2792, 3).
//!
//! A signature covers the bytes of the text before the field `Signature`, followed by the name of
//! the algorithm with its colon. So it is not valid for another algorithm. A credential begins with
//! `KeyNote-Version`, a revocation with `Pelago-Revocation`, a list of sites with `Pelago-Sites`, a
//! charter with `Pelago-Charter`: none can be mistaken for another, nor for the bytes that TLS or
//! SSH sign.

use ring::signature::{ED25519, Ed25519KeyPair, UnparsedPublicKey};

use crate::hex;
use crate::principal::Principal;

/// The algorithm, with the encoding of the signature.
const ALGORITHM: &str = "sig-ed25519-hex:";
/// The name of the field, with its colon.
pub(crate) const FIELD: &str = "Signature:";

/// The error of a signature that is not valid for its text and key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not one of this text by its key")]
pub struct BadSignature;

/// An Ed25519 signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature([u8; 64]);

impl Signature {
    /// Parses the value of the field: a blank, and the string `"sig-ed25519-hex:..."` with 128
    /// lower-case digits. A signature has no other text.
    pub(crate) fn read(value: &str) -> Option<Self> {
        let text = value.strip_prefix(" \"")?.strip_suffix('"')?;
        hex::read(text.strip_prefix(ALGORITHM)?).map(Self)
    }

    /// Verifies that this is the signature of `unsigned`, the text before the field, by `key`.
    pub(crate) fn verify(&self, unsigned: &str, key: &Principal) -> Result<(), BadSignature> {
        let key = UnparsedPublicKey::new(&ED25519, key.0);
        key.verify(&signed_bytes(unsigned), &self.0).map_err(|_| BadSignature)
    }
}

/// Returns a text with its signature as the last line.
pub(crate) fn sign(unsigned: &str, key: &Ed25519KeyPair) -> String {
    let digits = hex::text(key.sign(&signed_bytes(unsigned)).as_ref());
    format!("{unsigned}{FIELD} \"{ALGORITHM}{digits}\"\n")
}

fn signed_bytes(unsigned: &str) -> Vec<u8> {
    [unsigned.as_bytes(), ALGORITHM.as_bytes()].concat()
}
