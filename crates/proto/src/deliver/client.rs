//! The state of a client: the blocks that it lacks, those that it is sending, and its rate.

use std::collections::VecDeque;
use std::time::Duration;

use super::block_set::BlockSet;
use super::geometry::Geometry;
use super::rate::Rate;
use super::scores::weight_of;
use super::{Order, VersionId};

/// The seconds that a client takes for any bytes before its rate is known.
const UNMEASURED_SECONDS: f64 = 1.0;

/// A client stalls that sends a block for longer than this, and for [`STALL_TIMES`] its usual time.
const STALL_SECONDS: f64 = 5.0;
/// See [`STALL_SECONDS`].
const STALL_TIMES: f64 = 4.0;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) file: VersionId,
    pub(super) order: Order,
    /// It takes its blocks in order, by its own choice or by the policy.
    pub(super) is_ordered: bool,
    /// The blocks that it has not been given, and that are not in its queue.
    pub(super) missing: BlockSet,
    /// Its weight in the score of each extent of which it lacks a part; 0 if it is ordered.
    pub(super) weight: u64,
    /// The number of blocks that it lacks and whose extents are in memory or being read.
    pub(super) supply: u32,
    /// The extent of which it has begun to take blocks.
    pub(super) current: Option<u32>,
    /// The bytes of each block that it has taken and not sent.
    pub(super) lent: VecDeque<u32>,
    /// Since when the first of them is being sent.
    pub(super) sending_since: Duration,
    /// It has got [`Next::Wait`](super::Next::Wait).
    pub(super) waits: bool,
    /// It requests a read.
    pub(super) asks: bool,
    /// It was found to stall: it has no weight until it sends again.
    pub(super) is_stalled: bool,
    /// The number of reads for it since it last wanted a block. A client that takes no block gets
    /// no endless reads, although their extents are dropped.
    pub(super) reads: u32,
    pub(super) rate: Rate,
    /// The block from which on its next one is searched. With the policy Circus it counts laps,
    /// too.
    pub(super) cursor: u64,
    /// The blocks that the policy Circus has chosen for it.
    pub(super) queue: VecDeque<u32>,
}

impl Client {
    pub(super) fn new(file: VersionId, order: Order, missing: BlockSet) -> Self {
        Self {
            file,
            order,
            is_ordered: false,
            missing,
            weight: 0,
            supply: 0,
            current: None,
            lent: VecDeque::new(),
            sending_since: Duration::ZERO,
            waits: false,
            asks: false,
            is_stalled: false,
            reads: 0,
            rate: Rate::default(),
            cursor: 0,
            queue: VecDeque::new(),
        }
    }

    /// Records that it takes a block of this many bytes.
    pub(super) fn lend(&mut self, bytes: u32, now: Duration) {
        if self.lent.is_empty() {
            self.sending_since = now;
        }
        self.lent.push_back(bytes);
    }

    /// Returns its next block, if it takes them in order.
    pub(super) fn first_missing(&self) -> Option<u32> {
        self.missing.next_from(u32::try_from(self.cursor).ok()?)
    }

    /// Returns the extent with its next block, if it takes them in order.
    pub(super) fn next_in_order(&self, geometry: &Geometry) -> Option<u32> {
        self.first_missing().map(|block| geometry.extent_of(block))
    }

    /// Returns the seconds that it takes for this many bytes: at least the time for which it has
    /// been sending a block, so that the extents for a client that stalls have little worth.
    pub(super) fn seconds(&self, bytes: f64, now: Duration) -> f64 {
        let rate = self.rate.per_second();
        let seconds = if rate > 0.0 { bytes / rate } else { UNMEASURED_SECONDS };
        match self.lent.is_empty() {
            true => seconds,
            false => seconds.max(now.saturating_sub(self.sending_since).as_secs_f64()),
        }
    }

    /// Returns whether it has been sending a block for much longer than usual.
    pub(super) fn stalls(&self, now: Duration) -> bool {
        let Some(bytes) = self.lent.front() else { return false };
        let rate = self.rate.per_second();
        let usual = if rate > 0.0 { f64::from(*bytes) / rate } else { 0.0 };
        let sending = now.saturating_sub(self.sending_since).as_secs_f64();
        sending > STALL_SECONDS.max(usual * STALL_TIMES)
    }

    /// Returns whether it has taken all its blocks.
    pub(super) fn is_finished(&self) -> bool {
        self.missing.is_empty() && self.queue.is_empty()
    }

    /// Returns the weight that it should have.
    pub(super) const fn new_weight(&self) -> u64 {
        if self.is_ordered || self.is_stalled { 0 } else { weight_of(self.missing.len()) }
    }

    /// Returns the range of bytes that it wants.
    pub(super) const fn range(&self) -> (u64, u64) {
        match self.order {
            Order::Any => (0, u64::MAX),
            Order::Ascending { from, to } => (from, to),
        }
    }
}
