//! The rights of guests to a node, for the people who ask for them. A decision that is made for a
//! request takes another way, which is faster and gives no reasons.

use std::cell::Cell;
use std::sync::Arc;

use pelago_keynote::share::attribute;
use pelago_keynote::{Principal, Right};
use pelago_meta::shard::{Ancestors, Placement, Shard};
use pelago_wire::{
    AccessPage, Code, DenialCause, DeniedRight, Error, GuestAccess, Name, SessionId, limits,
};

use super::chain::{Chain, Link};
use super::decision::Question;
use super::explain::{denied, letter};
use super::roots::Roots;
use super::scope::may_read;
use super::{Guest, Policy, QUESTION_STEPS, User};

/// The steps that all reasons for one chain may take.
const REASON_STEPS: u32 = 4 * QUESTION_STEPS;

/// All chains of one guest fit into a page.
const _: () = assert!(limits::ATTACHED_CHAINS <= limits::ACCESS_GUESTS);

/// The holder of a chain.
struct Holder<'a> {
    /// 0 for one without a session.
    session: SessionId,
    key: Principal,
    chain: &'a Chain,
    address: Option<&'a str>,
}

/// A function that says why the mode of a node denies a right to a user; `None` if it does not.
pub(crate) type ModeDenial<'a> = &'a dyn Fn(&User, Right) -> Option<String>;

/// A node whose rights are asked for.
#[derive(Clone, Copy)]
pub(crate) struct AccessTo<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) position: &'a Placement,
    pub(crate) denied_by_mode: ModeDenial<'a>,
}

/// A directory in which a node is.
struct DirWithNames {
    ancestors: Ancestors,
    /// The names of the node there, if they decide.
    names: Vec<Name>,
}

impl Policy {
    /// Returns the rights of a guest to a node, by each of its chains.
    ///
    /// # Errors
    /// `Busy` if directories have moved since; `Stale` if it is in no directory; errors of the
    /// table.
    pub(crate) fn access_of(
        &self,
        node: AccessTo<'_>,
        guest: &Guest,
    ) -> Result<Vec<GuestAccess>, Error> {
        let of_chain = |chain: &Arc<Chain>| {
            let holder = Holder {
                session: guest.session,
                key: Principal(guest.principal),
                chain,
                address: guest.address.as_deref(),
            };
            self.access(node, &holder)
        };
        guest.chains().iter().map(of_chain).collect()
    }

    /// Returns the rights of the guests that are connected, those after a session. A guest that
    /// asks is told of those others who have a right to the node, and not of the tests that deny
    /// them more: these may be about something else.
    ///
    /// # Errors
    /// As [`Policy::access_of`].
    pub(crate) fn access_of_all(
        &self,
        node: AccessTo<'_>,
        after: SessionId,
        asker: Option<&Guest>,
    ) -> Result<AccessPage, Error> {
        let mut guests: Vec<Arc<Guest>> = {
            let guests = self.guests.read();
            guests.values().flatten().filter(|guest| guest.session > after).cloned().collect()
        };
        guests.sort_unstable_by_key(|guest| guest.session);
        let mut page = Vec::new();
        for guest in guests {
            let mut access = self.access_of(node, &guest)?;
            if asker.is_some_and(|asker| asker.session != guest.session) {
                access.retain(|access| !access.rights.is_empty());
                let denied = access.iter_mut().flat_map(|access| &mut access.denied);
                denied.for_each(|denied| denied.detail.clear());
            }
            // A guest is in one page.
            if page.len() + access.len() > limits::ACCESS_GUESTS {
                return Ok(AccessPage { guests: page, more: true });
            }
            page.extend(access);
        }
        Ok(AccessPage { guests: page, more: false })
    }

    /// Returns the rights of the holder of a chain, from no known address.
    ///
    /// # Errors
    /// As [`Policy::access_of`]; `Invalid` if the texts are no chain of a key.
    pub(crate) fn access_by(
        &self,
        node: AccessTo<'_>,
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
            return Ok(GuestAccess {
                session,
                key: key.0,
                credential: last.id,
                links: u8::try_from(texts.len()).unwrap_or(u8::MAX),
                rights: Vec::new(),
                denied: all_denied((0, &first), DenialCause::NoRoot),
            });
        };
        let chain = Chain::read(texts, &key, roots).map_err(|_| invalid())?;
        self.access(node, &Holder { session, key, chain: &chain, address: None })
    }

    fn access(&self, node: AccessTo<'_>, holder: &Holder<'_>) -> Result<GuestAccess, Error> {
        let chain = holder.chain;
        let (rights, denied) = match self.denies_all(holder) {
            Some(denied) => (Vec::new(), denied),
            None => {
                let (granted, mut denied) = self.rights_by(node, holder)?;
                let user = self.user_of(chain, &holder.key.0);
                let by_mode = |right| (node.denied_by_mode)(user.as_deref()?, right);
                let mut rights = Vec::new();
                for right in granted {
                    match by_mode(right) {
                        None => rights.push(letter(right)),
                        Some(mode) => {
                            denied.push(self::denied(right, None, DenialCause::Modes, mode));
                        }
                    }
                }
                (rights, denied)
            }
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
    fn denies_all(&self, holder: &Holder<'_>) -> Option<Vec<DeniedRight>> {
        let Holder { chain, key, .. } = holder;
        let first = chain.links.first()?;
        if !self.is_root(&first.authorizer) {
            return Some(all_denied((0, first), DenialCause::NoRoot));
        }
        if !self.is_revoked(chain, &key.0) {
            return None;
        }
        let revoked = self.revoked.read();
        let is_revoked = |link: &Link| {
            revoked.contains_key(&link.id) || revoked.contains_key(&link.authorizer.0)
        };
        let at = chain.links.iter().position(is_revoked);
        // Else it is the key of the holder, for which the last one is.
        let at = at.unwrap_or(chain.links.len() - 1);
        let link = chain.links.get(at)?;
        Some(all_denied((at, link), DenialCause::Revoked))
    }

    /// Returns the rights that the conditions give, and the denials of the others.
    fn rights_by(
        &self,
        node: AccessTo<'_>,
        holder: &Holder<'_>,
    ) -> Result<(Vec<Right>, Vec<DeniedRight>), Error> {
        let AccessTo { shard, position, .. } = node;
        let policy = self.roots.as_ref().and_then(Roots::policy).ok_or(Code::Stale)?;
        let (_, moment) = self.now();
        let reads_names = holder.chain.reads_name || may_read(&policy, attribute::NAME);
        let mut dirs = Vec::new();
        for dir in &position.dirs {
            let ancestors = shard.ancestors(*dir, position.directory_moves)?;
            let names = if reads_names { shard.names_in(position, *dir)? } else { Vec::new() };
            dirs.push(DirWithNames { ancestors, names });
        }
        let mut names: Vec<(&Ancestors, Option<&Name>)> = Vec::new();
        for DirWithNames { ancestors, names: there } in &dirs {
            names.extend(there.iter().map(|name| (ancestors, Some(name))));
            if there.is_empty() {
                names.push((ancestors, None));
            }
        }
        let question = |(ancestors, name)| Question {
            policy: &policy,
            chain: holder.chain,
            principal: holder.key,
            operation: None,
            object: position.ino,
            name,
            volume: &self.volume_text,
            ancestors,
            address: holder.address,
            moment: &moment,
        };
        let questions: Vec<Question<'_>> = names.into_iter().map(question).collect();
        let budget = Cell::new(QUESTION_STEPS);
        let has =
            |question: &Question<'_>, right: &Right| question.decide(*right, &budget).is_granted;
        let granted: Vec<Right> = Right::ALL
            .into_iter()
            .filter(|right| questions.iter().any(|question| has(question, right)))
            .collect();
        // Of several places, one that grants something says why the rest is missing.
        let best =
            questions.iter().find(|question| granted.iter().any(|right| has(question, right)));
        let best = best.or_else(|| questions.first()).ok_or(Code::Stale)?;
        let budget = Cell::new(REASON_STEPS);
        let missing = Right::ALL.into_iter().filter(|right| !granted.contains(right));
        let denied = missing.map(|right| best.explain(right, &budget)).collect();
        Ok((granted, denied))
    }
}

/// Returns the denials of all rights by one link, which comes with its place in the chain.
fn all_denied(link: (usize, &Link), cause: DenialCause) -> Vec<DeniedRight> {
    Right::ALL.into_iter().map(|right| denied(right, Some(link), cause, String::new())).collect()
}
