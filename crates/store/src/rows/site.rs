//! Rows of the sites of a volume.

use std::io;

use pelago_wire::{SiteToken, limits};

use super::codec::{Reader, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use super::volume::expect_volume_row;
use crate::key::{RowKind, VolumeRow};

/// Bytes of the name of a site.
pub const SITE_NAME_BYTES: usize = 63;

/// Another site of the volume, whose number is in the key; or this one, once it has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRow {
    /// The state of the site: invited, joined, or left.
    pub state: SiteState,
    /// Its name, for people: 1 to [`SITE_NAME_BYTES`] bytes.
    pub name: String,
    /// The address of its server, as `HOST:PORT`; empty if the server has not sent it. At most
    /// [`limits::SITE_ADDRESS_BYTES`].
    pub address: String,
}

/// The state of a site: invited, joined, or left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteState {
    /// It was invited.
    Invited {
        /// The Ed25519 public key of the invitation: its bearer signs the key of the site with the
        /// private key.
        key: [u8; 32],
        /// The second, since 1970, from which the invitation is void.
        until: u64,
    },
    /// It is a site of the volume.
    Joined {
        /// The Ed25519 public key of its server.
        key: [u8; 32],
        /// The public key of the invitation by which it joined; zero for the founding site, and at
        /// all sites but that one.
        invitation: [u8; 32],
    },
    /// It was a site of the volume. Its number is not given again.
    Left {
        /// The Ed25519 public key that its server had.
        key: [u8; 32],
    },
}

const INVITED: u8 = 1;
const JOINED: u8 = 2;
const LEFT: u8 = 3;

impl Row<'_> for SiteRow {
    const KIND: RowKind = RowKind::Site;
}

impl Body<'_> for SiteRow {
    fn body_bytes(&self) -> usize {
        let of_state = match self.state {
            SiteState::Invited { .. } => 41,
            SiteState::Joined { .. } => 65,
            SiteState::Left { .. } => 33,
        };
        of_state + 1 + self.name.len() + self.address.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!((1..=SITE_NAME_BYTES).contains(&self.name.len()), "a site has a short name");
        assert!(self.address.len() <= limits::SITE_ADDRESS_BYTES, "the wire has the same limit");
        match &self.state {
            SiteState::Invited { key, until } => {
                out.u8(INVITED);
                out.bytes(key);
                out.u64(*until);
            }
            SiteState::Joined { key, invitation } => {
                out.u8(JOINED);
                out.bytes(key);
                out.bytes(invitation);
            }
            SiteState::Left { key } => {
                out.u8(LEFT);
                out.bytes(key);
            }
        }
        out.u8(self.name.len() as u8);
        out.bytes(self.name.as_bytes());
        out.bytes(self.address.as_bytes());
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let state = match body.u8()? {
            INVITED => SiteState::Invited { key: body.array()?, until: body.u64()? },
            JOINED => SiteState::Joined { key: body.array()?, invitation: body.array()? },
            LEFT => SiteState::Left { key: body.array()? },
            _ => return Err(DecodeError::Field("state")),
        };
        let length = usize::from(body.u8()?);
        if !(1..=SITE_NAME_BYTES).contains(&length) {
            return Err(DecodeError::Field("name"));
        }
        let name = text(body.bytes(length)?, "name")?;
        let address = body.rest();
        if address.len() > limits::SITE_ADDRESS_BYTES {
            return Err(DecodeError::Length);
        }
        Ok(Self { state, name, address: text(address, "address")? })
    }
}

/// The signed list of the volume's sites, as it was made or received last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteListRow<'a> {
    /// The text: at most [`limits::SITE_LIST_BYTES`].
    pub text: &'a [u8],
}

impl<'a> Row<'a> for SiteListRow<'a> {
    const KIND: RowKind = RowKind::Volume;
}

impl<'a> Body<'a> for SiteListRow<'a> {
    fn body_bytes(&self) -> usize {
        1 + self.text.len()
    }

    fn encode_body(&self, out: &mut Writer) {
        assert!(self.text.len() <= limits::SITE_LIST_BYTES, "a list was checked before");
        out.u8(VolumeRow::SITE_LIST);
        out.bytes(self.text);
    }

    fn decode_body(body: &mut Reader<'a>) -> Result<Self, DecodeError> {
        expect_volume_row(body, VolumeRow::SITE_LIST)?;
        let text = body.rest();
        if text.len() > limits::SITE_LIST_BYTES {
            return Err(DecodeError::Length);
        }
        Ok(Self { text })
    }
}

/// The tokens that this site and another one, whose number is in the key, have given each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SiteTokensRow {
    /// The last one that the other site has given to this one.
    pub held: SiteToken,
    /// The last one that this site has given to the other one.
    pub given: SiteToken,
    /// The one before it, as long as the other site may not have the last one; `None` once it has.
    pub before: Option<SiteToken>,
}

const ONE_BEFORE: u8 = 1;

impl SiteTokensRow {
    /// The tokens of a site whose row is damaged.
    pub const LOST: Self = Self { held: SiteToken::LOST, given: SiteToken::LOST, before: None };

    /// Returns the random bytes of a new token.
    ///
    /// # Errors
    /// If the system has none.
    pub fn new_random() -> io::Result<[u8; 16]> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(random)
    }
}

impl Row<'_> for SiteTokensRow {
    const KIND: RowKind = RowKind::Volume;
}

impl Body<'_> for SiteTokensRow {
    fn body_bytes(&self) -> usize {
        let tokens = if self.before.is_some() { 3 } else { 2 };
        2 + tokens * 24
    }

    fn encode_body(&self, out: &mut Writer) {
        out.u8(VolumeRow::SITE_TOKENS);
        out.u8(if self.before.is_some() { ONE_BEFORE } else { 0 });
        for token in [self.held, self.given].into_iter().chain(self.before) {
            out.u64(token.number);
            out.bytes(&token.random);
        }
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        fn token(body: &mut Reader<'_>) -> Result<SiteToken, DecodeError> {
            Ok(SiteToken { number: body.u64()?, random: body.array()? })
        }
        expect_volume_row(body, VolumeRow::SITE_TOKENS)?;
        let flags = body.u8()?;
        if flags & !ONE_BEFORE != 0 {
            return Err(DecodeError::Field("flags"));
        }
        let held = token(body)?;
        let given = token(body)?;
        let before = (flags == ONE_BEFORE).then(|| token(body)).transpose()?;
        Ok(Self { held, given, before })
    }
}

fn text(bytes: &[u8], field: &'static str) -> Result<String, DecodeError> {
    str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Field(field))
}
