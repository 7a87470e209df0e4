//! Bytes of a reply, in memory that may be lent.

use std::fmt;
use std::sync::Arc;

/// Bytes that were read. Those that were lent go back when this is dropped, so that large reads
/// need no fresh memory each.
#[derive(Default)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// Of `bytes`, those that count.
    length: usize,
    lender: Option<Arc<dyn Lender>>,
}

/// Who lends memory to a [`Buffer`] and takes it back.
pub trait Lender: Send + Sync {
    /// Takes memory back, as long as it was.
    fn take_back(&self, bytes: Vec<u8>);
}

impl Buffer {
    /// A buffer with these bytes.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { length: bytes.len(), bytes, lender: None }
    }

    /// A buffer with the first `length` of these bytes, all of them at the most, which go back to
    /// `lender`.
    #[must_use]
    pub fn lent(bytes: Vec<u8>, length: usize, lender: Arc<dyn Lender>) -> Self {
        Self { length: length.min(bytes.len()), bytes, lender: Some(lender) }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The bytes, given away.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.lender = None;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(self.length);
        bytes
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
