//! The replay log: mutations that were answered and are not safe yet. They are sent again if the
//! server begins a new epoch, which may have lost them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pelago_wire::codec::ReplyStamp;
use pelago_wire::{Handle, Origin, Time};

use super::role::OpenUse;

/// A mutation that was answered and is not safe yet.
pub(super) struct ReplayEntry {
    pub(super) body: Arc<[u8]>,
    pub(super) bulk: Arc<[u8]>,
    pub(super) origin: Option<Origin>,
    pub(super) opens: OpenUse,
    /// The inode that the mutation has created.
    pub(super) made: Option<Handle>,
    /// The inode that it has created, or has written to.
    pub(super) node: Option<Handle>,
    /// The time in the reply.
    pub(super) time: Option<Time>,
}

/// The answered mutations of a session that are not safe yet, by the numbers of their requests.
#[derive(Default)]
pub(super) struct ReplayLog {
    pub(super) entries: BTreeMap<u64, ReplayEntry>,
    /// The bytes of their requests.
    bytes: usize,
    /// The newest stamp among them.
    pub(super) newest: ReplyStamp,
    /// The newest stamp at the time of the ping that asks the server what is safe; `None` if there
    /// is no such ping under way.
    pub(super) pinged_at: Option<ReplyStamp>,
}

impl ReplayLog {
    /// Returns the bytes of the logged requests.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of logged mutations.
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, number: u64, entry: ReplayEntry, stamp: ReplyStamp) {
        self.bytes += entry.body.len() + entry.bulk.len();
        self.newest = self.newest.max(stamp);
        self.entries.insert(number, entry);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<ReplayEntry> {
        let entry = self.entries.remove(&number)?;
        self.bytes -= entry.body.len() + entry.bulk.len();
        Some(entry)
    }

    /// Records that everything up to a stamp is safe, which may answer the ping.
    pub(super) fn safe(&mut self, stamp: ReplyStamp) {
        self.pinged_at = self.pinged_at.filter(|pinged| *pinged > stamp);
    }

    /// Forgets the ping over the last connection: it gets no answer.
    pub(super) fn forget_ping(&mut self) {
        self.pinged_at = None;
    }
}
