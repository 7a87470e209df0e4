//! What is left to invalidate, and the changes that wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use pelago_wire::{InodeId, Then};

use crate::notices::DirEntryKey;

/// How long a change waits for the invalidation of its names before that of all names.
const PATIENCE: Duration = Duration::from_millis(2);
/// The least time between two invalidations of all names.
const EPOCH_PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Work {
    /// Names to invalidate.
    pub(super) queue: VecDeque<QueuedName>,
    /// Inodes that the kernel has perhaps not installed yet.
    pub(super) installing: Vec<InstallingInode>,
    /// A thread invalidates those.
    pub(super) installs: bool,
    /// Changes some of whose names or inodes are not invalidated yet, by number.
    pub(super) changes: BTreeMap<u64, Waiting>,
    pub(super) last: u64,
    pub(super) threads: usize,
    pub(super) idle: usize,
    pub(super) watched: bool,
    pub(super) last_epoch: Option<Instant>,
    /// The kernel does not know `FUSE_NOTIFY_INC_EPOCH`.
    pub(super) lacks_epoch: bool,
    /// After this time the kernel uses no name that it was answered before.
    pub(super) names_hold: Option<Duration>,
    /// When each of these inodes is told again.
    pub(super) again: VecDeque<(Instant, InodeId)>,
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
    /// Names that are left, and inodes that may be on their way.
    pub(super) names: usize,
    pub(super) installing: usize,
    /// All names were invalidated at once.
    pub(super) is_told_names: bool,
    /// The inodes that it changes.
    pub(super) nodes: Vec<InodeId>,
    /// `None` once it was called.
    pub(super) then: Option<Then>,
}

impl Work {
    /// Counts a name of a change that was invalidated. Returns what follows.
    pub(super) fn told_name(&mut self, number: u64) -> Option<Then> {
        self.changes.get_mut(&number)?.names -= 1;
        self.told(number)
    }

    /// Counts an inode of a change that was invalidated. Returns what follows.
    pub(super) fn told_node(&mut self, number: u64) -> Option<Then> {
        self.changes.get_mut(&number)?.installing -= 1;
        self.told(number)
    }

    /// Returns what follows the last that is told of a change.
    fn told(&mut self, number: u64) -> Option<Then> {
        let waiting = self.changes.get_mut(&number)?;
        if waiting.names + waiting.installing == 0 {
            return self.changes.remove(&number)?.then;
        }
        let is_told = waiting.installing == 0 && (waiting.is_told_names || waiting.names == 0);
        waiting.then.take_if(|_| is_told)
    }

    /// Returns when all names are to be invalidated, if a change waits for its own.
    pub(super) fn next_epoch(&self) -> Option<Instant> {
        if self.lacks_epoch {
            return None;
        }
        let waits = |waiting: &&Waiting| waiting.then.is_some() && !waiting.is_told_names;
        let oldest = self.changes.values().find(waits)?.since;
        let allowed = self.last_epoch.map(|last| last + EPOCH_PAUSE);
        let patient = oldest + PATIENCE;
        Some(allowed.map_or(patient, |allowed| allowed.max(patient)))
    }

    /// Returns since when the oldest change waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        Some(self.changes.values().find(|waiting| waiting.then.is_some())?.since)
    }

    /// Returns when the names of the oldest change have expired.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        Some(self.oldest()? + self.names_hold?)
    }

    /// Returns what follows changes whose names have expired.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<Then> {
        let Some(hold) = self.names_hold else { return Vec::new() };
        let expired = self.changes.values_mut().filter(|waiting| waiting.since + hold <= now);
        expired.filter_map(|waiting| waiting.then.take()).collect()
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
            let mut work = Work { names_hold: hold, lacks_epoch: true, ..Work::default() };
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
                        is_told_names: false,
                        nodes: Vec::new(),
                        then,
                    },
                );
            }
            assert_eq!(work.next_expiry(), hold.map(|hold| begun + hold));
            let expired = work.expired(begun + LEASED_TTL + Duration::from_secs(1));
            assert_eq!(expired.len(), if hold.is_some() { 2 } else { 0 });
            let left = hold.map(|hold| begun + Duration::from_secs(2) + hold);
            assert_eq!(work.next_expiry(), left);
        }
    }
}
