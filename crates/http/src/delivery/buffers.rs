//! A pool of buffers for blocks from the page cache.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use pelago_wire::limits::BLOCK_BYTES;

/// The number of unused buffers that the pool caches.
const KEPT: usize = 32;

/// A pool of buffers of a block each. A buffer that was just sent is still in the caches of the
/// processor, and its memory need not be cleared.
#[derive(Debug)]
pub(super) struct Buffers {
    state: Mutex<State>,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    kept: Vec<Vec<u8>>,
    /// The number of buffers in use.
    used: usize,
}

/// A buffer, which returns to its pool on drop.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    len: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    /// Returns a pool of at most `bytes` bytes.
    pub(super) fn new(bytes: u64) -> Self {
        let most = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK_BYTES;
        Self { state: Mutex::default(), most }
    }

    /// Returns whether half of the buffers are in use.
    pub(super) fn are_scarce(&self) -> bool {
        self.state.lock().used >= self.most / 2
    }

    /// Returns a buffer of `len` bytes, at most a block, if the pool has room for one. Its content
    /// is undefined.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Option<Buffer> {
        debug_assert!(len <= BLOCK_BYTES, "a buffer has a block");
        let mut state = self.state.lock();
        if state.used >= self.most {
            return None;
        }
        state.used += 1;
        let kept = state.kept.pop();
        drop(state);
        let bytes = kept.unwrap_or_else(|| vec![0; BLOCK_BYTES]);
        Some(Buffer { bytes, len, home: Arc::clone(self) })
    }
}

impl Buffer {
    pub(super) fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut state = self.home.state.lock();
        state.used -= 1;
        if state.kept.len() < KEPT {
            state.kept.push(mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_that_came_back_last_is_used_again_and_there_is_a_limit() {
        let buffers = Arc::new(Buffers::new(40 * BLOCK_BYTES as u64));
        let mut first = buffers.take(10).unwrap();
        first.as_mut().fill(7);
        drop(first);
        assert_eq!(buffers.take(20).unwrap().as_ref()[..11], [&[7; 10][..], &[0]].concat());
        let many: Vec<Buffer> = (0..40).map(|_| buffers.take(BLOCK_BYTES).unwrap()).collect();
        assert!(buffers.take(1).is_none());
        drop(many);
        let state = buffers.state.lock();
        assert_eq!((state.used, state.kept.len()), (0, KEPT));
    }
}
