//! Rows of credentials and keys that were revoked.

use pelago_wire::limits;

use super::codec::{Reader, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use crate::key::RowKind;

/// The revocation of a credential, whose id is in the key of the row, or of a key, which is there
/// itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RevocationRow<'a> {
    /// The second, since 1970, from which the credential is void in any case, so that the row may
    /// go; 0 for a credential without an end.
    pub end: u64,
    /// The signed sentence, at most [`limits::REVOCATION_BYTES`]: it can be shown to others, who
    /// need not believe the table.
    pub sentence: &'a [u8],
}

impl<'a> Row<'a> for RevocationRow<'a> {
    const KIND: RowKind = RowKind::Revocation;
}

impl<'a> Body<'a> for RevocationRow<'a> {
    fn body_bytes(&self) -> usize {
        8 + self.sentence.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.sentence.len() <= limits::REVOCATION_BYTES, "the wire has the same limit");
        out.u64(self.end);
        out.bytes(self.sentence);
    }

    fn decode_body(body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let end = body.u64()?;
        let sentence = body.rest();
        if sentence.is_empty() || sentence.len() > limits::REVOCATION_BYTES {
            return Err(DecodeError::Length);
        }
        Ok(Self { end, sentence })
    }
}
