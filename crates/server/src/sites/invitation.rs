//! Invitations of sites, and the admission of their servers.
//!
//! The first site invites another one by a key that is used once: the bearer signs the key of its
//! own server with it, which is the key of the site from then on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pelago_keynote::{Assertion, Authorizer, Principal, SiteInvitation, is_site_name};
use pelago_store::clock;
use pelago_store::report::volume_failed;
use pelago_store::rows::{SITE_NAME_BYTES, SiteRow, SiteState};
use pelago_store::volume;
use pelago_wire::{Code, Error, InodeId, SiteHello, SitePeer, SiteRefusal, limits};

use super::{Sites, has_joined};

/// The error of an invitation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// This is not the founding site.
    #[error("this is site {0} of the volume, and only its first site invites others")]
    NotFounder(u16),
    /// The volume has as many sites as it can have.
    #[error("the volume has {} other sites, and can have no more", limits::LISTED_SITES)]
    TooMany,
    /// Another site has the name.
    #[error("the volume has a site with this name, {0}")]
    NameTaken(u16),
    /// The name is not valid.
    #[error("the name of a site has 1 to {SITE_NAME_BYTES} letters, digits, `-` and `_`")]
    Name,
    /// The volume lies on a shared store.
    #[error("a second office of a volume on a shared store is not built yet")]
    SharedStore,
    /// The table failed.
    #[error("the invitation cannot be recorded")]
    Table(#[source] Error),
}

impl Sites {
    /// Invites a site of this name. `key` is the public key of the invitation, which expires at
    /// `until`, in seconds since 1970. Returns the site's number.
    ///
    /// # Errors
    /// [`InviteError`].
    pub(crate) fn invite(
        self: &Arc<Self>,
        name: &str,
        key: [u8; 32],
        until: u64,
    ) -> Result<u16, InviteError> {
        if self.own != InodeId::ROOT.site() {
            return Err(InviteError::NotFounder(self.own));
        }
        if !is_site_name(name) {
            return Err(InviteError::Name);
        }
        let mut others = self.others.lock();
        let joined = || others.iter().filter(|(_, row)| has_joined(row));
        if let Some((site, _)) = joined().find(|(_, row)| row.name == name) {
            return Err(InviteError::NameTaken(*site));
        }
        if joined().count() >= limits::LISTED_SITES {
            return Err(InviteError::TooMany);
        }
        // A number is never given twice, even if no site has joined under it.
        let site = others.last_key_value().map_or(self.own, |(last, _)| *last) + 1;
        if site == InodeId::MOUNT_SITE {
            return Err(InviteError::Table(Code::NoSpace.into()));
        }
        let state = SiteState::Invited { key, until };
        let row = SiteRow { state, name: name.to_owned(), address: String::new() };
        self.put(&mut others, site, row).map_err(InviteError::Table)?;
        Ok(site)
    }

    /// Returns the site of a server with this key; see
    /// [`SessionService::admit_site`](pelago_wire::SessionService::admit_site).
    pub(crate) fn admit(
        self: &Arc<Self>,
        key: &[u8; 32],
        presented: Option<&SiteHello<'_>>,
    ) -> Result<SitePeer, SiteRefusal> {
        let mut others = self.others.lock();
        let because = |text: &str| SiteRefusal::NotInvited(text.to_owned());
        for (site, row) in &*others {
            match row.state {
                SiteState::Joined { key: of, .. } if of == *key => {
                    let refused =
                        presented.and_then(|hello| self.judge(*site, &row.name, &hello.shown));
                    if let Some(refusal) = refused {
                        return Err(refusal);
                    }
                    return Ok(SitePeer { key: *key, site: *site });
                }
                SiteState::Left { key: of } if of == *key => {
                    return Err(because(SiteRefusal::LEFT));
                }
                SiteState::Joined { .. } | SiteState::Left { .. } | SiteState::Invited { .. } => {}
            }
        }
        let no_reason = || because("");
        let invitation = presented.and_then(|hello| hello.invitation);
        let Some(text) = invitation else { return Err(no_reason()) };
        let sentence = Assertion::credential(text).map_err(|_| no_reason())?;
        let Authorizer::Key(Principal(by)) = *sentence.authorizer() else {
            return Err(no_reason());
        };
        let invited = SiteInvitation::of(&sentence).ok_or_else(no_reason)?;
        if sentence.licensees().only_key() != Some(Principal(*key)) {
            return Err(no_reason());
        }
        if invited.volume != self.volume.0 {
            return Err(because("the invitation is for another volume"));
        }
        let row = others.get(&invited.site).ok_or_else(no_reason)?;
        let ends = match row.state {
            SiteState::Joined { invitation, .. } if invitation == by => None,
            SiteState::Invited { key, until } if key == by => Some(until),
            SiteState::Joined { .. } | SiteState::Invited { .. } | SiteState::Left { .. } => {
                return Err(no_reason());
            }
        };
        // The signature comes after the cheap checks: a stranger must not cause costly work.
        sentence.verify().map_err(|_| no_reason())?;
        let until = ends.ok_or_else(|| because("the invitation was used already"))?;
        if clock::now().seconds >= until.cast_signed() {
            return Err(because("the invitation has expired"));
        }
        let joined = || others.values().filter(|row| has_joined(row));
        if joined().any(|other| other.name == row.name) {
            return Err(because("another site with this name has joined meanwhile"));
        }
        if joined().count() >= limits::LISTED_SITES {
            return Err(because("the volume has as many sites as it can have"));
        }
        let state = SiteState::Joined { key: *key, invitation: by };
        let joined = SiteRow { state, ..row.clone() };
        let name = joined.name.clone();
        self.prepare_for_sites()
            .and_then(|()| self.put(&mut others, invited.site, joined))
            .map_err(|error| because(error.code.says()))?;
        tracing::info!(site = invited.site, name, "a site has joined the volume");
        self.tokens.wake();
        Ok(SitePeer { key: *key, site: invited.site })
    }

    /// Records on stable storage that the volume has several sites, before there is a name of
    /// another one, which an older program would take for damage.
    fn prepare_for_sites(&self) -> Result<(), Error> {
        if let Some(folder) = &self.folder {
            volume::set_has_sites(folder).map_err(|error| volume_failed(&error))?;
        }
        self.shard.set_has_sites();
        self.has_others.store(true, Ordering::Release);
        Ok(())
    }
}
