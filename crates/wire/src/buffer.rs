//! The bytes of a reply, in memory that may be borrowed from a pool.

use std::fmt;
use std::sync::Arc;

/// Bytes that were read. Borrowed memory returns to its [`Lender`] on drop, so that large reads do
/// not allocate each time.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// The first so many of `bytes` are valid.
    length: usize,
    lender: Option<Arc<dyn Lender>>,
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
        Self { length: bytes.len(), bytes, lender: None }
    }

    /// Returns a buffer of the first `length` bytes, or of all if there are fewer; `lender` gets
    /// the memory back.
    #[must_use]
    pub fn lent(bytes: Vec<u8>, length: usize, lender: Arc<dyn Lender>) -> Self {
        Self { length: length.min(bytes.len()), bytes, lender: Some(lender) }
    }

    /// Returns the valid bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
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
        Self::new(self.as_bytes().to_vec())
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buffer").field(&self.as_bytes()).finish()
    }
}
