//! Rows of changes that concern two sites, and are to be finished.

use pelago_wire::{InodeId, Name};

use super::codec::{Reader, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use crate::key::RowKind;

/// A change of an own directory whose name is, or will be, at another site. It is under way until
/// the row is deleted. The number in the key is the id of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntentRow {
    /// The change.
    pub change: IntentChange,
    /// The directory of the other site that has the name.
    pub parent: InodeId,
    /// The name.
    pub name: Name,
}

/// A change that concerns two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentChange {
    /// The directory is made, and is to get the name.
    Make,
    /// The directory is empty and closed: the name goes, and then the directory.
    Remove,
}

const MAKE: u8 = 1;
const REMOVE: u8 = 2;

impl Row<'_> for IntentRow {
    const KIND: RowKind = RowKind::Intent;
}

impl Body<'_> for IntentRow {
    fn body_bytes(&self) -> usize {
        1 + 8 + 1 + self.name.as_bytes().len()
    }

    fn encode_body(&self, out: &mut Writer) {
        let Self { change, parent, name } = self;
        out.u8(match change {
            IntentChange::Make => MAKE,
            IntentChange::Remove => REMOVE,
        });
        out.ino(*parent);
        out.u8(name.as_bytes().len() as u8);
        out.bytes(name.as_bytes());
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let change = match body.u8()? {
            MAKE => IntentChange::Make,
            REMOVE => IntentChange::Remove,
            _ => return Err(DecodeError::Field("change")),
        };
        let parent = body.ino()?;
        let length = usize::from(body.u8()?);
        let name = Name::new(body.bytes(length)?).map_err(|_| DecodeError::Field("name"))?;
        Ok(Self { change, parent, name })
    }
}
