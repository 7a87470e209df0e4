//! Recalls of leases: the homes are told what was written under them, and the kernel below the own
//! mount drops what it keeps under them.

use std::sync::Arc;

use pelago_wire::{InodeId, LocalCache, Then, Touched};

use super::Stays;
use crate::upstream::OwnKernel;

/// The part of the stays that is told of recalls, as the cache of a kernel is.
pub(crate) struct RecalledStays {
    pub(crate) stays: Arc<Stays>,
    /// The site that recalls.
    pub(crate) site: u16,
    pub(crate) kernel: OwnKernel,
}

impl LocalCache for RecalledStays {
    fn set_shared(&self, _shared: bool) {}

    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let then = self.drop_in_kernel(changes, then);
        if self.stays.is_empty() {
            return then();
        }
        let nodes = changes.iter().filter_map(|touched| match touched {
            Touched::Node(ino) => Some(*ino),
            Touched::Name { .. } | Touched::Bytes(_) => None,
        });
        let files = nodes.filter(|ino| self.stays.has_place(*ino)).collect();
        self.stays.tell_of_files(files, then);
    }

    fn end(&self, changes: &[Touched]) {
        if let Some(kernel) = self.kernel.get() {
            kernel.end(&of_directories(changes));
        }
    }

    fn bytes_changed(&self, _ino: InodeId) {}

    /// All leases are lost. What was written under them is told before others look at it, if the
    /// home is only starting again.
    fn drop_all(&self, nodes: &[InodeId]) {
        if let Some(kernel) = self.kernel.get() {
            kernel.drop_all(nodes);
        }
        for node in self.stays.dirty() {
            self.stays.tell_all(vec![node], Box::new(|| {}));
        }
    }

    /// The kernel may keep what was answered while the other site was silent.
    fn end_stale(&self) {
        if let Some(kernel) = self.kernel.get() {
            kernel.drop_all(&[]);
        }
    }

    fn when_dropped(&self, _changes: &[Touched], then: Then) {
        then();
    }

    /// A home that has started again shows nothing to others before.
    fn flush(&self, then: Then) {
        self.stays.tell_site(self.site, then);
    }
}

impl RecalledStays {
    /// Returns the callback that has the kernel drop what changes, and calls `then`.
    fn drop_in_kernel(&self, changes: &[Touched], then: Then) -> Then {
        let Some(kernel) = self.kernel.get().map(Arc::clone) else { return then };
        let changes: Arc<[Touched]> = of_directories(changes).into();
        Box::new(move || kernel.begin(&changes, then))
    }
}

/// Returns the nodes and names in a recall: the kernel keeps no bytes of other sites.
fn of_directories(changes: &[Touched]) -> Vec<Touched> {
    changes.iter().filter(|change| !matches!(change, Touched::Bytes(_))).cloned().collect()
}
