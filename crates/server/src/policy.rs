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

use parking_lot::{Mutex, RwLock};
use pelago_keynote::share::address_text;
use pelago_keynote::{
    CHAIN_BYTES, CHAIN_LINKS, CREDENTIAL_BYTES, Principal, REVOCATION_BYTES, Revocation, Right, hex,
};
use pelago_meta::shard::{Placement, RevokedCredential, Shard};
use pelago_store::folder::Folder;
use pelago_store::report::volume_failed;
use pelago_store::volume::{self, VolumeId};
use pelago_wire::{Code, Error, GuestGrant, GuestRefusal, InodeId, SessionId, limits};
use quick_cache::sync::Cache;

pub(crate) use audit::Subject;

use audit::{Audit, End, SessionAudit};
use chain::{Chain, Link};
use decision::Question;
use decisions::{Decisions, Epoch};
use moment::Moment;
use roots::{OnChange, Roots};

use crate::pool::Pool;

mod audit;
mod chain;
mod decision;
mod decisions;
mod moment;
mod roots;
mod scope;

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
const QUESTION_STEPS: u32 = 32_768;
/// The revocations of one guest.
const REVOCATIONS_OF_GUEST: usize = 256;

/// The guests of a volume.
pub(crate) struct Policy {
    volume: VolumeId,
    /// The id of the volume: 32 hexadecimal digits.
    volume_text: String,
    /// The roots; `None` without a folder, so that there is no guest.
    roots: Option<Roots>,
    /// The ids of the revoked credentials, each with the key that has taken it back.
    revoked: RwLock<HashMap<[u8; 32], Option<Principal>>>,
    /// The second in which sessions of guests that have ended were closed last.
    closed: AtomicU64,
    /// The number of changes of `revoked`.
    revocations: AtomicU64,
    /// Verified chains, by their ids.
    chains: Cache<[u8; 32], Arc<Chain>>,
    guests: RwLock<HashMap<SessionId, Arc<Guest>>>,
    /// True if there is a guest.
    any: AtomicBool,
    decisions: Decisions,
    /// The present second, and its attributes.
    moment: Mutex<(u64, Arc<Moment>)>,
    /// `None` if the volume has no folder, or is not written.
    audit: Option<Arc<Audit>>,
}

/// The session of a guest.
pub(crate) struct Guest {
    session: SessionId,
    pub(crate) principal: [u8; 32],
    chain: Arc<Chain>,
    /// The address of its machine, as the attribute has it, if that decides.
    address: Option<String>,
    audit: SessionAudit,
}

/// A credential that is taken back.
pub(crate) struct Revoked {
    pub(crate) credential: [u8; 32],
    by: Principal,
    /// True if a root takes it back.
    pub(crate) is_of_root: bool,
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
        let revoked = revoked.iter().map(|revoked| (revoked.id, by(&revoked.sentence))).collect();
        Self {
            volume,
            volume_text: hex::text(&volume.0),
            roots: folder.map(|folder| Roots::new(folder, record_roots(audit.clone()))),
            revoked: RwLock::new(revoked),
            closed: AtomicU64::new(0),
            revocations: AtomicU64::new(0),
            chains: Cache::new(CHAINS),
            guests: RwLock::default(),
            any: AtomicBool::new(false),
            decisions: Decisions::new(),
            moment: Mutex::new((0, Arc::new(Moment::at(0)))),
            audit,
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
        let (_, moment) = self.now();
        if let Err(refusal) = chain.check(self.volume, &moment.now) {
            self.note_refused(principal, &chain);
            return Err(refusal);
        }
        if self.is_revoked(&chain) {
            self.note_refused(principal, &chain);
            return Err(GuestRefusal("the credential was taken back".to_owned()));
        }
        let id = chain.id;
        let first = chain.links.first().map(|link| link.id).ok_or_else(no_reason)?;
        // An address that no condition reads must not make another guest of one that travels.
        let address = address.filter(|_| chain.reads_address || roots.reads_address());
        self.chains.insert(id, Arc::new(chain));
        let address = address.map(|address| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        });
        Ok(GuestGrant { principal: *principal, first, chain: id, address })
    }

    /// Begins the session of a guest.
    ///
    /// # Errors
    /// [`GuestRefusal`] if the grant does not hold any more.
    pub(crate) fn begin(&self, session: SessionId, grant: &GuestGrant) -> Result<(), GuestRefusal> {
        let mut guests = self.guests.write();
        let chain = self.chains.get(&grant.chain);
        // Under the lock: a revocation looks for guests only after it is in force.
        let Some(chain) = chain.filter(|chain| self.holds(chain)) else {
            return Err(GuestRefusal("the credential was taken back".to_owned()));
        };
        let GuestGrant { principal, address, .. } = *grant;
        let address = address.map(|octets| address_text(IpAddr::from(octets)));
        let audit = SessionAudit::default();
        let guest = Arc::new(Guest { session, principal, chain, address, audit });
        guests.insert(session, Arc::clone(&guest));
        self.any.store(true, Ordering::Release);
        drop(guests);
        if let Some(audit) = &self.audit {
            audit.begin(moment::seconds(), &guest);
        }
        Ok(())
    }

    /// Ends the session of a guest; does nothing for any other. The service must not know the
    /// session any more, because a session that is not a guest's has all rights.
    pub(crate) fn end(&self, session: SessionId) {
        if self.any.load(Ordering::Acquire) {
            let mut guests = self.guests.write();
            let ended = guests.remove(&session);
            self.any.store(!guests.is_empty(), Ordering::Release);
            drop(guests);
            ended.iter().for_each(|guest| self.note_ended(guest));
        }
    }

    /// Returns the guest whose session this is, if it is a guest's.
    #[inline]
    pub(crate) fn guest(&self, session: SessionId) -> Option<Arc<Guest>> {
        match self.any.load(Ordering::Acquire) {
            true => self.guests.read().get(&session).map(Arc::clone),
            false => None,
        }
    }

    /// Returns whether a grant still holds: its root is a root, and no link is revoked or over.
    pub(crate) fn has_access(&self, grant: &GuestGrant) -> bool {
        let of_session = || {
            let guests = self.guests.read();
            let guest = guests.values().find(|guest| guest.chain.id == grant.chain);
            guest.map(|guest| Arc::clone(&guest.chain))
        };
        let chain = self.chains.get(&grant.chain).or_else(of_session);
        chain.is_some_and(|chain| self.holds(&chain))
    }

    /// Returns whether sessions of guests that have ended shall be closed now: once a second.
    pub(crate) fn may_close(&self) -> bool {
        let (seconds, _) = self.now();
        self.closed.swap(seconds, Ordering::AcqRel) != seconds
    }

    /// Returns whether a guest may still act at all.
    pub(crate) fn admits(&self, guest: &Guest) -> bool {
        self.holds(&guest.chain)
    }

    fn holds(&self, chain: &Chain) -> bool {
        let (_, moment) = self.now();
        let has_root = chain.links.first().is_some_and(|link| self.is_root(&link.authorizer));
        has_root && !self.is_revoked(chain) && chain.check(self.volume, &moment.now).is_ok()
    }

    fn is_revoked(&self, chain: &Chain) -> bool {
        let revoked = self.revoked.read();
        !revoked.is_empty() && chain.links.iter().any(|link| revoked.contains_key(&link.id))
    }

    /// Returns whether each right of a guest to a directory is one to all below it.
    pub(crate) fn grants_all_below(&self, guest: &Guest) -> bool {
        guest.chain.only_seeks && self.roots.as_ref().is_none_or(Roots::only_seeks)
    }

    /// Returns whether a guest has one of these rights to a node in this directory, which is the
    /// node itself if that is one.
    ///
    /// # Errors
    /// `Busy` if directories have moved since; errors of the table.
    pub(crate) fn grants(
        &self,
        guest: &Guest,
        shard: &Shard,
        position: &Placement,
        dir: InodeId,
        rights: &[Right],
    ) -> Result<bool, Error> {
        let (seconds, moment) = self.now();
        let directory_moves = position.directory_moves;
        let epoch = Epoch { directory_moves, rights_number: self.rights_number() };
        let known = |right| self.decisions.get(guest.session, dir, right, epoch, seconds);
        if rights.iter().any(|right| known(*right) == Some(true)) {
            return Ok(true);
        }
        let undecided: Vec<Right> =
            rights.iter().copied().filter(|right| known(*right).is_none()).collect();
        if undecided.is_empty() {
            return Ok(false);
        }
        let Some(policy) = self.roots.as_ref().and_then(Roots::policy) else { return Ok(false) };
        let ancestors = shard.ancestors(dir, directory_moves)?;
        let question = Question {
            policy: &policy,
            chain: &guest.chain,
            principal: Principal(guest.principal),
            object: position.ino,
            volume: &self.volume_text,
            ancestors: &ancestors,
            address: guest.address.as_deref(),
            moment: &moment,
        };
        let budget = Cell::new(QUESTION_STEPS);
        for right in undecided {
            let decision = question.decide(right, &budget);
            // What was denied for want of steps alone is not decided.
            if budget.get() > 0 {
                self.decisions.insert(guest.session, dir, right, epoch, seconds, &decision);
            }
            if decision.is_granted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the number of changes of the rights: of the policy, and of the revocations.
    fn rights_number(&self) -> u64 {
        let of_policy = self.roots.as_ref().map_or(0, Roots::changes);
        // Both only grow, so that the sum of two moments is equal only if both are.
        self.revocations.load(Ordering::Acquire) + of_policy
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

    /// Reads a sentence that revokes a credential of this volume. A guest revokes what it has
    /// signed itself: `texts` has that credential.
    ///
    /// # Errors
    /// `Invalid` if it is no revocation for this volume; `AccessDenied` if neither a root has
    /// signed it, nor this guest, for its own credential; `NoSpace` if too many credentials are
    /// revoked.
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
        let is_of_root = self.is_root(&revocation.by);
        let is_of_guest =
            || guest.is_some_and(|guest| chain::revokes(&revocation, texts, &guest.principal));
        if !is_of_root && !is_of_guest() {
            return Err(Code::AccessDenied.into());
        }
        let revoked = self.revoked.read();
        let credential = revocation.credential.0;
        let of_signer = revoked.values().filter(|by| **by == Some(revocation.by)).count();
        // Guests leave room for the roots, and for each other.
        let has_room = match is_of_root {
            true => revoked.len() < limits::REVOCATIONS,
            false => revoked.len() < limits::REVOCATIONS / 2 && of_signer < REVOCATIONS_OF_GUEST,
        };
        if !has_room && !revoked.contains_key(&credential) {
            return Err(Code::NoSpace.into());
        }
        Ok(Revoked { credential, by: revocation.by, is_of_root })
    }

    /// Puts a revocation in force.
    pub(crate) fn revoke(&self, revoked: &Revoked) {
        let before = self.revoked.write().insert(revoked.credential, Some(revoked.by));
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

    /// Records the first use of a right in a session.
    #[inline]
    pub(crate) fn note_use(&self, guest: &Guest, subject: &Subject<'_>) {
        if let Some(audit) = &self.audit
            && guest.audit.is_first_use(subject.rights)
        {
            audit.first_use(moment::seconds(), guest, subject);
        }
    }

    /// Records a denial.
    pub(crate) fn note_denied(&self, guest: &Guest, subject: &Subject<'_>) {
        if let Some(audit) = &self.audit {
            audit.denial(moment::seconds(), guest, subject);
        }
    }

    /// Records that a chain opens no session any more.
    fn note_refused(&self, principal: &[u8; 32], chain: &Chain) {
        let Some(audit) = &self.audit else { return };
        if let Some((why, link)) = self.end_of(chain) {
            audit.refusal(moment::seconds(), &Principal(*principal), chain, &why, Some(link));
        }
    }

    /// Records the end of a session.
    fn note_ended(&self, guest: &Guest) {
        let Some(audit) = &self.audit else { return };
        let (why, link) = match self.end_of(&guest.chain) {
            Some((why, link)) => (why, Some(link)),
            None => (End::Closed, None),
        };
        audit.end(moment::seconds(), guest, &why, link);
    }

    /// Writes the lines of the audit log that wait. Blocks on the disk.
    pub(crate) fn write_audit(&self) {
        if let Some(audit) = &self.audit {
            audit.write();
        }
    }

    /// Returns the reason why a chain holds no more, and the link to blame; `None` if it holds.
    fn end_of<'a>(&self, chain: &'a Chain) -> Option<(End, &'a Link)> {
        let first = chain.links.first()?;
        if !self.is_root(&first.authorizer) {
            return Some((End::NoRoot, first));
        }
        let revoked = self.revoked.read();
        if let Some(link) = chain.links.iter().find(|link| revoked.contains_key(&link.id)) {
            return Some((End::Revoked, link));
        }
        drop(revoked);
        let (_, moment) = self.now();
        let ended = chain.links.iter().find(|link| {
            let until = link.share.as_ref().and_then(|share| share.until.as_deref());
            until.is_some_and(|until| until <= moment.now.as_str())
        });
        ended.map(|link| (End::Expired, link))
    }

    fn is_root(&self, key: &Principal) -> bool {
        self.roots.as_ref().is_some_and(|roots| roots.has(key))
    }
}

/// Returns the function that records the roots which were read.
fn record_roots(audit: Option<Arc<Audit>>) -> OnChange {
    Box::new(move |roots| {
        if let Some(audit) = &audit {
            audit.policy(moment::seconds(), roots.iter());
        }
    })
}
