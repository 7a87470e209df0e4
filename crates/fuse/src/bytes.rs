//! Numbers and names in messages; nothing else of this crate looks at single bytes.
//!
//! Reading never panics: what is not there is a [`Fault`]. Writing goes into arrays whose size is
//! that of the layout, which the tests of every layout fill to the end.
#![expect(clippy::host_endian_bytes, reason = "the kernel that reads it is on this machine")]

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;

/// Reads from the front.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

/// Writes an array from the front.
#[derive(Debug)]
pub(crate) struct Layout<const BYTES: usize> {
    bytes: [u8; BYTES],
    at: usize,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A field, or data that a field names, is missing.
    #[error("it ends early")]
    Truncated,
    /// A name's NUL is missing.
    #[error("a name does not end")]
    EndlessName,
    /// The header's length is not what was read.
    #[error("its length is another")]
    Length,
    /// Nanoseconds that are a second or more.
    #[error("a time has too many nanoseconds")]
    Time,
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Fault> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Fault> {
        self.array().map(i32::from_ne_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Fault> {
        self.array().map(i64::from_ne_bytes)
    }

    /// Passes over fields that mean nothing here.
    pub(crate) fn skip<const BYTES: usize>(&mut self) -> Result<(), Fault> {
        self.array::<BYTES>().map(drop)
    }

    /// So many bytes as they are.
    pub(crate) fn take(&mut self, count: u64) -> Result<&'a [u8], Fault> {
        let count = usize::try_from(count).map_err(|_| Fault::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A name and the NUL at its end.
    pub(crate) fn name(&mut self) -> Result<&'a OsStr, Fault> {
        let name = CStr::from_bytes_until_nul(self.rest).map_err(|_| Fault::EndlessName)?;
        self.rest = &self.rest[name.count_bytes() + 1..];
        Ok(OsStr::from_bytes(name.to_bytes()))
    }

    /// What was not read yet.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn array<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Fault> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }
}

impl<const BYTES: usize> Layout<BYTES> {
    /// All zero: padding needs no writing.
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

    /// Leaves fields zero.
    pub(crate) const fn padding(&mut self, bytes: usize) -> &mut Self {
        self.at += bytes;
        self
    }

    /// The bytes, all of which were written.
    pub(crate) fn done(&self) -> &[u8; BYTES] {
        debug_assert_eq!(self.at, BYTES, "a layout is written to its end");
        &self.bytes
    }

    /// Inlined, so that all places are known when it is compiled: an entry has 22 fields.
    #[inline(always)]
    fn put<const FIELD: usize>(&mut self, field: [u8; FIELD]) -> &mut Self {
        let end = self.at + FIELD;
        self.bytes[self.at..end].copy_from_slice(&field);
        self.at = end;
        self
    }
}
