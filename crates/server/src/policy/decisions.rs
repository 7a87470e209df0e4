//! The cache of decisions: the rights of a guest in a directory.
//!
//! A decision is cached only if nothing but the directory and the present time decides. It holds
//! until the next time that a link names, and until a directory gets another parent or the rights
//! change: the number of each is part of it.

use pelago_keynote::share::attribute;
use pelago_keynote::{Reads, Right};
use pelago_wire::{InodeId, SessionId};
use quick_cache::sync::Cache;

use super::decision::Decision;
use super::right_set::RightSet;

/// The limit for the directories whose rights are cached.
const DECISIONS: usize = 65_536;

/// The circumstances of a decision. It holds for the same ones alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Epoch {
    /// The moves of directories so far.
    pub(super) directory_moves: u64,
    /// The rights number.
    pub(super) rights_number: u64,
}

/// The rights that were decided.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Decided {
    decided: RightSet,
    /// Those of them that are granted.
    pub(super) granted: RightSet,
}

impl Decided {
    /// Returns whether a right was decided.
    pub(super) const fn knows(self, right: Right) -> bool {
        self.decided.has(right)
    }

    /// Adds a decision.
    pub(super) const fn decide(&mut self, right: Right, is_granted: bool) {
        self.decided.set(right, true);
        self.granted.set(right, is_granted);
    }
}

/// The rights of a guest in a directory, as far as they are known.
#[derive(Debug, Clone, Copy)]
struct CachedRights {
    epoch: Epoch,
    rights: Decided,
    /// The seconds since 1970 at which the first of these decisions ends.
    ends: u64,
}

impl CachedRights {
    fn holds(&self, epoch: Epoch, seconds: u64) -> bool {
        self.epoch == epoch && seconds < self.ends
    }
}

/// The decisions of all guests.
pub(super) struct Decisions {
    known: Cache<(SessionId, InodeId), CachedRights>,
}

impl Decisions {
    pub(super) fn new() -> Self {
        Self { known: Cache::new(DECISIONS) }
    }

    /// Returns the decisions that are known and hold at this time.
    #[inline]
    pub(super) fn get(
        &self,
        session: SessionId,
        dir: InodeId,
        epoch: Epoch,
        seconds: u64,
    ) -> Decided {
        match self.known.get(&(session, dir)).filter(|known| known.holds(epoch, seconds)) {
            Some(known) => known.rights,
            None => Decided::default(),
        }
    }

    /// Caches a decision of this time, if it may be cached.
    pub(super) fn insert(
        &self,
        session: SessionId,
        dir: InodeId,
        right: Right,
        epoch: Epoch,
        seconds: u64,
        decision: &Decision,
    ) {
        let Some(ends) = end_of(&decision.reads) else { return };
        let before = self.known.get(&(session, dir)).filter(|known| known.holds(epoch, seconds));
        let none = CachedRights { epoch, rights: Decided::default(), ends: u64::MAX };
        let mut known = before.unwrap_or(none);
        known.rights.decide(right, decision.is_granted);
        known.ends = known.ends.min(ends);
        self.known.insert((session, dir), known);
    }
}

/// Returns the time at which a decision ends; `None` if it may not be cached.
fn end_of(reads: &Reads) -> Option<u64> {
    // What is fixed for a session, a right and a directory.
    const FIXED: [&str; 5] = [
        attribute::APP_DOMAIN,
        attribute::VOLUME,
        attribute::RIGHT,
        attribute::ANCESTORS,
        attribute::ADDRESS,
    ];
    if !reads.attributes().all(|name| FIXED.contains(&name)) {
        return None;
    }
    let mut ends = reads.clocks().map(|(_, end)| match end {
        None => Some(u64::MAX),
        Some(end) => super::moment::seconds_of(end),
    });
    ends.try_fold(u64::MAX, |earliest, end| Some(earliest.min(end?)))
}
