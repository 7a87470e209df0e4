//! Methods for open files: references, uncommitted attributes, times of reads, and commits.

use std::sync::Arc;

use pelago_wire::{Attr, Error, Generation, Handle, InodeId, Time};

use crate::row_cache::Node;
use crate::shard::{
    Appended, AttrSource, BytesChange, LiveAttrs, Shard, atime_is_due, file_bytes, read_times,
};

impl Shard {
    /// Adds a reference to an inode that is being opened: its rows stay while it is open, even
    /// without a name. Returns the stored node, and its present attributes.
    ///
    /// # Errors
    /// `Stale`.
    pub fn acquire(&self, handle: Handle) -> Result<(Node, Attr), Error> {
        self.open_inodes.refresh(handle.ino);
        let mut locked = self.lock();
        let node = locked.node(handle)?;
        let attr = locked.attr_of(&node.rnode)?;
        self.open_inodes.acquire(node.rnode.ino, node.rnode.links == 0);
        Ok((node, attr))
    }

    /// Removes a reference. Returns whether the worker `orphans` has work: the inode has neither a
    /// name nor a reference now, and cannot be brought back. Takes the lock only if the inode has
    /// no name.
    pub fn release(&self, ino: InodeId) -> bool {
        if !self.open_inodes.release(ino) {
            return false;
        }
        let is_remembered = self.removed.closed(ino);
        // The operation that removes its last name may still be writing the orphan row.
        drop(self.lock());
        !is_remembered || self.has_removed_news()
    }

    /// Returns whether an open file or an unfinished release refers to an inode.
    #[must_use]
    pub fn is_open(&self, ino: InodeId) -> bool {
        self.open_inodes.contains(ino)
    }

    /// Sets the size and times that the row of an open file does not have yet; `None` if the row
    /// has them. Without effect if the file is not open.
    pub fn set_live_attrs(&self, ino: InodeId, live: Option<LiveAttrs>) {
        self.open_inodes.set_live_attrs(ino, live);
    }

    /// Sets the source of attributes of an open file that programs write without requests; `None`
    /// if they no longer do. Without effect if the file is not open.
    pub fn set_attr_source(&self, ino: InodeId, source: Option<Arc<dyn AttrSource>>) {
        self.open_inodes.set_attr_source(ino, source);
    }

    /// Records the time of a read of an open file, if the read counts: `always`, or by the rules of
    /// `relatime` ([`atime_is_due`]). The time is visible at once, and is written to the row with
    /// the next commit or by [`Shard::queue_read_time`]. Returns whether the read counts.
    ///
    /// # Errors
    /// `Stale`.
    pub fn record_read(&self, handle: Handle, now: Time, always: bool) -> Result<bool, Error> {
        self.open_inodes.refresh(handle.ino);
        let mut locked = self.lock();
        let node = locked.node(handle)?;
        let attr = locked.attr_of(&node.rnode)?;
        let counts = always || atime_is_due(&attr, now);
        if counts {
            self.open_inodes.set_read_time(handle.ino, now);
        }
        Ok(counts)
    }

    /// Queues the time of the read of a closing reader: it is written with the next group commit,
    /// or at once if too many times are queued.
    ///
    /// # Errors
    /// As [`Shard::commit_read_times`].
    pub fn queue_read_time(&self, handle: Handle) -> Result<(), Error> {
        if self.open_inodes.queue_read_time(handle) {
            return Ok(());
        }
        read_times::write(self, &[handle])
    }

    /// Writes the queued times of reads. Those that fail stay queued.
    ///
    /// # Errors
    /// If the table fails.
    pub fn commit_read_times(&self) -> Result<(), Error> {
        read_times::commit(self)
    }

    /// Commits an open file: afterwards its row is up to date, and its [`LiveAttrs`] are removed.
    /// Returns the attributes, and the sequence of the batch.
    ///
    /// # Errors
    /// `Stale` if the file was removed; if the table fails, and then nothing has changed.
    pub fn commit_bytes(
        &self,
        handle: Handle,
        change: &BytesChange<'_>,
    ) -> Result<(Attr, u64), Error> {
        file_bytes::commit(self, handle, change)
    }

    /// Stores the reply to an append before its bytes are written, or corrects it afterwards.
    ///
    /// # Errors
    /// If the table fails.
    pub fn store_append(&self, append: &Appended) -> Result<(), Error> {
        file_bytes::store_append(self, append)
    }

    /// Returns the generation of the next content file of an inode, after `last`.
    #[must_use]
    pub fn next_generation(last: Option<Generation>) -> Generation {
        last.map_or(Generation::FIRST, |last| Generation(last.0 + 1))
    }
}
