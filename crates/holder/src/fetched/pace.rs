//! The pace of the line: how many blocks may be under way.
//!
//! Blocks that are requested ahead wait for each other at the narrowest part of the line, and so do
//! recalls and the answers that lengthen leases. So the time of a reply is compared with that of a
//! block that is alone on the line (as TCP Vegas does it): the number of blocks grows while they
//! hardly wait, and is halved if they wait for long. It changes once in a round trip.

use std::time::Duration;

use super::UNDER_WAY;

/// Blocks that may be under way at first: the one that a program waits for, and one ahead.
const FIRST: usize = 2;
/// A reply that takes so much longer than twice the fastest one is late.
const PATIENCE: Duration = Duration::from_millis(200);
/// A reply that takes longer is late in any case: a request fails after a few of these times.
const MOST_PATIENCE: Duration = Duration::from_millis(2500);

/// The pace of the line, by the replies with whole blocks.
pub(super) struct Pace {
    /// The time of the fastest reply.
    fastest: Option<Duration>,
    /// Blocks that may be under way.
    most: usize,
    /// No block has waited yet.
    is_starting: bool,
    /// When `most` was changed last.
    changed: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { fastest: None, most: FIRST, is_starting: true, changed: Duration::ZERO }
    }
}

impl Pace {
    /// Returns how many blocks may be under way, of which some are fetched ahead.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Records a reply to a request that was sent at `since`, as one of `beside` that were under
    /// way then.
    pub(super) fn note(&mut self, since: Duration, now: Duration, beside: usize) {
        let took = now.saturating_sub(since);
        let fastest = match self.fastest {
            Some(fastest) if took < fastest => took,
            // The line itself may be slower now.
            Some(fastest) if beside == 1 => fastest + (took - fastest) / 8,
            Some(fastest) => fastest,
            None => took,
        };
        self.fastest = Some(fastest);
        if since < self.changed {
            // It has waited for blocks that were sent before the change.
            return;
        }
        let is_late = took > 2 * fastest + PATIENCE || took > MOST_PATIENCE;
        let has_waited = took > fastest + fastest / 4 + PATIENCE / 2;
        if !has_waited && beside < self.most {
            // It says nothing of as many blocks as may be under way.
            return;
        }
        let grown = if self.is_starting { 2 * self.most } else { self.most + 1 };
        self.most = match (is_late, has_waited) {
            (true, _) => (self.most / 2).max(1),
            (false, true) => self.most,
            (false, false) => grown.min(UNDER_WAY),
        };
        self.is_starting &= !has_waited;
        self.changed = now;
    }
}
