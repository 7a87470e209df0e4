//! The bytes of a reply, in memory that may be borrowed from a pool.

use std::fmt;
use std::sync::Arc;

/// Bytes that were read. Borrowed memory returns to its [`Lender`] on drop, so that large reads do
/// not allocate each time.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// The number of valid bytes.
    length: usize,
    lender: Option<Arc<dyn Lender>>,
    /// The bytes are not here but in the memory that came with the request.
    is_in_room: bool,
}

/// A pool of memory for [`Buffer`]s.
pub trait Lender: Send + Sync {
    /// Takes memory back, with the length that it was lent with.
    fn take_back(&self, bytes: Vec<u8>);
}

impl Buffer {
    /// Returns a buffer that owns its bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { length: bytes.len(), bytes, lender: None, is_in_room: false }
    }

    /// Returns a buffer of the first `length` bytes, or of all if there are fewer; `lender` gets
    /// the memory back.
    #[must_use]
    pub fn lent(bytes: Vec<u8>, length: usize, lender: Arc<dyn Lender>) -> Self {
        let length = length.min(bytes.len());
        Self { length, bytes, lender: Some(lender), is_in_room: false }
    }

    /// Returns a buffer without bytes, which says that `length` bytes are in the memory that came
    /// with the request ([`Bulk::Room`](crate::Bulk::Room)).
    #[must_use]
    pub const fn in_room(length: usize) -> Self {
        Self { length, bytes: Vec::new(), lender: None, is_in_room: true }
    }

    /// Returns how many bytes are in the memory that came with the request, if they are there.
    #[must_use]
    pub fn room_bytes(&self) -> Option<usize> {
        self.is_in_room.then_some(self.length)
    }

    /// Returns the valid bytes, as far as they are here.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length.min(self.bytes.len())]
    }

    /// Returns the valid bytes in their memory, which the lender does not get back.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.lender = None;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(self.length);
        bytes
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(lender) = self.lender.take() {
            lender.take_back(std::mem::take(&mut self.bytes));
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        match self.room_bytes() {
            Some(length) => Self::in_room(length),
            None => Self::new(self.as_bytes().to_vec()),
        }
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.room_bytes() == other.room_bytes() && self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buffer").field(&self.as_bytes()).finish()
    }
}
