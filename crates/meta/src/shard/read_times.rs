//! Times of reads, by the rules of `relatime`: the reads that count, and the writes of these times
//! to the rows of closed files, many in one batch.

use pelago_wire::id_map::IdMap;
use pelago_wire::{Attr, Code, Error, Handle, InodeId, Time};

use super::Shard;

/// The seconds after which a read counts again.
pub const ATIME_INTERVAL_SECONDS: i64 = 24 * 60 * 60;
/// The most times of reads that wait for the next group commit.
const QUEUED: usize = 4096;
/// The most times in one batch: other operations wait for the shard meanwhile.
const WRITTEN_AT_ONCE: usize = 32;

/// The times of the last reads of closed readers that the rows do not have yet.
#[derive(Debug, Default)]
pub(super) struct ReadTimes(IdMap<InodeId, (Handle, Time)>);

impl ReadTimes {
    /// Returns whether no more times may be added.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= QUEUED
    }

    /// Adds a time.
    pub(super) fn insert(&mut self, handle: Handle, atime: Time) {
        self.0.insert(handle.ino, (handle, atime));
    }

    /// Returns the time of an inode.
    pub(super) fn get(&self, ino: InodeId) -> Option<Time> {
        self.0.get(&ino).map(|(_, atime)| *atime)
    }

    /// Removes the time of an inode.
    pub(super) fn remove(&mut self, ino: InodeId) {
        self.0.remove(&ino);
    }

    /// Returns the files of one batch.
    pub(super) fn some(&self) -> Vec<Handle> {
        self.0.values().take(WRITTEN_AT_ONCE).map(|(handle, _)| *handle).collect()
    }
}

/// Returns whether a read of a file with these attributes counts. A change with a time in the
/// future does not make every read count.
#[must_use]
pub fn atime_is_due(attr: &Attr, now: Time) -> bool {
    let is_unread = |change: Time| attr.atime <= change && change < now;
    let interval = now.seconds - attr.atime.seconds;
    is_unread(attr.mtime) || is_unread(attr.ctime) || interval >= ATIME_INTERVAL_SECONDS
}

/// Writes the queued times. Those that fail stay queued.
pub(super) fn commit(shard: &Shard) -> Result<(), Error> {
    // No more rounds than the queue can need now: a group commit does not wait for readers that
    // close meanwhile.
    for _ in 0..QUEUED.div_ceil(WRITTEN_AT_ONCE) {
        let some = shard.open_inodes.some_queued_reads();
        if some.is_empty() {
            break;
        }
        write(shard, &some)?;
    }
    Ok(())
}

/// Writes the times of some files in one batch. The versions of the files do not change.
pub(super) fn write(shard: &Shard, handles: &[Handle]) -> Result<(), Error> {
    let mut txn = shard.begin_upkeep();
    let mut nodes = Vec::with_capacity(handles.len());
    for handle in handles {
        let Some(atime) = shard.open_inodes.read_time(handle.ino) else { continue };
        match txn.node(*handle) {
            Ok(mut node) if node.rnode.links > 0 || shard.open_inodes.contains(handle.ino) => {
                node.rnode.atime = atime;
                txn.put_row_of(&node);
                nodes.push(node);
            }
            // The rows of an unnamed file that is not open are about to be deleted.
            Ok(_) => {}
            Err(error) if matches!(error.code, Code::Stale | Code::Corrupt) => {}
            Err(error) => return Err(error),
        }
    }
    let mut locked = txn.commit()?;
    nodes.into_iter().for_each(|node| locked.state.rows.put_node(node));
    handles.iter().for_each(|handle| shard.open_inodes.read_time_is_known(handle.ino));
    Ok(())
}
