//! The connections of all sessions, by which the service ends them and recalls leases.

use pelago_wire::{Connections, Recalled, SessionId, codec};

use super::Sessions;

impl Connections for Sessions {
    fn suspend(&self) {
        *self.is_open.write() = false;
        for session in self.all() {
            session.disconnect();
        }
    }

    fn resume(&self) {
        let mut is_open = self.is_open.write();
        for session in self.all() {
            session.begin_epoch();
        }
        *is_open = true;
    }

    fn end_guests(&self) {
        Self::end_guests(self);
    }

    fn recall(&self, session: SessionId, number: u64, recalled: &Recalled) {
        let found = self.table.lock().get(&session).cloned();
        let mut body = Vec::new();
        match (found, codec::encode_recall(recalled, &mut body)) {
            (Some(session), Ok(()))
                if session.recall(number, body.into(), |body| self.recall_frame(number, body)) => {}
            (Some(_) | None, Err(error)) => {
                // Without the recall the change waits until the leases have ended.
                tracing::error!(%error, "a recall cannot be sent");
            }
            // The session has ended, and its leases with it.
            (_, Ok(())) => self.service.leases_lost(session),
        }
    }
}
