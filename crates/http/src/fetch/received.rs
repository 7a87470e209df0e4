//! Sets of the received blocks and the verified extents of a file.

use std::ops::Range;

use pelago_wire::blocks::{EXTENT_BLOCKS, Extents, HaveMap};
use pelago_wire::limits::{DELIVERY_CHUNK_BLOCKS, DELIVERY_CLIENT_CHUNKS};

use crate::fetch::violation::ServerViolation;

/// Extents of a chunk, the unit in which a server stores the blocks that a client has.
const CHUNK_EXTENTS: usize = (DELIVERY_CHUNK_BLOCKS as u64 / EXTENT_BLOCKS) as usize;

/// The received blocks and the verified extents of a file.
#[derive(Debug)]
pub(super) struct Received {
    file: Extents,
    extents: Vec<ExtentState>,
    verified: u64,
    bytes: u64,
}

/// The received blocks of an extent.
#[derive(Debug, Clone, Copy, Default)]
struct ExtentState {
    /// A bit for each block.
    have: u16,
    is_verified: bool,
    /// Its hash is from the state file of an earlier run; no server has confirmed it in this run.
    is_noted: bool,
    /// It has failed to match its hash before.
    has_mismatched: bool,
}

impl Received {
    pub(super) fn new(file: Extents) -> Self {
        // At most 2^24, which is the limit of such a file.
        let count = usize::try_from(file.count()).unwrap_or(usize::MAX);
        Self { file, extents: vec![ExtentState::default(); count], verified: 0, bytes: 0 }
    }

    pub(super) const fn file(&self) -> Extents {
        self.file
    }

    /// Returns the number of bytes that were received.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether every extent is verified.
    pub(super) const fn is_whole(&self) -> bool {
        self.verified == self.file.count()
    }

    /// Returns the received blocks of an extent, a bit for each.
    pub(super) fn blocks_of(&self, extent: u64) -> u16 {
        self.state(extent).have
    }

    /// Sets the blocks of an extent that an earlier run has received. If the extent is complete but
    /// has no hash, one block is left out and requested again, because the hash comes with it.
    pub(super) fn restore(&mut self, extent: u64, have: u16, is_verified: bool) {
        let all = self.all_of(extent);
        let have = match have & all {
            have if have == all && !is_verified => have & (have >> 1),
            have => have,
        };
        let is_verified = is_verified && have == all;
        self.bytes += self.bytes_of(extent, have);
        self.verified += u64::from(is_verified);
        let is_noted = is_verified;
        *self.state_mut(extent) =
            ExtentState { have, is_verified, is_noted, ..ExtentState::default() };
    }

    /// Returns whether there are extents that only the state file of an earlier run says to be
    /// right.
    pub(super) fn has_notes(&self) -> bool {
        self.extents.iter().any(|state| state.is_noted)
    }

    /// Forgets one block of each extent of [`Self::has_notes`], so that the hash comes with that
    /// block. With `are_wrong` it forgets all their blocks, because the server's root says that at
    /// least one of these extents is wrong.
    pub(super) fn doubt_notes(&mut self, are_wrong: bool) {
        for extent in 0..self.file.count() {
            let ExtentState { have, is_noted, .. } = self.state(extent);
            if is_noted {
                self.keep_of(extent, if are_wrong { 0 } else { have & (have >> 1) });
            }
        }
    }

    /// Adds a received block.
    pub(super) fn add(&mut self, block: u64) -> Result<(), ServerViolation> {
        let bytes = self.file.block(block);
        let bit = 1 << (block % EXTENT_BLOCKS);
        let state = self.state_mut(block / EXTENT_BLOCKS);
        if state.have & bit != 0 {
            return Err(ServerViolation::Duplicate { offset: bytes.start });
        }
        state.have |= bit;
        self.bytes += bytes.end - bytes.start;
        Ok(())
    }

    /// Checks that the hash of an extent may come now: the extent is complete, and not verified.
    pub(super) fn check_hash(&self, extent: u64) -> Result<(), ServerViolation> {
        let state = self.state(extent);
        if state.is_verified || state.have != self.all_of(extent) {
            return Err(ServerViolation::UntimelyHash { offset: self.file.extent(extent).start });
        }
        Ok(())
    }

    /// Records that an extent matches its hash.
    pub(super) fn verify(&mut self, extent: u64) {
        self.verified += u64::from(!self.state(extent).is_verified);
        self.state_mut(extent).is_verified = true;
    }

    /// Drops an extent that does not match its hash. Returns whether this is the second time.
    pub(super) fn mismatch(&mut self, extent: u64) -> bool {
        let ExtentState { have, has_mismatched, .. } = self.state(extent);
        self.bytes -= self.bytes_of(extent, have);
        *self.state_mut(extent) = ExtentState { has_mismatched: true, ..ExtentState::default() };
        has_mismatched
    }

    /// Returns the first extent that is not verified, except the extents in `mismatched`.
    pub(super) fn left_out(&self, mismatched: &[u64]) -> Option<u64> {
        let mut numbered = self.extents.iter().zip(0_u64..);
        let found = numbered.find(|(state, at)| !state.is_verified && !mismatched.contains(at));
        found.map(|(_, extent)| extent)
    }

    /// Returns the blocks that the server need not send, and forgets the blocks that it will send
    /// nevertheless: those beyond the limits of a have-map, and one block of each extent whose hash
    /// was not received.
    pub(super) fn prepare_resume(&mut self) -> HaveMap {
        for extent in 0..self.file.count() {
            let state = self.state(extent);
            if !state.is_verified && state.have == self.all_of(extent) {
                let have = state.have & (state.have >> 1);
                self.bytes -= self.bytes_of(extent, state.have & !have);
                self.state_mut(extent).have = have;
            }
        }
        self.keep_few_chunks();
        let have = self.have_map();
        self.keep_only(&have);
        have
    }

    /// Forgets the partial chunks beyond the number that a server accepts.
    fn keep_few_chunks(&mut self) {
        let mut mixed = 0;
        for first in (0..self.file.count()).step_by(CHUNK_EXTENTS) {
            let extents = first..self.file.count().min(first + CHUNK_EXTENTS as u64);
            let is_empty = extents.clone().all(|extent| self.state(extent).have == 0);
            let is_full =
                extents.clone().all(|extent| self.state(extent).have == self.all_of(extent));
            mixed += usize::from(!is_empty && !is_full);
            if !is_empty && !is_full && mixed > DELIVERY_CLIENT_CHUNKS {
                extents.for_each(|extent| self.keep_of(extent, 0));
            }
        }
    }

    /// Forgets the blocks of an extent that are not in `kept`.
    fn keep_of(&mut self, extent: u64, kept: u16) {
        let state = self.state(extent);
        if kept == state.have {
            return;
        }
        self.bytes -= self.bytes_of(extent, state.have & !kept);
        self.verified -= u64::from(state.is_verified);
        *self.state_mut(extent) =
            ExtentState { have: kept, is_verified: false, is_noted: false, ..state };
    }

    fn have_map(&self) -> HaveMap {
        let numbered = self.extents.iter().zip(0_u64..);
        HaveMap::of(numbered.flat_map(|(state, extent)| {
            let first = extent * EXTENT_BLOCKS;
            (0..EXTENT_BLOCKS).filter(|at| state.have >> at & 1 != 0).map(move |at| first + at)
        }))
    }

    /// Forgets the blocks that are not in a have-map.
    fn keep_only(&mut self, have: &HaveMap) {
        for extent in 0..self.file.count() {
            if self.state(extent).have == 0 {
                continue;
            }
            let kept = self
                .file
                .blocks_of(extent)
                .zip(0..)
                .fold(0, |kept: u16, (block, at)| kept | u16::from(have.contains(block)) << at);
            self.keep_of(extent, kept);
        }
    }

    fn state(&self, extent: u64) -> ExtentState {
        index(extent).and_then(|at| self.extents.get(at)).copied().unwrap_or_default()
    }

    fn state_mut(&mut self, extent: u64) -> &mut ExtentState {
        let at = index(extent).filter(|at| *at < self.extents.len());
        &mut self.extents[at.expect("the decoder lets no extent beyond the end pass")]
    }

    fn all_of(&self, extent: u64) -> u16 {
        let Range { start, end } = self.file.blocks_of(extent);
        match end - start {
            EXTENT_BLOCKS => u16::MAX,
            blocks => (1 << blocks) - 1,
        }
    }

    fn bytes_of(&self, extent: u64, have: u16) -> u64 {
        let blocks = self.file.blocks_of(extent).zip(0..).filter(|(_, at)| have >> at & 1 != 0);
        blocks.map(|(block, _)| self.file.block(block)).map(|it| it.end - it.start).sum()
    }
}

fn index(extent: u64) -> Option<usize> {
    usize::try_from(extent).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An extent and three blocks, of which the last has five bytes.
    fn file() -> Extents {
        Extents::of((1 << 20) + (128 << 10) + 5).unwrap()
    }

    fn with_all(extent: u64, received: &mut Received) {
        file().blocks_of(extent).for_each(|block| received.add(block).unwrap());
    }

    #[test]
    fn an_extent_is_verified_once_all_its_blocks_came() {
        let mut received = Received::new(file());
        received.add(16).unwrap();
        assert_eq!(received.add(16), Err(ServerViolation::Duplicate { offset: 1 << 20 }));
        let untimely = Err(ServerViolation::UntimelyHash { offset: 1 << 20 });
        assert_eq!(received.check_hash(1), untimely);
        received.add(17).unwrap();
        received.add(18).unwrap();
        assert_eq!((received.check_hash(1), received.bytes()), (Ok(()), (128 << 10) + 5));
        received.verify(1);
        assert_eq!(received.check_hash(1), untimely);
        assert_eq!((received.left_out(&[]), received.left_out(&[0])), (Some(0), None));
        with_all(0, &mut received);
        received.verify(0);
        assert!(received.is_whole() && received.bytes() == file().size());
        assert_eq!(received.left_out(&[]), None);
    }

    #[test]
    fn an_extent_that_does_not_match_is_dropped_and_may_come_once_more() {
        let mut received = Received::new(file());
        with_all(1, &mut received);
        assert!(!received.mismatch(1));
        assert_eq!((received.bytes(), received.blocks_of(1)), (0, 0));
        with_all(1, &mut received);
        assert!(received.mismatch(1));
    }

    /// A server refuses a have-map with more partial chunks, and then nothing would be kept.
    #[test]
    fn only_so_many_chunks_are_kept_in_part_as_a_server_takes() {
        let chunk = CHUNK_EXTENTS as u64;
        let chunks = DELIVERY_CLIENT_CHUNKS as u64 + 2;
        let mut received = Received::new(Extents::of((chunks * chunk) << 20).unwrap());
        (0..chunk).for_each(|extent| received.restore(extent, u16::MAX, true));
        (1..chunks).for_each(|at| received.restore(at * chunk, 0b11, false));
        let have = received.prepare_resume();
        assert!(have.contains(0) && have.contains((chunks - 2) * chunk * EXTENT_BLOCKS));
        assert!(!have.contains((chunks - 1) * chunk * EXTENT_BLOCKS));
        assert_eq!(received.blocks_of((chunks - 1) * chunk), 0);
        assert_eq!(received.bytes(), (chunk << 20) + (chunks - 2) * (128 << 10));
    }

    #[test]
    fn of_an_extent_without_a_hash_a_block_comes_again() {
        let mut cut = Received::new(file());
        with_all(1, &mut cut);
        assert_eq!(cut.prepare_resume(), HaveMap::of(16..18));
        assert_eq!(cut.bytes(), 128 << 10);
        let mut received = Received::new(file());
        received.restore(0, u16::MAX, false);
        received.restore(1, u16::MAX, false);
        assert_eq!((received.blocks_of(0), received.blocks_of(1)), (0x7fff, 0b011));
        let mut verified = Received::new(file());
        verified.restore(0, u16::MAX, true);
        verified.restore(1, 0b111, true);
        assert!(verified.is_whole());
        assert!(verified.has_notes());
        // The server has confirmed nothing: the hash of each comes with one block.
        verified.doubt_notes(false);
        assert_eq!((verified.blocks_of(0), verified.blocks_of(1)), (0x7fff, 0b011));
        assert!(!verified.has_notes() && !verified.is_whole());
        let mut wrong = Received::new(file());
        wrong.restore(0, u16::MAX, true);
        with_all(1, &mut wrong);
        wrong.verify(1);
        wrong.doubt_notes(true);
        assert_eq!(
            (wrong.blocks_of(0), wrong.blocks_of(1), wrong.bytes()),
            (0, 0b111, (128 << 10) + 5)
        );
        // A hash of an extent that is not complete is none.
        let mut partial = Received::new(file());
        partial.restore(1, 0b101, true);
        assert_eq!(partial.blocks_of(1), 0b101);
    }

    proptest! {
        #[test]
        fn the_have_map_has_what_was_received(bits in any::<(u16, u16)>(), keep in any::<u64>()) {
            let mut received = Received::new(file());
            received.restore(0, bits.0, false);
            received.restore(1, bits.1, false);
            let have = received.have_map();
            for block in 0..file().blocks() {
                let bit = received.blocks_of(block / 16) >> (block % 16) & 1;
                prop_assert_eq!(have.contains(block), bit == 1);
            }
            let some = HaveMap::of((0..file().blocks()).filter(|block| {
                have.contains(*block) && keep >> block & 1 == 1
            }));
            received.keep_only(&some);
            prop_assert_eq!(received.have_map(), some);
        }
    }
}
