//! Ended sessions for which requests were passed on. The server is told of the end of one once
//! nothing of it can be sent any more: neither a request, nor one that is answered and may be lost.
//! With the session go the replies by which the server knows such a request.

use std::collections::BTreeSet;

use pelago_wire::{SessionId, limits};

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

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the sessions that owe nothing any more.
    pub(super) fn take_over(&mut self, owing: &BTreeSet<SessionId>) -> BTreeSet<SessionId> {
        let over: BTreeSet<SessionId> = self.0.difference(owing).copied().collect();
        self.0.retain(|session| owing.contains(session));
        over
    }
}
