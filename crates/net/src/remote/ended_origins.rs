//! Ended sessions for which requests were passed on. The server is told of the end of one once
//! nothing of it can be sent any more: neither a request, nor one that is answered and may be lost.
//! With the session go the replies by which the server knows such a request.

use std::collections::BTreeSet;

use pelago_wire::{SessionId, limits};

use super::calls::State;

/// The ended sessions of which the server is to be told.
#[derive(Debug, Default)]
pub(super) struct EndedOrigins(BTreeSet<SessionId>);

impl EndedOrigins {
    /// Adds a session. The server forgets by itself those of which it is not told.
    pub(super) fn add(&mut self, session: SessionId) {
        if self.0.len() < limits::SITE_ORIGINS {
            self.0.insert(session);
        }
    }
}

impl State {
    /// Says which sessions have ended and owe nothing any more.
    pub(super) fn send_origin_ends(&mut self) {
        if self.ended_origins.0.is_empty() || self.reclaiming || self.link.is_none() {
            return;
        }
        let under_way = self.under_way.values().filter_map(|call| call.origin);
        let waiting = self.backlog.iter().filter_map(|call| call.origin);
        let answered = self.replay_log.entries.values().filter_map(|entry| entry.origin);
        let owing: BTreeSet<SessionId> =
            under_way.chain(waiting).chain(answered).map(|origin| origin.session).collect();
        let over: Vec<SessionId> = self.ended_origins.0.difference(&owing).copied().collect();
        for session in over {
            self.ended_origins.0.remove(&session);
            self.send_origin_end(session);
        }
    }
}
