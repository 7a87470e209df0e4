//! Pongs and recalls: the frames that the server sends of its own accord.

use std::sync::Arc;

use pelago_wire::Recalled;
use pelago_wire::frame::Header;

use super::calls::Calls;
use crate::clock::boot_time;
use crate::link::Link;

impl Calls {
    /// Handles a pong: records that the server was heard, and the newest safe sequence.
    pub(super) fn heard(&self, link: &Arc<Link>, pong: &Header) {
        let mut state = self.state.lock();
        if !state.is_current_link(link) {
            return;
        }
        state.heard = boot_time();
        state.note_safe(pong.progress);
        let lease = state.lease();
        let asked = state.pings.answered(pong.number);
        if let Some(asked) = asked {
            let measured = state.heard.saturating_sub(asked);
            state.round_trip.note(measured);
        }
        state.heard_by_server = state.heard_by_server.max(asked.unwrap_or_default());
        drop(state);
        if let Some(asked) = asked.filter(|_| !pong.is_overdue) {
            self.leases.renew(asked, lease);
        }
    }

    /// Handles a recall. Answers it once the things that it names are not cached any more; if there
    /// is no connection then, the server repeats the recall over the next one.
    pub(super) fn recalled(self: &Arc<Self>, link: &Arc<Link>, number: u64, recalled: Recalled) {
        let session = {
            let mut state = self.state.lock();
            if !state.is_current_link(link) {
                return;
            }
            state.heard = boot_time();
            (state.session(), state.epoch())
        };
        let calls = Arc::clone(self);
        let answer = move || {
            let mut state = calls.state.lock();
            // Another session counts its recalls anew, and so does another run of the server.
            if (state.session(), state.epoch()) == session {
                state.send_recalled(number);
            }
        };
        self.leases.recalled(recalled, Box::new(answer));
    }
}
