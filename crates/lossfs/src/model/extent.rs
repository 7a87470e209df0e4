//! The bytes of a file at one moment: those blocks of 4 KiB that are allocated.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a block.
pub(super) const BLOCK: u64 = 4096;
/// Bytes that a disk writes whole or not at all.
pub(super) const SECTOR: u64 = 512;

/// A block. `None` is reserved but not written, and reads as zeros.
pub(super) type Block = Option<Arc<[u8]>>;

/// A change of a file's bytes.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { at: u64, bytes: Arc<[u8]> },
    Resize(u64),
    Zero { from: u64, to: u64 },
    Reserve { from: u64, to: u64, keep_size: bool },
}

/// Size and blocks. After the size there are reserved blocks only.
#[derive(Debug, Clone, Default)]
pub(super) struct Extent {
    pub(super) size: u64,
    pub(super) blocks: Arc<BTreeMap<u64, Block>>,
}

impl Change {
    /// Returns the size after the change.
    pub(super) fn size_after(&self, size: u64) -> u64 {
        match self {
            Self::Write { at, bytes } => size.max(at + bytes.len() as u64),
            Self::Resize(size) => *size,
            Self::Reserve { to, keep_size: false, .. } => size.max(*to),
            Self::Zero { .. } | Self::Reserve { .. } => size,
        }
    }

    /// Returns whether it frees or clears a part of a block, so that later writes use a new block.
    pub(super) fn clears(&self, block: u64) -> bool {
        let from = block * BLOCK;
        let to = (block + 1) * BLOCK;
        match self {
            Self::Resize(size) => *size < to,
            Self::Zero { from: first, to: last } => *first < to && from < *last,
            Self::Write { .. } | Self::Reserve { .. } => false,
        }
    }

    /// Returns the blocks that a write touches.
    pub(super) fn written(&self) -> std::ops::Range<u64> {
        match self {
            Self::Write { at, bytes } => *at / BLOCK..(at + bytes.len() as u64).div_ceil(BLOCK),
            _ => 0..0,
        }
    }

    /// Returns a block after the change.
    pub(super) fn apply_to(&self, number: u64, block: Option<Block>) -> Option<Block> {
        let from = number * BLOCK;
        let to = (number + 1) * BLOCK;
        match self {
            Self::Write { at, bytes } => {
                let end = at + bytes.len() as u64;
                let first = from.max(*at);
                let last = to.min(end);
                if first >= last {
                    return block;
                }
                let mut whole = filled(block);
                whole[(first - from) as usize..(last - from) as usize]
                    .copy_from_slice(&bytes[(first - at) as usize..(last - at) as usize]);
                Some(Some(whole.into()))
            }
            Self::Resize(size) => cleared(block, (*size).max(from) - from, BLOCK, *size <= from),
            Self::Zero { from: first, to: last } if *first < to && from < *last => {
                let first = (*first).max(from) - from;
                let last = (*last).min(to) - from;
                cleared(block, first, last, last - first == BLOCK)
            }
            Self::Zero { .. } => block,
            Self::Reserve { from: first, to: last, .. } => {
                if *first < to && from < *last {
                    block.or(Some(None))
                } else {
                    block
                }
            }
        }
    }
}

impl Extent {
    /// Applies a change.
    pub(super) fn apply(&mut self, change: &Change) {
        let blocks = Arc::make_mut(&mut self.blocks);
        let numbers: Vec<u64> = match change {
            Change::Write { .. } => change.written().collect(),
            Change::Reserve { from, to, .. } => (from / BLOCK..to.div_ceil(BLOCK)).collect(),
            Change::Resize(size) => blocks.range(size / BLOCK..).map(|(at, _)| *at).collect(),
            Change::Zero { from, to } => {
                blocks.range(from / BLOCK..to.div_ceil(BLOCK)).map(|(at, _)| *at).collect()
            }
        };
        for number in numbers {
            let block = blocks.remove(&number);
            if let Some(block) = change.apply_to(number, block) {
                blocks.insert(number, block);
            }
        }
        self.size = change.size_after(self.size);
    }

    /// Returns up to `length` bytes from `at` on; fewer at the end.
    pub(super) fn read(&self, at: u64, length: u64) -> Vec<u8> {
        let end = self.size.min(at.saturating_add(length));
        let mut bytes = vec![0; end.saturating_sub(at) as usize];
        if bytes.is_empty() {
            return bytes;
        }
        for (number, block) in self.blocks.range(at / BLOCK..end.div_ceil(BLOCK)) {
            let Some(block) = block else { continue };
            let start = number * BLOCK;
            let first = start.max(at);
            let last = (start + BLOCK).min(end);
            bytes[(first - at) as usize..(last - at) as usize]
                .copy_from_slice(&block[(first - start) as usize..(last - start) as usize]);
        }
        bytes
    }
}

fn filled(block: Option<Block>) -> Vec<u8> {
    block.flatten().map_or_else(|| vec![0; BLOCK as usize], |block| block.to_vec())
}

fn cleared(block: Option<Block>, from: u64, to: u64, whole: bool) -> Option<Block> {
    if whole || from >= to {
        return if whole { None } else { block };
    }
    match block {
        Some(Some(bytes)) => {
            let mut bytes = bytes.to_vec();
            bytes[from as usize..to as usize].fill(0);
            Some(Some(bytes.into()))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, bytes: &[u8]) -> Change {
        Change::Write { at, bytes: bytes.into() }
    }

    #[test]
    fn bytes_are_where_they_were_written_and_zeros_elsewhere() {
        let mut extent = Extent::default();
        extent.apply(&write(4_090, b"0123456789"));
        assert_eq!((extent.size, extent.blocks.len()), (4_100, 2));
        assert_eq!(extent.read(4_088, 100), b"\0\x000123456789");
        extent.apply(&Change::Resize(4_093));
        extent.apply(&Change::Resize(4_098));
        assert_eq!(extent.read(4_090, 100), b"012\0\0\0\0\0");
        extent.apply(&write(0, &[7; 8_192]));
        extent.apply(&Change::Zero { from: 10, to: 8_191 });
        assert_eq!((extent.read(9, 2), extent.read(8_190, 9)), (vec![7, 0], vec![0, 7]));
        extent.apply(&Change::Zero { from: 0, to: 4_096 });
        assert_eq!(extent.blocks.len(), 1);
        extent.apply(&Change::Reserve { from: 0, to: 40_000, keep_size: true });
        assert_eq!((extent.size, extent.blocks.len()), (8_192, 10));
        extent.apply(&Change::Reserve { from: 0, to: 40_000, keep_size: false });
        assert_eq!((extent.size, extent.read(39_999, 9)), (40_000, vec![0]));
        assert!(extent.read(40_000, 9).is_empty());
    }
}
