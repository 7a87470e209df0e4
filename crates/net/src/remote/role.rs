//! The role of a request for the client's open files and locks.

use pelago_proto::locks::OwnedLock;
use pelago_wire::{
    Code, Error, FileLock, Handle, InodeId, LockOwner, OpenEffect, OpenFlags, OpenId, Reply,
    Request, Subjects,
};

/// The effect of the reply to a request on the client's open files and locks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    /// Nothing.
    None,
    /// It makes this open.
    Opens {
        open: OpenId,
        /// `None` for a file that is created: the reply has it.
        node: Option<Handle>,
        flags: OpenFlags,
    },
    /// It ends this open.
    Ends(OpenId),
    /// It opens a file again, on behalf of no program.
    Reopens(OpenId),
    /// It sets or removes a lock.
    Locks(OwnedLock),
    /// It sets a lock once more that was granted while its owner gave up this part of it, because
    /// the order of the two is unknown.
    LocksAgain(OwnedLock, FileLock),
    /// It sets a lock of this file again, on behalf of no program.
    ReclaimsLock(InodeId, OwnedLock),
    /// It attaches the chain of credentials with this index, on behalf of no program.
    Attaches(usize),
    /// It lists the servers of the store, on behalf of no program.
    ListsServers,
    /// It ends the `fcntl` locks of this owner.
    EndsLocks(OpenId, LockOwner),
}

impl Role {
    /// Returns whether the request is carried out although its caller does not wait any more:
    /// nothing else ends the open, or the locks.
    pub(super) const fn must_be_done(self) -> bool {
        matches!(self, Self::Ends(_) | Self::EndsLocks(..))
    }
}

/// The part of a request that concerns open files.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenUse {
    pub(super) role: Role,
    /// The opens and inodes that it names.
    pub(super) subjects: Subjects,
    /// It uses bytes or locks: it fails if a lock of the open is lost.
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
            // Of a session behind this one, which is that of another site's server. Those that this
            // session itself sends get another role.
            OpenEffect::MakesAgain { node, open, flags } => {
                Role::Opens { open, node: Some(node), flags }
            }
            OpenEffect::Nothing | OpenEffect::UsesGuarded => Role::None,
        };
        Self { role, subjects: request.describe().subjects, is_guarded: opens.is_guarded() }
    }

    /// Returns the open that a successful request has made, with its file and flags.
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

    /// Returns the open that a request has ended: also one that has failed, unless it was never
    /// carried out.
    pub(super) fn ended(&self, result: &Result<Reply, Error>) -> Option<OpenId> {
        match (self.role, result) {
            (Role::Ends(_), Err(Error { code: Code::Interrupted, .. })) => None,
            (Role::Ends(open), _) => Some(open),
            _ => None,
        }
    }

    /// Returns whether a mutation may be repeated in another session although it may have been
    /// carried out in the last one: it only makes an open, which has ended with that session.
    pub(super) const fn is_repeatable(&self) -> bool {
        matches!(self.role, Role::Opens { node: Some(_), flags, .. } if !flags.truncate)
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Attr, DataPath, FileKind};

    use super::*;

    /// As the server of a site sends it on, for a client that comes back after a start. Otherwise
    /// neither the file is opened again after a start of the home, nor its locks are set again.
    #[test]
    fn an_open_that_another_session_makes_again_is_one_of_this_session() {
        let node = Handle::ROOT;
        let open = OpenId(7);
        let flags = OpenFlags::READ_WRITE;
        let opened = Ok(Reply::Opened {
            attr: Attr::empty(node.ino, FileKind::Regular),
            path: DataPath::Direct,
        });
        for request in [Request::Open { node, flags, open }, Request::Reopen { node, flags, open }]
        {
            let made = OpenUse::of(&request).made(&opened);
            assert_eq!(made, Some((open, node, flags)), "{request:?}");
        }
    }
}
