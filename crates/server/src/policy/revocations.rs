//! Revocations: credentials and keys that are taken back.

use std::sync::atomic::Ordering;

use pelago_keynote::{Principal, Revocation, RevocationSubject};
use pelago_store::report::volume_failed;
use pelago_store::volume;
use pelago_wire::{Code, Error, limits};

use super::chain::{self, Chain};
use super::{Guest, Policy, moment};

/// The revocations of one guest.
const REVOCATIONS_OF_GUEST: usize = 256;

/// A credential or a key that is taken back.
pub(crate) struct Revoked {
    /// The id of the credential, or the key.
    pub(crate) id: [u8; 32],
    pub(super) by: Principal,
    /// True if a root takes it back.
    pub(crate) is_of_root: bool,
}

impl Policy {
    /// Returns whether a guest, a credential of its chain, or a signer of one is revoked. A
    /// licensee that is neither the guest nor a signer has no part in the chain.
    pub(super) fn is_revoked(&self, chain: &Chain, principal: &[u8; 32]) -> bool {
        let revoked = self.revoked.read();
        let is_revoked = |id: &[u8; 32]| revoked.contains_key(id);
        !revoked.is_empty()
            && (is_revoked(principal)
                || chain
                    .links
                    .iter()
                    .any(|link| is_revoked(&link.id) || is_revoked(&link.authorizer.0)))
    }

    /// Reads a sentence that revokes a credential of this volume, or a key. A guest revokes what it
    /// has signed itself: `texts` has that credential. The keys of others are for a root; its own
    /// ones the file `policy` has.
    ///
    /// # Errors
    /// `Invalid` if it is no revocation for this volume, or one of a root; `AccessDenied` if
    /// neither a root has signed it, nor this guest, for its own credential; `NoSpace` if too much
    /// is revoked.
    pub(crate) fn read_revocation(
        &self,
        sentence: &[u8],
        texts: &[Vec<u8>],
        guest: Option<&Guest>,
    ) -> Result<Revoked, Error> {
        let revocation = Revocation::parse(sentence).map_err(|error| {
            tracing::info!(%error, "a sentence that takes nothing back");
            Error::from(Code::Invalid)
        })?;
        if revocation.volume != self.volume.0 {
            return Err(Code::Invalid.into());
        }
        revocation.verify().map_err(|_| Code::AccessDenied)?;
        let is_of_root =
            self.is_root(&revocation.by) && !self.revoked.read().contains_key(&revocation.by.0);
        let is_of_guest =
            || guest.is_some_and(|guest| chain::revokes(&revocation, texts, &guest.principal));
        if !is_of_root && !is_of_guest() {
            return Err(Code::AccessDenied.into());
        }
        if let RevocationSubject::Key(key) = revocation.subject
            && self.is_root(&key)
        {
            tracing::info!(%key, "a root is taken out of the file `policy`, and not revoked");
            return Err(Code::Invalid.into());
        }
        let revoked = self.revoked.read();
        let id = revocation.subject.bytes();
        let of_signer = revoked.values().filter(|by| **by == Some(revocation.by)).count();
        // Guests leave room for the roots, and for each other.
        let has_room = match is_of_root {
            true => revoked.len() < limits::REVOCATIONS,
            false => revoked.len() < limits::REVOCATIONS / 2 && of_signer < REVOCATIONS_OF_GUEST,
        };
        if !has_room && !revoked.contains_key(&id) {
            return Err(Code::NoSpace.into());
        }
        Ok(Revoked { id, by: revocation.by, is_of_root })
    }

    /// Puts a revocation in force.
    /// When this returns, no change is being made by it.
    pub(crate) fn revoke(&self, revoked: &Revoked) {
        let _no_change = self.hold_guests();
        let before = self.revoked.write().insert(revoked.id, Some(revoked.by));
        self.revocations.fetch_add(1, Ordering::AcqRel);
        if let Some(audit) = self.audit.as_ref().filter(|_| before.is_none()) {
            audit.revocation(moment::seconds(), revoked);
        }
    }

    /// Writes into the volume's format that it may have revocations, so that a program which does
    /// not know them does not open it. Blocks on the disk.
    ///
    /// # Errors
    /// `Io` if the format cannot be written.
    pub(crate) fn announce_revocations(&self) -> Result<(), Error> {
        match &self.roots {
            Some(roots) => {
                volume::set_has_revocations(roots.folder()).map_err(|error| volume_failed(&error))
            }
            None => Ok(()),
        }
    }
}
