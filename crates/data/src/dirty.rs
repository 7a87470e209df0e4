//! The dirty inodes, whose changes the next group commit writes to their rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use pelago_store::sync::Mutex;
use pelago_wire::InodeId;
use pelago_wire::id_map::IdSet;

/// The bytes written to the table after which a group commit starts before its time.
const HURRY_BYTES: usize = 4 << 20;

/// Inodes with bytes that are in no row, and inodes that could not be committed or released.
#[derive(Debug, Default)]
pub(crate) struct DirtySet {
    /// A leaf lock.
    inodes: Mutex<IdSet<InodeId>>,
    /// Bytes that were written to the table since the last group commit.
    unsafe_bytes: AtomicUsize,
}

impl DirtySet {
    /// Adds an inode.
    pub(crate) fn insert(&self, ino: InodeId) {
        self.inodes.lock().insert(ino);
    }

    /// Removes an inode whose row has all its values.
    pub(crate) fn remove(&self, ino: InodeId) {
        self.inodes.lock().remove(&ino);
    }

    /// Empties the set for a group commit, and counts unsafe bytes from 0 again.
    pub(crate) fn take(&self) -> IdSet<InodeId> {
        self.unsafe_bytes.store(0, Ordering::Relaxed);
        std::mem::take(&mut *self.inodes.lock())
    }

    /// Counts bytes that were written to the table. Returns whether a group commit should start
    /// now.
    pub(crate) fn count_unsafe(&self, bytes: usize) -> bool {
        let before = self.unsafe_bytes.fetch_add(bytes, Ordering::Relaxed);
        before < HURRY_BYTES && before + bytes >= HURRY_BYTES
    }
}
