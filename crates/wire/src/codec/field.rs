//! A field of a message: how it is appended to bytes and taken from them.

use crate::buffer::Buffer;
use crate::error::Error;
use crate::reserved::{self, Reserved};

/// The fault of the bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message ends before this field does.
    #[error("the message ends within {what}")]
    Truncated {
        /// The message and the field.
        what: &'static str,
    },
    /// Bytes follow the last field.
    #[error("{bytes} bytes follow the end of {what}")]
    Trailing {
        /// The message.
        what: &'static str,
        /// The bytes that follow.
        bytes: usize,
    },
    /// This version has no such number.
    #[error("{what} has the unknown number {number}")]
    Unknown {
        /// The message and the field.
        what: &'static str,
        /// The number.
        number: u64,
    },
    /// Only newer versions speak what the number stands for.
    #[error("{what} has the number {number} ({name}), which needs a newer version of pelago")]
    Newer {
        /// The message and the field.
        what: &'static str,
        /// The number.
        number: u16,
        /// The name of the number.
        name: &'static str,
    },
    /// A byte string or a list exceeds its limit.
    #[error("{what} has a length of {length}, and the limit is {limit}")]
    TooLong {
        /// The message and the field.
        what: &'static str,
        /// The length that the message claims: bytes of a string, entries of a list.
        length: usize,
        /// The greatest length.
        limit: usize,
    },
    /// A value is outside of its range.
    #[error("{what} has a value that it cannot have")]
    Invalid {
        /// The message and the field.
        what: &'static str,
    },
}

/// The type of a field. Most types stand for themselves; a marker type stands for a value with a
/// limit or a range, as [`crate::codec::fields::Target`] for bytes.
pub(crate) trait Field {
    /// The value in memory.
    type Value;
    /// Bytes that the field takes at most.
    const MOST: usize;

    /// Appends the value.
    ///
    /// # Errors
    /// Returns the error of a value over its limit; `out` may end within the field then.
    fn put(value: &Self::Value, out: &mut Vec<u8>) -> Result<(), Error>;

    /// Takes the value from the front of the bytes.
    ///
    /// # Errors
    /// Returns [`DecodeError`] if the bytes are no such value.
    fn take(from: &mut Reader<'_>) -> Result<Self::Value, DecodeError>;
}

/// A message that is being decoded: the bytes that are left, and the field for errors.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    bulk: Vec<u8>,
    at: &'static str,
}

impl<'a> Reader<'a> {
    /// Returns a reader of a body; `message` names it in errors.
    pub(crate) const fn new(body: &'a [u8], message: &'static str) -> Self {
        Self { rest: body, bulk: Vec::new(), at: message }
    }

    /// Returns a reader of a body with the bulk bytes of its frame.
    pub(crate) const fn with_bulk(body: &'a [u8], bulk: Vec<u8>, message: &'static str) -> Self {
        Self { rest: body, bulk, at: message }
    }

    /// Names the field that comes next, for errors.
    pub(crate) const fn at(&mut self, field: &'static str) -> &mut Self {
        self.at = field;
        self
    }

    /// Returns the number of bytes that are left.
    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let chunk = self.rest.split_first_chunk::<N>();
        let (first, rest) = chunk.ok_or(DecodeError::Truncated { what: self.at })?;
        self.rest = rest;
        Ok(*first)
    }

    /// Takes a length, and checks it before any byte after it is read.
    pub(crate) fn length<T>(&mut self, limit: usize) -> Result<usize, DecodeError>
    where
        T: Field<Value: TryInto<usize>>,
    {
        let length = T::take(self)?.try_into().unwrap_or(usize::MAX);
        if length > limit {
            return Err(DecodeError::TooLong { what: self.at, length, limit });
        }
        Ok(length)
    }

    /// Takes the next `length` bytes; the caller has checked the length against a limit.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let parts = self.rest.split_at_checked(length);
        let (first, rest) = parts.ok_or(DecodeError::Truncated { what: self.at })?;
        self.rest = rest;
        Ok(first)
    }

    /// Takes the bulk bytes of the frame, without a copy.
    pub(crate) fn bulk(&mut self) -> Buffer {
        Buffer::new(std::mem::take(&mut self.bulk))
    }

    /// Returns the error of a value outside of its range.
    pub(crate) const fn invalid(&self) -> DecodeError {
        DecodeError::Invalid { what: self.at }
    }

    /// Returns the error of a number that this version does not have.
    pub(crate) const fn unknown(&self, number: u64) -> DecodeError {
        DecodeError::Unknown { what: self.at, number }
    }

    /// As [`Reader::unknown`], by its name if it is one of `reserved`.
    pub(crate) fn not_spoken(&self, reserved: &[Reserved], number: u16) -> DecodeError {
        match reserved::name(reserved, number) {
            Some(name) => DecodeError::Newer { what: self.at, number, name },
            None => self.unknown(number.into()),
        }
    }

    /// Checks that nothing is left of `message`.
    pub(crate) fn finish(self, message: &'static str) -> Result<(), DecodeError> {
        match self.rest.len() + self.bulk.len() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { what: message, bytes }),
        }
    }
}

/// A row of a table of `docs/protocol.md`, which a test compares with the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayoutRow {
    /// The number of the message; 0 for a part of messages.
    pub number: u16,
    /// The name of the message or of the part.
    pub name: &'static str,
    /// The fields in their order: name and type.
    pub fields: &'static [(&'static str, &'static str)],
    /// The reply to a request that succeeds; empty for others.
    pub reply: &'static str,
    /// Bytes of all fields at most.
    pub most: usize,
}

/// Returns the bytes of the longest message of a table.
pub(crate) const fn longest(rows: &[LayoutRow]) -> usize {
    let mut most = 0;
    let mut at = 0;
    while at < rows.len() {
        if rows[at].most > most {
            most = rows[at].most;
        }
        at += 1;
    }
    most
}
