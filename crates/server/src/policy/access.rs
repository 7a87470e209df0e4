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
use super::{Guest, Policy, QUESTION_STEPS, User};

/// The steps that all reasons for one chain may take.
const REASON_STEPS: u32 = 4 * QUESTION_STEPS;
/// The steps after which a page for a guest ends: some tenths of a second.
const PAGE_STEPS: u32 = 64 * QUESTION_STEPS;

/// All chains of one guest fit into a page.
const _: () = assert!(limits::ATTACHED_CHAINS <= limits::ACCESS_GUESTS);

/// The holder of a chain.
struct Holder<'a> {
    /// 0 for one without a session.
    session: SessionId,
    key: Principal,
    chain: &'a Chain,
    address: Option<&'a str>,
    /// The user as whom it acts; `None` if that is not known, so that it has no right.
    user: Option<Arc<User>>,
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
        let of_chain = |chain: &Arc<Chain>| self.access(node, &self.holder(guest, chain));
        guest.chains().iter().map(of_chain).collect()
    }

    /// Returns a guest as the holder of one of its chains.
    fn holder<'a>(&self, guest: &'a Guest, chain: &'a Chain) -> Holder<'a> {
        Holder {
            session: guest.session,
            key: Principal(guest.principal),
            chain,
            address: guest.address.as_deref(),
            user: self.acting_user(guest).ok(),
        }
    }

    /// Returns the rights of a guest to a node, by each of its chains that gives some, without the
    /// reasons why others are denied: these may be about something else. `steps` is the rest of the
    /// steps for all decisions; those for this guest are bounded as for a request of it.
    ///
    /// # Errors
    /// As [`Policy::access_of`].
    fn access_of_other(
        &self,
        node: AccessTo<'_>,
        guest: &Guest,
        steps: &Cell<u32>,
    ) -> Result<Vec<GuestAccess>, Error> {
        let budget = Cell::new(QUESTION_STEPS);
        let mut found = Vec::new();
        for chain in &guest.chains() {
            let holder = self.holder(guest, chain);
            if self.denies_all(&holder).is_some() {
                continue;
            }
            let rights =
                self.with_questions(node, &holder, |questions| Ok(granted_by(questions, &budget)))?;
            let (rights, _) = self.by_mode(node, &holder, rights);
            if !rights.is_empty() {
                found.push(access_by_chain(&holder, rights, Vec::new()));
            }
        }
        steps.set(steps.get().saturating_sub(QUESTION_STEPS - budget.get()));
        Ok(found)
    }

    /// Returns the rights of the guests that are connected, those after a session. A guest that
    /// asks is told of those others who have a right to the node, and not why they have no more.
    /// Its page ends early if the decisions take long, but not before the first guest on it.
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
        let steps = Cell::new(PAGE_STEPS);
        for guest in guests {
            if steps.get() == 0 && !page.is_empty() {
                return Ok(AccessPage { guests: page, more: true });
            }
            // Another session of the same key is no other guest.
            let access = match asker.is_some_and(|asker| asker.principal != guest.principal) {
                true => self.access_of_other(node, &guest, &steps)?,
                false => self.access_of(node, &guest)?,
            };
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
                denied: all_denied(Some((0, &first)), DenialCause::NoRoot),
            });
        };
        let chain = Chain::read(texts, &key, roots).map_err(|_| invalid())?;
        let user = self.user_of(&chain, &key.0);
        self.access(node, &Holder { session, key, chain: &chain, address: None, user })
    }

    fn access(&self, node: AccessTo<'_>, holder: &Holder<'_>) -> Result<GuestAccess, Error> {
        let (rights, denied) = match self.denies_all(holder) {
            Some(denied) => (Vec::new(), denied),
            None => {
                let (granted, mut denied) = self.with_questions(node, holder, explained)?;
                let (rights, by_mode) = self.by_mode(node, holder, granted);
                denied.extend(by_mode);
                (rights, denied)
            }
        };
        Ok(access_by_chain(holder, rights, denied))
    }

    /// Returns the letters of those rights that the mode of the node gives too, and the denials of
    /// the others.
    fn by_mode(
        &self,
        node: AccessTo<'_>,
        holder: &Holder<'_>,
        granted: Vec<Right>,
    ) -> (Vec<u8>, Vec<DeniedRight>) {
        let by_mode = |right| (node.denied_by_mode)(holder.user.as_deref()?, right);
        let mut rights = Vec::new();
        let mut denied = Vec::new();
        for right in granted {
            match by_mode(right) {
                None => rights.push(letter(right)),
                Some(mode) => denied.push(self::denied(right, None, DenialCause::Modes, mode)),
            }
        }
        (rights, denied)
    }

    /// Returns the denials of all rights by a chain that was taken back, whose root is none, or
    /// that leads to no user or to another than the session acts as; `None` if the conditions
    /// decide.
    fn denies_all(&self, holder: &Holder<'_>) -> Option<Vec<DeniedRight>> {
        let Holder { chain, key, .. } = holder;
        let first = chain.links.first()?;
        if !self.is_root(&first.authorizer) {
            return Some(all_denied(Some((0, first)), DenialCause::NoRoot));
        }
        if !self.is_revoked(chain, &key.0) {
            let user = self.user_of(chain, &key.0);
            let acts = user.is_some() && user == holder.user;
            return (!acts).then(|| all_denied(None, DenialCause::User));
        }
        let revoked = self.revoked.read();
        let is_revoked = |link: &Link| {
            revoked.contains_key(&link.id) || revoked.contains_key(&link.authorizer.0)
        };
        let at = chain.links.iter().position(is_revoked);
        // Else it is the key of the holder, for which the last one is.
        let at = at.unwrap_or(chain.links.len() - 1);
        let link = chain.links.get(at)?;
        Some(all_denied(Some((at, link)), DenialCause::Revoked))
    }

    /// Calls `ask` with the questions for a chain: one for each name of the node in each directory,
    /// at least one.
    fn with_questions<T>(
        &self,
        node: AccessTo<'_>,
        holder: &Holder<'_>,
        ask: impl FnOnce(&[Question<'_>]) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let AccessTo { shard, position, .. } = node;
        let policy = self.roots.as_ref().and_then(Roots::policy).ok_or(Code::Stale)?;
        let (_, moment) = self.now();
        let reads_names = holder.chain.reads_name || policy.may_read(attribute::NAME);
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
        ask(&questions)
    }
}

fn has(question: &Question<'_>, right: Right, budget: &Cell<u32>) -> bool {
    question.decide(right, budget).is_granted
}

/// Returns the rights that the conditions give by one of the questions.
fn granted_by(questions: &[Question<'_>], budget: &Cell<u32>) -> Vec<Right> {
    let is_granted = |right: &Right| questions.iter().any(|one| has(one, *right, budget));
    Right::ALL.into_iter().filter(is_granted).collect()
}

/// Returns the rights that the conditions give, and the denials of the others.
///
/// # Errors
/// `Stale` without a question.
fn explained(questions: &[Question<'_>]) -> Result<(Vec<Right>, Vec<DeniedRight>), Error> {
    let budget = Cell::new(QUESTION_STEPS);
    let granted = granted_by(questions, &budget);
    // Of several places, one that grants something says why the rest is missing.
    let best = questions.iter().find(|one| granted.iter().any(|right| has(one, *right, &budget)));
    let best = best.or_else(|| questions.first()).ok_or(Code::Stale)?;
    let budget = Cell::new(REASON_STEPS);
    let missing = Right::ALL.into_iter().filter(|right| !granted.contains(right));
    let denied = missing.map(|right| best.explain(right, &budget)).collect();
    Ok((granted, denied))
}

fn access_by_chain(holder: &Holder<'_>, rights: Vec<u8>, denied: Vec<DeniedRight>) -> GuestAccess {
    let Holder { session, key, chain, .. } = holder;
    GuestAccess {
        session: *session,
        key: key.0,
        credential: chain.links.last().map(|link| link.id).unwrap_or_default(),
        links: u8::try_from(chain.links.len()).unwrap_or(u8::MAX),
        rights,
        denied,
    }
}

/// Returns the denials of all rights by one link, which comes with its place in the chain, or by
/// none of them.
fn all_denied(link: Option<(usize, &Link)>, cause: DenialCause) -> Vec<DeniedRight> {
    Right::ALL.into_iter().map(|right| denied(right, link, cause, String::new())).collect()
}
