//! What the server says of itself: that it lives, and what others are about to change.

use std::sync::Arc;

use pelago_wire::Touched;
use pelago_wire::frame::Header;

use super::calls::Calls;
use crate::clock::boot_time;
use crate::link::Link;

impl Calls {
    /// Notes that the server was heard by a pong, and the newest sequence that is safe.
    pub(super) fn heard(&self, link: &Arc<Link>, pong: &Header) {
        let mut state = self.state.lock();
        if !state.is_present(link) {
            return;
        }
        state.heard = boot_time();
        state.note_safe(pong.progress);
        let lease = state.lease();
        let asked = state.pings.answered(pong.number);
        state.heard_by_server = state.heard_by_server.max(asked.unwrap_or_default());
        drop(state);
        if let Some(asked) = asked.filter(|_| !pong.is_overdue) {
            self.leases.renew(asked, lease);
        }
    }

    /// A recall has come. Once what it names is not kept any more the server is told; if there is
    /// no connection then, the server asks again over the next one.
    pub(super) fn recalled(self: &Arc<Self>, link: &Arc<Link>, number: u64, touched: Vec<Touched>) {
        let session = {
            let mut state = self.state.lock();
            if !state.is_present(link) {
                return;
            }
            state.heard = boot_time();
            (state.session(), state.epoch())
        };
        let calls = Arc::clone(self);
        let tell = move || {
            let mut state = calls.state.lock();
            // Another session counts its recalls anew, and so does another run of the server.
            if (state.session(), state.epoch()) == session {
                state.send_recalled(number);
            }
        };
        self.leases.recalled(touched.into(), Box::new(tell));
    }
}
