//! An extent in memory.

use std::sync::OnceLock;

use blake3::Hasher;
use bytes::Bytes;
use pelago_wire::blocks::ExtentHash;
use pelago_wire::limits::BLOCK_BYTES;

/// The bytes of an extent. Each block has memory of its own, so a client that stalls keeps one
/// block from being freed, not the extent.
#[derive(Debug)]
pub(super) struct Extent {
    blocks: Vec<Bytes>,
    hash: OnceLock<ExtentHash>,
}

impl Extent {
    /// Returns the extent with these blocks, and its hash if that is known.
    pub(super) fn new(blocks: Vec<Bytes>, hash: Option<ExtentHash>) -> Self {
        Self { blocks, hash: hash.map_or_else(OnceLock::new, OnceLock::from) }
    }

    /// Returns `len` bytes from an offset in the extent; `None` if they are not all of one block.
    pub(super) fn part(&self, offset: usize, len: usize) -> Option<Bytes> {
        let block = self.blocks.get(offset / BLOCK_BYTES)?;
        let within = offset % BLOCK_BYTES;
        let end = within.checked_add(len).filter(|end| *end <= block.len())?;
        Some(block.slice(within..end))
    }

    /// Returns the hash, which is computed if it is not known yet.
    pub(super) fn hash(&self) -> ExtentHash {
        *self.hash.get_or_init(|| {
            let mut hasher = Hasher::new();
            self.blocks.iter().for_each(|block| {
                hasher.update(block);
            });
            *hasher.finalize().as_bytes()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_within_one_block() {
        let blocks = vec![Bytes::from(vec![1; BLOCK_BYTES]), Bytes::from(vec![2; 100])];
        let extent = Extent::new(blocks, None);
        assert_eq!(extent.part(BLOCK_BYTES + 10, 90).unwrap(), [2; 90].as_slice());
        assert_eq!(extent.part(5, 7).unwrap(), [1; 7].as_slice());
        for (offset, len) in [(BLOCK_BYTES + 10, 91), (BLOCK_BYTES - 1, 2), (2 * BLOCK_BYTES, 0)] {
            assert!(extent.part(offset, len).is_none(), "{offset} {len}");
        }
        let mut whole = vec![1; BLOCK_BYTES];
        whole.extend([2; 100]);
        assert_eq!(extent.hash(), *blake3::hash(&whole).as_bytes());
        assert_eq!(Extent::new(Vec::new(), Some([7; 32])).hash(), [7; 32]);
    }
}
