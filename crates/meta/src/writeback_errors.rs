//! Writeback errors of rows: the inodes that lost answered changes, because the journal could not
//! be made safe.
//!
//! Linux reports bytes that could not be written back through `fsync`; rows can be lost in the same
//! way. [`WritebackErrors`] has the inodes that changed since the last group commit, and those that
//! lost such a change. An open file moves its loss to its own error sequence (in `data`); the loss
//! of a directory, or of a file that is not open, stays here until it is reported.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use pelago_store::sync::Mutex;
use pelago_wire::id_map::IdSet;
use pelago_wire::{InodeId, limits};

/// Changed inodes, up to [`limits::CHANGED_INODES`].
#[derive(Debug, Default)]
pub(crate) struct Changed {
    inos: IdSet<InodeId>,
    /// True if there were more.
    has_more: bool,
}

impl Changed {
    /// Adds an inode.
    pub(crate) fn insert(&mut self, ino: InodeId) {
        if self.inos.len() < limits::CHANGED_INODES {
            self.inos.insert(ino);
        } else {
            self.has_more |= !self.inos.contains(&ino);
        }
    }

    /// Returns whether there is no changed inode.
    pub(crate) fn is_empty(&self) -> bool {
        self.inos.is_empty() && !self.has_more
    }

    fn extend(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        self.has_more |= other.has_more;
        other.inos.into_iter().for_each(|ino| self.insert(ino));
    }
}

/// The inodes with changes that are not safe yet, and the inodes that lost changes.
#[derive(Debug, Default)]
pub struct WritebackErrors {
    /// True if any change was ever lost. Spares the lock on every open.
    any: AtomicBool,
    /// A leaf; taken under the lock of the table of opens too.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The inodes that changed before the group commit under way, and are not safe.
    committing: Changed,
    lost: BTreeMap<InodeId, Loss>,
    /// The last loss of the inodes for which `lost` had no room.
    others: Option<Loss>,
    /// The number of losses so far.
    losses: u64,
}

/// The loss of changes of one inode.
#[derive(Debug, Clone, Copy)]
struct Loss {
    /// The value of [`State::losses`], this loss included.
    number: u64,
    /// True if it was reported to a caller.
    is_reported: bool,
}

impl WritebackErrors {
    /// Tracks changes that a group commit is about to make safe.
    pub(crate) fn track(&self, changed: Changed) {
        self.state.lock().committing.extend(changed);
    }

    /// Records that all tracked changes are safe.
    pub fn clear(&self) {
        self.state.lock().committing = Changed::default();
    }

    /// Records all tracked changes as lost. Returns whether there were any.
    pub fn record(&self) -> bool {
        let mut state = self.state.lock();
        let lost = std::mem::take(&mut state.committing);
        if lost.is_empty() {
            return false;
        }
        let loss = state.next_loss();
        for ino in lost.inos {
            state.insert(ino, loss);
        }
        if lost.has_more {
            state.others = Some(loss);
        }
        self.any.store(true, Ordering::Release);
        true
    }

    /// Records the loss of changes of one inode: a file was closed with an error that was reported
    /// to no descriptor.
    pub fn record_inode(&self, ino: InodeId) {
        let mut state = self.state.lock();
        let loss = state.next_loss();
        state.insert(ino, loss);
        self.any.store(true, Ordering::Release);
    }

    /// Returns the number of losses so far. The open of a directory records it for
    /// [`WritebackErrors::report`].
    #[must_use]
    pub fn count(&self) -> u64 {
        if self.any.load(Ordering::Acquire) { self.state.lock().losses } else { 0 }
    }

    /// Removes the loss of a file that is being opened; its error sequence reports it from then on.
    /// Returns whether there was a loss that was not reported yet.
    #[must_use]
    pub fn take(&self, ino: InodeId) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        match state.lost.remove(&ino) {
            Some(loss) => !loss.is_reported,
            None => state.others.as_mut().is_some_and(Loss::report),
        }
    }

    /// Returns whether a loss of an inode must be reported to the caller, and records that it was:
    /// true if the loss was not reported yet, or if it came after `since`, a
    /// [`WritebackErrors::count`].
    #[must_use]
    pub fn report(&self, ino: InodeId, since: Option<u64>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        let State { lost, others, .. } = &mut *state;
        let Some(loss) = lost.get_mut(&ino).or(others.as_mut()) else { return false };
        let is_new = since.is_some_and(|since| since < loss.number);
        loss.report() | is_new
    }
}

impl State {
    fn next_loss(&mut self) -> Loss {
        self.losses += 1;
        Loss { number: self.losses, is_reported: false }
    }

    fn insert(&mut self, ino: InodeId, loss: Loss) {
        if self.lost.len() < limits::CHANGED_INODES || self.lost.contains_key(&ino) {
            self.lost.insert(ino, loss);
        } else {
            self.others = Some(loss);
        }
    }
}

impl Loss {
    /// Marks the loss as reported. Returns whether this is the first report.
    fn report(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reported, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: u64) -> InodeId {
        InodeId::from_raw(number)
    }

    fn changed(numbers: std::ops::Range<u64>) -> Changed {
        let mut changed = Changed::default();
        numbers.for_each(|number| changed.insert(ino(number)));
        changed
    }

    /// Returns errors after the loss of these inodes.
    fn lost(numbers: std::ops::Range<u64>) -> WritebackErrors {
        let errors = WritebackErrors::default();
        errors.track(changed(numbers));
        assert!(errors.record());
        errors
    }

    #[test]
    fn changes_that_became_safe_are_not_lost() {
        let errors = WritebackErrors::default();
        errors.track(changed(0..3));
        errors.clear();
        assert!(!errors.record());
    }

    #[test]
    fn each_tracked_inode_is_reported_once() {
        let errors = WritebackErrors::default();
        errors.track(changed(5..7));
        errors.track(changed(7..8));
        assert!(errors.record());
        let reported = (0..9).filter(|number| errors.report(ino(*number), None));
        assert_eq!(reported.collect::<Vec<_>>(), [5, 6, 7]);
        assert!(!(0..9).any(|number| errors.report(ino(number), None)));
    }

    #[test]
    fn each_descriptor_of_a_directory_is_told_once() {
        let errors = WritebackErrors::default();
        let before = errors.count();
        errors.track(changed(1..2));
        errors.record();
        let after = errors.count();
        assert!(errors.report(ino(1), Some(before)));
        assert!(errors.report(ino(1), Some(before)), "another one from before");
        assert!(!errors.report(ino(1), Some(after)), "it was opened after a report");
        assert!(!errors.report(ino(2), Some(before)));
    }

    #[test]
    fn an_open_takes_a_loss_that_was_not_reported() {
        let errors = lost(1..3);
        assert!(errors.take(ino(1)) && !errors.take(ino(1)));
        assert!(errors.report(ino(2), None) && !errors.take(ino(2)));
    }

    #[test]
    fn an_error_of_a_closed_file_is_taken_by_its_next_open() {
        let errors = WritebackErrors::default();
        errors.record_inode(ino(2));
        assert!(errors.take(ino(2)) && !errors.take(ino(2)));
    }

    #[test]
    fn with_too_many_losses_the_next_caller_is_told() {
        let errors = lost(0..limits::CHANGED_INODES as u64 + 1);
        assert!(errors.report(ino(1 << 40), None));
        assert!(!errors.report(ino(1 << 41), None));
        assert!(errors.report(ino(1), None));
    }
}
