//! Open inodes, with the attributes of open files that are not in their rows yet.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_store::sync::Mutex;
use pelago_wire::id_map::IdMap;
use pelago_wire::{Attr, Handle, InodeId, Name, Time};

use super::read_times::ReadTimes;

/// The open inodes of a shard. They are added under the shard's lock and removed without it: if an
/// operation finds under that lock that an inode is not open, that stays true until it unlocks. A
/// leaf lock.
#[derive(Debug, Default)]
pub(super) struct OpenInodes {
    inner: Mutex<Inner>,
    /// The number of inodes that have an [`AttrSource`].
    attr_sources: AtomicUsize,
}

#[derive(Debug, Default)]
struct Inner {
    open: IdMap<InodeId, OpenInode>,
    /// Entries are removed only under the shard's lock.
    reads: ReadTimes,
}

#[derive(Debug, Default)]
struct OpenInode {
    /// The number of references; never 0.
    references: u32,
    /// True if it has no name yet, or lost its last name, or an operation is about to remove that.
    is_unnamed: bool,
    /// The directory of its last name and that, after it lost it; without a name if it never had
    /// one there.
    last_name: Option<(InodeId, Option<Name>)>,
    /// The uncommitted size and times.
    live: Option<LiveAttrs>,
    /// The time of the last read, if its row does not have it yet.
    atime: Option<Time>,
    attr_source: Option<Arc<dyn AttrSource>>,
}

/// The size and times of an open file that its row does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveAttrs {
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes on the disk.
    pub blocks: u64,
    /// Last change of the bytes.
    pub mtime: Time,
    /// Last change of the bytes or of the times; the `ctime` of the row may be later.
    pub ctime: Time,
}

impl LiveAttrs {
    /// Returns the attributes of the row with these values merged in.
    #[must_use]
    pub fn merge(&self, attr: Attr) -> Attr {
        Attr {
            size: self.size,
            blocks: self.blocks,
            mtime: self.mtime,
            ctime: self.ctime.max(attr.ctime),
            ..attr
        }
    }
}

/// A source of the attributes of an open file that programs write without requests.
pub trait AttrSource: fmt::Debug + Send + Sync {
    /// Reads the attributes again. May wait for the disk, so it is never called under a lock of the
    /// shard.
    fn refresh(&self);

    /// Merges the values of the last refresh into the attributes that are known without it. If the
    /// time of the last read differs, it is written to the row next. Does not wait.
    fn merge(&self, attr: Attr) -> Attr;
}

impl OpenInodes {
    /// Adds a reference.
    pub(super) fn acquire(&self, ino: InodeId, is_unnamed: bool) {
        let mut inner = self.inner.lock();
        let open = inner.open.entry(ino).or_default();
        open.references += 1;
        open.is_unnamed |= is_unnamed;
    }

    /// Removes a reference. Returns whether it was the last one of an unnamed inode.
    pub(super) fn release(&self, ino: InodeId) -> bool {
        let mut inner = self.inner.lock();
        let Some(open) = inner.open.get_mut(&ino) else { return false };
        assert!(open.references > 0, "an open inode has no references");
        open.references -= 1;
        if open.references > 0 {
            return false;
        }
        let Some(open) = inner.open.remove(&ino) else { return false };
        self.count_attr_sources(open.attr_source.is_some(), false);
        open.is_unnamed
    }

    /// Returns whether an inode is open.
    pub(super) fn contains(&self, ino: InodeId) -> bool {
        self.inner.lock().open.contains_key(&ino)
    }

    /// Records that the last name, in `dir`, is about to be removed. Returns whether the inode is
    /// open; then [`OpenInodes::release`] reports its last reference.
    pub(super) fn set_unnamed(&self, ino: InodeId, dir: InodeId, name: Option<&Name>) -> bool {
        let mut inner = self.inner.lock();
        let Some(open) = inner.open.get_mut(&ino) else { return false };
        open.is_unnamed = true;
        open.last_name = Some((dir, name.cloned()));
        true
    }

    /// Returns the last name of an open inode, and its directory, if it lost that name while it was
    /// open.
    pub(super) fn last_name(&self, ino: InodeId) -> Option<(InodeId, Option<Name>)> {
        self.inner.lock().open.get(&ino).and_then(|open| open.last_name.clone())
    }

    /// Records that the inode has its first name.
    pub(super) fn set_named(&self, ino: InodeId) {
        self.change(ino, |open| open.is_unnamed = false);
    }

    /// Returns the inodes whose size and times may differ from those of their rows.
    pub(super) fn uncommitted(&self) -> Vec<InodeId> {
        let inner = self.inner.lock();
        let is_uncommitted = |open: &OpenInode| open.live.is_some() || open.attr_source.is_some();
        let open = inner.open.iter().filter(|(_, open)| is_uncommitted(open));
        open.map(|(ino, _)| *ino).collect()
    }

    /// Sets the size and times that the row does not have; `None` if the row has them.
    pub(super) fn set_live_attrs(&self, ino: InodeId, live: Option<LiveAttrs>) {
        self.change(ino, |open| open.live = live);
    }

    /// Sets the time of the last read, which the row does not have.
    pub(super) fn set_read_time(&self, ino: InodeId, atime: Time) {
        self.change(ino, |open| open.atime = Some(atime));
    }

    /// Returns the time of the last read if the row does not have it yet.
    pub(super) fn read_time(&self, ino: InodeId) -> Option<Time> {
        self.inner.lock().read_time(ino)
    }

    /// Records that the row has the time of the last read, or that a caller has set another time.
    pub(super) fn read_time_is_known(&self, ino: InodeId) {
        self.committed(ino, false);
    }

    /// Records that the row has the time of the last read and, if `live`, size and times.
    pub(super) fn committed(&self, ino: InodeId, live: bool) {
        let mut inner = self.inner.lock();
        inner.reads.remove(ino);
        if let Some(open) = inner.open.get_mut(&ino) {
            open.atime = None;
            open.live = open.live.filter(|_| !live);
        }
    }

    /// Moves the time of a closing reader to those that wait for a group commit. Returns false, and
    /// does nothing, if too many wait.
    pub(super) fn queue_read_time(&self, handle: Handle) -> bool {
        let mut inner = self.inner.lock();
        let Inner { open, reads } = &mut *inner;
        let Some(open) = open.get_mut(&handle.ino) else { return true };
        if reads.is_full() {
            return open.atime.is_none();
        }
        if let Some(atime) = open.atime.take() {
            reads.insert(handle, atime);
        }
        true
    }

    /// Returns some files whose time of the last read waits for a group commit.
    pub(super) fn some_queued_reads(&self) -> Vec<Handle> {
        self.inner.lock().reads.some()
    }

    /// Returns the present attributes of an inode, given those of its row.
    pub(super) fn merge(&self, ino: InodeId, attr: Attr) -> Attr {
        let mut inner = self.inner.lock();
        let attr = Attr { atime: inner.read_time(ino).unwrap_or(attr.atime), ..attr };
        let Some(open) = inner.open.get_mut(&ino) else { return attr };
        let attr = open.live.map_or(attr, |live| live.merge(attr));
        let Some(attr_source) = &open.attr_source else { return attr };
        let merged = attr_source.merge(attr);
        if merged.atime != attr.atime {
            open.atime = Some(merged.atime);
        }
        merged
    }

    /// Refreshes the [`AttrSource`] of an inode. Returns whether it has one. May wait for the disk.
    pub(super) fn refresh(&self, ino: InodeId) -> bool {
        if self.attr_sources.load(Ordering::Acquire) == 0 {
            return false;
        }
        #[cfg(test)]
        super::lock_cost::assert_not_locked();
        let source = self.inner.lock().open.get(&ino).and_then(|open| open.attr_source.clone());
        source.inspect(|source| source.refresh()).is_some()
    }

    /// Sets or removes the [`AttrSource`] of an open inode.
    pub(super) fn set_attr_source(&self, ino: InodeId, source: Option<Arc<dyn AttrSource>>) {
        let mut inner = self.inner.lock();
        let Some(open) = inner.open.get_mut(&ino) else { return };
        let has = source.is_some();
        let had = std::mem::replace(&mut open.attr_source, source).is_some();
        self.count_attr_sources(had, has);
    }

    /// Adjusts the number of sources. Called under the lock of [`Inner`].
    fn count_attr_sources(&self, had: bool, has: bool) {
        match (had, has) {
            (false, true) => {
                self.attr_sources.fetch_add(1, Ordering::AcqRel);
            }
            (true, false) => {
                let before = self.attr_sources.fetch_sub(1, Ordering::AcqRel);
                assert!(before > 0, "an attribute source was removed that was never counted");
            }
            (true, true) | (false, false) => {}
        }
    }

    fn change(&self, ino: InodeId, change: impl FnOnce(&mut OpenInode)) {
        if let Some(open) = self.inner.lock().open.get_mut(&ino) {
            change(open);
        }
    }
}

impl Inner {
    /// Returns the newest time of a read: that of an open reader, else that of a closed one.
    fn read_time(&self, ino: InodeId) -> Option<Time> {
        let open = self.open.get(&ino).and_then(|open| open.atime);
        open.or_else(|| self.reads.get(ino))
    }
}
