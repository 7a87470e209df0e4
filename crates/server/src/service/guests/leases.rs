//! Recalls of everything: what a guest has cached by rights that a change ends.
//!
//! A move of a directory ends no lease of what is below it: no request names that. So it is
//! announced to the guests whose rights it may change, who drop everything, and is carried out
//! after that. A revocation is answered after that.

use std::sync::Arc;

use pelago_meta::reply_cache::ExpectedNodes;
use pelago_wire::{Error, FileKind, Handle, InodeId, Name, Request, RequestId, SessionId};

use crate::completion::CancelKey;
use crate::leases::Wait;
use crate::service::Dispatcher;

/// The author of changes that no request makes. They are never cancelled.
const UPKEEP: CancelKey = CancelKey { session: SessionId::DIRECT, request: RequestId(0) };

impl Dispatcher {
    /// Returns the sessions of guests whose rights a rename may change: it moves a directory.
    ///
    /// # Errors
    /// `Busy` if directories move meanwhile; errors of the table.
    pub(in crate::service) fn barred_by(
        &self,
        request: &Request,
        expected: Option<ExpectedNodes>,
    ) -> Result<Vec<SessionId>, Error> {
        let Request::Rename { from_dir, to_dir, .. } = request else { return Ok(Vec::new()) };
        match self.parts.policy.has_guests() && self.moves_dir(request, expected) {
            true => self.parts.policy.barred_by_move(&self.parts.shard, from_dir.ino, to_dir.ino),
            false => Ok(Vec::new()),
        }
    }

    /// Returns whether a rename gives a directory another parent. Without expected nodes its names
    /// are looked up.
    pub(super) fn moves_dir(&self, request: &Request, expected: Option<ExpectedNodes>) -> bool {
        let Request::Rename { from_dir, from, to_dir, to, .. } = request else { return false };
        if from_dir.ino == to_dir.ino {
            return false;
        }
        let is_dir = |ino: InodeId| {
            let attr = self.parts.shard.attr(Handle::own(ino));
            attr.is_ok_and(|attr| attr.kind == FileKind::Directory)
        };
        match expected {
            Some(ExpectedNodes { first, second }) => {
                [first, second].into_iter().flatten().any(is_dir)
            }
            None => {
                let leads_to_dir = |dir: Handle, name: &Name| {
                    let found = self.parts.shard.lookup(dir, name);
                    found.is_ok_and(|entry| entry.attr.kind == FileKind::Directory)
                };
                leads_to_dir(*from_dir, from) || leads_to_dir(*to_dir, to)
            }
        }
    }

    /// Ends the sessions of guests that have no right any more; then calls `then`. Before that
    /// they, and those that have lost a part of their rights, drop what they have cached, or their
    /// leases end.
    pub(in crate::service) fn end_guests(self: &Arc<Self>, then: impl FnOnce() + Send + 'static) {
        let ended = self.parts.policy.sessions_with_lost_rights();
        let dispatcher = Arc::clone(self);
        self.announce_barring(UPKEEP, &[], &ended, move |wait| {
            if let Some(connections) = dispatcher.connections() {
                connections.end_guests();
            }
            if let Wait::Over(change) = wait {
                dispatcher.leases.end(change);
            }
            then();
        });
    }

    /// As [`Dispatcher::end_guests`]; with `all`, each guest drops what it has cached.
    pub(in crate::service) fn end_guests_of_changed(
        self: &Arc<Self>,
        all: bool,
        then: impl FnOnce() + Send + 'static,
    ) {
        if !all {
            return self.end_guests(then);
        }
        let dispatcher = Arc::clone(self);
        self.announce_barring(UPKEEP, &[], &self.parts.policy.sessions(), move |wait| {
            if let Wait::Over(change) = wait {
                dispatcher.leases.end(change);
            }
            dispatcher.end_guests(then);
        });
    }

    /// Ends the sessions of guests that have no right any more, and recalls everything from all
    /// guests if the policy has changed, or the users as whom they act: at most once a second.
    pub(in crate::service) fn look_at_guests(self: &Arc<Self>) {
        let policy = &self.parts.policy;
        if !policy.has_guests() || !policy.may_close() {
            return;
        }
        if policy.has_new_terms() {
            let dispatcher = Arc::clone(self);
            self.announce_barring(UPKEEP, &[], &policy.sessions(), move |wait| {
                if let Wait::Over(change) = wait {
                    dispatcher.leases.end(change);
                }
            });
        }
        self.end_guests(|| {});
    }
}
