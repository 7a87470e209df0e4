//! Mutations that are answered and not safe.

use std::collections::BTreeMap;
use std::sync::Arc;

use pelago_wire::codec::ReplyStamp;
use pelago_wire::{Handle, Time};

use super::role::OpenUse;

/// A mutation that was answered and is not safe.
pub(super) struct Kept {
    pub(super) body: Arc<[u8]>,
    pub(super) bulk: Arc<[u8]>,
    pub(super) opens: OpenUse,
    /// The inode that the mutation has made.
    pub(super) made: Option<Handle>,
    /// That inode, or the one that it has written.
    pub(super) node: Option<Handle>,
    /// The time that it has shown.
    pub(super) time: Option<Time>,
}

/// The mutations of a session that are answered and not safe, by the numbers of their requests.
#[derive(Default)]
pub(super) struct KeptCalls {
    pub(super) calls: BTreeMap<u64, Kept>,
    /// Bytes of those.
    bytes: usize,
    /// The newest stamp among them.
    pub(super) newest: ReplyStamp,
    /// The server was asked what is safe, while this was the newest stamp.
    pub(super) asked: Option<ReplyStamp>,
}

impl KeptCalls {
    /// Returns the bytes that are kept.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many are kept.
    pub(super) fn count(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn insert(&mut self, number: u64, kept: Kept, stamp: ReplyStamp) {
        self.bytes += kept.body.len() + kept.bulk.len();
        self.newest = self.newest.max(stamp);
        self.calls.insert(number, kept);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Kept> {
        let kept = self.calls.remove(&number)?;
        self.bytes -= kept.body.len() + kept.bulk.len();
        Some(kept)
    }

    /// Notes what is safe: a question may be answered by that.
    pub(super) fn safe(&mut self, stamp: ReplyStamp) {
        self.asked = self.asked.filter(|asked| *asked > stamp);
    }

    /// A new connection: what was asked over the last one has no answer.
    pub(super) fn forget_question(&mut self) {
        self.asked = None;
    }
}
