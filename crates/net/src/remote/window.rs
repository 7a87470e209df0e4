//! How much is under way at a time; what is beyond it waits for its turn at the client.

use pelago_wire::limits;

use super::call::Call;
use super::calls::{State, UnderWay};

/// Requests that are sent at a time, besides those that wait for locks: fewer than the server
/// takes, so that a repetition fits too.
const WINDOW: usize = limits::SESSION_REQUESTS / 2;
/// Places besides those for requests that go before others.
const FIRST: usize = 64;

impl State {
    pub(super) fn has_room(&self, call: &Call) -> bool {
        // A server that starts reads so much more before anything goes on.
        let more = if call.is_first { limits::DIRTY_BYTES } else { 0 };
        let held = self.payload + self.kept.bytes();
        let fits = self.payload == 0 || held + call.payload <= self.bytes.under_way + more;
        let has_number = self.machine.unacknowledged() < self.most_mutations(call);
        let remembered = has_number && self.kept.bytes() < self.bytes.kept + more;
        let window = if call.is_first { WINDOW + FIRST } else { WINDOW };
        let has_place = call.waits || self.under_way.len() - self.waits < window;
        has_place && !self.reclaiming && fits && (remembered || !call.is_mutation)
    }

    /// Returns how many mutations there may be that are not answered and safe.
    fn most_mutations(&self, call: &Call) -> u64 {
        match call.was_kept_back && self.flush.is_under_way() {
            true => limits::SESSION_MUTATIONS,
            false => limits::SESSION_MUTATIONS - limits::DIRTY_WRITES as u64,
        }
    }

    /// Counts a request that is under way.
    pub(super) fn note_size(&mut self, call: &UnderWay) {
        self.payload += call.payload;
        self.waits += usize::from(call.waits);
    }

    /// Counts a request no more.
    pub(super) fn forget_size(&mut self, call: &UnderWay) {
        self.payload -= call.payload;
        self.waits -= usize::from(call.waits);
    }

    /// Sends what waits for its turn, as far as there is room.
    pub(super) fn send_backlog(&mut self) {
        while self.backlog.front().is_some_and(|call| self.has_room(call)) {
            if let Some(call) = self.backlog.pop_front() {
                self.number(call);
            }
        }
    }
}
