//! The budget of descriptors for content files, with the open files in the order of their last use.
//!
//! Each open file has a place in a queue by the time of its last use. A use only records the time;
//! the place is corrected when the first file of the queue is requested.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pelago_store::sync::Mutex;
use pelago_wire::{Code, Error, InodeId, limits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The descriptors that are left to the rest of the process, without connections.
const OTHERS: u64 = 128;
/// The most connections of a server, including those without a session that are being closed, and
/// those over HTTP.
const CONNECTIONS: u64 =
    (limits::SESSIONS + 2 * limits::STRANGERS + limits::HTTP_CONNECTIONS) as u64;

/// The descriptors that content files may have.
#[derive(Debug)]
pub struct FdBudget {
    limit: usize,
    /// Counts up with each use.
    now: AtomicU64,
    /// The taken permits, each at the use from which its place was derived. A leaf lock.
    queue: Mutex<BTreeMap<u64, Arc<Taken>>>,
}

/// The permit to have one content file open; returned when dropped.
#[derive(Debug)]
pub(crate) struct FdPermit {
    budget: Arc<FdBudget>,
    taken: Arc<Taken>,
}

#[derive(Debug)]
struct Taken {
    /// The inode of the content file.
    ino: InodeId,
    /// The time of its last use.
    used: AtomicU64,
    /// Its key in the queue; changed only under the lock of the queue.
    place: AtomicU64,
}

impl FdBudget {
    /// Returns a budget of the descriptors that the process may have, without those for connections
    /// (a quarter at most) and 128 others. Raises the soft limit of the process to its hard limit.
    #[must_use]
    pub fn of_process() -> Arc<Self> {
        let now = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: now.maximum, maximum: now.maximum };
        let limit = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => now.maximum,
            Err(_) => now.current,
        };
        let most = limits::OPEN_FILES as u64;
        let limit = limit.map_or(most, |limit| for_content(limit).min(most));
        Self::new(usize::try_from(limit).unwrap_or(limits::OPEN_FILES))
    }

    /// Returns a budget of `limit` descriptors.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, now: AtomicU64::new(0), queue: Mutex::default() })
    }

    /// Takes a permit for a content file of this inode.
    ///
    /// # Errors
    /// `TooManyOpen`.
    pub(crate) fn take(self: &Arc<Self>, ino: InodeId) -> Result<FdPermit, Error> {
        let mut queue = self.queue.lock();
        if queue.len() >= self.limit {
            return Err(Code::TooManyOpen.into());
        }
        let now = self.tick();
        let taken = Taken { ino, used: AtomicU64::new(now), place: AtomicU64::new(now) };
        let taken = Arc::new(taken);
        queue.insert(now, Arc::clone(&taken));
        Ok(FdPermit { budget: Arc::clone(self), taken })
    }

    /// Counts the permits that are taken. Public for tests.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.queue.lock().len()
    }

    /// Returns the inode whose content file was used least recently. It counts as used now, so that
    /// the next call returns the next inode.
    pub(crate) fn next(&self) -> Option<InodeId> {
        let mut queue = self.queue.lock();
        loop {
            let (place, taken) = queue.pop_first()?;
            let used = taken.used.load(Ordering::Relaxed);
            let is_first = used == place;
            // No tick is used twice, so that no other permit has this place.
            let used = if is_first { self.tick() } else { used };
            let ino = taken.ino;
            if is_first {
                taken.used.store(used, Ordering::Relaxed);
            }
            taken.place.store(used, Ordering::Relaxed);
            queue.insert(used, taken);
            if is_first {
                return Some(ino);
            }
        }
    }

    fn tick(&self) -> u64 {
        self.now.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns the number of descriptors for content files, given the limit of the process.
fn for_content(limit: u64) -> u64 {
    limit.saturating_sub(OTHERS + CONNECTIONS.min(limit / 4)).max(1)
}

impl FdPermit {
    /// Takes one more permit for a file of the same inode, if there is one left.
    pub(crate) fn another(&self) -> Option<Self> {
        self.budget.take(self.taken.ino).ok()
    }

    /// Records that the content file is used now.
    pub(crate) fn note_use(&self) {
        self.taken.used.store(self.budget.tick(), Ordering::Relaxed);
    }
}

impl Drop for FdPermit {
    fn drop(&mut self) {
        let mut queue = self.budget.queue.lock();
        queue.remove(&self.taken.place.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: u64) -> InodeId {
        InodeId::from_raw(number)
    }

    #[test]
    fn the_number_of_permits_is_bounded_and_a_dropped_one_is_free_again() {
        let budget = FdBudget::new(2);
        let one = budget.take(ino(1)).unwrap();
        let _other = budget.take(ino(1)).unwrap();
        assert_eq!(budget.take(ino(2)).unwrap_err().code, Code::TooManyOpen);
        drop(one);
        assert_eq!(budget.taken(), 1);
        assert!(budget.take(ino(2)).is_ok());
    }

    #[test]
    fn the_next_is_the_one_that_was_used_least_recently() {
        let budget = FdBudget::new(4);
        let all: Vec<_> = (0..4).map(|number| budget.take(ino(number)).unwrap()).collect();
        all[1].note_use();
        all[0].note_use();
        let next = || budget.next().unwrap().raw();
        assert_eq!([next(), next(), next(), next(), next()], [2, 3, 1, 0, 2]);
        drop(all);
        assert_eq!(budget.next(), None);
    }
}
