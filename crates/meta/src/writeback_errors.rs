//! Inodes whose changes were answered and then lost, because the journal could not be made safe.
//!
//! Linux tells of bytes that could not be written back through `fsync`; here rows can be lost the
//! same way. [`WritebackErrors`] knows which inodes changed since the last group commit, and which
//! of them lost that change. A file that is open takes its loss into its own [error
//! sequence](crate::open); a directory, and a file that nobody has open, keeps it here until
//! somebody asks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pelago_wire::{InodeId, limits};

use pelago_wire::id_map::IdSet;

/// Inodes that changed, up to [`limits::CHANGED_INODES`].
#[derive(Debug, Default)]
pub(crate) struct Changed {
    some: IdSet<InodeId>,
    /// There were more.
    more: bool,
}

impl Changed {
    /// Adds an inode.
    pub(crate) fn insert(&mut self, ino: InodeId) {
        if self.some.len() < limits::CHANGED_INODES {
            self.some.insert(ino);
        } else {
            self.more |= !self.some.contains(&ino);
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.some.is_empty() && !self.more
    }

    fn extend(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        self.more |= other.more;
        other.some.into_iter().for_each(|ino| self.insert(ino));
    }
}

/// What is not safe yet, and what was lost.
#[derive(Debug, Default)]
pub struct WritebackErrors {
    /// Whether anything was ever lost: spares the lock on every open.
    any: AtomicBool,
    /// A leaf; taken under the lock of the table of opens too.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What changed before the group commit that is under way, and is not safe.
    committing: Changed,
    lost: BTreeMap<InodeId, Loss>,
    /// More inodes than are kept apart lost changes.
    more: Option<Loss>,
    /// Counts up with each time that something was lost.
    number: u64,
}

/// A loss of one inode.
#[derive(Debug, Clone, Copy)]
struct Loss {
    number: u64,
    /// Somebody was told.
    seen: bool,
}

impl WritebackErrors {
    /// A group commit is about to make these changes safe.
    pub(crate) fn begin(&self, changed: Changed) {
        self.state.lock().committing.extend(changed);
    }

    /// All that was begun is safe.
    pub fn all_safe(&self) {
        self.state.lock().committing = Changed::default();
    }

    /// All that was begun is lost, as far as anybody knows. Answers whether there was something.
    pub fn lose(&self) -> bool {
        let mut state = self.state.lock();
        let State { committing, lost, more, number } = &mut *state;
        let begun = std::mem::take(committing);
        if begun.is_empty() {
            return false;
        }
        *number += 1;
        let loss = Loss { number: *number, seen: false };
        for ino in begun.some {
            if lost.len() < limits::CHANGED_INODES || lost.contains_key(&ino) {
                lost.insert(ino, loss);
            } else {
                *more = Some(loss);
            }
        }
        if begun.more {
            *more = Some(loss);
        }
        self.any.store(true, Ordering::Release);
        true
    }

    /// A file that nobody has open keeps an error that no descriptor was told of.
    pub fn keep(&self, ino: InodeId) {
        let mut state = self.state.lock();
        state.number += 1;
        let loss = Loss { number: state.number, seen: false };
        if state.lost.len() < limits::CHANGED_INODES {
            state.lost.insert(ino, loss);
        } else {
            state.more = Some(loss);
        }
        self.any.store(true, Ordering::Release);
    }

    /// How often something was lost: what a directory's descriptor starts from.
    #[must_use]
    pub fn count(&self) -> u64 {
        if self.any.load(Ordering::Acquire) { self.state.lock().number } else { 0 }
    }

    /// Takes the loss of a file that nobody was told of: its error sequence tells of it from now
    /// on.
    #[must_use]
    pub fn take(&self, ino: InodeId) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        match state.lost.remove(&ino) {
            Some(loss) => !loss.seen,
            None => state.more.as_mut().is_some_and(Loss::see),
        }
    }

    /// Whether a caller that knows of `since` writeback_errors must be told that this inode lost
    /// changes; without that count, whether nobody was told yet. The caller is told now.
    #[must_use]
    pub fn tell(&self, ino: InodeId, since: Option<u64>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        let State { lost, more, .. } = &mut *state;
        let Some(loss) = lost.get_mut(&ino).or(more.as_mut()) else { return false };
        let is_new = since.is_some_and(|since| since < loss.number);
        loss.see() | is_new
    }
}

impl Loss {
    /// Somebody is told. Answers whether nobody was before.
    fn see(&mut self) -> bool {
        !std::mem::replace(&mut self.seen, true)
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

    #[test]
    fn what_was_begun_and_not_made_safe_is_lost() {
        let writeback_errors = WritebackErrors::default();
        writeback_errors.begin(changed(0..3));
        writeback_errors.all_safe();
        assert!(!writeback_errors.lose(), "all was safe");
        writeback_errors.begin(changed(5..7));
        writeback_errors.begin(changed(7..8));
        assert!(writeback_errors.lose());
        let told = (0..9).filter(|number| writeback_errors.tell(ino(*number), None));
        assert_eq!(told.collect::<Vec<_>>(), [5, 6, 7]);
        assert!(!(0..9).any(|number| writeback_errors.tell(ino(number), None)));
    }

    #[test]
    fn each_descriptor_of_a_directory_is_told_once() {
        let writeback_errors = WritebackErrors::default();
        let before = writeback_errors.count();
        writeback_errors.begin(changed(1..2));
        writeback_errors.lose();
        let after = writeback_errors.count();
        assert!(writeback_errors.tell(ino(1), Some(before)));
        assert!(writeback_errors.tell(ino(1), Some(before)), "another one of before");
        assert!(!writeback_errors.tell(ino(1), Some(after)), "others were told when it was opened");
        assert!(!writeback_errors.tell(ino(2), Some(before)));
    }

    #[test]
    fn a_file_takes_its_loss_along() {
        let writeback_errors = WritebackErrors::default();
        writeback_errors.begin(changed(1..3));
        writeback_errors.lose();
        assert!(writeback_errors.take(ino(1)) && !writeback_errors.take(ino(1)));
        assert!(writeback_errors.tell(ino(2), None) && !writeback_errors.take(ino(2)));
        writeback_errors.keep(ino(2));
        assert!(writeback_errors.take(ino(2)));
    }

    #[test]
    fn with_too_many_the_next_one_is_told() {
        let writeback_errors = WritebackErrors::default();
        writeback_errors.begin(changed(0..limits::CHANGED_INODES as u64 + 1));
        writeback_errors.lose();
        assert!(writeback_errors.tell(ino(1 << 40), None));
        assert!(!writeback_errors.tell(ino(1 << 41), None));
        assert!(writeback_errors.tell(ino(1), None));
    }
}
