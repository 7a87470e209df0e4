//! Rows of bytes that stay here although the home of their file is another site.

use pelago_wire::{Handle, Time};

use super::codec::{Reader, TIME_BYTES, Writer};
use super::error::DecodeError;
use super::row::{Body, Row};
use crate::key::RowKind;

/// A node without a name that has the bytes of a file of another site. Its id is in the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StayRow {
    /// The file, with a place of its row at its home.
    pub file: Handle,
    /// The state of the bytes.
    pub state: StayState,
    /// The `mtime` that the file had, empty, when the first of the bytes was written.
    pub since: Time,
    /// The size that the home was told last, in bytes.
    pub told_size: u64,
}

/// The state of bytes that stay here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StayState {
    /// The home has never heard of them.
    New,
    /// The home was told of them, and they may have changed since: they are *not safe*.
    Changing,
    /// The home knows them.
    Told,
    /// The home was asked to take them, or has emptied the file: nothing is written here any more.
    Given,
    /// The file has got other bytes meanwhile. These are of no file, and stay for people.
    Kept,
    /// All of them, a few, were sent to the home, whose answer is not known: it has them, or never
    /// heard of them.
    Sent,
}

impl StayState {
    const ALL: [Self; 6] =
        [Self::New, Self::Changing, Self::Told, Self::Given, Self::Kept, Self::Sent];

    const fn number(self) -> u8 {
        match self {
            Self::New => 1,
            Self::Changing => 2,
            Self::Told => 3,
            Self::Given => 4,
            Self::Kept => 5,
            Self::Sent => 6,
        }
    }
}

impl Row<'_> for StayRow {
    const KIND: RowKind = RowKind::Stay;
}

impl Body<'_> for StayRow {
    fn body_bytes(&self) -> usize {
        3 * 8 + 1 + TIME_BYTES + 8
    }

    fn encode_body(&self, out: &mut Writer) {
        let Self { file, state, since, told_size } = self;
        out.ino(file.ino);
        out.ino(file.dir);
        out.hash(file.hash);
        out.u8(state.number());
        out.time(*since);
        out.u64(*told_size);
    }

    fn decode_body(body: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let file = Handle { ino: body.ino()?, dir: body.ino()?, hash: body.hash()? };
        let number = body.u8()?;
        let state = StayState::ALL.into_iter().find(|state| state.number() == number);
        let state = state.ok_or(DecodeError::Field("state"))?;
        Ok(Self { file, state, since: body.time()?, told_size: body.u64()? })
    }
}
