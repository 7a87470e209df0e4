//! What a request and its answer mean for the files that the client has open.

use pelago_proto::locks::OwnedLock;
use pelago_wire::{
    Code, Error, FileLock, Handle, InodeId, LockOwner, OpenFlags, OpenId, Reply, Request, Subjects,
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
        let role = match request {
            Request::Open { node, flags, open } => {
                Role::Opens { open: *open, node: Some(*node), flags: *flags }
            }
            Request::Create { flags, open, .. } | Request::CreateUnnamed { flags, open, .. } => {
                Role::Opens { open: *open, node: None, flags: *flags }
            }
            Request::Release { open } => Role::Ends(*open),
            Request::SetLock { open, owner, lock, .. } => {
                Role::Locks(OwnedLock { open: *open, owner: *owner, lock: *lock })
            }
            Request::Flush { open, owner: Some(owner) } => Role::EndsLocks(*open, *owner),
            _ => Role::None,
        };
        let is_guarded = matches!(
            request,
            Request::Read { .. }
                | Request::Write { .. }
                | Request::Allocate { .. }
                | Request::CopyRange { .. }
                | Request::GetLock { .. }
                | Request::SetLock { .. }
        );
        Self { role, subjects: request.describe().subjects, is_guarded }
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
