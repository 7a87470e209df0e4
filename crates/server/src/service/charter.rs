//! The charter and the revocations between sites: the first one has all of them, and each other one
//! asks it.
//!
//! A revocation that is made at one site goes to the first one, which tells all others that there
//! is something new. Each of them asks ([`asking`]), and answers once that is in force there.

mod asking;

use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use pelago_data::{MayBlock, OpError};
use pelago_store::rows::RevocationRow;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, InodeId, PassedRevocation, Reply, Request, SitePeer, limits,
};

use super::execute::Executor;
use super::{Dispatcher, LocalService, OpResult, Outcome};
use crate::policy::{Revoked, differing};
use crate::sites::GuestService;

/// The name of a site that a guest is told.
const SOME_SITE: &str = "another office";

/// A revocation that is in force at this site, and goes to all others.
pub(crate) struct PassedOn {
    pub(crate) revocation: PassedRevocation,
    /// The site that has made it; `None` for this one.
    pub(crate) from: Option<u16>,
    /// A guest has made it, and learns no names of sites.
    pub(crate) hides_names: bool,
}

/// The sites that are being told of a change.
struct Telling {
    left: usize,
    unreached: Vec<u16>,
    done: Option<Box<dyn FnOnce(Vec<u16>) + Send>>,
}

impl LocalService {
    /// Begins to ask the first site for the charter and the revocations, or at the first one to
    /// sign the charter.
    pub(crate) fn keep_charter(&self) {
        asking::begin(&self.dispatcher);
    }
}

impl Executor<'_> {
    /// Answers with the charter, and with the hash of the revocations.
    pub(super) fn charter(&self, known: u64) -> OpResult {
        let peer = self.asked_as_first()?;
        if self.may_block == MayBlock::No {
            // It may be signed anew.
            return Err(OpError::WouldBlock);
        }
        let policy = &self.parts.policy;
        if let Some(key) = self.parts.sites.signing_key() {
            policy.renew_charter(key)?;
        }
        self.parts.sites.gate.asked_by(peer.site);
        let text = policy.charter_after(known);
        Ok(Reply::Charter { text, revoked: policy.revocation_parts().whole }.into())
    }

    /// Answers with a page of the revocations that another site may lack.
    pub(super) fn revoked(&self, parts: &[u8], after: Option<&[u8; 32]>) -> OpResult {
        self.asked_as_first()?;
        let policy = &self.parts.policy;
        let differing = differing(parts, &policy.revocation_parts().parts)?;
        let all = policy.revoked_in(&differing);
        let from = after.map_or(0, |after| all.partition_point(|id| id <= after));
        let mut ids = all.get(from..).unwrap_or_default().iter();
        let mut revocations = Vec::new();
        while revocations.len() < limits::PASSED_REVOCATIONS
            && let Some(id) = ids.next()
        {
            if let Some(row) = self.parts.shard.revocation(*id)? {
                revocations.push(PassedRevocation { sentence: row.sentence, end: row.end });
            }
        }
        let more = ids.next().is_some();
        Ok(Reply::Revoked { revocations, differing, more }.into())
    }

    /// Takes over a revocation that another site has made.
    pub(super) fn pass_revocation(&self, sentence: &[u8], end: u64) -> OpResult {
        let peer = self.asked_as_first()?;
        if self.may_block == MayBlock::No {
            return Err(OpError::WouldBlock);
        }
        let policy = &self.parts.policy;
        let revocation = PassedRevocation { sentence: sentence.to_vec(), end };
        let revoked = policy.read_passed_by_site(&revocation)?;
        if let Some(left) = policy.unsettled() {
            // Only the clock ends leases of guests of the last run.
            thread::sleep(left);
        }
        self.parts.put_revocation(&revoked, &revocation)?;
        let from = Some(peer.site);
        Ok(Outcome::WhenRevoked(PassedOn { revocation, from, hides_names: false }))
    }

    /// Has this site ask the first one, which has something new.
    pub(super) fn charter_changed(&self) -> OpResult {
        let peer = self.parts.sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        match peer.site == InodeId::ROOT.site() {
            true => Ok(Outcome::WhenCurrent),
            false => Err(Error::from(Code::AccessDenied).into()),
        }
    }

    /// Returns the site that asks this one as the first.
    ///
    /// # Errors
    /// `AccessDenied` in a session of no site; `NotSupported` at another site than the first one.
    fn asked_as_first(&self) -> Result<SitePeer, Error> {
        let sites = &self.parts.sites;
        let peer = sites.of_session(self.context.session).ok_or(Code::AccessDenied)?;
        match sites.is_first() {
            true => Ok(peer),
            false => Err(Code::NotSupported.into()),
        }
    }
}

impl super::Parts {
    /// Writes a revocation of another site, and puts it in force. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the table, and of the file `format`.
    fn put_revocation(&self, revoked: &Revoked, passed: &PassedRevocation) -> Result<(), Error> {
        self.policy.announce_revocations()?;
        let no_change = self.policy.hold_guests();
        if self.policy.is_in_force(revoked) {
            return Ok(());
        }
        let row = RevocationRow { end: revoked.end, sentence: &passed.sentence };
        self.shard.revoke(revoked.id, &row, revoked.is_of_root, &revoked.ended)?;
        self.policy.revoke(revoked, &no_change);
        Ok(())
    }
}

impl Dispatcher {
    /// Returns why no guest is served at the moment, for people.
    pub(super) fn guests_wait(&self) -> Option<String> {
        let sites = &self.parts.sites;
        match sites.serves_guests() {
            GuestService::Yes => None,
            GuestService::Asking => {
                sites.gate.wake();
                Some("it asks the first office what was taken back".to_owned())
            }
            GuestService::Alone(silence) => Some(format!(
                "it has not heard from the first office for {} hours, and does not know what was \
                 taken back meanwhile: restore the line between the offices",
                silence.as_secs() / 3600
            )),
        }
    }

    /// Passes a revocation on to all other sites, and answers once it is in force at each that can
    /// be reached.
    pub(super) fn reach_sites(self: &Arc<Self>, passed_on: PassedOn, done: Done) {
        let PassedOn { revocation, from, hides_names } = passed_on;
        let sites = Arc::clone(&self.parts.sites);
        let answer = move |mut names: Vec<String>| {
            if hides_names {
                names.iter_mut().for_each(|name| SOME_SITE.clone_into(name));
            }
            done(Ok(Reply::Unreached(names)));
        };
        if sites.is_alone() {
            return answer(Vec::new());
        }
        if !sites.is_first() {
            return self.pass_to_first(revocation, Box::new(answer));
        }
        let told = sites.joined().into_iter().filter(|site| Some(*site) != from).collect();
        self.tell_sites(
            told,
            Box::new(move |unreached| {
                let left = sites.gate.may_be_fresh(&unreached);
                let names = sites.names(&unreached);
                if left.is_zero() {
                    return answer(names);
                }
                // Such a site may still take itself for one that knows everything.
                let waiting = move || {
                    thread::sleep(left);
                    answer(names);
                };
                let started = thread::Builder::new().name("revocation".to_owned()).spawn(waiting);
                if let Err(error) = started {
                    tracing::warn!(%error, "a revocation is not answered");
                }
            }),
        );
    }

    /// Passes a revocation on to the first site, and calls `answer` with the names of the sites
    /// that were not reached.
    fn pass_to_first(&self, passed: PassedRevocation, answer: Box<dyn FnOnce(Vec<String>) + Send>) {
        let sites = Arc::clone(&self.parts.sites);
        let upstream = sites.upstream(InodeId::ROOT.site());
        let done: Done = Box::new(move |result| match result {
            Ok(Reply::Unreached(names)) => answer(names),
            Ok(_) => answer(sites.names(&sites.joined())),
            Err(error) => {
                tracing::warn!(%error, "a revocation has not reached the first office yet");
                answer(sites.names(&sites.joined()));
            }
        });
        let PassedRevocation { sentence, end } = passed;
        let request = Request::PassRevocation { sentence, end };
        match upstream {
            Ok(upstream) => upstream.ask(&Context::direct(0, 0), request, Bulk::None, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Says to these sites that there is something new, and calls `done` with those that have not
    /// asked in time.
    fn tell_sites(&self, told: Vec<u16>, done: Box<dyn FnOnce(Vec<u16>) + Send>) {
        if told.is_empty() {
            return done(Vec::new());
        }
        let telling = Telling { left: told.len(), unreached: Vec::new(), done: Some(done) };
        let telling = Arc::new(Mutex::new(telling));
        for site in told {
            let telling = Arc::clone(&telling);
            let answered: Done = Box::new(move |result| Telling::told(&telling, site, result));
            match self.parts.sites.upstream(site) {
                Ok(upstream) => {
                    let context = Context::direct(0, 0);
                    upstream.ask(&context, Request::CharterChanged, Bulk::None, answered);
                }
                Err(error) => answered(Err(error)),
            }
        }
    }
}

impl Telling {
    /// Records the answer of a site.
    fn told(this: &Mutex<Self>, site: u16, result: Result<Reply, Error>) {
        let mut telling = this.lock();
        if let Err(error) = result {
            tracing::warn!(site, %error, "a site was not told what was taken back");
            telling.unreached.push(site);
        }
        telling.left -= 1;
        if telling.left > 0 {
            return;
        }
        let unreached = std::mem::take(&mut telling.unreached);
        let done = telling.done.take();
        drop(telling);
        if let Some(done) = done {
            done(unreached);
        }
    }
}
