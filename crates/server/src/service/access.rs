//! The rights of guests to a node, and the credentials of its maker.

use pelago_data::{MayBlock, OpError};
use pelago_wire::{AccessPage, Code, Error, Handle, Operation, Reply, SessionId};

use super::OpResult;
use super::execute::{Executor, while_busy};
use super::guests::{GuestRights, UserModes};
use crate::policy::{AccessTo, Asker, IssuedNode, User};

impl Executor<'_> {
    /// Returns the rights to a node: of the holder of this chain, or else of all guests that are
    /// connected; to a guest that may not audit the node its own. Takes as long as many decisions.
    pub(super) fn access(&self, node: Handle, chain: &[Vec<u8>], after: SessionId) -> OpResult {
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let page = while_busy(|| self.access_once(node, chain, after))?;
        Ok(Reply::Access(page).into())
    }

    /// Issues a credential for a node to the guest that has made it.
    pub(super) fn issue(&self, node: Handle) -> OpResult {
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let policy = &self.parts.policy;
        // Only a guest has a chain to which it could be bound.
        let guest = policy.guest(self.context.session).ok_or(Code::AccessDenied)?;
        let texts = while_busy(|| {
            let shard = &self.parts.shard;
            let position = &shard.placement(node, false)?;
            let kind = shard.attr(node)?.kind;
            policy.issue(shard, IssuedNode { position, kind }, &guest)
        })?;
        Ok(Reply::Issued(texts).into())
    }

    fn access_once(
        &self,
        node: Handle,
        chain: &[Vec<u8>],
        after: SessionId,
    ) -> Result<AccessPage, Error> {
        let shard = &self.parts.shard;
        let policy = &self.parts.policy;
        let position = shard.placement(node, false)?;
        let all = |guests| AccessPage { guests, more: false };
        let session = self.context.session;
        let asker = policy.asker(session);
        let attr = shard.attr(Handle::own(position.ino))?;
        let denied_by_mode = |user: &User, right| {
            let modes = UserModes { parts: self.parts, user, session };
            let denial = modes.denial(&attr, right)?;
            // A guest learns no ids of the server.
            Some(if matches!(asker, Asker::Trusted) { denial } else { String::new() })
        };
        let to = AccessTo { shard, position: &position, denied_by_mode: &denied_by_mode };
        match (&asker, chain) {
            (Asker::Guest(guest), []) => {
                let operation = Operation::Access;
                let rights =
                    GuestRights { parts: self.parts, guest, session, operation, terms: None };
                match rights.may_audit(node)? {
                    true => policy.access_of_all(to, after, Some(guest)),
                    false => policy.access_of(to, guest).map(all),
                }
            }
            (Asker::Trusted, []) => policy.access_of_all(to, after, None),
            (Asker::Guest(_) | Asker::Trusted, texts) => {
                policy.access_by(to, texts).map(|one| all(vec![one]))
            }
            (Asker::AbsentGuest, _) => Err(Code::Stale.into()),
        }
    }
}
