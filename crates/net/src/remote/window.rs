//! The window: the bounds of the requests under way. Other requests wait for their turn at the
//! client.

use pelago_wire::limits;

use super::call::Call;
use super::calls::{State, UnderWay};

/// Requests under way at a time, besides those that wait for locks: fewer than the server takes, so
/// that a repetition fits, too.
const WINDOW: usize = limits::SESSION_REQUESTS / 2;
/// Further places for requests that go before others.
const FIRST: usize = 64;

impl State {
    /// Returns whether a request may be sent now.
    pub(super) fn has_room(&self, call: &Call) -> bool {
        // A server that starts reads these further bytes before it carries anything out.
        let more = if call.is_first { limits::DIRTY_BYTES } else { 0 };
        let held = self.payload + self.replay_log.bytes();
        let fits = self.payload == 0 || held + call.payload <= self.bytes.under_way + more;
        let has_number = self.machine.unacknowledged() < self.most_mutations(call);
        let fits_log = has_number && self.replay_log.bytes() < self.bytes.replay_log + more;
        let window = if call.is_first { WINDOW + FIRST } else { WINDOW };
        let has_place = call.waits || self.under_way.len() - self.waits < window;
        has_place && !self.reclaiming && fits && (fits_log || !call.is_mutation)
    }

    /// Returns the most mutations that may be unanswered or not safe.
    fn most_mutations(&self, call: &Call) -> u64 {
        match call.was_buffered && self.flush.is_under_way() {
            true => limits::SESSION_MUTATIONS,
            false => limits::SESSION_MUTATIONS - limits::DIRTY_WRITES as u64,
        }
    }

    /// Counts a request that is under way.
    pub(super) fn note_size(&mut self, call: &UnderWay) {
        self.payload += call.payload;
        self.waits += usize::from(call.waits);
    }

    /// Removes a request from the counts.
    pub(super) fn forget_size(&mut self, call: &UnderWay) {
        self.payload -= call.payload;
        self.waits -= usize::from(call.waits);
    }

    /// Sends requests that wait for their turn, as far as there is room.
    pub(super) fn send_backlog(&mut self) {
        while self.backlog.front().is_some_and(|call| self.has_room(call)) {
            if let Some(call) = self.backlog.pop_front() {
                self.number(call);
            }
        }
    }
}
