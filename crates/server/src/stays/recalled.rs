//! Recalls of leases: the kernel below the own mount drops the directories that it keeps under
//! them, and the homes are told what was written under them.

use std::sync::Arc;

use pelago_wire::{InodeId, LocalCache, Then, Touched};

use super::Stays;
use crate::upstream::KeptDirectories;

/// The part of the stays that is told of recalls, as the cache of a kernel is.
pub(crate) struct RecalledStays {
    pub(crate) stays: Arc<Stays>,
    /// The site that recalls.
    pub(crate) site: u16,
    pub(crate) kept: Arc<KeptDirectories>,
}

impl LocalCache for RecalledStays {
    fn set_shared(&self, _shared: bool) {}

    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let stays = Arc::clone(&self.stays);
        let of_files = Arc::clone(changes);
        // The kernel may take its time, in which files are written.
        let dropped = move || {
            if stays.is_empty() {
                return then();
            }
            let nodes = of_files.iter().filter_map(|touched| match touched {
                Touched::Node(ino) => Some(*ino),
                Touched::Name { .. } | Touched::Bytes(_) => None,
            });
            let files = nodes.filter(|ino| stays.has_place(*ino)).collect();
            stays.tell_of_files(files, then);
        };
        self.kept.begin(changes, Box::new(dropped));
    }

    fn end(&self, changes: &[Touched]) {
        self.kept.end(changes);
    }

    fn bytes_changed(&self, _ino: InodeId) {}

    /// All leases are lost. What was written under them is told before others look at it, if the
    /// home is only starting again.
    fn drop_all(&self, _nodes: &[InodeId]) {
        self.kept.wait_until_dropped();
        for node in self.stays.dirty() {
            self.stays.tell_all(vec![node], Box::new(|| {}));
        }
    }

    fn may_be_stale(&self) -> bool {
        self.kept.may_be_stale()
    }

    fn end_stale(&self, then: Then) {
        self.kept.end_stale(then);
    }

    fn when_dropped(&self, _changes: &[Touched], then: Then) {
        then();
    }

    /// A home that has started again shows nothing to others before.
    fn flush(&self, then: Then) {
        self.stays.tell_site(self.site, then);
    }
}
