//! Names that late requests have changed, queued for the threads that invalidate them.

use std::collections::VecDeque;

use parking_lot::Mutex;
use pelago_client::At;
use pelago_wire::Touched;

use crate::notices::DirEntryKey;

/// Limit of the threads that invalidate names; each waits for one directory at a time.
const THREADS: usize = 8;

/// The names that are to be invalidated. Its lock is a leaf.
#[derive(Debug, Default)]
pub(crate) struct LateNames(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    queue: VecDeque<DirEntryKey>,
    threads: usize,
}

impl LateNames {
    /// Adds names. Returns whether the caller shall start one more thread, which is counted.
    pub(crate) fn add(&self, names: Vec<DirEntryKey>) -> bool {
        let mut late = self.0.lock();
        late.queue.extend(names);
        let has_room = late.threads < THREADS;
        late.threads += usize::from(has_room);
        has_room
    }

    /// Returns the next name. With `None` the calling thread must end.
    pub(crate) fn next(&self) -> Option<DirEntryKey> {
        let mut late = self.0.lock();
        let next = late.queue.pop_front();
        late.threads -= usize::from(next.is_none());
        next
    }

    /// Takes back the count of a thread that did not start.
    pub(crate) fn has_failed(&self) {
        self.0.lock().threads -= 1;
    }
}

/// Returns a name as the part that a change touches.
pub(crate) fn touched_name(at: &At) -> Touched {
    Touched::Name { dir: at.dir.ino, name: at.name.clone() }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{InodeId, Name};

    use super::*;

    #[test]
    fn a_few_threads_invalidate_all_names_and_end() {
        let late = LateNames::default();
        let name = || vec![DirEntryKey { dir: InodeId::ROOT, name: Name::new(b"name").unwrap() }];
        let started = (0..2 * THREADS).filter(|_| late.add(name())).count();
        assert_eq!(started, THREADS);
        for _ in 0..2 * THREADS {
            assert!(late.next().is_some());
        }
        for _ in 0..THREADS {
            assert_eq!(late.next(), None);
        }
        assert!(late.add(name()), "all have ended");
        late.has_failed();
        assert_eq!(late.0.lock().threads, 0);
    }
}
