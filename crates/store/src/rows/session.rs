//! Rows about sessions: which there are, and the replies that they may still ask for.

use pelago_wire::{RecordedPeer, SessionRecord};

use super::codec::{Reader, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use crate::key::RowKind;

const USER: u8 = 1;
const MACHINE: u8 = 2;

impl Row<'_> for SessionRecord {
    const KIND: RowKind = RowKind::Session;
}

impl Body<'_> for SessionRecord {
    fn body_bytes(&self) -> usize {
        match self.peer {
            RecordedPeer::User(_) => 21,
            RecordedPeer::Machine(_) => 49,
        }
    }

    fn encode_body(&self, out: &mut Writer) {
        out.bytes(&self.nonce);
        match &self.peer {
            RecordedPeer::User(uid) => {
                out.u8(USER);
                out.u32(*uid);
            }
            RecordedPeer::Machine(key) => {
                out.u8(MACHINE);
                out.bytes(key);
            }
        }
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let nonce = body.array()?;
        let peer = match body.u8()? {
            USER => RecordedPeer::User(body.u32()?),
            MACHINE => RecordedPeer::Machine(body.array()?),
            _ => return Err(DecodeError::Field("peer")),
        };
        Ok(Self { nonce, peer })
    }
}
