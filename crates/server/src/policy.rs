//! The guests of a volume: their credentials, rights and revocations.
//!
//! A guest is a session whose client has shown a chain of credentials: sentences, the first one
//! signed by a root of the volume, that grant rights to keys under conditions. The file `policy` in
//! the volume's folder has the roots. Rows of the table have the revoked credentials.
//!
//! Each request of a guest is decided anew: by the present policy and revocations, the present
//! place of the node, and the present time. Decisions are cached under a number that each change of
//! policy or revocations moves.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use pelago_keynote::share::{address_text, attribute};
use pelago_keynote::{
    CHAIN_BYTES, CHAIN_LINKS, CREDENTIAL_BYTES, Principal, REVOCATION_BYTES, Revocation, Right, hex,
};
use pelago_meta::shard::{Placement, RevokedCredential, Shard};
use pelago_store::clock;
use pelago_store::folder::Folder;
use pelago_store::volume::{self, VolumeId};
use pelago_wire::id_map::KeyedMap;
use pelago_wire::{
    Code, Error, GuestGrant, GuestRefusal, InodeId, Name, OpenId, Operation, SessionId, Time,
    limits,
};
use quick_cache::sync::Cache;

use attach::Attached;
use audit::{Audit, SessionAudit};
use chain::Chain;
use charter::KnownCharter;
use decision::{Decision, Question};
use decisions::{DecidedAt, Decisions, Epoch, LastDirectory};
use guest_map::GuestMap;
use made::MadeNodes;
use moment::Moment;
use revocation_parts::CachedParts;
use roots::{InForce, Policies, Roots};
use users::Users;
use watched::OnChange;

pub(crate) use access::AccessTo;
pub(crate) use audit::Subject;
pub(crate) use audit::reading::AuditScope;
pub(crate) use issue::IssuedNode;

pub(crate) use users::User;

pub(crate) use revocation_parts::differing;
use revocations::InForceRevocation;
pub(crate) use revocations::{Extent, Revoked, Revoker};
pub(crate) use right_set::RightSet;

use crate::pool::Pool;

mod access;
mod attach;
mod audit;
mod chain;
mod charter;
mod decision;
mod decisions;
mod events;
mod explain;
mod guest_map;
mod issue;
mod leases;
mod made;
mod moment;
mod revocation_parts;
mod revocations;
mod right_set;
mod roots;
mod scope;
mod users;
mod watched;

/// The limits of the wire are those of the parser.
const _: () = assert!(
    CREDENTIAL_BYTES == limits::CREDENTIAL_BYTES
        && CHAIN_LINKS == limits::CHAIN_LINKS
        && CHAIN_BYTES == limits::CHAIN_BYTES
        && REVOCATION_BYTES == limits::REVOCATION_BYTES
);

/// The chains that are kept between their admission and the begin of a session.
const CHAINS: usize = 64;

/// The steps that the decision about a node may take: some milliseconds. A share of Pelago takes
/// ten in each link.
pub(crate) const QUESTION_STEPS: u32 = 32_768;

/// The guests of a volume.
pub(crate) struct Policy {
    volume: VolumeId,
    /// The id of the volume: 32 hexadecimal digits.
    volume_text: String,
    /// The roots; `None` without a folder, so that there is no guest.
    roots: Option<Roots>,
    /// The users as whom guests act; `None` without a folder.
    users: Option<Users>,
    /// The revoked credentials by their ids, and the revoked keys. A hash is no key but by an
    /// accident that does not happen.
    revoked: RwLock<HashMap<[u8; 32], InForceRevocation>>,
    /// The second in which sessions of guests that have ended were closed last.
    closed: AtomicU64,
    /// The number of changes of `revoked`.
    revocations: AtomicU64,
    /// Verified chains, by their ids.
    chains: Cache<[u8; 32], Arc<Chain>>,
    guests: RwLock<GuestMap>,
    /// True if there is a session of a guest.
    any: AtomicBool,
    decisions: Decisions,
    /// The present second, and its attributes.
    moment: Mutex<(u64, Arc<Moment>)>,
    /// `None` if the volume has no folder, or is not written.
    audit: Option<Arc<Audit>>,
    /// Held for reading while a guest's change is checked and made, for writing while nodes move or
    /// rights end. Taken before the locks of the shard.
    holding: RwLock<()>,
    /// The start of this run.
    started: Instant,
    /// True once no lease of the last run can be in use.
    is_settled: AtomicBool,
    /// The number of changes of the policy and of the users at the last look.
    seen_terms: AtomicU64,
    /// The charter of the volume. Taken before the locks of roots and users.
    charter: Mutex<KnownCharter>,
    /// Held for reading while the user of a guest is found, for writing while a charter is put in
    /// force. Taken after `holding` and `charter`, and before the locks of roots and users.
    changing_charter: RwLock<()>,
    /// The hashes of the revocations. A leaf lock.
    parts: Mutex<CachedParts>,
}

/// The session of a guest.
pub(crate) struct Guest {
    session: SessionId,
    pub(crate) principal: [u8; 32],
    /// The chain that it has presented.
    chain: Arc<Chain>,
    /// Its further chains.
    attached: Attached,
    /// The address of its machine, as the attribute has it, if that decides.
    address: Option<String>,
    audit: SessionAudit,
    /// The opens by which it has created files, which it may write by them.
    made: Mutex<KeyedMap<OpenId, InodeId>>,
    /// The files and directories that it has made. Taken before the locks of the shard and of the
    /// revocations.
    made_nodes: Mutex<MadeNodes>,
    /// Its standing when it was asked for last. A leaf lock.
    standing: Mutex<Option<Standing>>,
    /// The rights that were asked for last. A leaf lock.
    last_directory: LastDirectory,
}

/// The circumstances of all rights, but for the places of nodes. While they are equal, no right of
/// a guest changes, but that it attaches further chains, and none ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    rights_number: u64,
    /// The seconds since 1970.
    seconds: u64,
}

/// The validity of a guest, and the user as whom it acts, under some terms.
#[derive(Clone)]
pub(crate) struct Standing {
    pub(crate) terms: Terms,
    /// True if the chain that it has presented is in force.
    is_valid: bool,
    /// The user as whom it acts.
    pub(crate) user: Option<Arc<User>>,
}

impl Standing {
    /// Returns whether the guest may act at all.
    pub(crate) const fn admits(&self) -> bool {
        self.is_valid && self.user.is_some()
    }
}

/// The rights that a decision is about.
#[derive(Clone, Copy)]
pub(crate) struct Sought<'a> {
    /// The operation that needs them.
    pub(crate) operation: Operation,
    pub(crate) rights: &'a [Right],
    /// The terms from before all that decides was read.
    pub(crate) terms: Terms,
}

/// The session that a request comes from.
pub(crate) enum Asker {
    /// One with all rights.
    Trusted,
    /// A guest's.
    Guest(Arc<Guest>),
    /// A guest's, of an earlier run, whose client has not come back.
    AbsentGuest,
}

impl Guest {
    /// Records an open by which the guest has created a file.
    pub(crate) fn add_made(&self, open: OpenId, ino: InodeId) {
        self.made.lock().insert(open, ino);
    }

    /// Forgets an open that has ended.
    pub(crate) fn remove_made(&self, open: OpenId) {
        self.made.lock().remove(&open);
    }

    /// Records a file or directory that the guest has made.
    pub(crate) fn add_made_node(&self, ino: InodeId) {
        self.made_nodes.lock().add(ino);
    }

    fn made_nodes(&self) -> MutexGuard<'_, MadeNodes> {
        self.made_nodes.lock()
    }

    /// Returns the opens by which the guest has created files.
    pub(crate) fn made(&self) -> MutexGuard<'_, KeyedMap<OpenId, InodeId>> {
        self.made.lock()
    }
}

impl Policy {
    /// Returns the policy of the volume in this folder. The pool writes the audit log; `None` if
    /// there is to be none.
    pub(crate) fn new(
        volume: VolumeId,
        folder: Option<Folder>,
        revoked: Vec<RevokedCredential>,
        audited: Option<Arc<Pool>>,
    ) -> Self {
        let audit = folder.clone().zip(audited).map(|(folder, pool)| Audit::new(folder, pool));
        let by = |sentence: &[u8]| Revocation::parse(sentence).ok().map(|sentence| sentence.by);
        let of_row = |row: &RevokedCredential| {
            (row.id, InForceRevocation { by: by(&row.sentence), end: row.end })
        };
        let revoked = revoked.iter().map(of_row).collect();
        let users = folder.clone().map(Users::new);
        // Without a policy the last run had no guest. It is not read before a guest comes.
        let is_there = |name| {
            folder.as_ref().is_some_and(|folder: &Folder| folder.contains(name).unwrap_or(true))
        };
        let had_policy = is_there(volume::POLICY) || is_there(volume::CHARTER);
        let roots = folder.map(|folder| Roots::new(folder, record_roots(audit.clone())));
        Self {
            volume,
            volume_text: hex::text(&volume.0),
            users,
            roots,
            revoked: RwLock::new(revoked),
            closed: AtomicU64::new(0),
            revocations: AtomicU64::new(0),
            chains: Cache::new(CHAINS),
            guests: RwLock::default(),
            any: AtomicBool::new(false),
            decisions: Decisions::new(),
            moment: Mutex::new((0, Arc::new(Moment::at(0)))),
            audit,
            holding: RwLock::new(()),
            started: Instant::now(),
            is_settled: AtomicBool::new(!had_policy),
            seen_terms: AtomicU64::new(0),
            charter: Mutex::default(),
            changing_charter: RwLock::new(()),
            parts: Mutex::default(),
        }
    }

    /// Returns the grant of a chain of credentials to a guest with this key, at this address.
    ///
    /// # Errors
    /// [`GuestRefusal`], with a reason only for the holder of the key that the chain is for.
    pub(crate) fn admit(
        &self,
        principal: &[u8; 32],
        texts: &[Vec<u8>],
        address: Option<IpAddr>,
    ) -> Result<GuestGrant, GuestRefusal> {
        let no_reason = || GuestRefusal(String::new());
        let roots = self.roots.as_ref().ok_or_else(no_reason)?;
        let chain = Chain::read(texts, &Principal(*principal), roots)?;
        if let Err(refusal) = self.check(&chain, principal) {
            self.note_refused(principal, &chain);
            return Err(refusal);
        }
        if self.user_of(&chain, principal).is_none() {
            return Err(GuestRefusal("the server does not know as whom you would act".to_owned()));
        }
        let id = chain.id;
        let first = chain.links.first().map(|link| link.id).ok_or_else(no_reason)?;
        // An address that no condition reads must not make another guest of one that travels.
        let address = address.filter(|_| chain.reads_address || roots.reads_address());
        let ends = Self::end_of(&chain);
        self.chains.insert(id, Arc::new(chain));
        let address = address.map(|address| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        });
        Ok(GuestGrant { principal: *principal, first, chain: id, address, ends })
    }

    /// Checks that a chain is for this volume, has not ended and is not revoked.
    ///
    /// # Errors
    /// [`GuestRefusal`].
    fn check(&self, chain: &Chain, principal: &[u8; 32]) -> Result<(), GuestRefusal> {
        let (_, moment) = self.now();
        chain.check(self.volume, &moment.now)?;
        match self.is_revoked(chain, principal) {
            true => Err(GuestRefusal("the credential was taken back".to_owned())),
            false => Ok(()),
        }
    }

    /// Begins the session of a guest.
    ///
    /// # Errors
    /// [`GuestRefusal`] if the grant does not hold any more.
    pub(crate) fn begin(&self, session: SessionId, grant: &GuestGrant) -> Result<(), GuestRefusal> {
        let mut guests = self.guests.write();
        let chain = self.chains.get(&grant.chain);
        // Under the lock: a revocation looks for guests only after it is in force.
        let Some(chain) = chain.filter(|chain| self.holds(chain, &grant.principal)) else {
            return Err(GuestRefusal("the credential was taken back".to_owned()));
        };
        if guests.values().flatten().next().is_none() {
            // Nothing is cached by earlier terms.
            let terms = self.changes_of_files(clock::coarse_now());
            self.seen_terms.store(terms, Ordering::Release);
        }
        let GuestGrant { principal, address, .. } = *grant;
        let address = address.map(|octets| address_text(IpAddr::from(octets)));
        let known = guests.get(&session).and_then(Option::as_ref);
        let begun = if known.is_none_or(|known| known.chain.id != chain.id) {
            let made = Mutex::default();
            let made_nodes = Mutex::default();
            let standing = Mutex::default();
            let last_directory = LastDirectory::default();
            let attached = Attached::default();
            let audit = SessionAudit::default();
            let guest = Arc::new(Guest {
                session,
                principal,
                chain,
                attached,
                address,
                audit,
                made,
                made_nodes,
                standing,
                last_directory,
            });
            guests.insert(session, Some(Arc::clone(&guest)));
            Some(guest)
        } else {
            None
        };
        self.any.store(true, Ordering::Release);
        drop(guests);
        if let Some((audit, guest)) = self.audit.as_ref().zip(begun) {
            audit.begin(moment::seconds(), &guest, &guest.chain);
        }
        Ok(())
    }

    /// Records a guest's session of an earlier run. Until its client is back, it has no rights.
    pub(crate) fn expect(&self, session: SessionId) {
        self.guests.write().insert(session, None);
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether the guest of a session may change something at all.
    pub(crate) fn may_change(&self, session: SessionId) -> bool {
        self.guest(session).is_some_and(|guest| guest.chain.may_change)
    }

    /// Ends the session of a guest; does nothing for any other. The service must not know the
    /// session any more, because a session that is not a guest's has all rights.
    pub(crate) fn end(&self, session: SessionId) {
        if self.any.load(Ordering::Acquire) {
            let mut guests = self.guests.write();
            let ended = guests.remove(session);
            self.any.store(!guests.is_empty(), Ordering::Release);
            drop(guests);
            ended.iter().for_each(|guest| self.note_ended(guest));
        }
    }

    /// Returns the guest whose session this is, if it is a guest's and its client is there.
    pub(crate) fn guest(&self, session: SessionId) -> Option<Arc<Guest>> {
        match self.asker(session) {
            Asker::Guest(guest) => Some(guest),
            Asker::Trusted | Asker::AbsentGuest => None,
        }
    }

    /// Returns who asks by a session.
    #[inline]
    pub(crate) fn asker(&self, session: SessionId) -> Asker {
        if !self.has_guests() {
            return Asker::Trusted;
        }
        match self.guests.read().get(&session) {
            Some(Some(guest)) => Asker::Guest(Arc::clone(guest)),
            Some(None) => Asker::AbsentGuest,
            None => Asker::Trusted,
        }
    }

    /// Returns whether a grant still holds: its root is a root, and no link is revoked or over.
    pub(crate) fn has_access(&self, grant: &GuestGrant) -> bool {
        let of_session = || {
            let guests = self.guests.read();
            let mut guests = guests.values().flatten();
            let guest = guests.find(|guest| guest.chain.id == grant.chain);
            guest.map(|guest| Arc::clone(&guest.chain))
        };
        let chain = self.chains.get(&grant.chain).or_else(of_session);
        chain.is_some_and(|chain| self.holds(&chain, &grant.principal))
    }

    /// Returns whether sessions of guests that have ended shall be closed now: once a second.
    pub(crate) fn may_close(&self) -> bool {
        let (seconds, _) = self.now();
        self.closed.swap(seconds, Ordering::AcqRel) != seconds
    }

    /// Returns whether a guest may still act at all.
    pub(crate) fn admits(&self, guest: &Guest) -> bool {
        self.standing(guest).admits()
    }

    /// Returns the user as whom a guest acts: that of the nearest key above it that is bound to one
    /// in the file `keys`, else the user of the volume.
    ///
    /// # Errors
    /// `Stale`, as for a chain that does not hold any more, if the guest has its rights from keys
    /// that are bound to different users, or if there is no list of these yet that can be used.
    pub(crate) fn acting_user(&self, guest: &Guest) -> Result<Arc<User>, Error> {
        self.standing(guest).user.ok_or_else(|| Code::Stale.into())
    }

    /// Returns the standing of a guest under the present terms.
    #[inline]
    pub(crate) fn standing(&self, guest: &Guest) -> Standing {
        // Before all that decides is read: if that changes meanwhile, it is read again.
        let terms = self.terms();
        let known = guest.standing.lock();
        if let Some(known) = known.as_ref().filter(|known| known.terms == terms) {
            return known.clone();
        }
        let same = known.as_ref().filter(|known| known.terms.rights_number == terms.rights_number);
        let user = same.map(|known| known.user.clone());
        drop(known);
        let user = user.unwrap_or_else(|| self.user_of(&guest.chain, &guest.principal));
        let is_valid = self.is_valid(&guest.chain, &guest.principal);
        let standing = Standing { terms, is_valid, user };
        *guest.standing.lock() = Some(standing.clone());
        standing
    }

    fn user_of(&self, chain: &Chain, principal: &[u8; 32]) -> Option<Arc<User>> {
        let users = self.users.as_ref()?;
        // Before the lock, for which a change of the charter waits.
        let own = users.own()?;
        let _same_charter = self.changing_charter.read();
        users.of_chain(&own, chain, &Principal(*principal), |key| self.is_root(key))
    }

    fn holds(&self, chain: &Chain, principal: &[u8; 32]) -> bool {
        self.is_valid(chain, principal) && self.user_of(chain, principal).is_some()
    }

    /// Returns whether each link of a chain leads from a present root, and nothing in it is revoked
    /// or over.
    fn is_valid(&self, chain: &Chain, principal: &[u8; 32]) -> bool {
        let (_, moment) = self.now();
        let has_root = chain.links.first().is_some_and(|link| self.is_root(&link.authorizer));
        let policy = self.roots.as_ref().and_then(Roots::policy);
        let is_connected =
            policy.is_some_and(|policy| chain.is_connected(&policy, &Principal(*principal)));
        has_root
            && is_connected
            && !self.is_revoked(chain, principal)
            && chain.check(self.volume, &moment.now).is_ok()
    }

    /// Returns whether names may decide about the rights of a guest.
    pub(crate) fn reads_names(&self, guest: &Guest) -> bool {
        let policy = self.roots.as_ref().and_then(Roots::policy);
        guest.chains().iter().any(|chain| chain.reads_name)
            || policy.is_some_and(|policy| policy.may_read(attribute::NAME))
    }

    /// Returns whether the operation may decide about the rights of a guest.
    pub(crate) fn reads_operation(&self, guest: &Guest) -> bool {
        let policy = self.roots.as_ref().and_then(Roots::policy);
        guest.chains().iter().any(|chain| chain.reads_operation)
            || policy.is_some_and(|policy| policy.may_read(attribute::OPERATION))
    }

    /// Returns whether each right of a guest to a directory is one to all below it.
    pub(crate) fn grants_all_below(&self, guest: &Guest) -> bool {
        guest.chains().iter().all(|chain| chain.grants_all_below)
            && self.roots.as_ref().is_none_or(Roots::grants_all_below)
    }

    /// Returns the steps that the decision about one right of a guest takes at most. They depend on
    /// its chains alone, and not on what is cached, so that equal questions have equal costs.
    pub(crate) fn decision_steps(&self, guest: &Guest) -> u32 {
        let policy = self.roots.as_ref().and_then(Roots::policy);
        let chains = guest.chains();
        let mut links = chains.iter().flat_map(|chain| &chain.links);
        let is_plain = policy.is_some_and(|policy| !policy.has_conditions())
            && links.all(|link| link.share.is_some());
        match is_plain {
            true => decision::steps_of_shares(chains.iter().map(|chain| chain.links.len())),
            false => QUESTION_STEPS,
        }
    }

    /// Returns those of some rights that a guest has by one of its chains to a node in this
    /// directory, which is the node itself if that is one, for an operation. A file has those that
    /// one of its names there has.
    ///
    /// # Errors
    /// `Busy` if directories have moved since; errors of the table.
    pub(crate) fn rights(
        &self,
        guest: &Guest,
        shard: &Shard,
        position: &Placement,
        dir: InodeId,
        sought: Sought<'_>,
    ) -> Result<RightSet, Error> {
        let Sought { operation, rights, terms } = sought;
        let directory_moves = position.directory_moves;
        let seconds = terms.seconds;
        let attached = guest.attached.count();
        let epoch = epoch(directory_moves, terms, attached);
        let at = DecidedAt { dir, object: position.ino, version: position.version };
        if let Some(granted) = guest.last_directory.get(at, epoch, seconds) {
            return Ok(granted);
        }
        let mut known = self.decisions.get(guest, at, epoch, seconds);
        if known.knows_all() || rights.iter().all(|right| known.knows(*right)) {
            return Ok(known.granted);
        }
        let Some(policy) = self.roots.as_ref().and_then(Roots::policy) else {
            return Ok(RightSet::default());
        };
        let ancestors = shard.ancestors(dir, directory_moves)?;
        if let [.., above, _] = *ancestors.dirs
            && has_rights_of_above(guest, &policy, dir)
            && let Some(granted) = self.decisions.inherit(guest, above, at, epoch, seconds)
            && guest.attached.count() == attached
        {
            // No chain was attached meanwhile, which might count above and not here.
            return Ok(granted);
        }
        let (seconds, moment) = self.now();
        let names =
            if self.reads_names(guest) { shard.names_in(position, dir)? } else { Vec::new() };
        let names: Vec<Option<&Name>> = match names.is_empty() {
            true => vec![None],
            false => names.iter().map(Some).collect(),
        };
        let chains = self.chains_in_force(guest);
        let question = |chain, name| Question {
            policy: &policy,
            chain,
            principal: Principal(guest.principal),
            operation: Some(operation),
            object: position.ino,
            name,
            volume: &self.volume_text,
            ancestors: &ancestors,
            address: guest.address.as_deref(),
            moment: &moment,
        };
        let of_chain = |chain| names.iter().map(move |name| question(chain, *name));
        let questions: Vec<Question<'_>> =
            chains.iter().flat_map(|chain| of_chain(&**chain)).collect();
        let budget = Cell::new(QUESTION_STEPS);
        for right in rights.iter().copied() {
            if known.knows(right) {
                continue;
            }
            let mut decision = Decision::default();
            for question in &questions {
                decision.add(question.decide(right, &budget));
                if decision.is_granted {
                    break;
                }
            }
            // What was denied for want of steps alone is not decided.
            if budget.get() > 0 {
                self.decisions.insert(guest.session, at, right, epoch, seconds, &decision);
            }
            known.decide(right, decision.is_granted);
        }
        Ok(known.granted)
    }

    /// Returns the rights of a guest to a directory, if it is the one about which it has asked
    /// last, and nothing but the directory and the time decides.
    pub(crate) fn last_rights(
        &self,
        guest: &Guest,
        shard: &Shard,
        dir: InodeId,
    ) -> Option<RightSet> {
        let terms = self.terms();
        let attached = guest.attached.count();
        let epoch = epoch(shard.directory_moves(), terms, attached);
        guest.last_directory.get(DecidedAt::directory(dir), epoch, terms.seconds)
    }

    /// Returns whether a guest has a right to a directory by a chain that grants it for all below
    /// too, for an operation. What its other chains are like has no part in it.
    ///
    /// # Errors
    /// As [`Policy::rights`].
    pub(crate) fn grants_below(
        &self,
        guest: &Guest,
        shard: &Shard,
        position: &Placement,
        right: Right,
        operation: Operation,
    ) -> Result<bool, Error> {
        let Some(policy) = self.roots.as_ref().and_then(Roots::policy) else { return Ok(false) };
        if !self.roots.as_ref().is_some_and(Roots::grants_all_below) {
            return Ok(false);
        }
        let ancestors = shard.ancestors(position.ino, position.directory_moves)?;
        let (_, moment) = self.now();
        let budget = Cell::new(QUESTION_STEPS);
        let chains = self.chains_in_force(guest);
        let mut whole = chains.iter().filter(|chain| chain.grants_all_below);
        Ok(whole.any(|chain| {
            let question = Question {
                policy: &policy,
                chain,
                principal: Principal(guest.principal),
                operation: Some(operation),
                object: position.ino,
                name: None,
                volume: &self.volume_text,
                ancestors: &ancestors,
                address: guest.address.as_deref(),
                moment: &moment,
            };
            question.decide(right, &budget).is_granted
        }))
    }

    /// Lets no right change and no node move until the guard is dropped. A guest's change is
    /// checked and made under it.
    pub(crate) fn hold_rights(&self) -> RwLockReadGuard<'_, ()> {
        self.holding.read()
    }

    /// As [`Policy::hold_rights`]; `None` if it would wait.
    pub(crate) fn try_hold_rights(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.holding.try_read()
    }

    /// Waits until no change of a guest is being made, and lets none begin until the guard is
    /// dropped: for a change by which nodes move.
    pub(crate) fn hold_guests(&self) -> RwLockWriteGuard<'_, ()> {
        // What files have changed is read before, and not under the lock: that looks accounts up.
        self.terms();
        self.holding.write()
    }

    /// As [`Policy::hold_guests`]; `None` if it would wait.
    pub(crate) fn try_hold_guests(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        self.holding.try_write()
    }

    /// Returns whether there is a guest.
    #[inline]
    pub(crate) fn has_guests(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Returns the number of changes of the policy, and of the users as whom guests act.
    #[inline]
    fn changes_of_files(&self, now: Time) -> u64 {
        // Both only grow, so that the sum of two moments is equal only if both are.
        let of_policy = self.roots.as_ref().map_or(0, |roots| roots.changes(now));
        of_policy + self.users.as_ref().map_or(0, |users| users.changes(now))
    }

    /// Returns the present terms.
    #[inline]
    pub(crate) fn terms(&self) -> Terms {
        let now = clock::coarse_now();
        let seconds = u64::try_from(now.seconds).unwrap_or_default();
        // All three only grow, as above.
        let rights_number = self.revocations.load(Ordering::Acquire) + self.changes_of_files(now);
        Terms { rights_number, seconds }
    }

    /// Returns the present second and its attributes.
    fn now(&self) -> (u64, Arc<Moment>) {
        let seconds = moment::seconds();
        let mut moment = self.moment.lock();
        if moment.0 != seconds {
            *moment = (seconds, Arc::new(Moment::at(seconds)));
        }
        (seconds, Arc::clone(&moment.1))
    }

    fn is_root(&self, key: &Principal) -> bool {
        self.roots.as_ref().is_some_and(|roots| roots.has(key))
    }
}

/// Returns the circumstances of the decisions about a guest that has attached so many chains.
const fn epoch(directory_moves: u64, terms: Terms, attached: usize) -> Epoch {
    // Both only grow, so that the sum is equal only if both are.
    let rights_number = terms.rights_number + attached as u64;
    Epoch { directory_moves, rights_number }
}

/// Returns whether the rights of a guest to a directory are those to the directory above it: all
/// its credentials have the form of Pelago's shares of folders, and none names this one.
fn has_rights_of_above(guest: &Guest, policy: &Policies, dir: InodeId) -> bool {
    let may_differ = |chain: &Chain| {
        let names_dir = |folders: &[u64]| folders.contains(&dir.raw());
        !chain.grants_all_below || chain.folders.as_deref().is_none_or(names_dir)
    };
    !policy.has_conditions() && !guest.any_chain(may_differ)
}

/// Returns the function that records the roots which were read.
fn record_roots(audit: Option<Arc<Audit>>) -> OnChange<InForce> {
    Box::new(move |roots| {
        if let Some(audit) = &audit {
            audit.policy(moment::seconds(), roots.keys.iter());
        }
    })
}
