//! The geometry of a file: its blocks and its extents.

use pelago_wire::limits;

use super::block_set::BlockSet;
use super::{Block, VersionId};

/// A file as blocks and extents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    /// Bytes of the file.
    pub(super) length: u64,
    /// Bytes of a block.
    pub(super) block_bytes: u32,
    /// Blocks of an extent: a power of two up to 64.
    pub(super) extent_blocks: u32,
}

impl Geometry {
    /// Returns how many blocks the file has; `None` if they are too many.
    pub(super) fn checked_blocks(&self) -> Option<u32> {
        let blocks = u32::try_from(self.length.div_ceil(u64::from(self.block_bytes))).ok()?;
        (blocks <= limits::DELIVERY_FILE_BLOCKS).then_some(blocks)
    }

    /// Returns how many blocks the file has, which is opened only if they are not too many.
    pub(super) fn blocks(&self) -> u32 {
        self.checked_blocks().unwrap_or(limits::DELIVERY_FILE_BLOCKS)
    }

    /// Returns how many extents the file has.
    pub(super) fn extents(&self) -> u32 {
        self.blocks().div_ceil(self.extent_blocks)
    }

    /// Returns the extent of a block.
    pub(super) const fn extent_of(&self, block: u32) -> u32 {
        block / self.extent_blocks
    }

    /// Returns the first block of an extent.
    pub(super) const fn first_block(&self, extent: u32) -> u32 {
        extent * self.extent_blocks
    }

    /// Returns where an extent begins, and how many bytes it has.
    pub(super) fn extent_bytes(&self, extent: u32) -> (u64, u32) {
        let size = u64::from(self.block_bytes) * u64::from(self.extent_blocks);
        let offset = u64::from(extent) * size;
        let len = self.length.saturating_sub(offset).min(size);
        (offset, u32::try_from(len).expect("an extent is shorter than 4 GiB"))
    }

    /// Returns which blocks of an extent a set has, the first one as the lowest bit.
    pub(super) fn part(&self, set: &BlockSet, extent: u32) -> u64 {
        let first = self.first_block(extent);
        let word = set.word(first / 64) >> (first % 64);
        if self.extent_blocks == 64 { word } else { word & ((1 << self.extent_blocks) - 1) }
    }

    /// Returns how many blocks of an extent a set has.
    pub(super) fn count(&self, set: &BlockSet, extent: u32) -> u32 {
        self.part(set, extent).count_ones()
    }

    /// Returns a block, as far as it is between two offsets.
    pub(super) fn block(&self, file: VersionId, block: u32, from: u64, to: u64) -> Block {
        let begin = u64::from(block) * u64::from(self.block_bytes);
        let end = (begin + u64::from(self.block_bytes)).min(self.length).min(to);
        let offset = begin.max(from);
        let len = u32::try_from(end.saturating_sub(offset)).expect("a block is shorter than 4 GiB");
        Block { file, extent: self.extent_of(block), offset, len }
    }
}
