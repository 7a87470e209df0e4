//! Revocations: credentials and keys that are taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_keynote::{Grant, Principal, Revocation, RevocationSubject, SharedObject};
use pelago_store::report::volume_failed;
use pelago_store::volume;
use pelago_wire::{Code, Error, Handle, InodeId, limits};

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

/// A guest that takes something back.
pub(crate) struct Revoker<'a> {
    pub(crate) guest: &'a Guest,
    /// Returns whether it may audit a node.
    pub(crate) may_audit: &'a dyn Fn(Handle) -> Result<bool, Error>,
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
    /// has signed itself, and what it may audit: `texts` has that credential; of one by which a
    /// guest is connected the id suffices. The keys of others are for a root; its own ones the file
    /// `policy` has.
    ///
    /// # Errors
    /// `Invalid` if it is no revocation for this volume, or one of a root; `AccessDenied` if
    /// neither a root has signed it, nor this guest, for a credential that it may take back;
    /// `NoSpace` if too much is revoked; errors of the table.
    pub(crate) fn read_revocation(
        &self,
        sentence: &[u8],
        texts: &[Vec<u8>],
        revoker: Option<&Revoker<'_>>,
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
        let is_of_guest = match revoker.filter(|_| !is_of_root) {
            Some(revoker) => {
                chain::revokes(&revocation, texts, &revoker.guest.principal)
                    || self.may_revoke(&revocation, texts, revoker)?
            }
            None => false,
        };
        if !is_of_root && !is_of_guest {
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

    /// Returns whether a guest may take a credential back because it may audit all that this
    /// grants. It may not take back one by which it has its own rights: who has shared something
    /// with it is above it. Of a credential in another form than Pelago's it is not known what it
    /// grants.
    ///
    /// # Errors
    /// As [`Revoker::may_audit`].
    fn may_revoke(
        &self,
        revocation: &Revocation,
        texts: &[Vec<u8>],
        revoker: &Revoker<'_>,
    ) -> Result<bool, Error> {
        let Revoker { guest, may_audit } = revoker;
        let RevocationSubject::Credential(id) = revocation.subject else { return Ok(false) };
        let mut own = guest.chains().into_iter();
        let is_own = own.any(|chain| chain.links.iter().any(|link| link.id == id.0));
        if revocation.by.0 != guest.principal || is_own {
            return Ok(false);
        }
        let share = match texts {
            [] => self.share_in_use(&id.0),
            [text] => chain::share_of(text, &id.0),
            _ => None,
        };
        let share = share.filter(|share| share.volume == self.volume.0);
        let Some(Grant { object, .. }) = share else { return Ok(false) };
        let (node, is_all) = match object {
            SharedObject::Folder(ino) | SharedObject::Name { directory: ino, .. } => {
                (ino, self.grants_all_below(guest))
            }
            SharedObject::File(ino) => (ino, true),
        };
        Ok(is_all && may_audit(Handle::own(InodeId::from_raw(node)))?)
    }

    /// Returns the share of a credential by which a guest is connected.
    fn share_in_use(&self, id: &[u8; 32]) -> Option<Grant> {
        let guests: Vec<Arc<Guest>> = self.guests.read().values().flatten().cloned().collect();
        let chains = guests.iter().flat_map(|guest| guest.chains());
        let mut found = chains.filter_map(|chain| {
            let link = chain.links.iter().find(|link| link.id == *id);
            link.and_then(|link| link.share.clone())
        });
        found.next()
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
