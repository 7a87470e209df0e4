//! The times of the newest changes, by which leases are granted: none on what another session has
//! changed since it was read.

use std::hash::{BuildHasher, RandomState};

use pelago_wire::{LeaseMoment, SessionId};

use super::Leased;

/// Slots of the table. Things that share a slot seem to change together: then fewer leases are
/// granted.
const SLOTS: usize = 4096;

/// The newest changes of everything, in a table of fixed size.
#[derive(Debug)]
pub(super) struct Recency {
    slots: Box<[Slot]>,
    hasher: RandomState,
    now: LeaseMoment,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The author of the newest change.
    author: SessionId,
    last: LeaseMoment,
    /// The newest change by another author.
    other: LeaseMoment,
}

impl Default for Recency {
    fn default() -> Self {
        let last = LeaseMoment(0);
        let other = LeaseMoment(0);
        let slot = Slot { author: SessionId::DIRECT, last, other };
        Self { slots: vec![slot; SLOTS].into(), hasher: RandomState::new(), now: last }
    }
}

impl Recency {
    /// Returns the present moment.
    pub(super) const fn now(&self) -> LeaseMoment {
        self.now
    }

    /// Begins a new moment, and returns it.
    pub(super) fn tick(&mut self) -> LeaseMoment {
        self.now.0 += 1;
        self.now
    }

    /// Records that a change of this by `author` is announced, or has ended.
    pub(super) fn note(&mut self, on: Leased, author: SessionId) {
        self.now.0 += 1;
        let now = self.now;
        let at = self.slot(on);
        let slot = &mut self.slots[at];
        if slot.author != author {
            slot.other = slot.last;
            slot.author = author;
        }
        slot.last = now;
    }

    /// Returns whether a session other than this one has changed it after `since`, or may have.
    pub(super) fn others_changed(
        &self,
        on: Leased,
        session: SessionId,
        since: LeaseMoment,
    ) -> bool {
        let Slot { author, last, other } = self.slots[self.slot(on)];
        since < if author == session { other } else { last }
    }

    fn slot(&self, on: Leased) -> usize {
        // The remainder is below SLOTS.
        (self.hasher.hash_one(on) % SLOTS as u64) as usize
    }
}
