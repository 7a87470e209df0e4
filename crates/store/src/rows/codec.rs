//! Encodes and decodes the fields of a value: little-endian, one after the other, no padding.

use pelago_wire::{FileKind, Generation, InodeId, NameHash, Time};

use super::error::DecodeError;

/// A value that is being encoded, from its first byte to its last.
#[derive(Debug)]
pub struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub(super) fn u8(&mut self, number: u8) {
        self.0.push(number);
    }

    pub(super) fn u16(&mut self, number: u16) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn ino(&mut self, ino: InodeId) {
        self.u64(ino.raw());
    }

    pub(super) fn hash(&mut self, hash: NameHash) {
        self.u64(hash.0);
    }

    pub(super) fn time(&mut self, time: Time) {
        self.0.extend_from_slice(&time.seconds.to_le_bytes());
        self.u32(time.nanos);
    }

    /// Appends a generation as a `u32`; `None` is 0.
    pub(super) fn generation(&mut self, generation: Option<Generation>) {
        self.u32(generation.map_or(0, |generation| generation.0));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn written(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Bytes of an encoded [`Time`].
pub(super) const TIME_BYTES: usize = 12;

/// A value that is being decoded: the bytes not decoded yet, and the version of its body.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    version: u8,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, version: 1 }
    }

    /// Returns the version of the body.
    pub(super) const fn version(&self) -> u8 {
        self.version
    }

    /// Sets the version of the body, once it is read.
    pub(super) const fn set_version(&mut self, version: u8) {
        self.version = version;
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Length)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.take().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_le_bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take()
    }

    pub(super) fn ino(&mut self) -> Result<InodeId, DecodeError> {
        self.u64().map(InodeId::from_raw)
    }

    pub(super) fn hash(&mut self) -> Result<NameHash, DecodeError> {
        self.u64().map(NameHash)
    }

    pub(super) fn kind(&mut self) -> Result<FileKind, DecodeError> {
        FileKind::from_number(self.u8()?).ok_or(DecodeError::Field("file kind"))
    }

    pub(super) fn time(&mut self) -> Result<Time, DecodeError> {
        let seconds = self.take().map(i64::from_le_bytes)?;
        let nanos = self.u32()?;
        if nanos >= 1_000_000_000 {
            return Err(DecodeError::Field("time"));
        }
        Ok(Time { seconds, nanos })
    }

    /// Takes a generation, a `u32`; 0 is `None`.
    pub(super) fn generation(&mut self) -> Result<Option<Generation>, DecodeError> {
        Ok(match self.u32()? {
            0 => None,
            number => Some(Generation(number)),
        })
    }

    /// Takes the next `length` bytes.
    pub(super) fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (first, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Length)?;
        self.rest = rest;
        Ok(first)
    }

    /// Takes all bytes that are left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Checks that no byte is left.
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Length) }
    }
}
