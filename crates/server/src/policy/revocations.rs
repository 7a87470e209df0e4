//! Revocations: credentials and keys that are taken back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLockWriteGuard;
use pelago_keynote::{Assertion, Grant, Principal, Revocation, RevocationSubject, SharedObject};
use pelago_store::report::volume_failed;
use pelago_store::volume;
use pelago_wire::{Code, Error, Handle, InodeId, limits};

use super::chain::{self, Chain};
use super::{Guest, Policy, moment};

/// The revocations of one guest.
const REVOCATIONS_OF_GUEST: usize = 256;

/// The time for which the revocation of a credential is kept at least after the end of that.
const KEPT_SECONDS: u64 = 30 * 24 * 60 * 60;
/// The number of revocations from which on there is so little room that ended ones are dropped. As
/// long as there is room, a clock that was wrong brings no credential back.
const CROWDED: usize = limits::REVOCATIONS / 4;
/// The ended revocations that one new revocation drops.
const DROPPED: usize = 1024;

/// A revocation that is in force.
pub(super) struct InForceRevocation {
    /// The key that has taken it back; `None` if the row is damaged.
    pub(super) by: Option<Principal>,
    /// The second, since 1970, from which the credential is void in any case; 0 if it has no end.
    pub(super) end: u64,
}

impl InForceRevocation {
    /// Returns whether the credential has ended so long ago that a row for it is of no use.
    pub(super) fn has_ended(&self, now: u64) -> bool {
        self.end != 0 && self.end.saturating_add(KEPT_SECONDS) < now
    }
}

/// A credential or a key that is taken back.
pub(crate) struct Revoked {
    /// The id of the credential, or the key.
    pub(crate) id: [u8; 32],
    pub(super) by: Principal,
    /// True if a root takes it back.
    pub(crate) is_of_root: bool,
    /// The second, since 1970, from which the credential is void in any case; 0 if it has no end,
    /// or that is not known.
    pub(crate) end: u64,
    /// Revoked credentials that have ended long since, which need no row any more.
    pub(crate) ended: Vec<[u8; 32]>,
}

/// The nodes that a credential is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One node.
    Node,
    /// A directory and all below it.
    Below,
}

/// A guest that takes something back.
pub(crate) struct Revoker<'a> {
    pub(crate) guest: &'a Guest,
    /// Returns whether it may audit a node, or else a directory and all below it.
    pub(crate) may_audit: &'a dyn Fn(Handle, Extent) -> Result<bool, Error>,
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
        let end = end_of(&revocation.subject, texts);
        self.add_room(&revocation, is_of_root, end)
    }

    /// Returns a revocation that another site has made, whose signer may be a root, if there is
    /// room for it.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn with_room(&self, revocation: &Revocation, end: u64) -> Result<Revoked, Error> {
        let is_of_root =
            self.is_root(&revocation.by) && !self.revoked.read().contains_key(&revocation.by.0);
        self.add_room(revocation, is_of_root, end)
    }

    /// Returns a revocation, with those that make room for it.
    ///
    /// # Errors
    /// `NoSpace` if too much is revoked.
    fn add_room(
        &self,
        revocation: &Revocation,
        is_of_root: bool,
        end: u64,
    ) -> Result<Revoked, Error> {
        let (now, _) = self.now();
        // The signer has another clock, so that one wrong clock alone drops nothing.
        let now = now.min(revocation.at);
        let is_crowded = self.revoked.read().len() >= CROWDED;
        let ended = if is_of_root && is_crowded { self.ended_revocations(now) } else { vec![] };
        let revoked = self.revoked.read();
        let id = revocation.subject.bytes();
        let is_by_signer =
            |taken: &&InForceRevocation| taken.by == Some(revocation.by) && !taken.has_ended(now);
        let of_signer = revoked.values().filter(is_by_signer).count();
        let count = revoked.len().saturating_sub(ended.len());
        // Guests leave room for the roots, and for each other.
        let has_room = match is_of_root {
            true => count < limits::REVOCATIONS,
            false => count < limits::REVOCATIONS / 2 && of_signer < REVOCATIONS_OF_GUEST,
        };
        if !has_room && !revoked.contains_key(&id) {
            return Err(Code::NoSpace.into());
        }
        Ok(Revoked { id, by: revocation.by, is_of_root, end, ended })
    }

    /// Returns revoked credentials that have ended so long ago that a row for them is of no use.
    fn ended_revocations(&self, now: u64) -> Vec<[u8; 32]> {
        let revoked = self.revoked.read();
        let ended = revoked.iter().filter(|(_, taken)| taken.has_ended(now)).map(|(id, _)| *id);
        ended.take(DROPPED).collect()
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
        let (node, extent) = match object {
            SharedObject::Folder(ino) | SharedObject::Name { directory: ino, .. } => {
                (ino, Extent::Below)
            }
            SharedObject::File(ino) => (ino, Extent::Node),
        };
        may_audit(Handle::own(InodeId::from_raw(node)), extent)
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

    /// Returns whether a revocation is in force already for as long as this one would be. It stays
    /// as it is then, so that no office shortens it.
    pub(crate) fn is_in_force(&self, revoked: &Revoked) -> bool {
        let known = self.revoked.read();
        let taken = known.get(&revoked.id).filter(|taken| taken.by.is_some());
        let lasts = |taken: &InForceRevocation| {
            taken.end == 0 || (revoked.end != 0 && revoked.end <= taken.end)
        };
        taken.is_some_and(lasts)
    }

    /// Puts a revocation in force, and forgets those whose rows were deleted with it. No change is
    /// being made by what is taken back: the caller has [`Policy::hold_guests`].
    pub(crate) fn revoke(&self, revoked: &Revoked, _no_change: &RwLockWriteGuard<'_, ()>) {
        let mut known = self.revoked.write();
        for ended in revoked.ended.iter().filter(|ended| **ended != revoked.id) {
            known.remove(ended);
        }
        let taken = InForceRevocation { by: Some(revoked.by), end: revoked.end };
        let before = known.insert(revoked.id, taken);
        drop(known);
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

/// Returns the second, since 1970, from which a revoked credential is void in any case, if its text
/// is there and says so; else 0. The id is a hash of the text, so that the text can be believed.
fn end_of(revoked: &RevocationSubject, texts: &[Vec<u8>]) -> u64 {
    let [text] = texts else { return 0 };
    let Ok(credential) = Assertion::credential(text) else { return 0 };
    if RevocationSubject::from(credential.id()) != *revoked {
        return 0;
    }
    let until = Grant::of(&credential).ok().and_then(|grant| grant.until);
    until.and_then(|until| moment::seconds_of(until.as_bytes())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use pelago_keynote::{Rights, SharedObject};
    use pelago_meta::shard::RevokedCredential;
    use pelago_store::volume::VolumeId;

    use super::*;

    #[test]
    fn a_revocation_outlives_its_credential_by_a_month() {
        let end = 1_800_000_000;
        let row = |id: u8, end| RevokedCredential { id: [id; 32], sentence: Vec::new(), end };
        let rows = vec![row(1, end), row(2, 0), row(3, end + 1)];
        let policy = Policy::new(VolumeId([1; 16]), None, rows, None);
        let ended = |now| {
            let mut ended = policy.ended_revocations(now);
            ended.sort_unstable();
            ended
        };
        assert!(ended(end).is_empty());
        assert!(ended(end + KEPT_SECONDS).is_empty());
        assert_eq!(ended(end + KEPT_SECONDS + 1), [[1; 32]]);
        assert_eq!(ended(u64::MAX), [[1; 32], [3; 32]]);
        // They are forgotten with the next one, unless that takes one of them back again.
        let revoked = Revoked {
            id: [3; 32],
            by: Principal([9; 32]),
            is_of_root: true,
            end: 0,
            ended: ended(u64::MAX),
        };
        policy.revoke(&revoked, &policy.hold_guests());
        let mut left: Vec<u8> = policy.revoked.read().keys().map(|id| id[0]).collect();
        left.sort_unstable();
        assert_eq!(left, [2, 3]);
    }

    #[test]
    fn the_end_of_a_revocation_is_that_of_the_credential_whose_id_it_has() {
        let grant = Grant {
            volume: [1; 16],
            object: SharedObject::Folder(42),
            rights: Rights::READ,
            until: Some("20270115080000".to_owned()),
            from: None,
        };
        let [by, to] = [Principal([8; 32]), Principal([9; 32])];
        let credential = |grant: &Grant| {
            let conditions = grant.conditions();
            let signature = "0".repeat(128);
            let text = format!(
                "KeyNote-Version: 2\nAuthorizer: \"{by}\"\nLicensees: \"{to}\"\n\
                 Conditions: {conditions}\nSignature: \"sig-ed25519-hex:{signature}\"\n"
            );
            text.into_bytes()
        };
        let with_end = credential(&grant);
        let without = credential(&Grant { until: None, ..grant });
        let of = |revoked: &[u8], texts: &[&Vec<u8>]| {
            let subject = RevocationSubject::from(Assertion::credential(revoked).unwrap().id());
            let texts: Vec<Vec<u8>> = texts.iter().map(|text| text.to_vec()).collect();
            end_of(&subject, &texts)
        };
        assert_eq!(of(&with_end, &[&with_end]), 1_800_000_000);
        assert_eq!(of(&without, &[&without]), 0);
        assert_eq!(of(&without, &[&with_end]), 0, "the text of another one");
        assert_eq!(of(&with_end, &[]), 0);
        assert_eq!(of(&with_end, &[&with_end, &with_end]), 0);
    }
}
