//! What a request and its answer mean for the files that the client has open.

use pelago_proto::locks::OwnedLock;
use pelago_wire::{
    Code, Error, FileLock, Handle, InodeId, LockOwner, OpenEffect, OpenFlags, OpenId, Reply,
    Request, Subjects,
};

/// What the answer to a request means for the open files.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    /// Nothing.
    None,
    /// It makes this open.
    Opens {
        open: OpenId,
        /// `None` for a file that is created: the answer has it.
        node: Option<Handle>,
        flags: OpenFlags,
    },
    /// It ends this open.
    Ends(OpenId),
    /// It opens a file again, on behalf of no program.
    Reopens(OpenId),
    /// It sets or removes a lock.
    Locks(OwnedLock),
    /// It makes sure of a lock that was granted when its owner had also asked to give this up.
    LocksAgain(OwnedLock, FileLock),
    /// It sets a lock of this file again, on behalf of no program.
    ReclaimsLock(InodeId, OwnedLock),
    /// It asks for the servers of the store, on behalf of no program.
    AsksServers,
    /// It ends the `fcntl` locks of this owner.
    EndsLocks(OpenId, LockOwner),
}

/// A request as far as open files are concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenUse {
    pub(super) role: Role,
    /// Names the opens that it uses.
    pub(super) subjects: Subjects,
    /// It uses bytes or locks, which programs may guard by locks: not if one is lost.
    pub(super) is_guarded: bool,
}

impl OpenUse {
    pub(super) fn of(request: &Request) -> Self {
        let opens = request.opens();
        let role = match opens {
            OpenEffect::Makes { node, open, flags } => {
                Role::Opens { open, node: Some(node), flags }
            }
            OpenEffect::Creates { open, flags } => Role::Opens { open, node: None, flags },
            OpenEffect::Ends(open) => Role::Ends(open),
            OpenEffect::Locks { open, owner, lock } => Role::Locks(OwnedLock { open, owner, lock }),
            OpenEffect::EndsLocks { open, owner } => Role::EndsLocks(open, owner),
            // The client itself asks for these, and says what they mean.
            OpenEffect::MakesAgain { .. } => Role::None,
            OpenEffect::Nothing | OpenEffect::UsesGuarded => Role::None,
        };
        Self { role, subjects: request.describe().subjects, is_guarded: opens.is_guarded() }
    }

    /// Returns the open that a successful answer has made, and its file.
    pub(super) fn made(
        &self,
        result: &Result<Reply, Error>,
    ) -> Option<(OpenId, Handle, OpenFlags)> {
        let Role::Opens { open, node, flags } = self.role else { return None };
        match (result, node) {
            (Ok(Reply::Opened { .. }), Some(node)) => Some((open, node, flags)),
            (Ok(Reply::Created { entry, .. }), _) => Some((open, entry.handle, flags)),
            _ => None,
        }
    }

    /// Returns the open that an answer has ended: also one with an error, unless the request was
    /// never carried out.
    pub(super) fn ended(&self, result: &Result<Reply, Error>) -> Option<OpenId> {
        match (self.role, result) {
            (Role::Ends(_), Err(Error { code: Code::Interrupted, .. })) => None,
            (Role::Ends(open), _) => Some(open),
            _ => None,
        }
    }

    /// Returns whether a mutation may be asked for in another session although the last one may
    /// have carried it out: it makes an open, which has ended with that session.
    pub(super) const fn is_asked_anew(&self) -> bool {
        matches!(self.role, Role::Opens { node: Some(_), flags, .. } if !flags.truncate)
    }
}
