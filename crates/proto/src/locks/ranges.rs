//! The locks of one file that can conflict with each other: ranges of bytes, each with a holder.

use std::collections::{BTreeMap, BTreeSet};

use pelago_wire::{FileLock, LockKind, LockMode, LockRange};

use super::Holder;

/// The locks of one file.
///
/// The ranges of one holder are disjoint, and neighbours of one mode are one range. A write lock
/// overlaps no lock of another holder.
#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    /// The ranges of each holder by their first byte. No holder has an empty map.
    holders: BTreeMap<Holder, BTreeMap<u64, LockedRange>>,
    reads: RangeIndex,
    writes: RangeIndex,
}

/// One locked range, without its first byte.
#[derive(Debug, Clone, Copy)]
struct LockedRange {
    end: u64,
    write: bool,
    kind: LockKind,
    pid: u32,
}

impl LockedRange {
    const fn range(&self, start: u64) -> LockRange {
        LockRange { start, end: self.end }
    }

    const fn lock(&self, start: u64) -> FileLock {
        let Self { end, write, kind, pid } = *self;
        let mode = if write { LockMode::Write } else { LockMode::Read };
        FileLock { kind, mode, start, end, pid }
    }
}

/// The change by a lock that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    /// The number of ranges that the holder had before.
    pub(super) before: usize,
    /// The number of ranges that it has now.
    pub(super) after: usize,
    /// A byte is locked less than before, so that others may get their locks.
    pub(super) weakened: bool,
}

impl RangeLocks {
    pub(super) fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Returns the ranges of all holders, in the order of holders and first bytes.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(Holder, LockRange, bool)> {
        let ranges = self.holders.iter().flat_map(|(holder, ranges)| {
            ranges.iter().map(|(start, held)| (*holder, held.range(*start), held.write))
        });
        ranges.collect()
    }

    /// Returns the locks of a holder that overlap a range, in the order of their first bytes.
    pub(super) fn of(&self, holder: Holder, range: LockRange) -> Vec<FileLock> {
        let Some(ranges) = self.holders.get(&holder) else { return Vec::new() };
        touched(ranges, range, None).into_iter().map(|(start, held)| held.lock(start)).collect()
    }

    /// Returns the lock of another holder that conflicts with this one and begins first, and its
    /// holder.
    pub(super) fn conflict(&self, holder: Holder, lock: &FileLock) -> Option<(Holder, FileLock)> {
        let range = lock.range();
        let indexes = self.conflicting_indexes(lock.mode);
        let first = indexes.into_iter().flatten().filter_map(|index| index.first(range, holder));
        let (start, other) = first.min()?;
        let held = self.holders.get(&other)?.get(&start)?;
        Some((other, held.lock(start)))
    }

    /// Returns all other holders of locks that conflict with this one.
    pub(super) fn conflicting(&self, holder: Holder, lock: &FileLock) -> BTreeSet<Holder> {
        let range = lock.range();
        let indexes = self.conflicting_indexes(lock.mode);
        indexes.into_iter().flatten().flat_map(|index| index.others(range, holder)).collect()
    }

    const fn conflicting_indexes(&self, mode: LockMode) -> [Option<&RangeIndex>; 2] {
        match mode {
            LockMode::Unlock => [None; 2],
            LockMode::Read => [Some(&self.writes), None],
            LockMode::Write => [Some(&self.writes), Some(&self.reads)],
        }
    }

    /// Returns the most ranges that the holder has more once this lock is set.
    pub(super) fn growth(&self, holder: Holder, lock: &FileLock) -> usize {
        let LockRange { start, end } = lock.range();
        let locks = lock.mode != LockMode::Unlock;
        let Some(ranges) = self.holders.get(&holder) else { return usize::from(locks) };
        if let Some((first, held)) = ranges.range(..=start).next_back()
            && *first < start
            && held.end > end
        {
            // It divides a range.
            return match lock.mode {
                LockMode::Unlock => 1,
                mode if held.write == (mode == LockMode::Write) => 0,
                LockMode::Read | LockMode::Write => 2,
            };
        }
        let replaces = ranges.range(start..=end).next().is_some_and(|(_, held)| held.end <= end);
        usize::from(locks && !replaces)
    }

    /// Sets a lock, which must not conflict with others, or removes the locks of its range.
    pub(super) fn set(&mut self, holder: Holder, lock: &FileLock) -> Change {
        let range = lock.range();
        let mut ranges = self.holders.remove(&holder).unwrap_or_default();
        let before = ranges.len();
        let new = (lock.mode != LockMode::Unlock).then_some(lock.mode == LockMode::Write);
        let mut joined = range;
        let mut weakened = false;
        for (first, held) in touched(&ranges, range, new) {
            let old = held.range(first);
            ranges.remove(&first);
            self.index(held.write).remove(old, holder);
            weakened |= old.overlaps(range) && (new.is_none() || new < Some(held.write));
            if new == Some(held.write) {
                joined = joined.hull(old);
                continue;
            }
            if old.start < range.start {
                let left = LockedRange { end: range.start - 1, ..held };
                self.insert(&mut ranges, holder, old.start, left);
            }
            if old.end > range.end {
                self.insert(&mut ranges, holder, range.end + 1, held);
            }
        }
        if let Some(write) = new {
            let held = LockedRange { end: joined.end, write, kind: lock.kind, pid: lock.pid };
            self.insert(&mut ranges, holder, joined.start, held);
        }
        let after = ranges.len();
        if after > 0 {
            self.holders.insert(holder, ranges);
        }
        Change { before, after, weakened }
    }

    fn insert(
        &mut self,
        ranges: &mut BTreeMap<u64, LockedRange>,
        holder: Holder,
        start: u64,
        held: LockedRange,
    ) {
        self.index(held.write).insert(held.range(start), holder);
        ranges.insert(start, held);
    }

    const fn index(&mut self, write: bool) -> &mut RangeIndex {
        if write { &mut self.writes } else { &mut self.reads }
    }
}

/// Returns the ranges that overlap a new one, and its neighbours of the same mode.
fn touched(
    ranges: &BTreeMap<u64, LockedRange>,
    range: LockRange,
    new: Option<bool>,
) -> Vec<(u64, LockedRange)> {
    let LockRange { start, end } = range;
    let before = ranges.range(..start).next_back().filter(|(_, held)| {
        held.end >= start || (held.end + 1 == start && new == Some(held.write))
    });
    let within = ranges.range(start..=end);
    let after = end.checked_add(1).and_then(|next| ranges.get_key_value(&next));
    let after = after.filter(|(_, held)| new == Some(held.write));
    before.into_iter().chain(within).chain(after).map(|(first, held)| (*first, *held)).collect()
}

/// Ranges, found by the bytes they overlap.
///
/// A range is kept with those of about its length. A range that overlaps a given one then begins at
/// most one such length before it, so that each class of lengths needs one look at neighbours.
#[derive(Debug, Default)]
struct RangeIndex(BTreeMap<(u32, u64, Holder), u64>);

impl RangeIndex {
    fn insert(&mut self, range: LockRange, holder: Holder) {
        self.0.insert((class(range), range.start, holder), range.end);
    }

    fn remove(&mut self, range: LockRange, holder: Holder) {
        self.0.remove(&(class(range), range.start, holder));
    }

    /// Returns the first byte and the holder of the first range that overlaps `range` and has
    /// another holder.
    fn first(&self, range: LockRange, holder: Holder) -> Option<(u64, Holder)> {
        let classes = self.classes();
        classes.filter_map(|class| self.others_in(class, range, holder).next()).min()
    }

    /// Returns the other holders of the ranges that overlap `range`.
    fn others(&self, range: LockRange, holder: Holder) -> impl Iterator<Item = Holder> {
        let classes = self.classes();
        classes.flat_map(move |class| self.others_in(class, range, holder).map(|(_, other)| other))
    }

    /// Returns the classes that have a range.
    fn classes(&self) -> impl Iterator<Item = u32> {
        let from = |class| {
            let mut behind = self.0.range((class, 0, Holder::FIRST)..);
            behind.next().map(|((class, ..), _)| *class)
        };
        std::iter::successors(from(0), move |class| from(class + 1))
    }

    fn others_in(
        &self,
        class: u32,
        range: LockRange,
        holder: Holder,
    ) -> impl Iterator<Item = (u64, Holder)> {
        let from = range.start.saturating_sub(longest(class));
        let near = self.0.range((class, from, Holder::FIRST)..=(class, range.end, Holder::LAST));
        near.filter(move |((_, _, other), last)| **last >= range.start && *other != holder)
            .map(|((_, first, other), _)| (*first, *other))
    }
}

/// Returns the class of a range by its length: the bits of the distance from its first to its last
/// byte.
const fn class(range: LockRange) -> u32 {
    u64::BITS - (range.end - range.start).leading_zeros()
}

/// Returns the longest distance from the first to the last byte in a class.
const fn longest(class: u32) -> u64 {
    match u64::MAX.checked_shr(u64::BITS - class) {
        Some(longest) => longest,
        None => 0,
    }
}
