//! Reused buffers for large reads: fresh memory costs a page fault for each 4 KiB.

use std::sync::Arc;

use pelago_store::sync::Mutex;
use pelago_wire::{Buffer, Lender, limits};

/// The most free buffers of [`limits::IO_BYTES`] that are kept.
const KEPT: usize = 32;
/// Reads up to this size get fresh memory.
const SMALL_BYTES: usize = 16 << 10;

/// Free buffers for large reads.
#[derive(Default)]
pub(crate) struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// Returns a buffer that `read` fills. It gets `size` bytes, at most [`limits::IO_BYTES`], and
    /// returns the number of bytes that it filled, from the start.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn fill<E>(
        self: &Arc<Self>,
        size: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Buffer, E> {
        let size = size.min(limits::IO_BYTES);
        if size <= SMALL_BYTES {
            let mut bytes = vec![0; size];
            let length = read(&mut bytes)?;
            bytes.truncate(length);
            return Ok(Buffer::new(bytes));
        }
        let free = self.free.lock().pop();
        let mut bytes = free.unwrap_or_else(|| vec![0; limits::IO_BYTES]);
        match read(&mut bytes[..size]) {
            Ok(length) => Ok(Buffer::lent(bytes, length, Arc::clone(self) as Arc<dyn Lender>)),
            Err(error) => {
                self.take_back(bytes);
                Err(error)
            }
        }
    }
}

impl Lender for Buffers {
    fn take_back(&self, bytes: Vec<u8>) {
        let mut free = self.free.lock();
        if free.len() < KEPT {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_and_shows_only_what_was_read() {
        let buffers = Arc::new(Buffers::default());
        let fill = |size: usize, byte: u8, length: usize| {
            buffers.fill::<()>(size, |bytes| {
                assert_eq!(bytes.len(), size);
                bytes.fill(byte);
                Ok(length)
            })
        };
        let large = fill(100_000, 1, 90_000).unwrap();
        assert_eq!(large.as_bytes(), vec![1; 90_000]);
        drop(large);
        assert_eq!(buffers.free.lock().len(), 1);
        let again = fill(20_000, 2, 3).unwrap();
        assert!(buffers.free.lock().is_empty());
        assert_eq!(again.clone().into_bytes(), [2; 3]);
        assert_eq!(again.into_bytes(), [2; 3]);
        assert!(buffers.free.lock().is_empty(), "memory that the caller keeps is not used again");
        assert_eq!(fill(5, 3, 5).unwrap().as_bytes(), [3; 5]);
        assert!(buffers.fill(100_000, |_| Err(())).is_err());
        assert_eq!(buffers.free.lock().len(), 1);
    }
}
