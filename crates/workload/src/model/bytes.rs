//! The bytes of a sparse file.

use std::collections::BTreeMap;

const BLOCK: u64 = 4096;

/// The bytes of a file. Bytes that were never written are zero and take no memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SparseBytes {
    size: u64,
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl SparseBytes {
    /// Writes `bytes` at `offset`. Bytes between the old end and `offset` become a hole.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let within = (at % BLOCK) as usize;
            let (now, later) = rest.split_at(rest.len().min(BLOCK as usize - within));
            let block = self.blocks.entry(at / BLOCK).or_insert_with(empty_block);
            block[within..within + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
        self.size = self.size.max(at);
    }

    /// Sets the size: cuts the end off, or extends it by a hole.
    pub(crate) fn truncate(&mut self, size: u64) {
        self.blocks.split_off(&size.div_ceil(BLOCK));
        if let Some(block) = self.blocks.get_mut(&(size / BLOCK)) {
            block[(size % BLOCK) as usize..].fill(0);
        }
        self.size = size;
    }

    /// Zeroes `length` bytes from `offset`; the size stays.
    pub(crate) fn zero(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        for (number, block) in self.blocks.range_mut(offset / BLOCK..end.div_ceil(BLOCK)) {
            let start = number * BLOCK;
            let from = offset.saturating_sub(start);
            let to = (end - start).min(BLOCK);
            block[from as usize..to as usize].fill(0);
        }
    }

    /// Returns whether all bytes of a range are zero; bytes after the end are.
    pub(crate) fn is_zero(&self, offset: u64, end: u64) -> bool {
        let mut blocks = self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK).max(offset / BLOCK));
        blocks.all(|(number, block)| {
            let start = number * BLOCK;
            let from = offset.saturating_sub(start);
            let to = (end - start).min(BLOCK);
            block[from as usize..to as usize].iter().all(|byte| *byte == 0)
        })
    }

    /// Returns the size in bytes.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Returns `length` bytes from `offset`, fewer at the end.
    pub(crate) fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = offset.saturating_add(length).min(self.size);
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        let mut at = offset;
        while at < end {
            let within = (at % BLOCK) as usize;
            let now = (BLOCK - at % BLOCK).min(end - at) as usize;
            if let Some(block) = self.blocks.get(&(at / BLOCK)) {
                let to = (at - offset) as usize;
                bytes[to..to + now].copy_from_slice(&block[within..within + now]);
            }
            at += now as u64;
        }
        bytes
    }

    /// Returns the ranges (offset, length) to compare: all of a small file; of a large one the
    /// start, the end, and the written blocks with a margin.
    pub(crate) fn interesting(&self) -> Vec<(u64, u64)> {
        const SMALL: u64 = 1 << 20;
        if self.size <= SMALL {
            return vec![(0, SMALL)];
        }
        let mut ranges: Vec<(u64, u64)> = vec![(0, BLOCK)];
        let last = self.size / BLOCK;
        for block in self.blocks.keys().copied().chain([last]) {
            let from = block.saturating_sub(1) * BLOCK;
            let to = (block + 2) * BLOCK;
            match ranges.last_mut() {
                Some((start, length)) if *start + *length >= from && to - *start <= SMALL => {
                    *length = to.max(*start + *length) - *start;
                }
                _ => ranges.push((from, to - from)),
            }
        }
        ranges
    }
}

fn empty_block() -> Box<[u8]> {
    vec![0; BLOCK as usize].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelago_random::{Random, bytes_of};

    #[test]
    fn sparse_bytes_behave_like_a_vector() {
        let mut random = Random::new(11);
        let mut sparse = SparseBytes::default();
        let mut plain = Vec::new();
        for step in 0..500 {
            let offset = random.index(40_000);
            if random.chance(20) {
                let to = offset + random.index(20_000) + 1;
                sparse.zero(offset as u64, (to - offset) as u64);
                let end = to.min(plain.len());
                plain[offset.min(end)..end].fill(0);
                assert!(sparse.is_zero(offset as u64, to as u64));
            } else if random.chance(30) {
                sparse.truncate(offset as u64);
                plain.resize(offset, 0);
            } else {
                let bytes = bytes_of(step, random.index(9000) + 1);
                sparse.write(offset as u64, &bytes);
                plain.resize(plain.len().max(offset + bytes.len()), 0);
                plain[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            assert_eq!(sparse.size(), plain.len() as u64);
            let from = random.index(50_000).min(plain.len());
            let to = (from + random.index(9000)).min(plain.len());
            assert_eq!(sparse.read(from as u64, (to - from) as u64), plain[from..to]);
        }
        assert_eq!(sparse.read(0, u64::MAX), plain);
    }

    #[test]
    fn the_interesting_ranges_of_a_large_file_contain_all_its_data() {
        let mut sparse = SparseBytes::default();
        sparse.write(5 << 30, b"far");
        sparse.write(1 << 20, b"near");
        let ranges = sparse.interesting();
        let total: u64 = ranges.iter().map(|(_, length)| length).sum();
        assert!(total < 100_000, "{ranges:?}");
        for at in [0_u64, 1 << 20, (5 << 30) + 2] {
            assert!(ranges.iter().any(|(from, length)| *from <= at && at < from + length), "{at}");
        }
    }
}
