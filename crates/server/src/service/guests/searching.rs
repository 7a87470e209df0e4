//! Searches of guests.
//!
//! The answer to a search is computed by the server, so no kernel of the guest checks it. It has
//! only what the guest could find by listings, `open` and `read` in its own mount: files that it
//! may read, in directories that it may list, both by its rights and as the user as whom it acts.

use std::sync::Arc;

use pelago_keynote::Right;
use pelago_search::GuestView;
use pelago_wire::{Asker as Process, Code, Error, GuestSubject, Handle, Operation, Reply, Request};

use super::GuestCall;
use super::rights::GuestRights;
use crate::policy::{Asker, Guest, QUESTION_STEPS, User};
use crate::service::execute::Executor;

/// The steps of a decision that are as much work as a name that is compared with a query. The
/// longest decision is so as much as a text, which is 64 names.
const STEPS_OF_A_NAME: u32 = QUESTION_STEPS / 64;

impl Executor<'_> {
    /// Calls `search` with the rights of a guest.
    ///
    /// # Errors
    /// Those of `search`.
    pub(in crate::service) fn search_as<T>(
        &self,
        guest: &Guest,
        operation: Operation,
        search: impl FnOnce(&GuestView<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let policy = &self.parts.policy;
        let session = self.context.session;
        // Rights can change while a long search goes on.
        let rights = GuestRights { parts: self.parts, guest, session, operation, terms: None };
        // All below the directory that is searched, which is decided about for the tree.
        let may_search = |dir| rights.may_read(dir);
        let grants_all = policy.grants_all_below(guest);
        let may_read = |node| if grants_all { Ok(true) } else { rights.may_read(node) };
        let decision_names = match grants_all {
            true => 0,
            false => policy.decision_steps(guest).div_ceil(STEPS_OF_A_NAME).max(1),
        };
        let hold = |search: &mut dyn FnMut()| {
            let _no_move = policy.hold_rights();
            search();
        };
        search(&GuestView {
            may_search: &may_search,
            may_read: &may_read,
            decision_names,
            hold: &hold,
        })
    }
}

impl GuestRights<'_> {
    /// Returns whether the guest may list a directory, or read a file.
    ///
    /// # Errors
    /// `Busy` if directories move all the time; errors of the table.
    fn may_read(&self, node: Handle) -> Result<bool, Error> {
        match self.find_rights(GuestSubject::Node(node), &[Right::Read]) {
            Ok(found) => Ok(found.rights.has(Right::Read)),
            Err(error) if error.code == Code::Stale => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl GuestCall {
    /// Returns whether the server computes the answer by the rights of the session, which it looks
    /// up when it carries the request out.
    pub(super) const fn is_answered_by_rights(&self) -> bool {
        matches!(
            self.request,
            Request::Search { .. }
                | Request::Tags { .. }
                | Request::Access { .. }
                | Request::Audited { .. }
        )
    }

    /// Returns whether the answer is from a moment at which the rights to the directory, and the
    /// places of all below it, were looked at: it is right even if directories have moved since. Of
    /// the audit log each directory is decided about after its lines were read.
    pub(super) const fn is_of_one_moment(&self) -> bool {
        matches!(
            self.request,
            Request::Search { .. } | Request::Tags { .. } | Request::Audited { .. }
        )
    }

    /// Returns whether a result tells of other guests than this one, or of a chain without a
    /// session. Only one that may audit the node is told of them, before and after.
    pub(super) fn tells_of_others(&self, result: &Result<Reply, Error>) -> bool {
        let Ok(Reply::Access(page)) = result else { return false };
        page.guests.iter().any(|guest| guest.session != self.context.session)
    }

    /// Returns whether the session is still that of the guest. One that has ended is unknown, so
    /// that its requests would be carried out as those of a session with all rights.
    pub(super) fn is_of_guest(&self) -> bool {
        matches!(
            self.dispatcher.parts.policy.asker(self.context.session),
            Asker::Guest(guest) if Arc::ptr_eq(&guest, &self.guest)
        )
    }
}

/// Returns a request as it is carried out: a guest searches as the user as whom it acts, whatever
/// its client says of the process.
pub(super) fn by_user(mut request: Request, user: &User) -> Request {
    if let Some(asker) = asker_of(&mut request) {
        *asker = Process { groups: user.groups.clone(), reads_all: user.uid == 0 };
    }
    request
}

/// Returns the process of a search.
const fn asker_of(request: &mut Request) -> Option<&mut Process> {
    match request {
        Request::Search { search, .. } => Some(&mut search.asker),
        Request::Tags { tags, .. } => Some(&mut tags.asker),
        _ => None,
    }
}
