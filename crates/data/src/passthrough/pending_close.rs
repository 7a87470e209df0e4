//! Files that are closed, but whose content file a program may still write: by a mapping, or by a
//! descriptor that the kernel still has.
//!
//! Such a file keeps one opener, a writer, and its `writing` row. A worker tries to release it
//! again and again.

use parking_lot::Mutex;
use pelago_wire::id_map::IdSet;
use pelago_wire::{Error, InodeId};

use crate::commit::LOCK_TIMEOUT;
use crate::notify::Notifier;
use crate::open_files::OpenFiles;
use crate::release::Released;

/// The files whose close is pending.
pub(crate) struct PendingClose {
    /// A leaf in the lock order.
    inodes: Mutex<IdSet<InodeId>>,
    notify: Notifier,
}

impl PendingClose {
    /// No files; `notify` wakes up the worker.
    pub(crate) fn new(notify: Notifier) -> Self {
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

    /// Wakes up the worker.
    pub(crate) fn notify(&self) {
        (self.notify)();
    }

    fn remove(&self, ino: InodeId) {
        self.inodes.lock().remove(&ino);
    }

    fn inodes(&self) -> Vec<InodeId> {
        self.inodes.lock().iter().copied().collect()
    }
}

impl OpenFiles {
    /// Releases closed files that no program can write any more. Returns how many.
    ///
    /// # Errors
    /// The last failure to commit one of them, which is tried again.
    pub fn release_closed(&self) -> Result<usize, Error> {
        let (mut released, mut result) = (0, Ok(()));
        for ino in self.pending_close.inodes() {
            let Some(inode) = self.opens.inode(ino) else {
                self.pending_close.remove(ino);
                continue;
            };
            let Some(guard) = self.lock_within(&inode, LOCK_TIMEOUT) else { continue };
            if self.opens.writers(ino) > 1 {
                // It is open to write again: the release of that open tries it.
                continue;
            }
            self.pending_close.remove(ino);
            match guard.try_release(true) {
                Ok(Released::Pending) => {}
                Ok(Released::Done) => released += 1,
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| released)
    }
}
