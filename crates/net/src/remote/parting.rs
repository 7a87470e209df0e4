//! The end of a session by its client.

use std::time::{Duration, Instant};

use pelago_wire::Code;
use pelago_wire::frame::FrameKind;

use super::calls::{Calls, fail};

/// The longest time for which the end of a session waits until the server knows of it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

impl Calls {
    /// Ends the session. Each request gets `Unavailable`. The connection lasts until the server
    /// ends it, or [`Calls::wait_for_parting`] does.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        if let Some(link) = state.link.take() {
            let goodbye = state.header(FrameKind::Goodbye, 0, 0, 0);
            link.send([goodbye]);
            state.parting = Some(link);
        }
        let under_way = std::mem::take(&mut state.under_way);
        let backlog = std::mem::take(&mut state.backlog);
        let settled = state.settling.take_all();
        drop(state);
        self.changed.notify_all();
        self.leases.lose();
        let callers = under_way.into_values().filter_map(|call| call.done);
        for done in callers.chain(backlog.into_iter().map(|call| call.done)) {
            fail(done, Code::Unavailable);
        }
        settled.into_iter().for_each(|then| then());
    }

    /// Waits until the server has ended the connection after the goodbye, at most
    /// [`GOODBYE_TIMEOUT`], then ends it. A socket that is closed with unread bytes resets its
    /// connection, and the goodbye may be lost. Then the leases of the session would last until its
    /// term is over, and other sessions would wait for them.
    pub(super) fn wait_for_parting(&self) {
        let mut state = self.state.lock();
        let deadline = Instant::now() + GOODBYE_TIMEOUT;
        while state.parting.is_some() {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        if let Some(link) = state.parting.take() {
            link.close();
        }
        // Not before: the server takes its end for that of the other one, too.
        state.end_bulk();
    }
}
