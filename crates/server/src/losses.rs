//! Inodes whose changes were answered and then lost, because the journal could not be made safe.
//!
//! Linux tells of bytes that could not be written back through `fsync`; here rows can be lost the
//! same way. [`Losses`] knows which inodes changed since the last group commit, and which of them
//! lost that change. A file that is open takes its loss into its own
//! [error sequence](crate::open); a directory, and a file that nobody has open, keeps it here until
//! somebody asks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pelago_wire::{InodeId, limits};

use crate::numbers::NumberSet;

/// Inodes that changed, up to [`limits::CHANGED_INODES`].
#[derive(Debug, Default)]
pub(crate) struct Changed {
    some: NumberSet<InodeId>,
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
pub(crate) struct Losses {
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

impl Losses {
    /// A group commit is about to make these changes safe.
    pub(crate) fn begin(&self, changed: Changed) {
        self.state.lock().committing.extend(changed);
    }

    /// All that was begun is safe.
    pub(crate) fn all_safe(&self) {
        self.state.lock().committing = Changed::default();
    }

    /// All that was begun is lost, as far as anybody knows. Answers whether there was something.
    pub(crate) fn lose(&self) -> bool {
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
    pub(crate) fn keep(&self, ino: InodeId) {
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
    pub(crate) fn count(&self) -> u64 {
        if self.any.load(Ordering::Acquire) { self.state.lock().number } else { 0 }
    }

    /// Takes the loss of a file that nobody was told of: its error sequence tells of it from now
    /// on.
    #[must_use]
    pub(crate) fn take(&self, ino: InodeId) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        match state.lost.remove(&ino) {
            Some(loss) => !loss.seen,
            None => state.more.as_mut().is_some_and(Loss::see),
        }
    }

    /// Whether a caller that knows of `since` losses must be told that this inode lost changes;
    /// without that count, whether nobody was told yet. The caller is told now.
    #[must_use]
    pub(crate) fn tell(&self, ino: InodeId, since: Option<u64>) -> bool {
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
        let losses = Losses::default();
        losses.begin(changed(0..3));
        losses.all_safe();
        assert!(!losses.lose(), "all was safe");
        losses.begin(changed(5..7));
        losses.begin(changed(7..8));
        assert!(losses.lose());
        let told = (0..9).filter(|number| losses.tell(ino(*number), None));
        assert_eq!(told.collect::<Vec<_>>(), [5, 6, 7]);
        assert!(!(0..9).any(|number| losses.tell(ino(number), None)));
    }

    #[test]
    fn each_descriptor_of_a_directory_is_told_once() {
        let losses = Losses::default();
        let before = losses.count();
        losses.begin(changed(1..2));
        losses.lose();
        let after = losses.count();
        assert!(losses.tell(ino(1), Some(before)));
        assert!(losses.tell(ino(1), Some(before)), "another one of before");
        assert!(!losses.tell(ino(1), Some(after)), "others were told when it was opened");
        assert!(!losses.tell(ino(2), Some(before)));
    }

    #[test]
    fn a_file_takes_its_loss_along() {
        let losses = Losses::default();
        losses.begin(changed(1..3));
        losses.lose();
        assert!(losses.take(ino(1)) && !losses.take(ino(1)));
        assert!(losses.tell(ino(2), None) && !losses.take(ino(2)));
        losses.keep(ino(2));
        assert!(losses.take(ino(2)));
    }

    #[test]
    fn with_too_many_the_next_one_is_told() {
        let losses = Losses::default();
        losses.begin(changed(0..limits::CHANGED_INODES as u64 + 1));
        losses.lose();
        assert!(losses.tell(ino(1 << 40), None));
        assert!(!losses.tell(ino(1 << 41), None));
        assert!(losses.tell(ino(1), None));
    }
}
