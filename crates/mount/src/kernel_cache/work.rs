//! Queues of the names and inodes to invalidate, and the changes that wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use pelago_wire::{InodeId, Then};

use crate::notices::DirEntryKey;

/// Time for which a change waits for the invalidation of its names before that of all names.
const PATIENCE: Duration = Duration::from_millis(2);
/// The least time between two invalidations of all names: after each the kernel looks every name up
/// again.
const EPOCH_PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Work {
    /// Names to invalidate.
    pub(super) queue: VecDeque<QueuedName>,
    /// Inodes that the kernel has perhaps not installed yet.
    pub(super) installing: Vec<InstallingInode>,
    /// A thread invalidates them.
    pub(super) installs: bool,
    /// Changes some of whose names or inodes are not invalidated yet, by number.
    pub(super) changes: BTreeMap<u64, Waiting>,
    /// Number of the newest change.
    pub(super) last: u64,
    /// Threads that invalidate names.
    pub(super) threads: usize,
    /// Threads of these that wait for names.
    pub(super) idle: usize,
    /// The thread that watches has been started.
    pub(super) watched: bool,
    pub(super) last_epoch: Option<Instant>,
    /// The kernel does not know FUSE_NOTIFY_INC_EPOCH.
    pub(super) lacks_epoch: bool,
    /// Inodes whose invalidation is repeated, by time.
    pub(super) repeats: VecDeque<(Instant, InodeId)>,
    /// Until then entries from before the first session may be installed.
    pub(super) in_doubt_until: Option<Instant>,
    pub(super) ended: bool,
}

/// A name that a change invalidates.
pub(super) struct QueuedName {
    /// Number of the change.
    pub(super) change: u64,
    pub(super) key: DirEntryKey,
}

/// An inode that a change invalidates once the kernel has installed it.
pub(super) struct InstallingInode {
    /// Number of the change.
    pub(super) change: u64,
    pub(super) ino: InodeId,
    /// The beginning of the change.
    pub(super) since: Instant,
}

/// A change that waits for the kernel.
pub(super) struct Waiting {
    pub(super) since: Instant,
    /// Names that are left.
    pub(super) names: usize,
    /// Inodes that may be on their way to the kernel.
    pub(super) installing: usize,
    /// All names were invalidated at once.
    pub(super) are_names_invalid: bool,
    /// The inodes that it changes.
    pub(super) nodes: Vec<InodeId>,
    /// When the lifetimes of its names are over, with the time in which they are installed; `None`
    /// if they are under no leases.
    pub(super) expires: Option<Instant>,
    /// It waits for an invalidation of all names, and no notice of one is on its way.
    pub(super) is_of_all: bool,
    /// `None` once it was called.
    pub(super) then: Option<Then>,
}

impl Work {
    /// Counts a name of a change that was invalidated. Returns the callback that is due.
    pub(super) fn name_invalidated(&mut self, number: u64) -> Option<Then> {
        self.changes.get_mut(&number)?.names -= 1;
        self.next_step(number)
    }

    /// Counts an inode of a change that was invalidated. Returns the callback that is due.
    pub(super) fn inode_invalidated(&mut self, number: u64) -> Option<Then> {
        self.changes.get_mut(&number)?.installing -= 1;
        self.next_step(number)
    }

    /// Returns the callback of a change, if nothing is left that it waits for.
    fn next_step(&mut self, number: u64) -> Option<Then> {
        let waiting = self.changes.get_mut(&number)?;
        if waiting.names + waiting.installing == 0 {
            return self.changes.remove(&number)?.then;
        }
        let is_ready = waiting.installing == 0 && (waiting.are_names_invalid || waiting.names == 0);
        waiting.then.take_if(|_| is_ready)
    }

    /// Returns when all names are to be invalidated, if a change waits for its names.
    pub(super) fn next_epoch(&self) -> Option<Instant> {
        if self.lacks_epoch {
            return None;
        }
        let waits = |waiting: &&Waiting| waiting.then.is_some() && !waiting.are_names_invalid;
        let oldest = self.changes.values().find(waits)?.since;
        let allowed = self.last_epoch.map(|last| last + EPOCH_PAUSE);
        let patient = oldest + PATIENCE;
        Some(allowed.map_or(patient, |allowed| allowed.max(patient)))
    }

    /// Returns when the names of a change that waits have expired, the first of all.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        let waiting = self.changes.values().filter(|waiting| waiting.then.is_some());
        waiting.filter_map(|waiting| waiting.expires).min()
    }

    /// Returns the callbacks of changes whose names have expired.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Then> {
        let has_expired = |waiting: &&mut Waiting| waiting.expires.is_some_and(|at| at <= now);
        let expired = self.changes.values_mut().filter(has_expired);
        let ready = expired.filter_map(|waiting| waiting.then.take()).collect();
        self.forget_ended();
        ready
    }

    /// Returns whether the names of a change have expired.
    pub(super) fn has_expired(&self, number: u64, now: Instant) -> bool {
        let expires = self.changes.get(&number).and_then(|waiting| waiting.expires);
        expires.is_some_and(|expires| expires <= now)
    }

    /// Forgets changes that no thread will end.
    pub(super) fn forget_ended(&mut self) {
        self.changes.retain(|_, waiting| waiting.then.is_some() || !waiting.is_of_all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::init::LEASED_TTL;

    /// The kernel lacks the notice for all names at once, or something is mounted below.
    #[test]
    fn under_leases_a_change_waits_for_names_no_longer_than_these_hold() {
        let begun = Instant::now();
        for hold in [None, Some(LEASED_TTL)] {
            let mut work = Work { lacks_epoch: true, ..Work::default() };
            assert_eq!(work.next_expiry(), None);
            for number in 0..3 {
                let since = begun + Duration::from_secs(number);
                let then: Option<Then> = Some(Box::new(|| {}));
                work.changes.insert(
                    number,
                    Waiting {
                        since,
                        names: 1,
                        installing: 0,
                        are_names_invalid: false,
                        nodes: Vec::new(),
                        expires: hold.map(|hold| since + hold),
                        is_of_all: hold.is_some(),
                        then,
                    },
                );
            }
            assert_eq!(work.next_expiry(), hold.map(|hold| begun + hold));
            let expired = work.expired(begun + LEASED_TTL + Duration::from_secs(1));
            assert_eq!(expired.len(), if hold.is_some() { 2 } else { 0 });
            assert_eq!(work.changes.len(), if hold.is_some() { 1 } else { 3 });
            let left = hold.map(|hold| begun + Duration::from_secs(2) + hold);
            assert_eq!(work.next_expiry(), left);
        }
    }
}
