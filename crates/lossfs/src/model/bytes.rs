//! The bytes of a file as programs see them, as they are on the disk, and the changes between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::extent::{BLOCK, Block, Change, Extent, SECTOR};
use crate::random::Random;

/// Live bytes, which programs see, and stable bytes, which are on the disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Bytes {
    live: Extent,
    stable: Extent,
    /// The changes from stable to live, in order.
    pending: Vec<Change>,
    /// Blocks that a sync failed to write, and that were not written since.
    lost: BTreeSet<u64>,
}

impl Bytes {
    pub(super) fn size(&self) -> u64 {
        self.live.size
    }

    /// Returns the number of used blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.live.blocks.len() as u64
    }

    pub(super) fn read(&self, at: u64, length: u64) -> Vec<u8> {
        self.live.read(at, length)
    }

    pub(super) fn apply(&mut self, change: Change) {
        for block in change.written() {
            self.lost.remove(&block);
        }
        self.live.apply(&change);
        self.pending.push(change);
    }

    /// Returns how many more blocks a change would use.
    pub(super) fn wants(&self, change: &Change) -> u64 {
        let range = match change {
            Change::Write { .. } => change.written(),
            Change::Reserve { from, to, .. } => from / BLOCK..to.div_ceil(BLOCK),
            Change::Resize(_) | Change::Zero { .. } => return 0,
        };
        range.filter(|block| !self.live.blocks.contains_key(block)).count() as u64
    }

    pub(super) fn sync(&mut self) {
        let mut synced = self.live.clone();
        if !self.lost.is_empty() {
            let blocks = Arc::make_mut(&mut synced.blocks);
            for block in &self.lost {
                match self.stable.blocks.get(block) {
                    Some(old) => blocks.insert(*block, old.clone()),
                    None => blocks.remove(block),
                };
            }
        }
        self.stable = synced;
        self.pending.clear();
    }

    /// Fails a sync: the changes that it included are never written.
    pub(super) fn fail_to_sync(&mut self) {
        self.lost.extend(self.pending.iter().flat_map(Change::written));
    }

    /// Returns the bytes after a power cut: without all that was not synced, or with some of it.
    ///
    /// Sizes, truncations and holes reach the disk in order. Each block has the state after one of
    /// its writes, chosen independently; a torn block differs by sector. A block that was not
    /// written reads as zeros if the size includes it.
    pub(super) fn after_crash(&self, random: Option<&mut Random>) -> Self {
        let left = match random {
            Some(random) if !self.pending.is_empty() => self.some(random),
            _ => self.stable.clone(),
        };
        Self { live: left.clone(), stable: left, ..Self::default() }
    }

    fn some(&self, random: &mut Random) -> Extent {
        let all = self.pending.len();
        let kept = some_prefix(all, random);
        let ordered = &self.pending[..kept];
        let size = ordered.iter().fold(self.stable.size, |size, change| change.size_after(size));
        let mut numbers: BTreeSet<u64> = self.stable.blocks.keys().copied().collect();
        numbers.extend(self.pending.iter().flat_map(Change::written));
        let mut blocks = BTreeMap::new();
        for number in numbers {
            let one = self.block(number, kept, some_prefix(all, random));
            let block = if random.coin() {
                one
            } else {
                let other = self.block(number, kept, some_prefix(all, random));
                torn(one, other, random)
            };
            if let Some(block) = block {
                blocks.insert(number, block);
            }
        }
        let mut left = Extent { size: size.max(self.stable.size), blocks: Arc::new(blocks) };
        left.apply(&Change::Resize(size));
        for change in ordered.iter().filter(|change| matches!(change, Change::Reserve { .. })) {
            left.apply(change);
        }
        left.size = size;
        left
    }

    /// Returns a block if the first `kept` changes of size and space are on the disk, and the first
    /// `written` writes.
    fn block(&self, number: u64, kept: usize, written: usize) -> Option<Block> {
        let mut block = self.stable.blocks.get(&number).cloned();
        for (at, change) in self.pending.iter().enumerate() {
            if change.clears(number) {
                if at >= kept {
                    // Later writes went to other blocks of the disk, which no inode refers to.
                    break;
                }
                block = change.apply_to(number, block);
            } else if at < written && !self.lost.contains(&number) {
                block = change.apply_to(number, block);
            }
        }
        block
    }
}

/// Returns zero, `all`, or a number between.
fn some_prefix(all: usize, random: &mut Random) -> usize {
    match random.below(4) {
        0 => 0,
        1 => all,
        _ => random.below(all as u64 + 1) as usize,
    }
}

fn torn(one: Option<Block>, other: Option<Block>, random: &mut Random) -> Option<Block> {
    let (Some(Some(one)), Some(Some(other))) = (&one, &other) else {
        return if random.coin() { one } else { other };
    };
    let mut mixed = one.to_vec();
    for at in (0..BLOCK).step_by(SECTOR as usize) {
        if random.coin() {
            let range = at as usize..(at + SECTOR) as usize;
            mixed[range.clone()].copy_from_slice(&other[range]);
        }
    }
    Some(Some(mixed.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(bytes: &mut Bytes, at: u64, with: u8, length: usize) {
        bytes.apply(Change::Write { at, bytes: vec![with; length].into() });
    }

    fn all(bytes: &Bytes) -> Vec<u8> {
        bytes.read(0, u64::MAX)
    }

    #[test]
    fn synced_bytes_survive_a_power_cut() {
        let mut bytes = Bytes::default();
        write(&mut bytes, 0, 1, 10_000);
        assert!(all(&bytes.after_crash(None)).is_empty());
        bytes.sync();
        write(&mut bytes, 5_000, 2, 10_000);
        bytes.apply(Change::Resize(5));
        assert_eq!(all(&bytes.after_crash(None)), vec![1; 10_000]);
        assert_eq!(all(&bytes), vec![1; 5]);
    }

    /// Each surviving byte is one that was written there, or zero.
    #[test]
    fn some_unsynced_bytes_may_survive() {
        let mut bytes = Bytes::default();
        write(&mut bytes, 0, 1, 10_000);
        bytes.sync();
        write(&mut bytes, 0, 2, 3_000);
        write(&mut bytes, 1_000, 3, 12_000);
        let mut sizes = BTreeSet::new();
        let mut mixed = 0;
        let mut torn = 0;
        for seed in 0..400 {
            let left = all(&bytes.after_crash(Some(&mut Random(seed))));
            sizes.insert(left.len());
            let expect = |at: usize| match at {
                0..1_000 => &[1, 2][..],
                1_000..3_000 => &[1, 2, 3],
                3_000..10_000 => &[1, 3],
                _ => &[0, 3],
            };
            assert!(left.iter().enumerate().all(|(at, byte)| expect(at).contains(byte)));
            mixed += usize::from(left[9_000] == 3 && left[5_000] == 1);
            torn += usize::from(left[5_000] != left[6_000]);
        }
        assert_eq!(sizes, [10_000, 13_000].into());
        assert!(mixed > 10 && torn > 10, "{mixed} {torn}");
    }

    /// Bytes that were written after a truncation do not survive without it.
    #[test]
    fn a_truncation_survives_before_later_writes() {
        let mut bytes = Bytes::default();
        write(&mut bytes, 0, 1, 4_096);
        bytes.sync();
        bytes.apply(Change::Resize(0));
        write(&mut bytes, 0, 2, 4_096);
        for seed in 0..100 {
            let left = all(&bytes.after_crash(Some(&mut Random(seed))));
            let old = left.iter().all(|byte| *byte == 1) && left.len() == 4_096;
            assert!(old || left.iter().all(|byte| [0, 2].contains(byte)), "{seed}");
        }
    }

    #[test]
    fn bytes_of_a_failed_sync_are_lost_until_they_are_written_again() {
        let mut bytes = Bytes::default();
        write(&mut bytes, 0, 1, 8_192);
        bytes.sync();
        write(&mut bytes, 0, 2, 8_192);
        bytes.fail_to_sync();
        write(&mut bytes, 0, 3, 1);
        bytes.sync();
        let left = all(&bytes.after_crash(Some(&mut Random(1))));
        assert_eq!((left[0], left[1], left[4_096]), (3, 2, 1));
        assert_eq!(all(&bytes)[4_096], 2, "a read does not show the loss");
    }
}
