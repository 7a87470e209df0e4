//! The charter and the revocations between sites: the first one has all of them, and each other one
//! asks it. After its start the first one asks the others too ([`signing`]).
//!
//! A revocation that is made at one site goes to the first one, which tells all others that there
//! is something new. Each of them asks ([`asking`]), and answers once that is in force there.

mod asking;
mod differences;
mod signing;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_data::{MayBlock, OpError};
use pelago_store::rows::RevocationRow;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, InodeId, Kind, PassedRevocation, Reply, Request, SitePeer,
    limits,
};

use super::execute::Executor;
use super::{Dispatcher, LocalService, OpResult, Outcome};
use crate::policy::{Revoked, differing};
use crate::sites::{GuestService, Pass, Sites};

/// The name of a site that a guest is told.
const SOME_SITE: &str = "another office";

/// A revocation that is in force at this site, and goes to all others.
pub(crate) struct PassedOn {
    pub(crate) revocation: PassedRevocation,
    /// The site that has made it; `None` for this one.
    pub(crate) from: Option<u16>,
    /// A guest has made it, and learns no names of sites.
    pub(crate) hides_names: bool,
    /// Counts it until it is answered, if another site has made it.
    pub(crate) pass: Option<Pass>,
}

/// The sites at which something that is new may not be in force yet, by their numbers or names.
#[derive(Default)]
struct Unreached<T> {
    /// Those that were not reached, or had no time.
    away: Vec<T>,
    /// Those that have refused it, or get it only from one that has.
    refused: Vec<T>,
}

/// Gets the sites at which a revocation may not be in force yet.
type PendingReply = Box<dyn FnOnce(Result<Unreached<String>, Error>) + Send>;

/// The sites that are being told of a change.
struct Telling {
    left: usize,
    unreached: Unreached<u16>,
    done: Option<Box<dyn FnOnce(Unreached<u16>) + Send>>,
}

impl LocalService {
    /// Begins to ask the first site for the charter and the revocations, or at the first one to
    /// sign the charter. Does nothing the second time.
    pub(crate) fn keep_charter(&self) {
        let dispatcher = &self.dispatcher;
        let (wakes, woken) = mpsc::channel();
        if dispatcher.parts.sites.gate.wakes.set(wakes).is_err() {
            return;
        }
        let weak = Arc::downgrade(dispatcher);
        let keeping: Box<dyn FnOnce() + Send> = match dispatcher.parts.sites.is_first() {
            true => Box::new(move || signing::keep_signing(&weak, &woken)),
            false => Box::new(move || asking::keep_asking(&weak, &woken)),
        };
        let started = thread::Builder::new().name("charter".to_owned()).spawn(keeping);
        if let Err(error) = started {
            tracing::error!(%error, "roots and revocations do not travel between the offices");
        }
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
        self.asked_by_first().or_else(|_| self.asked_as_first().map(drop))?;
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
        let pass = self.parts.sites.gate.begin_pass(peer.site).ok_or(Code::Busy)?;
        let revocation = PassedRevocation { sentence: sentence.to_vec(), end };
        self.take_passed(&revocation).inspect_err(|error| {
            let site = peer.site;
            tracing::error!(site, %error, "a revocation of another office is refused here");
        })?;
        let from = Some(peer.site);
        Ok(Outcome::WhenRevoked(PassedOn {
            revocation,
            from,
            hides_names: false,
            pass: Some(pass),
        }))
    }

    fn take_passed(&self, revocation: &PassedRevocation) -> Result<(), Error> {
        let policy = &self.parts.policy;
        let revoked = policy.read_passed_by_site(revocation)?;
        if let Some(left) = policy.unsettled() {
            // Only the clock ends leases of guests of the last run.
            thread::sleep(left);
        }
        self.parts.put_revocation(&revoked, revocation)
    }

    /// Has this site ask the first one, which has something new.
    pub(super) fn charter_changed(&self) -> OpResult {
        self.asked_by_first()?;
        Ok(Outcome::WhenCurrent)
    }

    /// Checks that the first site asks.
    ///
    /// # Errors
    /// `AccessDenied`.
    fn asked_by_first(&self) -> Result<(), Error> {
        let peer = self.parts.sites.of_session(self.context.session);
        let is_first = peer.is_some_and(|peer| peer.site == InodeId::ROOT.site());
        is_first.then_some(()).ok_or_else(|| Code::AccessDenied.into())
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
                let asked = if sites.is_first() { "other offices" } else { "first office" };
                Some(format!("it asks the {asked} what was taken back"))
            }
            GuestService::Alone(silence) => Some(format!(
                "it has not heard from the first office for {} hours, and does not know what was \
                 taken back meanwhile: restore the line between the offices",
                silence.as_secs() / 3600
            )),
            GuestService::Outdated => sites.says_outdated(),
        }
    }

    /// Passes a revocation on to all other sites, and answers once it is in force at each that can
    /// be reached.
    pub(super) fn reach_sites(self: &Arc<Self>, passed_on: PassedOn, done: Done) {
        let PassedOn { revocation, from, hides_names, pass } = passed_on;
        let sites = Arc::clone(&self.parts.sites);
        let answer: PendingReply = Box::new(move |unreached| {
            drop(pass);
            done(unreached.map(|unreached| unreached.reply(hides_names)));
        });
        if sites.is_alone() {
            return answer(Ok(Unreached::default()));
        }
        if !sites.is_first() {
            return self.pass_to_first(revocation, answer);
        }
        let told = sites.joined().into_iter().filter(|site| Some(*site) != from).collect();
        self.tell_sites(
            told,
            Box::new(move |unreached| {
                // Such a site may still take itself for one that knows everything.
                let left = sites.gate.may_be_fresh(&unreached.all());
                let names = unreached.names(&sites);
                match left.is_zero() {
                    true => answer(Ok(names)),
                    false => answer_after(left, names, answer, |waiting| {
                        let thread = thread::Builder::new().name("revocation".to_owned());
                        thread.spawn(waiting).map(drop)
                    }),
                }
            }),
        );
    }

    /// Passes a revocation on to the first site, and calls `answer` with the sites that were not
    /// reached.
    fn pass_to_first(&self, passed: PassedRevocation, answer: PendingReply) {
        let sites = Arc::clone(&self.parts.sites);
        let upstream = sites.upstream(InodeId::ROOT.site());
        let done: Done = Box::new(move |result| {
            let result = result.and_then(|reply| match reply {
                Reply::Unreached { away, refused } => Ok(Unreached { away, refused }),
                _ => Err(Code::Bug.into()),
            });
            answer(Ok(result.unwrap_or_else(|error| {
                // It comes to all others from the first one.
                let all = sites.joined();
                let unreached = match is_refusal(error) {
                    true => {
                        tracing::error!(
                            %error,
                            "the first office refuses a revocation, which holds here alone"
                        );
                        Unreached { away: Vec::new(), refused: all }
                    }
                    false => {
                        tracing::warn!(%error, "a revocation has not reached the first office yet");
                        Unreached { away: all, refused: Vec::new() }
                    }
                };
                unreached.names(&sites)
            })));
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
    fn tell_sites(&self, told: Vec<u16>, done: Box<dyn FnOnce(Unreached<u16>) + Send>) {
        if told.is_empty() {
            return done(Unreached::default());
        }
        let unreached = Unreached::default();
        let telling = Telling { left: told.len(), unreached, done: Some(done) };
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
        match result {
            Ok(_) => {}
            Err(error) if is_refusal(error) => {
                tracing::error!(site, %error, "an office has not put in force what is new");
                telling.unreached.refused.push(site);
            }
            Err(error) => {
                tracing::warn!(site, %error, "an office was not told what is new");
                telling.unreached.away.push(site);
            }
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

impl Unreached<u16> {
    fn all(&self) -> Vec<u16> {
        self.away.iter().chain(&self.refused).copied().collect()
    }

    fn names(&self, sites: &Sites) -> Unreached<String> {
        Unreached { away: sites.names(&self.away), refused: sites.names(&self.refused) }
    }
}

impl Unreached<String> {
    fn reply(mut self, hides_names: bool) -> Reply {
        if hides_names {
            let names = self.away.iter_mut().chain(&mut self.refused);
            names.for_each(|name| SOME_SITE.clone_into(name));
        }
        let Self { away, refused } = self;
        Reply::Unreached { away, refused }
    }
}

/// Waits until it is time for the next look. Returns whether the server has ended.
fn wait(woken: &Receiver<()>, pause: Option<Duration>) -> bool {
    let waited = match pause {
        Some(pause) => woken.recv_timeout(pause),
        None => woken.recv().map_err(RecvTimeoutError::from),
    };
    while woken.try_recv().is_ok() {}
    waited == Err(RecvTimeoutError::Disconnected)
}

/// Returns whether a site has refused something, and was neither out of reach nor without time.
const fn is_refusal(error: Error) -> bool {
    match error.kind() {
        Kind::Unavailable | Kind::Stale | Kind::Fenced => false,
        Kind::Busy => matches!(error.code, Code::NoSpace),
        Kind::NotFound
        | Kind::Exists
        | Kind::Denied
        | Kind::Invalid
        | Kind::Corrupt
        | Kind::Bug => true,
    }
}

/// Calls `answer` after this time, on a thread that `start` starts; at once with an error if it
/// cannot.
fn answer_after(
    left: Duration,
    unreached: Unreached<String>,
    answer: PendingReply,
    start: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
) {
    let answer = Arc::new(Mutex::new(Some(answer)));
    let of_thread = Arc::clone(&answer);
    let waiting = Box::new(move || {
        thread::sleep(left);
        let answer = of_thread.lock().take();
        if let Some(answer) = answer {
            answer(Ok(unreached));
        }
    });
    if let Err(error) = start(waiting) {
        tracing::error!(%error, "it is not awaited until all offices know of a revocation");
        let answer = answer.lock().take();
        if let Some(answer) = answer {
            answer(Err(Code::Busy.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the answer, and how often there was one.
    fn answered(
        start: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) -> Vec<Result<Vec<String>, Code>> {
        let (sender, answers) = mpsc::channel();
        let answer = Box::new(move |result: Result<Unreached<String>, Error>| {
            sender.send(result.map(|it| it.away).map_err(|error| error.code)).unwrap();
        });
        let unreached = Unreached { away: vec!["berlin".to_owned()], refused: Vec::new() };
        answer_after(Duration::ZERO, unreached, answer, start);
        answers.iter().collect()
    }

    #[test]
    fn a_revocation_is_answered_once_also_if_no_thread_can_wait() {
        let there = answered(|waiting| {
            waiting();
            Ok(())
        });
        assert_eq!(there, [Ok(vec!["berlin".to_owned()])]);
        let not_there = answered(|_| Err(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(not_there, [Err(Code::Busy)]);
    }

    #[test]
    fn a_site_without_time_has_refused_nothing() {
        for code in Code::ALL.iter().copied() {
            let passes = [
                Code::Unavailable,
                Code::TimedOut,
                Code::HostDown,
                Code::Busy,
                Code::Interrupted,
                Code::Stale,
            ];
            if passes.contains(&code) {
                assert!(!is_refusal(code.into()), "{code:?}");
            }
            let lasts = [Code::Invalid, Code::NoSpace, Code::Io, Code::AccessDenied];
            if lasts.contains(&code) {
                assert!(is_refusal(code.into()), "{code:?}");
            }
        }
    }
}
