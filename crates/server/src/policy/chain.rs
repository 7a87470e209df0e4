//! Chains of credentials: the sentences from a root of the volume to a guest.

use pelago_keynote::{Assertion, Authorizer, Conditions, Principal, Revocation, SharedFolder};
use pelago_store::volume::VolumeId;
use pelago_wire::{GuestRefusal, limits};

use super::roots::Roots;
use super::scope::{may_read_address, only_seeks_ancestors};

/// The limit for the regular expressions of a chain, in positions. A share of Pelago has 256 of
/// them in each link, so that sixteen links are half of it.
const PATTERN_SIZE: usize = 8 << 10;

/// A chain whose signatures are all valid.
pub(super) struct Chain {
    /// The credentials, as they were presented.
    pub(super) links: Vec<Link>,
    /// True if the links only ask which directories are above an object.
    pub(super) only_seeks: bool,
    /// True if the address of the guest decides.
    pub(super) reads_address: bool,
}

/// A credential of a chain.
pub(super) struct Link {
    /// The hash of its text without the signature.
    pub(super) id: [u8; 32],
    pub(super) assertion: Assertion,
    /// The key that has signed it.
    pub(super) authorizer: Principal,
    /// The form of the credentials that Pelago writes, if it has that.
    pub(super) share: Option<SharedFolder>,
}

impl Chain {
    /// Reads the chain that a guest presents, and verifies it.
    ///
    /// The chain must begin with a root and end with the guest before a signature is verified: a
    /// stranger must not cause costly work. Only the guest of a chain that is signed well gets a
    /// reason.
    ///
    /// # Errors
    /// [`GuestRefusal`].
    pub(super) fn read(
        texts: &[Vec<u8>],
        principal: &Principal,
        roots: &Roots,
    ) -> Result<Self, GuestRefusal> {
        let no_reason = || GuestRefusal(String::new());
        if !(1..=limits::CHAIN_LINKS).contains(&texts.len()) {
            return Err(no_reason());
        }
        let mut links = Vec::new();
        for text in texts {
            let assertion =
                Assertion::credential(text).map_err(|error| GuestRefusal(error.to_string()))?;
            let Authorizer::Key(authorizer) = *assertion.authorizer() else {
                return Err(no_reason());
            };
            let share = SharedFolder::of(&assertion).ok();
            links.push(Link { id: assertion.id().0, assertion, authorizer, share });
        }
        let begins_with_root = links.first().is_some_and(|link| roots.has(&link.authorizer));
        let is_for_guest = links.last().is_some_and(|link| link.licenses(principal));
        if !begins_with_root || !is_for_guest {
            return Err(no_reason());
        }
        let conditions = links.iter().filter_map(|link| link.assertion.conditions());
        if conditions.map(Conditions::pattern_size).sum::<usize>() > PATTERN_SIZE {
            return Err(no_reason());
        }
        for link in &links {
            link.assertion.verify().map_err(|_| no_reason())?;
        }
        let reads_address = links.iter().any(|link| may_read_address(&link.assertion));
        let only_seeks = links.iter().all(|link| only_seeks_ancestors(&link.assertion));
        Ok(Self { links, only_seeks, reads_address })
    }

    /// Returns the identity of the chain: the hash of the ids of its links, in their order.
    pub(super) fn id(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for link in &self.links {
            hasher.update(&link.id);
        }
        *hasher.finalize().as_bytes()
    }

    /// Checks what every action would fail by: the volume, and the end of a link.
    ///
    /// # Errors
    /// [`GuestRefusal`].
    pub(super) fn check(&self, volume: VolumeId, now: &str) -> Result<(), GuestRefusal> {
        for share in self.links.iter().filter_map(|link| link.share.as_ref()) {
            if share.volume != volume.0 {
                return Err(GuestRefusal("the credential is for another volume".to_owned()));
            }
            if let Some(until) = share.until.as_deref().filter(|until| *until <= now) {
                let until = super::moment::print(until);
                return Err(GuestRefusal(format!("the credential has expired: it ended {until}")));
            }
        }
        Ok(())
    }
}

impl Link {
    fn licenses(&self, principal: &Principal) -> bool {
        self.assertion.licensees().keys().any(|key| key == *principal)
    }
}

/// Returns whether a revocation is by this guest, which has signed the first of these credentials;
/// each next one is by a licensee of the one before, and the last one is revoked.
pub(super) fn revokes(revocation: &Revocation, texts: &[Vec<u8>], principal: &[u8; 32]) -> bool {
    let mut signers = vec![Principal(*principal)];
    if revocation.by.0 != *principal {
        return false;
    }
    let mut last = None;
    for text in texts {
        let Ok(assertion) = Assertion::credential(text) else { return false };
        let Authorizer::Key(authorizer) = *assertion.authorizer() else { return false };
        if !signers.contains(&authorizer) || assertion.verify().is_err() {
            return false;
        }
        signers = assertion.licensees().keys().collect();
        last = Some(assertion.id());
    }
    last == Some(revocation.credential)
}
