//! The opens that the kernel has through this mount.
//!
//! When a mount ends, the kernel does not wait for the last RELEASE requests, which may be lost.
//! Opens that are left here by then are released by the mount.

use pelago_wire::OpenId;

use crate::striped::StripedMap;

/// The open ids, of which the server limits the number.
#[derive(Default)]
pub(crate) struct OpenIds(StripedMap<OpenPath>);

/// The data path that an open has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenPath {
    /// Requests to this process, and pages that the kernel keeps.
    Cached,
    /// Requests to this process. The kernel keeps no pages: others change the file unseen.
    Direct,
    /// A descriptor that the kernel has.
    Passthrough,
}

impl OpenIds {
    /// Adds an open before the kernel hears of it.
    pub(crate) fn add(&self, open: OpenId, path: OpenPath) {
        let _new = self.0.insert(open.0, path);
    }

    /// Returns the path of an open, or `None` if there is no such open.
    pub(crate) fn path(&self, open: OpenId) -> Option<OpenPath> {
        self.0.lock(open.0).get(&open.0).copied()
    }

    /// Removes an open and returns its path, or `None` if it was removed before.
    pub(crate) fn remove(&self, open: OpenId) -> Option<OpenPath> {
        self.0.remove(open.0)
    }

    /// Removes and returns all opens that are left.
    pub(crate) fn take(&self) -> Vec<OpenId> {
        self.0.drain().map(|(open, _)| OpenId(open)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_that_were_not_released_are_left() {
        let open_ids = OpenIds::default();
        for id in 0..100 {
            open_ids
                .add(OpenId(id), if id == 7 { OpenPath::Passthrough } else { OpenPath::Cached });
        }
        for id in 0..98 {
            let path = if id == 7 { OpenPath::Passthrough } else { OpenPath::Cached };
            assert_eq!(open_ids.remove(OpenId(id)), Some(path));
            assert_eq!(open_ids.remove(OpenId(id)), None);
        }
        let mut left = open_ids.take();
        left.sort();
        assert_eq!(left, [OpenId(98), OpenId(99)]);
        assert_eq!(open_ids.take(), []);
    }
}
