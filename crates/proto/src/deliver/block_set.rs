//! A set of the blocks of a file. Only chunks that are in the set in part take memory for their
//! bits.

use pelago_wire::limits;

/// Blocks of a chunk.
const CHUNK: u32 = limits::DELIVERY_CHUNK_BLOCKS;
/// Words of a chunk.
const WORDS: usize = (CHUNK / 64) as usize;

/// A set of blocks of a file.
///
/// It is cut into chunks of [`limits::DELIVERY_CHUNK_BLOCKS`]. A chunk of which it has all blocks
/// or none takes 16 bytes, each other one, which is *mixed*, 520 bytes more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSet {
    blocks: u32,
    len: u32,
    mixed: usize,
    chunks: Vec<Chunk>,
}

/// Blocks that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first block.
    pub first: u32,
    /// The number of blocks, at least one.
    pub count: u32,
}

/// The part of a chunk that is in the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    None,
    Some,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Chunk {
    Empty,
    Full,
    Mixed(Box<Bits>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bits {
    words: [u64; WORDS],
    count: u32,
}

impl BlockSet {
    /// Returns the empty set for a file of `blocks` blocks.
    #[must_use]
    pub fn empty(blocks: u32) -> Self {
        let chunks = vec![Chunk::Empty; blocks.div_ceil(CHUNK) as usize];
        Self { blocks, len: 0, mixed: 0, chunks }
    }

    /// Returns the set of all blocks of a file of `blocks` blocks.
    #[must_use]
    pub fn full(blocks: u32) -> Self {
        let chunks = vec![Chunk::Full; blocks.div_ceil(CHUNK) as usize];
        Self { blocks, len: blocks, mixed: 0, chunks }
    }

    /// Inserts the blocks from `first` on, before `end`, which is at most [`BlockSet::blocks`].
    pub fn insert_run(&mut self, first: u32, end: u32) {
        self.change(first, end, true);
    }

    /// Removes the blocks from `first` on, before `end`, which is at most [`BlockSet::blocks`].
    pub fn remove_run(&mut self, first: u32, end: u32) {
        self.change(first, end, false);
    }

    /// Inserts a block, which is below [`BlockSet::blocks`].
    pub fn insert(&mut self, block: u32) {
        self.change(block, block + 1, true);
    }

    /// Removes a block, which is below [`BlockSet::blocks`].
    pub fn remove(&mut self, block: u32) {
        self.change(block, block + 1, false);
    }

    /// Returns the blocks that this set lacks.
    #[must_use]
    pub fn complement(&self) -> Self {
        let chunks = self.chunks.iter().zip(0..).map(|(chunk, at)| match chunk {
            Chunk::Empty => Chunk::Full,
            Chunk::Full => Chunk::Empty,
            Chunk::Mixed(bits) => {
                let size = self.size(at);
                let words = std::array::from_fn(|word| full_word(word, size) & !bits.words[word]);
                Chunk::Mixed(Box::new(Bits { words, count: size - bits.count }))
            }
        });
        let chunks = chunks.collect();
        Self { blocks: self.blocks, len: self.blocks - self.len, mixed: self.mixed, chunks }
    }

    /// Returns the number of blocks of the file.
    #[must_use]
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of blocks in the set.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many chunks it has in part.
    #[must_use]
    pub const fn mixed(&self) -> usize {
        self.mixed
    }

    /// Returns whether it has this block.
    #[must_use]
    pub fn contains(&self, block: u32) -> bool {
        block < self.blocks && self.word(block / 64) & (1 << (block % 64)) != 0
    }

    /// Returns its first block from this one on.
    #[must_use]
    pub fn next_from(&self, block: u32) -> Option<u32> {
        let mut at = block;
        while at < self.blocks {
            match &self.chunks[(at / CHUNK) as usize] {
                Chunk::Empty => at = (at / CHUNK + 1).checked_mul(CHUNK)?,
                Chunk::Full => return Some(at),
                Chunk::Mixed(_) => {
                    let rest = self.word(at / 64) >> (at % 64);
                    if rest != 0 {
                        return Some(at + rest.trailing_zeros());
                    }
                    at = (at / 64 + 1).checked_mul(64)?;
                }
            }
        }
        None
    }

    /// Returns its runs, each as long as possible, in order.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.next_from(at)?;
            at = self.next_outside(first);
            Some(Run { first, count: at - first })
        })
    }

    /// Returns the blocks of the 64 of this number, one a bit.
    pub(super) fn word(&self, number: u32) -> u64 {
        let index = number / (CHUNK / 64);
        let within = (number % (CHUNK / 64)) as usize;
        match self.chunks.get(index as usize) {
            None | Some(Chunk::Empty) => 0,
            Some(Chunk::Full) => full_word(within, self.size(index)),
            Some(Chunk::Mixed(bits)) => bits.words[within],
        }
    }

    /// Returns how much it has of a chunk.
    pub(super) fn share(&self, chunk: usize) -> Share {
        match self.chunks.get(chunk) {
            None | Some(Chunk::Empty) => Share::None,
            Some(Chunk::Full) => Share::All,
            Some(Chunk::Mixed(_)) => Share::Some,
        }
    }

    /// Returns how many chunks there are.
    pub(super) const fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the first block from this one on that it lacks, or their number.
    fn next_outside(&self, block: u32) -> u32 {
        let mut at = block;
        while at < self.blocks {
            match &self.chunks[(at / CHUNK) as usize] {
                Chunk::Empty => return at,
                Chunk::Full => at = (at / CHUNK + 1).saturating_mul(CHUNK),
                Chunk::Mixed(_) => {
                    let rest = !self.word(at / 64) >> (at % 64);
                    if rest != 0 {
                        return self.blocks.min(at + rest.trailing_zeros());
                    }
                    at = (at / 64 + 1).saturating_mul(64);
                }
            }
        }
        self.blocks
    }

    fn change(&mut self, first: u32, end: u32, is_in: bool) {
        let mut at = first;
        while at < end {
            let chunk = at / CHUNK;
            let start = chunk * CHUNK;
            let size = self.size(chunk);
            let stop = end.min(start + size);
            let old = &mut self.chunks[chunk as usize];
            let before = old.count(size);
            self.mixed -= usize::from(matches!(old, Chunk::Mixed(_)));
            let whole = if is_in { Chunk::Full } else { Chunk::Empty };
            if stop - at == size {
                *old = whole;
            } else if *old != whole {
                old.change(at - start, stop - start, size, is_in);
            }
            self.len = self.len - before + old.count(size);
            self.mixed += usize::from(matches!(old, Chunk::Mixed(_)));
            at = stop;
        }
    }

    /// Returns how many blocks a chunk has; the last one may have fewer than the others.
    const fn size(&self, chunk: u32) -> u32 {
        let rest = self.blocks - chunk * CHUNK;
        if rest < CHUNK { rest } else { CHUNK }
    }
}

impl Chunk {
    /// Returns how many blocks are there of `size`.
    const fn count(&self, size: u32) -> u32 {
        match self {
            Self::Empty => 0,
            Self::Full => size,
            Self::Mixed(bits) => bits.count,
        }
    }

    /// Inserts or removes the blocks from `first` on, before `end`, of `size`.
    fn change(&mut self, first: u32, end: u32, size: u32, is_in: bool) {
        let mut bits = match std::mem::replace(self, Self::Empty) {
            Self::Mixed(bits) => bits,
            whole => {
                let share = if whole == Self::Full { size } else { 0 };
                let words = std::array::from_fn(|word| full_word(word, share));
                Box::new(Bits { words, count: share })
            }
        };
        let words = bits.words.iter_mut().enumerate();
        let skipped = first as usize / 64;
        let few = (end.div_ceil(64) - first / 64) as usize;
        for (at, word) in words.skip(skipped).take(few) {
            let mask = full_word(at, end) & !full_word(at, first);
            let before = word.count_ones();
            *word = if is_in { *word | mask } else { *word & !mask };
            bits.count = bits.count - before + word.count_ones();
        }
        *self = match bits.count {
            0 => Self::Empty,
            count if count == size => Self::Full,
            _ => Self::Mixed(bits),
        };
    }
}

/// Returns a word of a chunk of `size` blocks of which all are there.
const fn full_word(word: usize, size: u32) -> u64 {
    // A chunk has few words.
    let before = word as u32 * 64;
    if size >= before + 64 {
        u64::MAX
    } else if size <= before {
        0
    } else {
        u64::MAX >> (64 - (size - before))
    }
}
