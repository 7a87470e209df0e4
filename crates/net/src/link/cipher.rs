//! Bytes that were read and are not decrypted yet.

use std::io::{self, Read};

/// Bytes that one system call reads at first.
const FIRST_BYTES: usize = 4 << 10;
/// Bytes that one system call reads after a read that has filled the memory. TLS itself would read
/// 4 KiB at a time.
pub(super) const MOST_BYTES: usize = 64 << 10;

/// Bytes that were read and are not decrypted yet. A connection without any has no memory for them
/// until the first ones arrive.
#[derive(Default)]
pub(super) struct Cipher {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// The last read returned less than it could: the socket is empty.
    drained: bool,
}

impl Cipher {
    pub(super) const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Returns whether the last read has emptied the socket.
    pub(super) const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Reads the socket once, into the memory of bytes that were decrypted. Returns the count; 0 at
    /// the end of the stream.
    pub(super) fn fill(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let is_full = self.end > 0 && self.end == self.bytes.len();
        let size = if is_full { MOST_BYTES } else { self.bytes.len().max(FIRST_BYTES) };
        self.bytes.resize(size, 0);
        self.start = 0;
        self.end = 0;
        self.drained = true;
        let count = match read(&mut self.bytes) {
            Ok(count) => count,
            Err(error) => {
                // Nothing has arrived, and it may be long until something does.
                self.bytes = Vec::new();
                return Err(error);
            }
        };
        self.end = count;
        self.drained = count < size;
        Ok(count)
    }

    /// Returns the memory that it has, in bytes.
    #[cfg(test)]
    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Read for Cipher {
    /// Takes bytes out of memory.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = (&self.bytes[self.start..self.end]).read(into)?;
        self.start += count;
        Ok(count)
    }
}
