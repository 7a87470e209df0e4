//! The hashes that blocks of files have at the server, without I/O: which of them are asked for,
//! and which blocks wait for them.
//!
//! The hash of a block says whether an older copy of it is what the server has now. Hashes are
//! asked for in windows of [`limits::HASHED_BLOCKS`], the first of which is cut in two because many
//! programs read only the head of a file: when a block of a window is needed, and of the next
//! window once a reader is in the second half of one. So the server hashes little more than is
//! read, and only the first windows cost a reader a round trip.
//!
//! A hash counts under one lease, whose number no other lease has: while it lasts, the block does
//! not change. After its end nothing asks by this number any more.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;

use pelago_wire::limits;

const BLOCKS: u64 = limits::HASHED_BLOCKS as u64;
/// Blocks of the first window of a file: as many as are fetched ahead of a reader.
const FIRST: u64 = UNDER_WAY as u64;
/// Requests for hashes under way with which none is asked for before it is needed.
const UNDER_WAY: usize = limits::FETCH_AHEAD_BYTES / limits::FETCH_BLOCK_BYTES;

/// The BLAKE3 hash of a block.
pub(crate) type Hash = [u8; 32];

/// The hashes of blocks of all files. `P` is a block that waits for its hash.
pub(crate) struct Hashes<P> {
    windows: HashMap<Window, WindowState<P>>,
    /// The windows whose hashes are here, the oldest first.
    here: VecDeque<Window>,
    /// The leases on files of which the server tells no hashes.
    refused: BTreeSet<u64>,
}

/// A range of blocks of a file under a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    lease: u64,
    /// 0 and 1 are the two parts of the first [`limits::HASHED_BLOCKS`] blocks.
    number: u64,
}

/// The hashes of a window, or the wait for them.
enum WindowState<P> {
    /// They are asked for, and these blocks wait.
    Asked(Vec<P>),
    /// Those of the blocks from the first one on are here.
    Here { first: u64, hashes: Vec<Hash> },
}

/// A request for hashes, which is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asking {
    pub(crate) window: Window,
    /// The blocks in the window whose hashes are wanted.
    pub(crate) blocks: Range<u64>,
}

/// The way of a block of which there is an older copy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HashPath<P> {
    /// The server has a block with this hash.
    Here(P, Hash),
    /// The block waits for its hash, for which this request is to be sent if there is one.
    Waits(Option<Asking>),
    /// Its hash will not be known: the block is fetched.
    Unknown(P),
}

impl Window {
    /// Returns the window of a block.
    pub(crate) const fn of(lease: u64, block: u64) -> Self {
        Self { lease, number: if block < FIRST { 0 } else { block / BLOCKS + 1 } }
    }

    pub(crate) const fn next(self) -> Self {
        Self { lease: self.lease, number: self.number.saturating_add(1) }
    }

    pub(crate) const fn blocks(self) -> Range<u64> {
        match self.number {
            0 => 0..FIRST,
            1 => FIRST..BLOCKS,
            number => {
                let first = (number - 1).saturating_mul(BLOCKS);
                first..first.saturating_add(BLOCKS)
            }
        }
    }

    /// Returns whether a block is in the second half of the window.
    pub(crate) const fn is_near_end(self, block: u64) -> bool {
        let Range { start, end } = self.blocks();
        block >= start.midpoint(end)
    }
}

impl<P> Default for Hashes<P> {
    fn default() -> Self {
        Self { windows: HashMap::new(), here: VecDeque::new(), refused: BTreeSet::new() }
    }
}

impl<P> Hashes<P> {
    /// Decides the way of a block. `older`: the blocks in its window of which there may be older
    /// copies.
    pub(crate) fn path(
        &mut self,
        window: Window,
        block: u64,
        older: Range<u64>,
        waiting: P,
    ) -> HashPath<P> {
        if self.refused.contains(&window.lease) {
            return HashPath::Unknown(waiting);
        }
        match self.windows.get_mut(&window) {
            Some(WindowState::Here { first, hashes }) => {
                let at = block.checked_sub(*first).and_then(|at| usize::try_from(at).ok());
                match at.and_then(|at| hashes.get(at)) {
                    Some(hash) => HashPath::Here(waiting, *hash),
                    None => HashPath::Unknown(waiting),
                }
            }
            Some(WindowState::Asked(all)) => {
                all.push(waiting);
                HashPath::Waits(None)
            }
            None => {
                self.windows.insert(window, WindowState::Asked(vec![waiting]));
                HashPath::Waits(Some(Asking { window, blocks: older }))
            }
        }
    }

    /// Returns the request for the hashes of a window that will be needed soon, unless they are
    /// here or asked for. `older` as for [`Hashes::path`].
    pub(crate) fn ahead(&mut self, window: Window, older: Range<u64>) -> Option<Asking> {
        let under_way = self.windows.len() - self.here.len();
        let is_wanted = under_way < UNDER_WAY
            && !self.refused.contains(&window.lease)
            && !self.windows.contains_key(&window);
        is_wanted.then(|| {
            self.windows.insert(window, WindowState::Asked(Vec::new()));
            Asking { window, blocks: older }
        })
    }

    /// Records the answer to a request: hashes, or `None` if the server tells none of this file.
    /// Returns the blocks that have waited, whose way is to be decided again.
    pub(crate) fn answered(&mut self, asking: Asking, hashes: Option<Vec<Hash>>) -> Vec<P> {
        let Asking { window, blocks } = asking;
        let waiting = self.failed(window);
        match hashes {
            Some(hashes) => {
                self.windows.insert(window, WindowState::Here { first: blocks.start, hashes });
                self.here.push_back(window);
                if self.here.len() > limits::HASH_WINDOWS
                    && let Some(oldest) = self.here.pop_front()
                {
                    self.windows.remove(&oldest);
                }
            }
            None => {
                self.refused.insert(window.lease);
                if self.refused.len() > limits::FETCHED_FILES {
                    self.refused.pop_first();
                }
            }
        }
        waiting
    }

    /// Records that a request got no answer. Returns the blocks that have waited.
    pub(crate) fn failed(&mut self, window: Window) -> Vec<P> {
        match self.windows.remove(&window) {
            Some(WindowState::Asked(waiting)) => waiting,
            Some(WindowState::Here { .. }) | None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 5;

    fn window(block: u64) -> Window {
        Window::of(LEASE, block)
    }

    fn hash(of: u64) -> Hash {
        [of as u8; 32]
    }

    fn path(hashes: &mut Hashes<u64>, block: u64, older: Range<u64>) -> HashPath<u64> {
        hashes.path(window(block), block, older, block)
    }

    #[test]
    fn the_blocks_of_a_window_wait_for_one_request() {
        let mut hashes = Hashes::default();
        let asking = Asking { window: window(3), blocks: 1..9 };
        assert_eq!(path(&mut hashes, 3, 1..9), HashPath::Waits(Some(asking.clone())));
        assert_eq!(path(&mut hashes, 4, 1..9), HashPath::Waits(None));
        let known = Some((1..9).map(hash).collect());
        assert_eq!(hashes.answered(asking, known), [3, 4]);
        for block in [1, 3, 8] {
            assert_eq!(path(&mut hashes, block, 1..9), HashPath::Here(block, hash(block)));
        }
        // Outside of what was asked for.
        for block in [0, 9, 15] {
            assert_eq!(path(&mut hashes, block, 0..16), HashPath::Unknown(block));
        }
        let next = Asking { window: window(64), blocks: 64..65 };
        assert_eq!(path(&mut hashes, 64, 64..65), HashPath::Waits(Some(next)));
    }

    #[test]
    fn each_block_is_in_one_window() {
        let mut at = Window::of(LEASE, 0);
        let mut block = 0;
        for _ in 0..5 {
            let Range { start, end } = at.blocks();
            assert_eq!(start, block);
            assert!((start..end).all(|block| window(block) == at));
            assert!(end - start <= BLOCKS);
            block = end;
            at = at.next();
        }
        assert_eq!(block, 4 * BLOCKS);
    }

    #[test]
    fn a_hash_is_of_one_lease() {
        let mut hashes = Hashes::default();
        let asking = Asking { window: window(0), blocks: 0..2 };
        path(&mut hashes, 0, 0..2);
        hashes.answered(asking, Some(vec![hash(0), hash(1)]));
        let later = Window::of(LEASE + 1, 0);
        let again = Asking { window: later, blocks: 0..2 };
        assert_eq!(hashes.path(later, 0, 0..2, 0), HashPath::Waits(Some(again)));
    }

    /// A server that tells none is not asked again for the file, and what waits is fetched.
    #[test]
    fn a_refusal_is_for_the_lease() {
        let mut hashes = Hashes::default();
        let asking = Asking { window: window(0), blocks: 0..2 };
        path(&mut hashes, 0, 0..2);
        path(&mut hashes, 70, 64..80);
        assert_eq!(hashes.answered(asking, None), [0]);
        for block in [0, 1, 70, 200] {
            assert_eq!(path(&mut hashes, block, 0..2), HashPath::Unknown(block));
        }
        assert_eq!(hashes.ahead(window(64), 64..65), None);
        // The answer to the other one changes nothing of that.
        let other = Asking { window: window(70), blocks: 64..80 };
        assert_eq!(hashes.answered(other, Some(vec![hash(64)])), [70]);
        assert_eq!(path(&mut hashes, 64, 64..65), HashPath::Unknown(64));
    }

    #[test]
    fn a_request_without_an_answer_is_sent_again() {
        let mut hashes = Hashes::default();
        let asking = Asking { window: window(0), blocks: 0..2 };
        path(&mut hashes, 0, 0..2);
        assert_eq!(hashes.failed(window(0)), [0]);
        assert_eq!(path(&mut hashes, 1, 0..2), HashPath::Waits(Some(asking)));
    }

    #[test]
    fn the_next_window_is_asked_for_once() {
        let mut hashes: Hashes<u64> = Hashes::default();
        for [block, half] in [[7, 8], [39, 40], [95, 96]] {
            assert!(!window(block).is_near_end(block) && window(half).is_near_end(half));
        }
        let next = window(40).next();
        let asking = Asking { window: next, blocks: 66..70 };
        assert_eq!(hashes.ahead(next, 66..70), Some(asking.clone()));
        assert_eq!(hashes.ahead(next, 66..70), None);
        assert_eq!(path(&mut hashes, 66, 66..70), HashPath::Waits(None));
        assert_eq!(hashes.answered(asking, Some(vec![hash(66)])), [66]);
        assert_eq!(hashes.ahead(next, 66..70), None);
    }

    #[test]
    fn hashes_are_bounded() {
        let mut hashes: Hashes<u64> = Hashes::default();
        let most = limits::HASH_WINDOWS as u64;
        for number in 1..=most + 1 {
            let block = number * BLOCKS;
            path(&mut hashes, block, block..block + 1);
            let asking = Asking { window: window(block), blocks: block..block + 1 };
            hashes.answered(asking, Some(vec![hash(0)]));
        }
        assert_eq!(hashes.windows.len(), limits::HASH_WINDOWS);
        let second = 2 * BLOCKS;
        assert_eq!(path(&mut hashes, second, 0..0), HashPath::Here(second, hash(0)));
        assert!(matches!(path(&mut hashes, BLOCKS, 0..1), HashPath::Waits(Some(_))), "the oldest");
        // Those that no reader waits for are few.
        let far = |number: u64| Window { lease: LEASE, number: 1 << 20 | number };
        let asked = (0..100).filter_map(|number| hashes.ahead(far(number), 0..1)).count();
        assert_eq!(asked, UNDER_WAY - 1);
    }

    #[test]
    fn no_block_is_too_far() {
        let mut hashes: Hashes<u64> = Hashes::default();
        let last = window(u64::MAX).next();
        assert!(last.blocks().start > 0);
        assert!(hashes.ahead(last, 0..1).is_some());
    }
}
