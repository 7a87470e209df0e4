//! The scores of the extents of a file: how much each one is wanted.

use pelago_wire::limits;

use super::block_set::{BlockSet, Share};
use super::geometry::Geometry;

/// The weight of a client that lacks one block.
const WHOLE: u64 = 1 << 40;

/// The score of each extent of a file: the sum of the weights of all clients that lack a part of
/// it. The sums are exact: they are 0 when the clients are gone.
#[derive(Debug)]
pub(super) struct Scores {
    geometry: Geometry,
    chunks: Vec<Chunk>,
}

/// The extents of a chunk of [`BlockSet`].
#[derive(Debug, Clone, Default)]
struct Chunk {
    /// The sum of the weights of clients that lack the whole chunk.
    base: u64,
    /// Clients that lack it in part, and their weights, for each extent.
    mixed: u32,
    extra: Option<Box<[u64]>>,
}

/// Returns the weight of a client that lacks `missing` blocks: the inverse of their number, rounded
/// up to a power of two, so that it changes rarely.
pub(super) const fn weight_of(missing: u32) -> u64 {
    if missing == 0 { 0 } else { WHOLE / (missing as u64).next_power_of_two() }
}

/// Returns a score as a fraction.
pub(super) fn fraction(score: u64) -> f64 {
    score as f64 / WHOLE as f64
}

impl Scores {
    pub(super) fn new(geometry: Geometry) -> Self {
        let chunks = geometry.blocks().div_ceil(limits::DELIVERY_CHUNK_BLOCKS) as usize;
        Self { geometry, chunks: vec![Chunk::default(); chunks] }
    }

    /// Adds a client that lacks these blocks.
    pub(super) fn add(&mut self, missing: &BlockSet, weight: u64) {
        for at in 0..missing.chunks() {
            if missing.share(at) == Share::Some {
                self.begin_mixed(at);
            }
        }
        self.reweigh(missing, 0, weight);
    }

    /// Removes a client that lacks these blocks.
    pub(super) fn remove(&mut self, missing: &BlockSet, weight: u64) {
        self.reweigh(missing, weight, 0);
        for at in 0..missing.chunks() {
            if missing.share(at) == Share::Some {
                self.end_mixed(at);
            }
        }
    }

    /// Gives a client another weight.
    pub(super) fn reweigh(&mut self, missing: &BlockSet, old: u64, new: u64) {
        let change = new.wrapping_sub(old);
        for at in 0..missing.chunks() {
            match missing.share(at) {
                Share::None => {}
                Share::All => {
                    let base = &mut self.chunks[at].base;
                    *base = base.wrapping_add(change);
                }
                Share::Some => {
                    let first = self.first_extent(at);
                    let geometry = self.geometry;
                    let extra = self.chunks[at].extra.iter_mut().flat_map(|extra| extra.iter_mut());
                    for (extent, score) in (first..).zip(extra) {
                        if geometry.part(missing, extent) != 0 {
                            *score = score.wrapping_add(change);
                        }
                    }
                }
            }
        }
    }

    /// Records that a client of this weight gets a block. `before` is the part of the chunk that it
    /// lacked before.
    pub(super) fn taken(&mut self, missing: &BlockSet, before: Share, block: u32, weight: u64) {
        let at = (block / limits::DELIVERY_CHUNK_BLOCKS) as usize;
        let after = missing.share(at);
        if before == Share::All {
            self.chunks[at].base -= weight;
            if after == Share::Some {
                self.begin_mixed(at);
                let all = self.chunks[at].extra.iter_mut().flat_map(|extra| extra.iter_mut());
                all.for_each(|score| *score += weight);
            }
        }
        let extent = self.geometry.extent_of(block);
        let first = self.first_extent(at);
        if (before, after) != (Share::All, Share::None)
            && self.geometry.part(missing, extent) == 0
            && let Some(extra) = &mut self.chunks[at].extra
        {
            extra[(extent - first) as usize] -= weight;
        }
        if (before, after) == (Share::Some, Share::None) {
            self.end_mixed(at);
        }
    }

    /// Returns the score of an extent.
    pub(super) fn of(&self, extent: u32) -> u64 {
        let at = self.chunk_of(extent);
        let within = (extent - self.first_extent(at)) as usize;
        let Chunk { base, extra, .. } = &self.chunks[at];
        base + extra.as_ref().map_or(0, |extra| extra[within])
    }

    /// Returns the extent of the highest score of which `missing` has a part and which is not
    /// `present`; of several extents the first one after `after`. With `only_mixed` only chunks
    /// count that `missing` has in part.
    pub(super) fn best(
        &self,
        missing: &BlockSet,
        present: &BlockSet,
        after: Option<u32>,
        only_mixed: bool,
    ) -> Option<u32> {
        let start = after.map_or(0, |after| after + 1);
        let end = self.geometry.extents();
        let mut best = None;
        for (mut from, to) in [(start, end), (0, start.min(end))] {
            while from < to {
                let at = self.chunk_of(from);
                let stop = to.min(self.first_extent(at + 1));
                let share = missing.share(at);
                if share == Share::All && !only_mixed || share == Share::Some {
                    self.best_of(at, from..stop, missing, present, &mut best);
                }
                from = stop;
            }
        }
        best.map(|(extent, _)| extent)
    }

    fn best_of(
        &self,
        at: usize,
        extents: std::ops::Range<u32>,
        missing: &BlockSet,
        present: &BlockSet,
        best: &mut Option<(u32, u64)>,
    ) {
        let is_better = |score, best: &Option<(u32, u64)>| best.is_none_or(|(_, it)| score > it);
        let first = self.first_extent(at);
        let Chunk { base, extra, .. } = &self.chunks[at];
        for extent in extents {
            let extra_score = extra.as_ref().map_or(0, |extra| extra[(extent - first) as usize]);
            let score = base + extra_score;
            if !is_better(score, best) {
                if extra.is_none() {
                    return;
                }
                continue;
            }
            if self.geometry.part(missing, extent) != 0 && !present.contains(extent) {
                *best = Some((extent, score));
            }
        }
    }

    fn begin_mixed(&mut self, at: usize) {
        let extents = limits::DELIVERY_CHUNK_BLOCKS / self.geometry.extent_blocks;
        let chunk = &mut self.chunks[at];
        chunk.mixed += 1;
        chunk.extra.get_or_insert_with(|| vec![0; extents as usize].into());
    }

    fn end_mixed(&mut self, at: usize) {
        let chunk = &mut self.chunks[at];
        chunk.mixed -= 1;
        if chunk.mixed == 0 {
            chunk.extra = None;
        }
    }

    fn chunk_of(&self, extent: u32) -> usize {
        (self.geometry.first_block(extent) / limits::DELIVERY_CHUNK_BLOCKS) as usize
    }

    const fn first_extent(&self, chunk: usize) -> u32 {
        // A file has at most 2¹⁶ chunks, of at most 2¹² extents.
        chunk as u32 * (limits::DELIVERY_CHUNK_BLOCKS / self.geometry.extent_blocks)
    }
}
