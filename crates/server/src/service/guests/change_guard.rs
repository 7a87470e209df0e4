//! The moment at which a change takes effect: no right of a guest changes and no node moves while a
//! guest's change is checked and made.
//!
//! So a revocation, and a move, are answered after the last change that relies on what they end.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use pelago_data::{MayBlock, OpError, OpenKey};
use pelago_wire::{
    Code, Context, Description, Effect, Error, ForGuest, GuestRight, GuestSubject, OpenEffect,
    OpenId, Operation, Replayed, Reply, Request, SessionId,
};

use super::form;
use super::modes::UserModes;
use super::revoking::read_revocation;
use super::rights::GuestRights;
use crate::policy::{Asker, Guest};
use crate::service::{Call, Dispatcher, Parts};
use crate::sites::GuestService;

/// What a request holds while it is carried out.
pub(in crate::service) struct ChangeGuard<'a> {
    /// The guest that makes the request, if one does.
    guest: Option<Arc<Guest>>,
    _guard: Guard<'a>,
}

enum Guard<'a> {
    None,
    /// No node moves, and no right ends.
    Rights(#[expect(dead_code, reason = "held until it is dropped")] RwLockReadGuard<'a, ()>),
    /// No change of a guest is made.
    Guests(#[expect(dead_code, reason = "held until it is dropped")] RwLockWriteGuard<'a, ()>),
}

impl ChangeGuard<'_> {
    const fn nothing() -> Self {
        Self { guest: None, _guard: Guard::None }
    }

    /// Returns whether the request is one of a guest.
    pub(in crate::service) const fn is_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// Records what a request has made that was carried out just now. A stored reply is no proof:
    /// it may be that of another request, to which the client has given the same number.
    pub(in crate::service) fn note_made(
        &self,
        parts: &Parts,
        call: &Call,
        request: &Request,
        reply: &Reply,
    ) {
        let Some(guest) = self.guest.as_ref().filter(|_| call.context.replayed.is_none()) else {
            return;
        };
        if let (OpenEffect::Creates { open, flags }, Some(attr)) = (request.opens(), reply.opened())
            && flags.write
        {
            guest.add_made(open, attr.ino);
            // A release that did not wait for this answer has removed nothing.
            if parts.opens.inode_of(OpenKey::of(&call.context, open)).is_err() {
                guest.remove_made(open);
            }
        }
        if request.makes_node()
            && let Reply::Entry(entry) | Reply::Created { entry, .. } = reply
        {
            guest.add_made_node(entry.attr.ino);
        }
    }
}

impl Dispatcher {
    /// Returns whether [`Dispatcher::hold`] may do something for a request: if there are guests.
    /// For one that may take rights away also if there are none, while guests of the last run may
    /// have leases.
    #[inline]
    pub(in crate::service) fn may_concern_guests(&self, description: &Description) -> bool {
        self.parts.policy.has_guests()
            || (matches!(description.operation, Operation::Rename | Operation::Revoke)
                && self.parts.policy.unsettled().is_some())
    }

    /// Checks a change of a guest where it takes effect, and holds back what would make the check
    /// false; for another session's move of a node, waits for the changes of guests.
    ///
    /// # Errors
    /// `WouldBlock`; those of the check.
    pub(in crate::service) fn hold(
        &self,
        call: &Call,
        request: &Request,
        description: &Description,
        may_block: MayBlock,
    ) -> Result<ChangeGuard<'_>, OpError> {
        let policy = &self.parts.policy;
        let moves = description.operation == Operation::Rename;
        let revokes = description.operation == Operation::Revoke;
        if (moves || revokes)
            && let Some(left) = policy.unsettled()
            && self.takes_rights(call, request)
        {
            settle(left, may_block)?;
        }
        if !policy.has_guests() {
            return Ok(ChangeGuard::nothing());
        }
        let guest = match policy.asker(call.context.session) {
            Asker::Guest(guest) => Some(guest),
            Asker::Trusted => None,
            Asker::AbsentGuest => return Err(Code::Stale.into()),
        };
        let changes = matches!(description.effect, Effect::Change { .. }) && !revokes;
        let guard = match () {
            () if moves => match may_block {
                MayBlock::Yes => Guard::Guests(policy.hold_guests()),
                MayBlock::No => Guard::Guests(policy.try_hold_guests().ok_or(OpError::WouldBlock)?),
            },
            () if guest.is_some() && changes => match may_block {
                MayBlock::Yes => Guard::Rights(policy.hold_rights()),
                MayBlock::No => Guard::Rights(policy.try_hold_rights().ok_or(OpError::WouldBlock)?),
            },
            () => Guard::None,
        };
        if moves {
            let barred = self.barred_by(request, call.expected)?;
            // A guest that has come since the announcement is granted no lease before its end.
            let knows = |session: &SessionId| {
                call.barred.contains(session)
                    || (!call.barred.is_empty() && !self.leases.has_begun(*session))
            };
            if !barred.iter().all(knows) {
                // A directory has moved since the announcement, or there was no guest then.
                return Err(Code::Busy.into());
            }
        }
        if let Some(guest) = guest.as_ref().filter(|_| changes) {
            self.check_change(guest, call, request, description)?;
            form::drop_capabilities(&self.parts, &call.context, request)?;
        }
        Ok(ChangeGuard { guest, _guard: guard })
    }

    /// Returns whether a request moves a directory, or has a sentence that takes something back.
    fn takes_rights(&self, call: &Call, request: &Request) -> bool {
        let Request::Revoke { sentence, chain } = request else {
            return self.moves_dir(request, call.expected);
        };
        read_revocation(&self.parts, call.context.session, sentence, chain).is_ok()
    }

    fn check_change(
        &self,
        guest: &Guest,
        call: &Call,
        request: &Request,
        description: &Description,
    ) -> Result<(), Error> {
        let Call { context, expected, .. } = call;
        let parts = &self.parts;
        if parts.sites.serves_guests() != GuestService::Yes {
            // It has waited for so long that it is unknown what was taken back.
            return Err(Code::TimedOut.into());
        }
        let standing = parts.policy.standing(guest);
        let Some(user) = standing.user.as_ref().filter(|_| standing.admits()) else {
            return Err(Code::Stale.into());
        };
        let session = context.session;
        let operation = description.operation;
        let terms = Some(standing.terms);
        let rights = &GuestRights { parts, guest, session, operation, terms };
        if adds_bytes(request, description) {
            parts.space.admit_guest()?;
        }
        match &context.replayed {
            Some(replayed) => check_replayed(rights, context, request, replayed)?,
            None => rights.check_change(request, *expected)?,
        }
        let modes = UserModes { parts, user, session };
        if let (Request::Write { open, .. } | Request::Allocate { open, .. }, Some(replayed)) =
            (request, &context.replayed)
            && parts.opens.inode_of(OpenKey::of(context, *open)).is_err()
        {
            // It is opened for this request.
            return modes.check_write(replayed.node.ok_or(Code::BadOpen)?);
        }
        modes.check(request, *expected)
    }
}

/// Waits until no guest can use leases of the last run.
///
/// # Errors
/// `WouldBlock`.
fn settle(left: Duration, may_block: MayBlock) -> Result<(), OpError> {
    match may_block {
        MayBlock::No => Err(OpError::WouldBlock),
        MayBlock::Yes => {
            // Only the clock ends those leases.
            thread::sleep(left);
            Ok(())
        }
    }
}

/// Returns whether a change may take space.
fn adds_bytes(request: &Request, description: &Description) -> bool {
    let grows = matches!(description.effect, Effect::Change { grows: true, .. });
    let writes = matches!(
        request,
        Request::Write { .. } | Request::Allocate { .. } | Request::CopyRange { .. }
    );
    grows || writes
}

/// Checks a change of a file that an earlier run has answered. Its open may have ended since then;
/// the guest names the file.
///
/// # Errors
/// As [`GuestRights::check`]; `TimedOut` for what no guest changes.
pub(super) fn check_replayed(
    rights: &GuestRights<'_>,
    context: &Context,
    request: &Request,
    replayed: &Replayed,
) -> Result<(), Error> {
    if request.for_guest() == ForGuest::Never {
        return Err(Code::TimedOut.into());
    }
    let opened = |open: OpenId| rights.parts.opens.inode_of(OpenKey::of(context, open)).ok();
    let subject = match request {
        Request::SetAttr { node, open: Some(open), .. }
            if opened(*open).is_some_and(|ino| ino != node.ino) =>
        {
            return Err(Code::BadOpen.into());
        }
        Request::SetAttr { node, .. } | Request::Open { node, .. } => GuestSubject::Node(*node),
        Request::Write { open, .. } | Request::Allocate { open, .. } => match opened(*open) {
            Some(_) => GuestSubject::Open(*open),
            None => GuestSubject::Node(replayed.node.ok_or(Code::BadOpen)?),
        },
        _ => return Err(Code::TimedOut.into()),
    };
    rights.check_right(GuestRight::Write, subject)
}
