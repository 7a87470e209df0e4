//! Directories whose changes were answered and then lost, because the medium failed before they
//! were safe. Whoever syncs such a directory next is told, once, as Linux tells of bytes that could
//! not be written back.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use pelago_wire::InodeId;

/// Directories that are kept apart; with more, whoever syncs any directory next is told.
const DIRECTORIES: usize = 4096;

/// What is not safe, and what was lost.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    /// A leaf.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    unsafe_yet: Directories,
    lost: Directories,
}

#[derive(Debug, Default)]
struct Directories {
    some: BTreeSet<InodeId>,
    /// There were too many to keep.
    more: bool,
}

impl Losses {
    /// These changed; a group commit is about to make that safe.
    pub(crate) fn begin(&self, changed: &[InodeId]) {
        self.state.lock().unsafe_yet.extend(changed.iter().copied());
    }

    /// All that was begun is safe.
    pub(crate) fn all_safe(&self) {
        self.state.lock().unsafe_yet = Directories::default();
    }

    /// All that was begun may be lost, and so may what changed since.
    pub(crate) fn lose(&self, changed: &[InodeId]) {
        let mut state = self.state.lock();
        let begun = std::mem::take(&mut state.unsafe_yet);
        state.lost.more |= begun.more;
        state.lost.extend(begun.some.into_iter().chain(changed.iter().copied()));
    }

    /// Whether changes of this directory were lost and nobody was told yet; somebody is now.
    #[must_use]
    pub(crate) fn tell(&self, dir: InodeId) -> bool {
        let lost = &mut self.state.lock().lost;
        lost.some.remove(&dir) || std::mem::take(&mut lost.more)
    }
}

impl Directories {
    fn extend(&mut self, inos: impl Iterator<Item = InodeId>) {
        for ino in inos {
            if self.some.len() < DIRECTORIES {
                self.some.insert(ino);
            } else {
                self.more |= !self.some.contains(&ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inos(numbers: std::ops::Range<u64>) -> Vec<InodeId> {
        numbers.map(InodeId::from_raw).collect()
    }

    #[test]
    fn each_directory_is_told_once_of_what_it_lost() {
        let losses = Losses::default();
        losses.begin(&inos(0..3));
        losses.all_safe();
        losses.begin(&inos(5..7));
        losses.lose(&inos(7..8));
        let told = inos(0..9).into_iter().filter(|ino| losses.tell(*ino));
        assert_eq!(told.collect::<Vec<_>>(), inos(5..8));
        assert!(!inos(0..9).into_iter().any(|ino| losses.tell(ino)));
    }

    #[test]
    fn with_too_many_whoever_comes_next_is_told() {
        let losses = Losses::default();
        losses.begin(&inos(0..DIRECTORIES as u64 + 1));
        losses.lose(&[]);
        assert!(losses.tell(InodeId::from_raw(1 << 40)));
        assert!(!losses.tell(InodeId::from_raw(1 << 40)));
        assert!(losses.tell(InodeId::from_raw(1)));
    }
}
