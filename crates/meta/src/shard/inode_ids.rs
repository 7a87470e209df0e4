//! Ids for new inodes: no id is used twice, not even after a crash of the machine (I-3).
//!
//! Ids come from blocks of [`ID_BLOCK`]. A high-water mark above a block is written and made safe
//! before the first id of the block is used: the first create of a run waits for the disk once. The
//! mark of each later block is written when the previous block is half used, and is safe long
//! before its ids are needed.

use std::collections::HashSet;

use pelago_store::key;
use pelago_store::report::table_failed;
use pelago_store::rows::{HighWater, Row};
use pelago_store::table::Batch;
use pelago_wire::limits::ID_BLOCK;
use pelago_wire::{Code, Error, Handle, InodeId, ShardId};

use super::locked::Locked;
use super::stored;

/// The ids of one shard.
#[derive(Debug)]
pub(super) struct InodeIds {
    shard: ShardId,
    next: u64,
    /// This run may use counters below this one.
    ready: u64,
    /// The high-water mark that was last written. It is safe once the batch
    /// [`InodeIds::written_at`] is.
    written: u64,
    written_at: u64,
    /// Counters below this one are those of earlier epochs.
    first: u64,
    /// Counters of earlier epochs that were claimed in this epoch.
    claimed: HashSet<u64>,
}

/// The step that must come before [`InodeIds::take`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Nothing.
    Nothing,
    /// Write this high-water mark; the batch need not be safe yet.
    Write(u64),
    /// Write this high-water mark and make it safe first.
    WriteAndWait(u64),
    /// Make the batch with this sequence safe first.
    Wait(u64),
}

impl InodeIds {
    /// Returns the ids from the counter `next` on, none of them reserved yet.
    #[must_use]
    pub(super) fn new(shard: ShardId, next: u64) -> Self {
        let next = next.max(InodeId::ROOT.counter() + 1);
        let claimed = HashSet::new();
        Self { shard, next, ready: next, written: next, written_at: 0, first: next, claimed }
    }

    /// Returns the step that must come before the next id is taken. All batches up to the sequence
    /// `safe` are safe.
    #[must_use]
    #[inline]
    pub(super) fn need(&self, safe: u64) -> Need {
        if self.next < self.ready {
            let half_used = self.ready - self.next < ID_BLOCK / 2;
            if half_used && self.written == self.ready {
                return Need::Write(self.written + ID_BLOCK);
            }
            return Need::Nothing;
        }
        if self.written == self.ready {
            return Need::WriteAndWait(self.written + ID_BLOCK);
        }
        if self.written_at > safe { Need::Wait(self.written_at) } else { Need::Nothing }
    }

    /// Records that the batch with this sequence wrote the high-water mark `to`.
    pub(super) fn wrote(&mut self, to: u64, sequence: u64) {
        assert!(to > self.written, "I-3: the high-water mark of inode ids would go back");
        self.written = to;
        self.written_at = sequence;
    }

    /// Takes the next id, after the step that [`InodeIds::need`] returned.
    ///
    /// # Errors
    /// [`Code::NoSpace`] if the shard has used all of its 2³⁶ ids.
    #[inline]
    pub(super) fn take(&mut self) -> Result<InodeId, Error> {
        if self.next == self.ready {
            self.ready = self.written;
        }
        assert!(self.next < self.ready, "I-3: an inode id is above the high-water mark");
        let id = self.shard.inode(self.next).ok_or(Code::NoSpace)?;
        self.next += 1;
        Ok(id)
    }

    /// Claims the id that an earlier epoch gave to an inode which was lost. Returns false if no
    /// earlier epoch can have given the id, or if it was claimed already.
    pub(super) fn claim(&mut self, id: InodeId) -> bool {
        let counter = id.counter();
        let is_ours = id.home() == self.shard;
        let is_earlier = (InodeId::ROOT.counter() + 1..self.first).contains(&counter);
        is_ours && is_earlier && self.claimed.insert(counter)
    }

    /// Adapts the ids to a table that was opened again, and may have lost the last high-water mark.
    /// Ids in use are not affected: their mark was safe before the first of them was taken. Inodes
    /// may be lost: from now on all ids so far are those of an earlier epoch. Returns the mark that
    /// is safe.
    pub(super) fn invalidate(&mut self) -> u64 {
        self.written = self.ready;
        self.first = self.next;
        self.claimed.clear();
        self.ready
    }

    /// Records that [`InodeIds::next`] was written as the high-water mark: the next id needs a new
    /// mark.
    pub(super) fn returned(&mut self) {
        self.ready = self.next;
        self.written = self.next;
    }

    /// Returns the high-water mark that was last written.
    #[must_use]
    pub(super) fn mark(&self) -> u64 {
        self.written
    }

    /// Returns the counter with which the next run begins, if this run ends cleanly.
    #[must_use]
    pub(super) fn next(&self) -> u64 {
        self.next
    }
}

impl Locked<'_> {
    /// Takes an id for a new inode. Once per block this writes a batch of its own.
    #[inline]
    pub(super) fn take_id(&mut self) -> Result<InodeId, Error> {
        match self.state.ids.need(self.shard.durability.safe()) {
            Need::Nothing => {}
            Need::Write(to) => self.reserve_ids(to)?,
            Need::WriteAndWait(to) => {
                self.reserve_ids(to)?;
                self.persist(self.state.sequence)?;
            }
            Need::Wait(sequence) => self.persist(sequence)?,
        }
        self.state.ids.take()
    }

    /// Claims the id of an inode that an earlier epoch created, and that was lost. Returns false if
    /// that epoch cannot have given the id, or if the id is in use: by an inode in memory, in a row
    /// of its own, under the name of its `moved` row, or under the name of the handle; or by other
    /// rows of an inode, among them those that protect its content file.
    ///
    /// A lost batch is lost with all later ones, so that an honest client's id has none of these
    /// rows. A content file without a row may exist, and is emptied. One case is not found: a file
    /// that never had another name, has neither inline bytes nor extended attributes, and whose id
    /// the client sends with another name. Only a scan of all names would find it, and no client
    /// learns the id without the name.
    pub(super) fn claim_id(&mut self, node: Handle) -> Result<bool, Error> {
        let id = node.ino;
        let beside = [key::inline, key::orphan, key::writing, key::xattr_names];
        let beside = beside.into_iter().map(|key| key(id)).chain([key::partition(id, 0)]);
        for key in beside {
            if stored::get(&*self.shard.table, &key)?.is_some() {
                return Ok(false);
            }
        }
        match self.node(node) {
            Ok(_) => Ok(false),
            Err(Error { code: Code::Stale, .. }) => Ok(self.state.ids.claim(id)),
            Err(error) => Err(error),
        }
    }

    fn reserve_ids(&mut self, to: u64) -> Result<(), Error> {
        let mut batch = Batch::new();
        batch.put(
            key::high_water(self.shard.id.shard),
            HighWater { next: to }.encode(self.next_stamp()),
        );
        self.write(&batch)?;
        let sequence = self.state.sequence;
        self.state.ids.wrote(to, sequence);
        Ok(())
    }

    fn persist(&self, sequence: u64) -> Result<(), Error> {
        let table = &self.shard.table;
        table.persist().map_err(|error| table_failed("making a block of ids safe", &error))?;
        self.shard.durability.persisted_under_lock(sequence);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_safe_before_its_first_id_is_used() {
        let mut ids = InodeIds::new(ShardId::FIRST, 0);
        assert_eq!(ids.need(0), Need::WriteAndWait(2 + ID_BLOCK));
        ids.wrote(2 + ID_BLOCK, 1);
        assert_eq!(ids.need(0), Need::Wait(1));
        assert_eq!(ids.need(1), Need::Nothing);
        assert_eq!(ids.take().unwrap().raw(), 2);
        for _ in 0..ID_BLOCK / 2 {
            ids.take().unwrap();
        }
        assert_eq!(ids.need(1), Need::Write(2 + 2 * ID_BLOCK));
        ids.wrote(2 + 2 * ID_BLOCK, 9);
        while ids.need(1) == Need::Nothing {
            ids.take().unwrap();
        }
        assert_eq!((ids.need(1), ids.next()), (Need::Wait(9), 2 + ID_BLOCK));
        assert_eq!(ids.need(9), Need::Nothing);
        assert_eq!(ids.take().unwrap().raw(), 2 + ID_BLOCK);
    }

    /// Only an id that an earlier run can have given is taken over, and by one inode.
    #[test]
    fn an_id_of_an_earlier_run_is_claimed_once() {
        let mut ids = InodeIds::new(ShardId { site: 3, shard: 4 }, 100);
        let id = |site, shard, counter| InodeId::new(site, shard, counter).unwrap();
        assert!(ids.claim(id(3, 4, 99)) && !ids.claim(id(3, 4, 99)));
        assert!(ids.claim(id(3, 4, 2)) && !ids.claim(id(3, 4, 1)), "1 is the root");
        assert!(!ids.claim(id(3, 4, 100)), "this run may give it");
        assert!(!ids.claim(id(3, 5, 50)) && !ids.claim(id(2, 4, 50)));
    }

    /// Neither a high-water mark that may be lost nor one that was lowered lets an id be used.
    #[test]
    fn a_high_water_mark_that_may_be_lost_is_written_again() {
        let mut ids = InodeIds::new(ShardId::FIRST, 0);
        ids.wrote(2 + ID_BLOCK, 1);
        ids.invalidate();
        assert_eq!(ids.need(1), Need::WriteAndWait(2 + ID_BLOCK));
        ids.wrote(2 + ID_BLOCK, 2);
        ids.take().unwrap();
        ids.invalidate();
        assert_eq!(ids.need(2), Need::Nothing);
        ids.returned();
        assert_eq!((ids.next(), ids.need(2)), (3, Need::WriteAndWait(3 + ID_BLOCK)));
    }
}
