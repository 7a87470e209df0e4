//! Integers and names in messages. No other file of this crate reads or writes single bytes.
//!
//! Reading never panics: a missing field is a [`LayoutError`]. Writing fills arrays that have the
//! size of the layout; a test of each layout fills its array to the end.
#![expect(clippy::host_endian_bytes, reason = "the kernel that reads it is on this machine")]

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;

/// Reads fields from the front of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    /// The bytes of names and data, if they are apart from the fields before them.
    payload: Option<&'a [u8]>,
}

/// Writes fields from the front of an array.
#[derive(Debug)]
pub(crate) struct Layout<const BYTES: usize> {
    bytes: [u8; BYTES],
    at: usize,
}

/// The way in which a request breaks its layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A field, or data that a field names, is missing.
    #[error("it ends before its layout does")]
    Truncated,
    /// The NUL at the end of a name is missing.
    #[error("a name has no NUL")]
    EndlessName,
    /// The length in the header differs from the number of bytes read.
    #[error("its length is not the number of bytes read")]
    Length,
    /// A time has 10⁹ nanoseconds or more.
    #[error("a time has 10⁹ nanoseconds or more")]
    Time,
    /// A lock has an unknown type, ends before its start, or ends above `i64::MAX`.
    #[error("a lock has no such type or range")]
    Lock,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, payload: None }
    }

    /// Returns a cursor over fields, and over the names and data that follow them elsewhere.
    /// Fields that are not read before the first name are skipped.
    pub(crate) const fn in_parts(fields: &'a [u8], payload: &'a [u8]) -> Self {
        Self { rest: fields, payload: Some(payload) }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, LayoutError> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, LayoutError> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, LayoutError> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, LayoutError> {
        self.array().map(i32::from_ne_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, LayoutError> {
        self.array().map(i64::from_ne_bytes)
    }

    /// Skips fields that are ignored.
    pub(crate) fn skip<const BYTES: usize>(&mut self) -> Result<(), LayoutError> {
        self.array::<BYTES>().map(drop)
    }

    /// Takes `count` bytes of names or data as they are.
    pub(crate) fn take(&mut self, count: u64) -> Result<&'a [u8], LayoutError> {
        self.enter_payload();
        let count = usize::try_from(count).map_err(|_| LayoutError::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(LayoutError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes a name and the NUL at its end.
    pub(crate) fn name(&mut self) -> Result<&'a OsStr, LayoutError> {
        self.enter_payload();
        let name = CStr::from_bytes_until_nul(self.rest).map_err(|_| LayoutError::EndlessName)?;
        self.rest = &self.rest[name.count_bytes() + 1..];
        Ok(OsStr::from_bytes(name.to_bytes()))
    }

    /// Returns the bytes that were not read yet.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    const fn enter_payload(&mut self) {
        if let Some(payload) = self.payload.take() {
            self.rest = payload;
        }
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], LayoutError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(LayoutError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }
}

impl<const BYTES: usize> Layout<BYTES> {
    /// Returns a layout of zeros, so that padding needs no writing.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; BYTES], at: 0 }
    }

    pub(crate) fn u16(&mut self, value: u16) -> &mut Self {
        self.put(value.to_ne_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.put(value.to_ne_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.put(value.to_ne_bytes())
    }

    pub(crate) fn i32(&mut self, value: i32) -> &mut Self {
        self.put(value.to_ne_bytes())
    }

    pub(crate) fn i64(&mut self, value: i64) -> &mut Self {
        self.put(value.to_ne_bytes())
    }

    /// Leaves `bytes` bytes zero.
    pub(crate) const fn padding(&mut self, bytes: usize) -> &mut Self {
        self.at += bytes;
        self
    }

    /// Returns the bytes, all of which must have been written.
    pub(crate) fn done(&self) -> &[u8; BYTES] {
        debug_assert_eq!(self.at, BYTES, "a layout must be written to its end");
        &self.bytes
    }

    /// Inlined so that the compiler knows all offsets: an entry has 22 fields.
    #[inline(always)]
    fn put<const FIELD: usize>(&mut self, field: [u8; FIELD]) -> &mut Self {
        let end = self.at + FIELD;
        self.bytes[self.at..end].copy_from_slice(&field);
        self.at = end;
        self
    }
}
