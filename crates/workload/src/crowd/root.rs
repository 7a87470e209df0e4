//! The root of a file, from its bytes in their order.

use pelago_wire::blocks::{ExtentHash, Extents, ROOT_CONTEXT};
use pelago_wire::limits::EXTENT_BYTES;

/// Hashes a file extent by extent.
#[derive(Debug, Default)]
pub struct RootHasher {
    extent: blake3::Hasher,
    /// Bytes of the extent so far.
    filled: usize,
    hashes: Vec<ExtentHash>,
}

impl RootHasher {
    /// Takes the next bytes of the file.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(EXTENT_BYTES - self.filled));
            self.extent.update(part);
            self.filled += part.len();
            bytes = rest;
            if self.filled == EXTENT_BYTES {
                self.end_extent();
            }
        }
    }

    /// Returns the root of the bytes that came; `None` if they are more than a file may have.
    #[must_use]
    pub fn finish(mut self) -> Option<ExtentHash> {
        let size = self.hashes.len() as u64 * EXTENT_BYTES as u64 + self.filled as u64;
        if self.filled > 0 {
            self.end_extent();
        }
        Some(root(Extents::of(size)?, &self.hashes))
    }

    fn end_extent(&mut self) {
        self.hashes.push(*self.extent.finalize().as_bytes());
        self.extent.reset();
        self.filled = 0;
    }
}

/// Returns the root of a file from the hashes of its extents.
pub(super) fn root(file: Extents, hashes: &[ExtentHash]) -> ExtentHash {
    let mut hasher = blake3::Hasher::new_derive_key(ROOT_CONTEXT);
    hasher.update(&file.size().to_le_bytes());
    hashes.iter().for_each(|hash| {
        hasher.update(hash);
    });
    *hasher.finalize().as_bytes()
}

/// Returns a hash in hexadecimal digits.
#[must_use]
pub fn hex(hash: &ExtentHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
