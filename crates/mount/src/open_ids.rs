//! Opens that the kernel has through this mount.
//!
//! When a mount ends, Linux does not wait for the replies to its last RELEASE requests, and some
//! may never arrive. The mount releases the opens that are left here by then.
//!
//! The kernel sends FLUSH for each descriptor that a program closes, because only FLUSH ends the
//! `fcntl` locks of the process. Most closes have nothing to commit: the open is read-only, or
//! nothing was written through it. They are not sent to the server.

use pelago_wire::{InodeId, OpenId, SetAttr};

use crate::striped::StripedMap;

/// Table of open ids. The server limits their number.
#[derive(Default)]
pub(crate) struct OpenIds {
    opens: StripedMap<Open>,
    /// Inodes that were changed through no open in particular: by a mapping, or by their path. Any
    /// writer that closes such a file commits it.
    changed: StripedMap<()>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    path: OpenPath,
    writes: bool,
    /// Something was written through this open, or may have been.
    has_written: bool,
}

/// The data path that an open has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenPath {
    /// Requests to this process, and pages in the kernel.
    Cached,
    /// Requests to this process, and no pages: others may change the file unseen by the kernel.
    Direct,
    /// A registered descriptor.
    Passthrough,
}

impl OpenIds {
    /// Adds an open before the kernel gets it; `writes` is true if it is for writing.
    pub(crate) fn add(&self, open: OpenId, path: OpenPath, writes: bool) {
        // The kernel sends no request for a write by passthrough.
        let has_written = writes && path == OpenPath::Passthrough;
        let _new = self.opens.insert(open.0, Open { path, writes, has_written });
    }

    /// Records that a program changes a file through an open.
    pub(crate) fn writes(&self, open: OpenId) {
        if let Some(open) = self.opens.lock(open.0).get_mut(&open.0) {
            open.has_written = true;
        }
    }

    /// Records that a file is changed through no open in particular.
    pub(crate) fn inode_changes(&self, ino: InodeId) {
        let _known = self.changed.insert(ino.raw(), ());
    }

    /// Records a change of attributes. Size and time of an open file are committed when it is
    /// closed.
    pub(crate) fn sets_attr(&self, ino: InodeId, set: &SetAttr) {
        if set.size.is_some() || set.mtime.is_some() {
            self.inode_changes(ino);
        }
    }

    /// Forgets an inode that the kernel has forgotten.
    pub(crate) fn forget(&self, ino: InodeId) {
        let _known = self.changed.remove(ino.raw());
    }

    /// Returns whether the close of a descriptor may have something to commit.
    pub(crate) fn must_commit(&self, open: OpenId, ino: InodeId) -> bool {
        let known = self.opens.lock(open.0).get(&open.0).copied();
        known.is_none_or(|open| {
            open.has_written || (open.writes && self.changed.contains(ino.raw()))
        })
    }

    /// Returns the path of an open, or `None` if there is no such open.
    pub(crate) fn path(&self, open: OpenId) -> Option<OpenPath> {
        self.opens.lock(open.0).get(&open.0).map(|open| open.path)
    }

    /// Removes an open and returns its path, or `None` if it was removed before.
    pub(crate) fn remove(&self, open: OpenId) -> Option<OpenPath> {
        self.opens.remove(open.0).map(|open| open.path)
    }

    /// Removes and returns all opens that are left.
    pub(crate) fn take(&self) -> Vec<OpenId> {
        self.opens.drain().map(|(open, _)| OpenId(open)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INO: InodeId = InodeId::from_raw(5);

    #[test]
    fn opens_that_were_not_released_are_left() {
        let open_ids = OpenIds::default();
        let path = |id| if id == 7 { OpenPath::Passthrough } else { OpenPath::Cached };
        for id in 0..100 {
            open_ids.add(OpenId(id), path(id), false);
        }
        for id in 0..98 {
            assert_eq!(open_ids.remove(OpenId(id)), Some(path(id)));
            assert_eq!(open_ids.remove(OpenId(id)), None);
        }
        let mut left = open_ids.take();
        left.sort();
        assert_eq!(left, [OpenId(98), OpenId(99)]);
        assert_eq!(open_ids.take(), []);
    }

    #[test]
    fn an_open_that_has_written_is_committed_when_it_is_closed() {
        let open_ids = OpenIds::default();
        let [reader, writer, other, passing] = [1, 2, 3, 4].map(OpenId);
        open_ids.add(reader, OpenPath::Cached, false);
        open_ids.add(writer, OpenPath::Cached, true);
        open_ids.add(other, OpenPath::Cached, true);
        open_ids.add(passing, OpenPath::Passthrough, true);
        open_ids.writes(writer);
        let commit = |open| open_ids.must_commit(open, INO);
        assert_eq!([reader, writer, other, passing].map(commit), [false, true, false, true]);
        open_ids.inode_changes(INO);
        assert_eq!([reader, writer, other].map(commit), [false, true, true]);
        open_ids.forget(INO);
        assert_eq!([reader, writer, other].map(commit), [false, true, false]);
        assert!(commit(OpenId(9)), "it is not known here");
    }
}
