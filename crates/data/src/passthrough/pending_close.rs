//! Pending closes: closed files whose content file a program may still write, by a mapping or by a
//! descriptor in the kernel.
//!
//! Linux sends RELEASE for a file that was mapped through passthrough although the mapping still
//! exists and writes the content file. A final row would miss those writes. So such a file keeps
//! one opener, a writer, and its `writing` row. A worker tries repeatedly to release it.

use pelago_store::sync::Mutex;
use pelago_wire::InodeId;
use pelago_wire::id_map::IdSet;

use crate::notify::WakeWorker;

/// The files whose close is pending.
pub(crate) struct PendingClose {
    /// A leaf lock.
    inodes: Mutex<IdSet<InodeId>>,
    notify: WakeWorker,
}

impl PendingClose {
    /// Returns an empty set. `notify` wakes the worker.
    pub(crate) fn new(notify: WakeWorker) -> Self {
        Self { inodes: Mutex::default(), notify }
    }

    /// Counts the files.
    pub(crate) fn count(&self) -> usize {
        self.inodes.lock().len()
    }

    /// Adds a file.
    pub(crate) fn insert(&self, ino: InodeId) {
        self.inodes.lock().insert(ino);
    }

    /// Wakes the worker.
    pub(crate) fn notify(&self) {
        (self.notify)();
    }

    /// Removes a file.
    pub(crate) fn remove(&self, ino: InodeId) {
        self.inodes.lock().remove(&ino);
    }

    /// Returns the files.
    pub(crate) fn inodes(&self) -> Vec<InodeId> {
        self.inodes.lock().iter().copied().collect()
    }
}
