//! Which files this mount has open for writing, and so how long attributes stay true.
//!
//! While a file is open for writing, its size and times change at the server: at writes, which the
//! kernel sees, and at the commit when it is closed, which it does not. What is told about such a
//! file is therefore good for this one time only.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::{Attr, InodeId};

use crate::init::TTL;

/// Counts of write-opens by file. Its locks are leaves.
#[derive(Default)]
pub(crate) struct AttrTtl {
    shards: [Mutex<HashMap<u64, u32>>; SHARDS],
    files: AtomicUsize,
    closed: AtomicU64,
}

/// A moment: how many write-opens had been closed by then.
#[derive(Clone, Copy)]
pub(crate) struct Epoch(u64);

const SHARDS: usize = 16;

impl AttrTtl {
    /// A file was opened for writing.
    pub(crate) fn add(&self, ino: InodeId) {
        let mut shard = self.shard(ino).lock();
        let count = shard.entry(ino.raw()).or_insert(0);
        *count = count.saturating_add(1);
        if *count == 1 {
            self.files.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// A file that was opened for writing was closed and committed.
    pub(crate) fn remove(&self, ino: InodeId) {
        let mut shard = self.shard(ino).lock();
        if let Some(count) = shard.get_mut(&ino.raw()) {
            *count -= 1;
            if *count == 0 {
                shard.remove(&ino.raw());
                self.files.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.closed.fetch_add(1, Ordering::AcqRel);
    }

    /// Now; to be taken before attributes are asked for.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.closed.load(Ordering::Acquire))
    }

    /// How long attributes hold that were asked for after `asked`: not at all where the server says
    /// so, while the file is open for writing, or if any such file was closed since, for it may
    /// have been this one and the attributes those before its commit.
    pub(crate) fn ttl(&self, attr: &Attr, asked: Epoch) -> Duration {
        let idle = || self.files.load(Ordering::Acquire) == 0 || !self.is_written(attr.ino);
        if !attr.volatile && idle() && self.epoch().0 == asked.0 { TTL } else { Duration::ZERO }
    }

    fn is_written(&self, ino: InodeId) -> bool {
        self.shard(ino).lock().contains_key(&ino.raw())
    }

    fn shard(&self, ino: InodeId) -> &Mutex<HashMap<u64, u32>> {
        &self.shards[usize::try_from(ino.raw()).unwrap_or(0) % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, Time};

    use super::*;

    fn attr(ino: u64) -> Attr {
        let time = Time { seconds: 5, nanos: 6 };
        Attr {
            ino: InodeId::from_raw(ino),
            kind: FileKind::Regular,
            mode: 0o644,
            links: 1,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            volatile: false,
        }
    }

    #[test]
    fn attributes_hold_unless_somebody_writes() {
        let writers = AttrTtl::default();
        let (one, other) = (attr(16), attr(32));
        assert_eq!(writers.ttl(&one, writers.epoch()), TTL);
        writers.add(one.ino);
        writers.add(one.ino);
        assert_eq!(writers.ttl(&one, writers.epoch()), Duration::ZERO);
        assert_eq!(writers.ttl(&other, writers.epoch()), TTL);
        writers.remove(one.ino);
        assert_eq!(writers.ttl(&one, writers.epoch()), Duration::ZERO);
        let before = writers.epoch();
        writers.remove(one.ino);
        assert_eq!(writers.ttl(&one, before), Duration::ZERO);
        assert_eq!(writers.ttl(&one, writers.epoch()), TTL);
    }

    /// Nobody here has it open, and somebody changes it all the same.
    #[test]
    fn attributes_that_are_changing_do_not_hold() {
        let writers = AttrTtl::default();
        let changing = Attr { volatile: true, ..attr(16) };
        assert_eq!(writers.ttl(&changing, writers.epoch()), Duration::ZERO);
    }
}
