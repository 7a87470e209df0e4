//! A connection between its hello and its welcome. The welcome waits until the session's record is
//! safe, so that the next owner of the volume knows the session.

use std::sync::Arc;

use parking_lot::Mutex;
use pelago_wire::Error;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{RefusalCode, Refused, Welcome};

use super::send;
use crate::link::{Bytes, Link};
use crate::session::Session;
use crate::sessions::{Sessions, refused};

/// A connection whose welcome is not sent yet, or was sent a moment ago.
pub(super) struct Joining {
    pub(super) session: Arc<Session>,
    /// The session has begun over this connection: without the welcome its client does not know it.
    is_new: bool,
    /// A leaf lock.
    outcome: Mutex<Outcome>,
}

/// The outcome of a hello. It is set once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pending,
    Welcomed,
    /// The client was refused, or the connection has ended.
    Ended,
}

impl Joining {
    pub(super) fn new(session: Arc<Session>, is_new: bool) -> Arc<Self> {
        Arc::new(Self { session, is_new, outcome: Mutex::new(Outcome::Pending) })
    }

    /// Welcomes the client once its session is recorded: at once if it is recorded already, or
    /// needs no record.
    pub(super) fn welcome_when_recorded(
        self: &Arc<Self>,
        sessions: &Arc<Sessions>,
        link: &Arc<Link>,
        welcome: Welcome,
    ) {
        if self.session.is_recorded() {
            return self.welcome(sessions, link, &welcome);
        }
        let this = Arc::clone(self);
        let own = Arc::clone(sessions);
        let link = Arc::clone(link);
        let recorded = move |result: Result<(), Error>| match result {
            Ok(()) => {
                this.session.note_recorded();
                this.welcome(&own, &link, &welcome);
            }
            Err(error) => {
                own.log_not_recorded(error);
                this.refuse(&own, &link, &refused(RefusalCode::NotRecorded));
            }
        };
        sessions.service.when_recorded(Box::new(recorded));
    }

    /// Welcomes the client, unless the server may not answer, or the connection has ended.
    fn welcome(&self, sessions: &Sessions, link: &Arc<Link>, welcome: &Welcome) {
        if !sessions.service.may_answer() {
            let away = sessions.owner_elsewhere();
            let away = away.unwrap_or_else(|| refused(RefusalCode::NotOwner));
            return self.refuse(sessions, link, &away);
        }
        // Before the frame is sent: the client may answer it at once.
        if !self.settle(Outcome::Welcomed) {
            return;
        }
        if let Some(left_out) = sessions.log.began.admit() {
            let peer = self.session.peer();
            tracing::info!(session = ?self.session.id, ?peer, left_out, "a session");
        }
        let body = welcome.encode();
        let head = sessions.header(FrameKind::Welcome, 0, body.len(), 0);
        link.send([head, Bytes::Owned(body)]);
        sessions.recall_again(&self.session);
    }

    /// Refuses the client, and ends its connection.
    fn refuse(&self, sessions: &Sessions, link: &Arc<Link>, refused: &Refused) {
        if self.settle(Outcome::Ended) {
            send(sessions, link, FrameKind::Refused, refused.encode());
            self.leave(sessions, link);
            link.close();
        }
    }

    /// Handles the end of the connection. A session that its client does not know ends with it.
    pub(super) fn ended(&self, sessions: &Sessions, link: &Arc<Link>) {
        match self.settle(Outcome::Ended) {
            true => self.leave(sessions, link),
            false => self.session.lost(link),
        }
    }

    /// Ends a session that its client does not know, or has it wait for its client.
    fn leave(&self, sessions: &Sessions, link: &Arc<Link>) {
        match self.is_new {
            true => sessions.abandon(&self.session, link),
            false => self.session.lost(link),
        }
    }

    /// Returns whether the client is welcomed.
    pub(super) fn is_welcomed(&self) -> bool {
        *self.outcome.lock() == Outcome::Welcomed
    }

    /// Sets the outcome. Returns `false` if there is one already.
    fn settle(&self, to: Outcome) -> bool {
        let mut outcome = self.outcome.lock();
        let is_pending = *outcome == Outcome::Pending;
        if is_pending {
            *outcome = to;
        }
        is_pending
    }
}
