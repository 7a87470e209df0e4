//! Changes of nodes or names: those that are under way, and how many have ended.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::striped::StripedMap;

/// Counters of ended changes; different nodes may share one.
const COUNTS: usize = 1024;

/// Changes of nodes or names, by their 64-bit keys.
pub(super) struct Changes {
    /// Counts of changes that are under way, by key.
    marks: StripedMap<u32>,
    /// Sum of all marks: a mount without changes looks at this number alone.
    marked: AtomicUsize,
    /// Counts of changes that have ended.
    ended: Box<[AtomicU64]>,
    /// Sum of all these counts.
    all_ended: AtomicU64,
}

impl Changes {
    pub(super) fn new() -> Self {
        let ended = (0..COUNTS).map(|_| AtomicU64::new(0)).collect();
        Self {
            marks: StripedMap::default(),
            marked: AtomicUsize::new(0),
            ended,
            all_ended: AtomicU64::new(0),
        }
    }

    fn count(&self, key: u64) -> &AtomicU64 {
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.ended[spread as usize % COUNTS]
    }

    /// Begins a change.
    pub(super) fn mark(&self, key: u64) {
        self.marked.fetch_add(1, Ordering::AcqRel);
        *self.marks.lock(key).entry(key).or_insert(0) += 1;
    }

    /// Ends a change.
    pub(super) fn unmark(&self, key: u64) {
        // First the count: a reply that no longer sees the mark must see the count.
        self.count(key).fetch_add(1, Ordering::AcqRel);
        self.all_ended.fetch_add(1, Ordering::AcqRel);
        let mut stripe = self.marks.lock(key);
        let Some(count) = stripe.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0 {
            stripe.remove(&key);
        }
        self.marked.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether a change is under way.
    pub(super) fn is_marked(&self, key: u64) -> bool {
        self.marked.load(Ordering::Acquire) > 0 && self.marks.contains(key)
    }

    /// Returns how many changes have ended.
    pub(super) fn ended(&self, key: u64) -> u64 {
        self.count(key).load(Ordering::Acquire)
    }

    /// Returns whether nothing has changed since `ended` changes had ended, and nothing changes.
    pub(super) fn holds(&self, key: u64, ended: u64) -> bool {
        !self.is_marked(key) && self.ended(key) == ended
    }

    /// Returns how many changes of any key have ended.
    pub(super) fn all_ended(&self) -> u64 {
        self.all_ended.load(Ordering::Acquire)
    }
}
