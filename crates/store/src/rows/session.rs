//! Rows of sessions, and the replies that they may still request.

use pelago_wire::{RecordedPeer, SessionId, SessionRecord, SitePeer, WriteEra};

use super::codec::{Reader, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use crate::key::RowKind;

const USER: u8 = 1;
const MACHINE: u8 = 2;
const GUEST: u8 = 3;
const ORIGIN: u8 = 4;
const SITE: u8 = 5;
/// The peers of later versions, with their names.
pub const RESERVED_PEERS: &[(u8, &str)] = &[(6, "mount of a store's server")];
/// Added to these if the era follows.
const WITH_ERA: u8 = 0x10;

impl Row<'_> for SessionRecord {
    const KIND: RowKind = RowKind::Session;
}

impl Body<'_> for SessionRecord {
    fn body_bytes(&self) -> usize {
        let of_peer = match self.peer {
            RecordedPeer::User(_) => 21,
            RecordedPeer::Machine(_) | RecordedPeer::Guest(_) => 49,
            RecordedPeer::Site(_) => 51,
            RecordedPeer::Origin { .. } => 27,
        };
        of_peer + if self.era == WriteEra::FIRST { 0 } else { 4 }
    }

    fn encode_body(&self, out: &mut Writer) {
        out.bytes(&self.nonce);
        let with_era = if self.era == WriteEra::FIRST { 0 } else { WITH_ERA };
        match &self.peer {
            RecordedPeer::User(uid) => {
                out.u8(USER | with_era);
                out.u32(*uid);
            }
            RecordedPeer::Machine(key) => {
                out.u8(MACHINE | with_era);
                out.bytes(key);
            }
            RecordedPeer::Guest(key) => {
                out.u8(GUEST | with_era);
                out.bytes(key);
            }
            RecordedPeer::Site(SitePeer { key, site }) => {
                out.u8(SITE | with_era);
                out.bytes(key);
                out.u16(*site);
            }
            RecordedPeer::Origin { site, session } => {
                out.u8(ORIGIN | with_era);
                out.u16(*site);
                out.u64(session.0);
            }
        }
        if with_era != 0 {
            out.u32(self.era.0);
        }
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let nonce = body.array()?;
        let kind = body.u8()?;
        let peer = match kind & !WITH_ERA {
            USER => RecordedPeer::User(body.u32()?),
            MACHINE => RecordedPeer::Machine(body.array()?),
            GUEST => RecordedPeer::Guest(body.array()?),
            SITE => RecordedPeer::Site(SitePeer { key: body.array()?, site: body.u16()? }),
            ORIGIN => RecordedPeer::Origin { site: body.u16()?, session: SessionId(body.u64()?) },
            number => return Err(unknown_peer(number)),
        };
        if kind & WITH_ERA == 0 {
            return Ok(Self::new(nonce, peer));
        }
        let era = WriteEra(body.u32()?);
        if era <= WriteEra::FIRST {
            return Err(DecodeError::Field("era"));
        }
        Ok(Self { nonce, peer, era })
    }
}

fn unknown_peer(number: u8) -> DecodeError {
    match RESERVED_PEERS.iter().find(|(reserved, _)| *reserved == number) {
        Some((_, name)) => DecodeError::Newer { field: "peer", name },
        None => DecodeError::Field("peer"),
    }
}
