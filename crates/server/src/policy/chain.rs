//! Chains of credentials: the sentences from a root of the volume to a guest.

use pelago_keynote::share::{SharedObject, attribute, chain_ids, chain_text};
use pelago_keynote::{
    Assertion, Authorizer, Conditions, Grant, IssuedGrant, IssuingLicence, Principal, Revocation,
    RevocationSubject,
};
use pelago_store::volume::VolumeId;
use pelago_wire::{GuestRefusal, limits};

use super::roots::{Policies, Roots};
use super::scope::{grants_all_below, may_read, only_seeks_ancestors};

/// The limit for the regular expressions of a chain, in positions. A share of Pelago has 256 of
/// them in each link, so that sixteen links are half of it.
const PATTERN_SIZE: usize = 8 << 10;

/// A chain whose signatures are all valid.
pub(super) struct Chain {
    /// The hash of the ids of its links, in their order.
    pub(super) id: [u8; 32],
    /// The credentials, as they were presented.
    pub(super) links: Vec<Link>,
    /// The ids of the chains with which this one begins, as the attribute `chain` has them.
    pub(super) begins_with: String,
    /// True if each credential by a licence is bound to a chain with which this one begins.
    pub(super) keeps_licences: bool,
    /// True if the links can be decided from a part of the directories above an object.
    pub(super) only_seeks: bool,
    /// True if a right to a directory is one to all below it.
    pub(super) grants_all_below: bool,
    /// True if the name of a file may decide.
    pub(super) reads_name: bool,
    /// True if the operation may decide.
    pub(super) reads_operation: bool,
    /// True if the address of the guest decides.
    pub(super) reads_address: bool,
    /// True if the links may grant a right to change something.
    pub(super) may_change: bool,
    /// The folders that the links name; `None` if a move of any directory may change the rights.
    pub(super) folders: Option<Box<[u64]>>,
    /// True if all links that grant something have the form of Pelago's shares.
    pub(super) is_of_shares: bool,
    /// True if one of these ends at a time.
    pub(super) has_end: bool,
}

/// A credential of a chain.
pub(super) struct Link {
    /// The hash of its text without the signature.
    pub(super) id: [u8; 32],
    pub(super) assertion: Assertion,
    /// The key that has signed it.
    pub(super) authorizer: Principal,
    /// The form of the credentials that Pelago writes, if it has that.
    pub(super) share: Option<Grant>,
    /// The licence to issue credentials, if it is one.
    pub(super) licence: Option<IssuingLicence>,
    /// The chain to which it is bound, if it is a credential that was issued.
    bound_to: Option<[u8; 32]>,
}

impl Chain {
    /// Reads the chain that a guest presents, and verifies it.
    ///
    /// The chain must begin with a root and end with the guest before another text is read and a
    /// signature is verified: a stranger must not cause costly work. Each link must lead from a
    /// root, by keys that the links before license, on to the guest: the text of another guest,
    /// which others may have seen, opens no session and takes no place of its licensee. Only the
    /// guest of a chain that is signed well gets a reason.
    ///
    /// # Errors
    /// [`GuestRefusal`].
    pub(super) fn read(
        texts: &[Vec<u8>],
        principal: &Principal,
        roots: &Roots,
    ) -> Result<Self, GuestRefusal> {
        let no_reason = || GuestRefusal(String::new());
        let ([first, rest @ ..], true) = (texts, texts.len() <= limits::CHAIN_LINKS) else {
            return Err(no_reason());
        };
        let first = Link::read(first)?;
        if !roots.has(&first.authorizer) {
            return Err(no_reason());
        }
        let last = rest.last().map(|text| Link::read(text)).transpose()?;
        if !last.as_ref().unwrap_or(&first).licenses(principal) {
            return Err(no_reason());
        }
        let mut links = vec![first.verified()?];
        let between = rest.get(..rest.len().saturating_sub(1)).unwrap_or_default();
        for text in between {
            links.push(Link::read(text)?.verified()?);
        }
        links.extend(last.map(Link::verified).transpose()?);
        let policy = roots.policy().ok_or_else(no_reason)?;
        if !are_connected(&links, &policy, principal) {
            return Err(no_reason());
        }
        let conditions = links.iter().filter_map(|link| link.assertion.conditions());
        if conditions.map(Conditions::pattern_size).sum::<usize>() > PATTERN_SIZE {
            return Err(no_reason());
        }
        let begun = chain_ids(links.iter().map(|link| link.id));
        let reads = |attribute| links.iter().any(|link| may_read(&link.assertion, attribute));
        let granting = grants(&links);
        let is_of_shares = granting.iter().all(|link| link.share.is_some());
        let has_end = granting.iter().any(|link| link.has_end());
        Ok(Self {
            id: begun.last().copied().unwrap_or_default(),
            begins_with: chain_text(&begun),
            keeps_licences: keep_licences(&links, &begun),
            only_seeks: links.iter().all(|link| only_seeks_ancestors(&link.assertion)),
            grants_all_below: links.iter().all(|link| grants_all_below(&link.assertion)),
            reads_name: reads(attribute::NAME),
            reads_operation: reads(attribute::OPERATION),
            reads_address: reads(attribute::ADDRESS),
            may_change: links.iter().any(Link::may_grant_change),
            folders: folders_of(&links),
            is_of_shares,
            has_end,
            links,
        })
    }

    /// Returns whether each link leads from a root of this policy to the guest, as when it was
    /// read.
    pub(super) fn is_connected(&self, policy: &Policies, principal: &Principal) -> bool {
        are_connected(&self.links, policy, principal)
    }

    /// Returns the bytes of its texts.
    pub(super) fn bytes(&self) -> usize {
        self.links.iter().map(|link| link.assertion.text().len()).sum()
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

/// Returns the links that grant something. A licence grants nothing by itself, and has no end.
fn grants(links: &[Link]) -> Vec<&Link> {
    links.iter().filter(|link| link.licence.is_none()).collect()
}

/// Returns whether each link that a licensee of a licence has signed is bound to a chain with which
/// this one begins. `begun` are the ids of these. One of licences and of what was issued by them
/// alone does not count: the key of the server could sign it for anyone.
fn keep_licences(links: &[Link], begun: &[[u8; 32]]) -> bool {
    let licences = || links.iter().filter(|link| link.licence.is_some());
    let is_issued = |link: &Link| licences().any(|licence| licence.licenses(&link.authorizer));
    let grants = |link: &Link| link.licence.is_none() && !is_issued(link);
    let first = links.iter().position(grants);
    let chains = first.and_then(|first| begun.get(first..)).unwrap_or_default();
    let mut issued = links.iter().filter(|link| is_issued(link));
    issued.all(|link| link.bound_to.is_some_and(|id| chains.contains(&id)))
}

/// Returns the folders that links name; `None` if one of them has not the form of a share.
fn folders_of(links: &[Link]) -> Option<Box<[u64]>> {
    let mut folders = Vec::with_capacity(links.len());
    // A licence grants nothing by itself.
    for link in links.iter().filter(|link| link.licence.is_none()) {
        match &link.share.as_ref()?.object {
            SharedObject::Folder(ino) => folders.push(*ino),
            SharedObject::File(_) | SharedObject::Name { .. } => {}
        }
    }
    Some(folders.into())
}

/// Returns whether each link is signed by a root or by a licensee of a link before, licenses the
/// guest or a signer after, and is there once.
fn are_connected(links: &[Link], policy: &Policies, principal: &Principal) -> bool {
    let is_root = |key: &Principal| policy.has(key);
    links.iter().enumerate().all(|(at, link)| {
        let mut before = links.iter().take(at);
        let mut after = links.iter().skip(at + 1);
        let is_new = before.clone().all(|earlier| earlier.id != link.id);
        let follows =
            is_root(&link.authorizer) || before.any(|earlier| earlier.licenses(&link.authorizer));
        let leads_on =
            link.licenses(principal) || after.any(|later| link.licenses(&later.authorizer));
        is_new && follows && leads_on
    })
}

impl Link {
    /// Returns whether it is a share that ends at a time.
    fn has_end(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.until.is_some())
    }

    /// Reads a credential. Its signature is not verified yet.
    pub(super) fn read(text: &[u8]) -> Result<Self, GuestRefusal> {
        let assertion =
            Assertion::credential(text).map_err(|error| GuestRefusal(error.to_string()))?;
        let Authorizer::Key(authorizer) = *assertion.authorizer() else {
            return Err(GuestRefusal(String::new()));
        };
        let issued = IssuedGrant::of(&assertion).ok();
        let bound_to = issued.as_ref().map(|issued| issued.chain);
        let share = issued.map(|issued| issued.grant).or_else(|| Grant::of(&assertion).ok());
        let licence = IssuingLicence::of(&assertion);
        Ok(Self { id: assertion.id().0, assertion, authorizer, share, licence, bound_to })
    }

    pub(super) fn verified(self) -> Result<Self, GuestRefusal> {
        match self.assertion.verify() {
            Ok(()) => Ok(self),
            Err(_) => Err(GuestRefusal(String::new())),
        }
    }

    /// Returns the text, as it was presented.
    pub(super) fn text(&self) -> Vec<u8> {
        self.assertion.text().as_bytes().to_vec()
    }

    /// Returns whether the credential may grant a right to change something. One in another form
    /// than Pelago's may.
    fn may_grant_change(&self) -> bool {
        self.share.as_ref().is_none_or(|share| share.rights.may_change())
    }

    /// Returns whether the credential was issued by one of these licences: its holder has made
    /// what it grants, by the chain to which it is bound.
    pub(super) fn is_issued_by(&self, licences: &[&Self]) -> bool {
        self.bound_to.is_some() && licences.iter().any(|licence| licence.licenses(&self.authorizer))
    }

    pub(super) fn licenses(&self, principal: &Principal) -> bool {
        self.assertion.licensees().keys().any(|key| key == *principal)
    }
}

/// Returns whether a revocation is by this guest, which has signed the revoked credential: its text
/// is presented. What others have signed after that is void with it. A chain of keys would be no
/// proof that the guest is above a credential, because each key may license any other one.
pub(super) fn revokes(revocation: &Revocation, texts: &[Vec<u8>], principal: &[u8; 32]) -> bool {
    let [text] = texts else { return false };
    revocation.by.0 == *principal
        && Assertion::credential(text).is_ok_and(|credential| {
            *credential.authorizer() == Authorizer::Key(revocation.by)
                && RevocationSubject::from(credential.id()) == revocation.subject
                && credential.verify().is_ok()
        })
}

/// Returns the share of a credential with this id, if its signature is valid and it has the form of
/// Pelago's shares.
pub(super) fn share_of(text: &[u8], id: &[u8; 32]) -> Option<Grant> {
    let link = Link::read(text).ok().filter(|link| link.id == *id)?;
    link.verified().ok()?.share
}
