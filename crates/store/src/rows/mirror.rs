//! The row that holds the role of a volume's folder: primary, mirror or replaced.

use std::io;

use pelago_wire::limits;
use pelago_wire::mirror::PrimaryRun;

use super::codec::{Reader, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use super::volume::expect_volume_row;
use crate::key::{RowKind, VolumeRow};

/// The byte between the addresses of the mirror and of its relay.
const SEPARATOR: u8 = 0;

/// The role of a volume's folder beside its mirror, or its primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorRole {
    /// The volume that programs change.
    Primary,
    /// A copy, which has each state of the primary some time later.
    Mirror,
    /// It was the primary until its mirror was promoted.
    Replaced,
    /// It was the primary, and becomes a mirror of the one that replaced it with the first group.
    Adopted,
}

/// The role of a volume's folder, and the server at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorRow {
    /// The role.
    pub role: MirrorRole,
    /// Rises with each promotion, from 1: of two primaries the higher one counts.
    pub reign: u64,
    /// Of a mirror: the run of the primary that sent its newest group. Else zero.
    pub run: PrimaryRun,
    /// Of a mirror: the last group of that run that its rows have. Else 0.
    pub number: u64,
    /// Of a primary: its mirror as `KEY@HOST:PORT`, empty if it has none. Of others: empty. At most
    /// [`limits::SITE_ADDRESS_BYTES`].
    pub peer: String,
    /// Of a primary: the relay of its mirror as `KEY@HOST:PORT`, empty if it has none. Of others:
    /// empty. At most [`limits::SITE_ADDRESS_BYTES`].
    pub relay: String,
}

impl MirrorRow {
    /// Returns the number of a new run of a primary.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new_run() -> io::Result<PrimaryRun> {
        let mut run = [0; 16];
        getrandom::fill(&mut run).map_err(io::Error::other)?;
        Ok(run)
    }

    /// Returns the row of a volume that never had a mirror.
    #[must_use]
    pub const fn first() -> Self {
        let role = MirrorRole::Primary;
        let peer = String::new();
        Self { role, reign: 1, run: [0; 16], number: 0, peer, relay: String::new() }
    }
}

impl MirrorRole {
    const fn number(self) -> u8 {
        match self {
            Self::Primary => 1,
            Self::Mirror => 2,
            Self::Replaced => 3,
            Self::Adopted => 4,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Primary),
            2 => Some(Self::Mirror),
            3 => Some(Self::Replaced),
            4 => Some(Self::Adopted),
            _ => None,
        }
    }
}

impl Row<'_> for MirrorRow {
    const KIND: RowKind = RowKind::Volume;
}

impl Body<'_> for MirrorRow {
    fn body_bytes(&self) -> usize {
        let relay = if self.relay.is_empty() { 0 } else { 1 + self.relay.len() };
        34 + self.peer.len() + relay
    }

    fn encode_body(&self, out: &mut Writer) {
        for address in [&self.peer, &self.relay] {
            let is_fit = address.len() <= limits::SITE_ADDRESS_BYTES;
            assert!(is_fit && !address.as_bytes().contains(&SEPARATOR), "it was checked before");
        }
        out.u8(VolumeRow::MIRROR);
        out.u8(self.role.number());
        out.u64(self.reign);
        out.bytes(&self.run);
        out.u64(self.number);
        out.bytes(self.peer.as_bytes());
        if !self.relay.is_empty() {
            out.u8(SEPARATOR);
            out.bytes(self.relay.as_bytes());
        }
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        expect_volume_row(body, VolumeRow::MIRROR)?;
        let role = MirrorRole::from_number(body.u8()?).ok_or(DecodeError::Field("role"))?;
        let reign = body.u64()?;
        if reign == 0 {
            return Err(DecodeError::Field("reign"));
        }
        let run = body.array()?;
        let number = body.u64()?;
        let addresses = body.rest();
        let (peer, relay) = match addresses.iter().position(|byte| *byte == SEPARATOR) {
            None => (addresses, &addresses[addresses.len()..]),
            // A row has one form only.
            Some(end) if end + 1 == addresses.len() => return Err(DecodeError::Field("relay")),
            Some(end) => (&addresses[..end], &addresses[end + 1..]),
        };
        let peer = address(peer, "peer")?;
        let relay = address(relay, "relay")?;
        Ok(Self { role, reign, run, number, peer, relay })
    }
}

fn address(bytes: &[u8], field: &'static str) -> Result<String, DecodeError> {
    if bytes.len() > limits::SITE_ADDRESS_BYTES {
        return Err(DecodeError::Length);
    }
    match str::from_utf8(bytes) {
        Ok(text) if !text.as_bytes().contains(&SEPARATOR) => Ok(text.to_owned()),
        Ok(_) | Err(_) => Err(DecodeError::Field(field)),
    }
}
