//! Lifetimes of attributes, which are zero for files that this mount has open for writing.
//!
//! While a file is open for writing, its size and times change at the server: at each write, which
//! the kernel sees, and at the commit when the file is closed, which the kernel does not see. So
//! the kernel may use attributes of such a file only once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use pelago_wire::{Attr, InodeId};

use crate::init::TTL;
use crate::striped::StripedMap;

/// Counts of opens for writing by file, from which the lifetime of attributes follows.
#[derive(Default)]
pub(crate) struct AttrTtl {
    write_opens: StripedMap<WriteOpens>,
    files: AtomicUsize,
    closed: AtomicU64,
}

/// The opens for writing of a file that are not closed.
#[derive(Default)]
struct WriteOpens {
    count: u32,
    /// One of them can map the file, so that the kernel may have stores that it has not written
    /// back.
    can_map: bool,
}

/// A point in time, as the number of opens for writing that had been closed by then.
#[derive(Clone, Copy)]
pub(crate) struct Epoch(u64);

impl AttrTtl {
    /// Counts an open for writing; `can_map` says whether stores in a mapping of it would come as
    /// writes.
    pub(crate) fn write_opened(&self, ino: InodeId, can_map: bool) {
        let mut stripe = self.write_opens.lock(ino.raw());
        let opens = stripe.entry(ino.raw()).or_default();
        opens.count = opens.count.saturating_add(1);
        opens.can_map |= can_map;
        if opens.count == 1 {
            self.files.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Counts the end of an open for writing, after the server has committed the file.
    pub(crate) fn write_closed(&self, ino: InodeId) {
        let mut stripe = self.write_opens.lock(ino.raw());
        if let Some(opens) = stripe.get_mut(&ino.raw()) {
            opens.count -= 1;
            if opens.count == 0 {
                stripe.remove(&ino.raw());
                self.files.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.closed.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether the kernel may have stores in a mapping of a file that it has not written.
    pub(crate) fn may_have_stores(&self, ino: InodeId) -> bool {
        self.write_opens.lock(ino.raw()).get(&ino.raw()).is_some_and(|opens| opens.can_map)
    }

    /// Returns the current epoch, which callers take before they request attributes.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.closed.load(Ordering::Acquire))
    }

    /// Returns the lifetime of attributes that were requested in epoch `requested`. It is zero if
    /// the server says so, if the file is open for writing, or if any open for writing was closed
    /// since: that open may have been of this file, and the attributes older than its commit.
    pub(crate) fn ttl(&self, attr: &Attr, requested: Epoch) -> Duration {
        let is_written =
            || self.files.load(Ordering::Acquire) > 0 && self.write_opens.contains(attr.ino.raw());
        let holds = !attr.volatile && !is_written() && self.epoch().0 == requested.0;
        if holds { TTL } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::FileKind;

    use super::*;

    fn attr(ino: u64) -> Attr {
        Attr::empty(InodeId::from_raw(ino), FileKind::Regular)
    }

    #[test]
    fn attributes_hold_unless_the_file_is_open_for_writing() {
        let ttl = AttrTtl::default();
        let one = attr(16);
        let other = attr(32);
        assert_eq!(ttl.ttl(&one, ttl.epoch()), TTL);
        ttl.write_opened(one.ino, false);
        ttl.write_opened(one.ino, false);
        assert_eq!(ttl.ttl(&one, ttl.epoch()), Duration::ZERO);
        assert_eq!(ttl.ttl(&other, ttl.epoch()), TTL);
        ttl.write_closed(one.ino);
        assert_eq!(ttl.ttl(&one, ttl.epoch()), Duration::ZERO);
        ttl.write_closed(one.ino);
        assert_eq!(ttl.ttl(&one, ttl.epoch()), TTL);
    }

    #[test]
    fn attributes_asked_for_before_a_close_do_not_hold() {
        let ttl = AttrTtl::default();
        ttl.write_opened(attr(16).ino, false);
        let before = ttl.epoch();
        ttl.write_closed(attr(16).ino);
        assert_eq!(ttl.ttl(&attr(16), before), Duration::ZERO);
        assert_eq!(ttl.ttl(&attr(16), ttl.epoch()), TTL);
    }

    #[test]
    fn a_file_may_have_stores_from_an_open_that_can_map_until_the_last_one_is_closed() {
        let ttl = AttrTtl::default();
        let one = attr(16).ino;
        let other = attr(32).ino;
        ttl.write_opened(one, true);
        ttl.write_opened(one, false);
        ttl.write_opened(other, false);
        ttl.write_closed(one);
        assert!(ttl.may_have_stores(one) && !ttl.may_have_stores(other));
        ttl.write_closed(one);
        assert!(!ttl.may_have_stores(one));
    }

    #[test]
    fn volatile_attributes_never_hold() {
        let ttl = AttrTtl::default();
        let volatile = Attr { volatile: true, ..attr(16) };
        assert_eq!(ttl.ttl(&volatile, ttl.epoch()), Duration::ZERO);
    }
}
