//! The have-map: the blocks of a file that a client has.

use super::{Extents, VERSION, number};
use crate::limits::{HAVE_BYTES, HAVE_RUNS};

const MAGIC: [u8; 8] = *b"PELHAVE\n";
const HEAD: usize = 16;
const RUN: usize = 16;

/// Blocks that follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRun {
    /// The number of the first one.
    pub first: u64,
    /// The number of blocks, at least 1.
    pub blocks: u64,
}

/// The blocks of a file that a client has: runs in rising order, with a missing block before each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HaveMap {
    runs: Vec<BlockRun>,
}

/// The fault of the bytes of a have-map. The whole map is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HaveError {
    /// The first bytes are those of something else.
    #[error("this is no have-map")]
    NotAMap,
    /// It is one of another version.
    #[error("the have-map has version {0}, this server reads version {VERSION}")]
    Version(u16),
    /// Reserved bytes are not zero.
    #[error("the reserved bytes of the have-map are {0:#x} instead of zero")]
    Reserved(u16),
    /// It has more runs than a map may have.
    #[error("the have-map has {0} runs, the limit is {HAVE_RUNS}")]
    TooManyRuns(u32),
    /// It has more or fewer bytes than its number of runs says.
    #[error("the have-map has {found} bytes, its runs need {needed}")]
    Length {
        /// The bytes that there are.
        found: usize,
        /// The bytes of a map with as many runs.
        needed: usize,
    },
    /// A run has no block.
    #[error("run {run} of the have-map is empty")]
    Empty {
        /// The number of the run, from 0.
        run: usize,
    },
    /// A run begins before an earlier one.
    #[error("run {run} of the have-map begins before the run in front of it")]
    Unsorted {
        /// The number of the run, from 0.
        run: usize,
    },
    /// A run has blocks of the one in front of it.
    #[error("run {run} of the have-map overlaps the run in front of it")]
    Overlap {
        /// The number of the run, from 0.
        run: usize,
    },
    /// A run continues the one in front of it: the two are one.
    #[error("run {run} of the have-map continues the run in front of it")]
    Adjacent {
        /// The number of the run, from 0.
        run: usize,
    },
    /// A run has blocks that the file does not have.
    #[error("run {run} of the have-map ends beyond the {blocks} blocks of the file")]
    BeyondEnd {
        /// The number of the run, from 0.
        run: usize,
        /// The blocks of the file.
        blocks: u64,
    },
}

impl HaveMap {
    /// Collects numbers of blocks, which rise, into a map. If there are too many runs the shortest
    /// are left out: their blocks are sent again.
    #[must_use]
    pub fn of(blocks: impl IntoIterator<Item = u64>) -> Self {
        let mut runs: Vec<BlockRun> = Vec::new();
        for block in blocks {
            match runs.last_mut() {
                Some(run) if block < run.end() => {}
                Some(run) if block == run.end() => run.blocks += 1,
                _ => {
                    // The last one may still grow.
                    if runs.len() > 2 * HAVE_RUNS {
                        let last = runs.pop();
                        keep_longest(&mut runs);
                        runs.extend(last);
                    }
                    runs.push(BlockRun { first: block, blocks: 1 });
                }
            }
        }
        keep_longest(&mut runs);
        Self { runs }
    }

    /// Returns the runs in rising order.
    #[must_use]
    pub fn runs(&self) -> &[BlockRun] {
        &self.runs
    }

    /// Returns whether the client has a block.
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        let behind = self.runs.partition_point(|run| run.first <= block);
        behind.checked_sub(1).is_some_and(|at| block < self.runs[at].end())
    }

    /// Encodes the map, in at most [`HAVE_BYTES`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + RUN * self.runs.len());
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend([0; 2]);
        // At most HAVE_RUNS.
        out.extend((self.runs.len() as u32).to_le_bytes());
        for run in &self.runs {
            out.extend(run.first.to_le_bytes());
            out.extend(run.blocks.to_le_bytes());
        }
        debug_assert!(out.len() <= HAVE_BYTES, "a map has at most HAVE_RUNS runs");
        out
    }

    /// Decodes a map of a file.
    ///
    /// # Errors
    /// Returns [`HaveError`] with the first thing that is wrong.
    pub fn decode(bytes: &[u8], file: Extents) -> Result<Self, HaveError> {
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(HaveError::NotAMap)?;
        let [magic @ .., v0, v1, r0, r1, n0, n1, n2, n3] = head;
        if *magic != MAGIC {
            return Err(HaveError::NotAMap);
        }
        let version = u16::from_le_bytes([*v0, *v1]);
        let reserved = u16::from_le_bytes([*r0, *r1]);
        if version != VERSION {
            return Err(HaveError::Version(version));
        }
        if reserved != 0 {
            return Err(HaveError::Reserved(reserved));
        }
        let count = u32::from_le_bytes([*n0, *n1, *n2, *n3]);
        if count as usize > HAVE_RUNS {
            return Err(HaveError::TooManyRuns(count));
        }
        let needed = HEAD + RUN * count as usize;
        if bytes.len() != needed {
            return Err(HaveError::Length { found: bytes.len(), needed });
        }
        let mut runs: Vec<BlockRun> = Vec::with_capacity(count as usize);
        for bytes in rest.chunks_exact(RUN) {
            let run = BlockRun { first: number(&bytes[..8]), blocks: number(&bytes[8..]) };
            check(run, runs.last(), runs.len(), file.blocks())?;
            runs.push(run);
        }
        Ok(Self { runs })
    }
}

impl BlockRun {
    const fn end(self) -> u64 {
        self.first.saturating_add(self.blocks)
    }
}

fn check(
    run: BlockRun,
    last: Option<&BlockRun>,
    number: usize,
    blocks: u64,
) -> Result<(), HaveError> {
    let end = run.first.checked_add(run.blocks).filter(|end| *end <= blocks);
    match last {
        _ if run.blocks == 0 => Err(HaveError::Empty { run: number }),
        Some(last) if run.first < last.first => Err(HaveError::Unsorted { run: number }),
        Some(last) if run.first < last.end() => Err(HaveError::Overlap { run: number }),
        Some(last) if run.first == last.end() => Err(HaveError::Adjacent { run: number }),
        _ if end.is_none() => Err(HaveError::BeyondEnd { run: number, blocks }),
        _ => Ok(()),
    }
}

fn keep_longest(runs: &mut Vec<BlockRun>) {
    if runs.len() > HAVE_RUNS {
        runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.blocks));
        runs.truncate(HAVE_RUNS);
        runs.sort_unstable_by_key(|run| run.first);
    }
}
