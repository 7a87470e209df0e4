//! A file's bytes as programs see them, as they are on the medium, and what lies between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::extent::{BLOCK, Block, Change, Extent, SECTOR};
use crate::random::Random;

/// Live and stable bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Bytes {
    live: Extent,
    stable: Extent,
    /// What leads from stable to live, in order.
    pending: Vec<Change>,
    /// Blocks that a sync failed to write, and that nobody wrote since.
    lost: BTreeSet<u64>,
}

impl Bytes {
    pub(super) fn size(&self) -> u64 {
        self.live.size
    }

    /// Blocks that are taken.
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

    /// Blocks that a change would take in addition.
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

    /// A sync that fails: nothing it was about is written any more.
    pub(super) fn fail_to_sync(&mut self) {
        self.lost.extend(self.pending.iter().flat_map(Change::written));
    }

    /// What a power cut leaves: nothing that was not synced, or some of it.
    ///
    /// Sizes, cuts and holes are kept by the medium in the order they were made. A block is what
    /// it was behind some write, each block another; a torn one differs by sector. Where the size
    /// is there and a block is not, there are zeros.
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

    /// A block as it is where the first `kept` changes of size and space are on the medium, and
    /// the first `written` writes.
    fn block(&self, number: u64, kept: usize, written: usize) -> Option<Block> {
        let mut block = self.stable.blocks.get(&number).cloned();
        for (at, change) in self.pending.iter().enumerate() {
            if change.clears(number) {
                if at >= kept {
                    // What was written behind it went to another place, which nothing names.
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

/// None, all, or some.
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
    fn a_cut_leaves_what_was_synced() {
        let mut bytes = Bytes::default();
        write(&mut bytes, 0, 1, 10_000);
        assert!(all(&bytes.after_crash(None)).is_empty());
        bytes.sync();
        write(&mut bytes, 5_000, 2, 10_000);
        bytes.apply(Change::Resize(5));
        assert_eq!(all(&bytes.after_crash(None)), vec![1; 10_000]);
        assert_eq!(all(&bytes), vec![1; 5]);
    }

    /// Each byte of what is left is one that stood there, or a zero.
    #[test]
    fn some_of_what_was_not_synced_may_be_left() {
        let mut bytes = Bytes::default();
        write(&mut bytes, 0, 1, 10_000);
        bytes.sync();
        write(&mut bytes, 0, 2, 3_000);
        write(&mut bytes, 1_000, 3, 12_000);
        let (mut sizes, mut mixed, mut torn) = (BTreeSet::new(), 0, 0);
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

    /// Bytes written behind a cut that is not on the medium are not there either.
    #[test]
    fn a_cut_comes_before_what_was_written_behind_it() {
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
    fn what_a_failed_sync_was_about_is_lost_until_it_is_written_again() {
        let mut bytes = Bytes::default();
        write(&mut bytes, 0, 1, 8_192);
        bytes.sync();
        write(&mut bytes, 0, 2, 8_192);
        bytes.fail_to_sync();
        write(&mut bytes, 0, 3, 1);
        bytes.sync();
        let left = all(&bytes.after_crash(Some(&mut Random(1))));
        assert_eq!((left[0], left[1], left[4_096]), (3, 2, 1));
        assert_eq!(all(&bytes)[4_096], 2, "whoever reads it sees no loss");
    }
}
