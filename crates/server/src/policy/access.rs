//! The rights of guests to a node, for the people who ask for them. A decision that is made for a
//! request takes another way, which is faster and gives no reasons.

use std::cell::Cell;
use std::sync::Arc;

use pelago_keynote::{Principal, Right};
use pelago_meta::shard::{Placement, Shard};
use pelago_wire::{
    AccessPage, Code, DenialCause, DeniedRight, Error, GuestAccess, SessionId, limits,
};

use super::audit::End;
use super::chain::{Chain, Link};
use super::decision::Question;
use super::explain::{denied, letter};
use super::{Guest, Policy, QUESTION_STEPS};

/// The steps that all reasons for one guest may take.
const REASON_STEPS: u32 = 4 * QUESTION_STEPS;

/// A guest, or the holder of a chain who has no session.
struct Holder<'a> {
    session: SessionId,
    key: Principal,
    chain: &'a Chain,
    address: Option<&'a str>,
}

impl Policy {
    /// Returns the rights of a guest to the node at this position.
    ///
    /// # Errors
    /// `Busy` if directories have moved since; `Stale` if it is in no directory; errors of the
    /// table.
    pub(crate) fn access_of(
        &self,
        shard: &Shard,
        position: &Placement,
        guest: &Guest,
    ) -> Result<GuestAccess, Error> {
        let Guest { session, principal, ref chain, ref address, .. } = *guest;
        let key = Principal(principal);
        self.access(shard, position, &Holder { session, key, chain, address: address.as_deref() })
    }

    /// Returns the rights of the guests that are connected, those after a session.
    ///
    /// # Errors
    /// As [`Policy::access_of`].
    pub(crate) fn access_of_all(
        &self,
        shard: &Shard,
        position: &Placement,
        after: SessionId,
    ) -> Result<AccessPage, Error> {
        let guests = self.guests.read();
        let mut guests: Vec<Arc<Guest>> =
            guests.values().filter(|guest| guest.session > after).cloned().collect();
        guests.sort_unstable_by_key(|guest| guest.session);
        let more = guests.len() > limits::ACCESS_GUESTS;
        let page = guests.iter().take(limits::ACCESS_GUESTS);
        let page: Result<_, Error> =
            page.map(|guest| self.access_of(shard, position, guest)).collect();
        Ok(AccessPage { guests: page?, more })
    }

    /// Returns the rights of the holder of a chain, from no known address.
    ///
    /// # Errors
    /// As [`Policy::access_of`]; `Invalid` if the texts are no chain of a key.
    pub(crate) fn access_by(
        &self,
        shard: &Shard,
        position: &Placement,
        texts: &[Vec<u8>],
    ) -> Result<GuestAccess, Error> {
        let session = SessionId(0);
        let invalid = || Error::from(Code::Invalid);
        let read = |text: Option<&Vec<u8>>| {
            let link = text.and_then(|text| Link::read(text).ok());
            link.ok_or_else(invalid)
        };
        let first = read(texts.first())?;
        let last = read(texts.last())?;
        let key = last.assertion.licensees().keys().next().ok_or_else(invalid)?;
        let roots = self.roots.as_ref().filter(|roots| roots.has(&first.authorizer));
        let Some(roots) = roots else {
            let no_root =
                |right| denied(right, Some((0, &first)), DenialCause::NoRoot, String::new());
            return Ok(GuestAccess {
                session,
                key: key.0,
                credential: last.id,
                links: u8::try_from(texts.len()).unwrap_or(u8::MAX),
                rights: Vec::new(),
                denied: Right::ALL.into_iter().map(no_root).collect(),
            });
        };
        let chain = Chain::read(texts, &key, roots).map_err(|_| invalid())?;
        self.access(shard, position, &Holder { session, key, chain: &chain, address: None })
    }

    fn access(
        &self,
        shard: &Shard,
        position: &Placement,
        holder: &Holder<'_>,
    ) -> Result<GuestAccess, Error> {
        let chain = holder.chain;
        let (rights, denied) = match self.denies_all(chain) {
            Some(denied) => (Vec::new(), denied),
            None => self.rights_of(shard, position, holder)?,
        };
        Ok(GuestAccess {
            session: holder.session,
            key: holder.key.0,
            credential: chain.links.last().map(|link| link.id).unwrap_or_default(),
            links: u8::try_from(chain.links.len()).unwrap_or(u8::MAX),
            rights,
            denied,
        })
    }

    /// Returns the denials of all rights by a chain that was taken back, or whose root is none;
    /// `None` if the conditions decide.
    fn denies_all(&self, chain: &Chain) -> Option<Vec<DeniedRight>> {
        let (why, link) = self.end_of(chain)?;
        let cause = match why {
            End::NoRoot => DenialCause::NoRoot,
            End::Revoked => DenialCause::Revoked,
            End::Expired | End::Closed => return None,
        };
        let at = chain.links.iter().position(|other| other.id == link.id)?;
        let denied = |right| denied(right, Some((at, link)), cause, String::new());
        Some(Right::ALL.into_iter().map(denied).collect())
    }

    /// Returns the letters of the rights that the conditions give, and the denials of the others.
    fn rights_of(
        &self,
        shard: &Shard,
        position: &Placement,
        holder: &Holder<'_>,
    ) -> Result<(Vec<u8>, Vec<DeniedRight>), Error> {
        let policy = self.roots.as_ref().and_then(super::roots::Roots::policy);
        let policy = policy.ok_or(Code::Stale)?;
        let (_, moment) = self.now();
        let mut ancestors = Vec::new();
        for dir in &position.dirs {
            ancestors.push(shard.ancestors(*dir, position.directory_moves)?);
        }
        let questions: Vec<Question<'_>> = ancestors
            .iter()
            .map(|ancestors| Question {
                policy: &policy,
                chain: holder.chain,
                principal: holder.key,
                object: position.ino,
                volume: &self.volume_text,
                ancestors,
                address: holder.address,
                moment: &moment,
            })
            .collect();
        let budget = Cell::new(QUESTION_STEPS);
        let has = |right: &Right| {
            questions.iter().any(|question| question.decide(*right, &budget).is_granted)
        };
        // The place with the most rights has the reasons that are of use.
        let granted: Vec<Right> = Right::ALL.into_iter().filter(has).collect();
        let best = questions.iter().max_by_key(|question| {
            granted.iter().filter(|right| question.decide(**right, &budget).is_granted).count()
        });
        let best = best.ok_or(Code::Stale)?;
        let budget = Cell::new(REASON_STEPS);
        let missing = Right::ALL.into_iter().filter(|right| !granted.contains(right));
        let denied = missing.map(|right| best.explain(right, &budget)).collect();
        Ok((granted.into_iter().map(letter).collect(), denied))
    }
}
