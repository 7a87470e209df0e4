//! Revocations: sentences that take a credential or a key back.

use pelago_data::{MayBlock, OpError};
use pelago_store::rows::RevocationRow;
use pelago_wire::{Error, Operation, PassedRevocation, SessionId};

use super::rights::GuestRights;
use crate::policy::{Extent, Revoked, Revoker};
use crate::service::charter::PassedOn;
use crate::service::execute::Executor;
use crate::service::{OpResult, Outcome, Parts};

/// Reads a sentence that takes something back, in this session.
///
/// # Errors
/// As [`Policy::read_revocation`](crate::policy::Policy::read_revocation).
pub(super) fn read_revocation(
    parts: &Parts,
    session: SessionId,
    sentence: &[u8],
    chain: &[Vec<u8>],
) -> Result<Revoked, Error> {
    let guest = parts.policy.guest(session);
    let may_audit = |node, extent| match guest.as_deref() {
        Some(guest) => {
            let operation = Operation::Revoke;
            let rights = GuestRights { parts, guest, session, operation, terms: None };
            if !parts.policy.admits(guest) {
                return Ok(false);
            }
            match extent {
                Extent::Node => rights.may_audit(node),
                Extent::Below => rights.may_audit_below(node),
            }
        }
        None => Ok(false),
    };
    let revoker = guest.as_deref().map(|guest| Revoker { guest, may_audit: &may_audit });
    parts.policy.read_revocation(sentence, chain, revoker.as_ref())
}

impl Executor<'_> {
    /// Revokes a credential or a key. When this returns, the revocation is in force; the reply is
    /// sent when it is safe, and the guests with it have no session and no lease, here and at each
    /// other site that can be reached.
    pub(in crate::service) fn revoke(&self, sentence: &[u8], chain: &[Vec<u8>]) -> OpResult {
        let parts = self.parts;
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let read = || read_revocation(parts, self.context.session, sentence, chain);
        let mut revoked = read()?;
        parts.policy.announce_revocations()?;
        let no_change = parts.policy.hold_guests();
        if !revoked.is_of_root {
            // The guest may have lost the right since, or the node may have moved.
            revoked = read()?;
        }
        let row = RevocationRow { end: revoked.end, sentence };
        parts.shard.revoke(revoked.id, &row, revoked.is_of_root, &revoked.ended)?;
        parts.policy.revoke(&revoked, &no_change);
        let revocation = PassedRevocation { sentence: sentence.to_vec(), end: revoked.end };
        let hides_names = parts.policy.guest(self.context.session).is_some();
        Ok(Outcome::WhenRevoked(PassedOn { revocation, from: None, hides_names, pass: None }))
    }
}
