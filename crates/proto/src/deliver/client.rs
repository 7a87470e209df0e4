//! What is known of a client.

use std::collections::VecDeque;
use std::time::Duration;

use super::block_set::BlockSet;
use super::geometry::Geometry;
use super::rate::Rate;
use super::scores::weight_of;
use super::{Order, VersionId};

/// What a client takes for anything before its rate is known.
const UNMEASURED_SECONDS: f64 = 1.0;

/// A client that sends a block for longer, and for so many times its usual time, stalls.
const STALL_SECONDS: f64 = 5.0;
const STALL_TIMES: f64 = 4.0;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) file: VersionId,
    pub(super) order: Order,
    /// Whether it takes its blocks in order, of its own will or because of the policy.
    pub(super) is_ordered: bool,
    /// The blocks that it has not been given, or that are not in its queue.
    pub(super) missing: BlockSet,
    /// What it counts for the score of each extent of which it lacks a part: 0 if it is ordered.
    pub(super) weight: u64,
    /// Blocks it lacks of extents that are in memory or being read.
    pub(super) supply: u32,
    /// The extent that it began.
    pub(super) current: Option<u32>,
    /// Bytes of each block that it took and has not sent.
    pub(super) lent: VecDeque<u32>,
    /// Since when the first of them is being sent.
    pub(super) sending_since: Duration,
    /// Whether it was told to wait.
    pub(super) waits: bool,
    /// Whether it is among those that ask for a read.
    pub(super) asks: bool,
    /// Whether it stalls, as far as was noticed: it counts nothing until it goes on.
    pub(super) is_stalled: bool,
    /// Reads that it was given since it last wanted a block: a client that takes nothing is not
    /// read for again and again, although what was read is dropped.
    pub(super) reads: u32,
    pub(super) rate: Rate,
    /// The block from which on its next one is sought. With the policy Circus it counts laps too.
    pub(super) cursor: u64,
    /// The blocks that were chosen for it: of the policy Circus.
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

    /// Notes that it takes a block of so many bytes.
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

    /// Returns how many seconds it takes for so many bytes: not less than it has been sending a
    /// block, so that a client that stalls is far away from what it would need.
    pub(super) fn seconds(&self, bytes: f64, now: Duration) -> f64 {
        let rate = self.rate.per_second();
        let seconds = if rate > 0.0 { bytes / rate } else { UNMEASURED_SECONDS };
        match self.lent.is_empty() {
            true => seconds,
            false => seconds.max(now.saturating_sub(self.sending_since).as_secs_f64()),
        }
    }

    /// Returns whether it sends a block for much longer than usual.
    pub(super) fn stalls(&self, now: Duration) -> bool {
        let Some(bytes) = self.lent.front() else { return false };
        let rate = self.rate.per_second();
        let usual = if rate > 0.0 { f64::from(*bytes) / rate } else { 0.0 };
        let sending = now.saturating_sub(self.sending_since).as_secs_f64();
        sending > STALL_SECONDS.max(usual * STALL_TIMES)
    }

    /// Returns whether it has nothing to take any more.
    pub(super) fn is_finished(&self) -> bool {
        self.missing.is_empty() && self.queue.is_empty()
    }

    /// Returns what it should count.
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
