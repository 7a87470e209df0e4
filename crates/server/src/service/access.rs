//! The rights of guests to a node.

use pelago_data::{MayBlock, OpError};
use pelago_wire::{AccessPage, Code, Error, Handle, Reply, SessionId};

use super::OpResult;
use super::execute::Executor;
use super::guests::GuestRights;
use crate::policy::Asker;

/// The number of attempts while directories move.
const ATTEMPTS: u32 = 8;

impl Executor<'_> {
    /// Returns the rights to a node: of the holder of this chain, or else of all guests that are
    /// connected; to a guest that may not audit the node its own. Takes as long as many decisions.
    pub(super) fn access(&self, node: Handle, chain: &[Vec<u8>], after: SessionId) -> OpResult {
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        for _ in 0..ATTEMPTS {
            match self.access_once(node, chain, after) {
                Err(error) if error.code == Code::Busy => {}
                page => return Ok(Reply::Access(page?).into()),
            }
        }
        Err(Code::Busy.into())
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
        match (policy.asker(self.context.session), chain) {
            (Asker::Guest(guest), []) => {
                let session = guest.session();
                let rights = GuestRights { parts: self.parts, guest: &guest, session };
                match rights.may_audit(node)? {
                    true => policy.access_of_all(shard, &position, after, Some(&guest)),
                    false => policy.access_of(shard, &position, &guest).map(all),
                }
            }
            (Asker::Trusted, []) => policy.access_of_all(shard, &position, after, None),
            (Asker::Guest(_) | Asker::Trusted, texts) => {
                policy.access_by(shard, &position, texts).map(|one| all(vec![one]))
            }
            (Asker::AbsentGuest, _) => Err(Code::Stale.into()),
        }
    }
}
