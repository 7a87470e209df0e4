//! The thread that asks the first site what is in force.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use pelago_keynote::Principal;
use pelago_store::clock::since_boot;
use pelago_wire::{Code, Error, InodeId, PassedRevocation, Reply, Request, limits};

use super::differences::{Comparison, Differences};
use super::{Dispatcher, is_refusal, wait};
use crate::sites::GuestService;

/// The pause before the next question while guests wait for its answer.
const SOON: Duration = Duration::from_millis(250);
/// The longest wait for what is done to be safe, or for guests to drop what they have.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pages of revocations in one round: those of a first site that is full, twice.
const PAGES: usize = 2 * limits::REVOCATIONS / limits::PASSED_REVOCATIONS;

/// Asks the first site until the server ends.
pub(super) fn keep_asking(dispatcher: &Weak<Dispatcher>, woken: &Receiver<()>) {
    let mut pause = Some(Duration::ZERO);
    // The last run may have been killed before its guests had ended.
    let mut is_unfinished = true;
    let mut differences = Differences::default();
    let is_passing = Arc::default();
    // The last refusal that the log has.
    let mut logged = None;
    loop {
        if wait(woken, pause) {
            return;
        }
        let Some(now) = dispatcher.upgrade() else { return };
        let waiting = now.parts.sites.gate.take_waiting();
        // Who comes from now on waits for another question.
        let parked = now.parts.sites.gate.take_parked();
        drop(now);
        let asked = ask(dispatcher, &mut is_unfinished, &mut differences);
        let Some(now) = dispatcher.upgrade() else {
            let unavailable = Error::from(Code::Unavailable);
            return waiting.into_iter().for_each(|done| done(Err(unavailable)));
        };
        let asked = match asked {
            Ok(compared) => {
                begin_to_pass(dispatcher, compared, &is_passing);
                logged = None;
                Ok(())
            }
            Err(error) => {
                // The line may have been cut, and what was passed on is lost.
                differences.forget();
                match is_refusal(error) && logged.replace(error) != Some(error) {
                    true => tracing::error!(
                        %error,
                        "what the first office has taken back is not in force here: no guest is \
                         served while that office can be reached"
                    ),
                    false => {
                        tracing::debug!(%error, "the first office has not said what is in force");
                    }
                }
                Err(error)
            }
        };
        for done in waiting {
            done(asked.map(|()| Reply::Done));
        }
        let sites = &now.parts.sites;
        match asked.is_ok() && sites.serves_guests() == GuestService::Asking {
            // The question was sent before the line was cut.
            true => sites.gate.put_back(parked),
            false => parked.into_iter().for_each(|parked| parked()),
        }
        let is_silent = sites.is_first_silent();
        pause = match sites.serves_guests() {
            GuestService::Asking if !is_silent => Some(SOON),
            _ if is_silent || !sites.gate.is_begun() => Some(limits::CHARTER_PAUSE),
            _ => now.parts.policy.may_have_guests().then_some(limits::CHARTER_PAUSE),
        };
    }
}

/// Asks the first site what is in force, and puts that in force here. `is_unfinished`: an earlier
/// round has taken something over, and guests may still use what has ended by it.
///
/// # Errors
/// Those of the first site, and of the table. What was taken over before stays in force.
fn ask(
    dispatcher: &Weak<Dispatcher>,
    is_unfinished: &mut bool,
    differences: &mut Differences,
) -> Result<Compared, Error> {
    let asking = Asking { dispatcher, site: InodeId::ROOT.site() };
    let known = asking.now()?.parts.policy.charter_version();
    // Before the question is sent: what the first site knows at any later moment may be newer.
    let asked = since_boot();
    let Reply::Charter { text, revoked } = asking.ask(Request::Charter { known })? else {
        return Err(Code::Bug.into());
    };
    let is_left = *is_unfinished;
    *is_unfinished = true;
    let has_charter = match text {
        Some(text) => asking.take_charter(&text)?,
        None => false,
    };
    let parts = asking.now()?.parts.policy.revocation_parts();
    let hashes = [revoked, parts.whole];
    let comparison = differences.decide(hashes, asked);
    let compared = match comparison {
        _ if parts.whole == revoked => {
            differences.forget();
            Compared::default()
        }
        Comparison::NotDue => Compared::default(),
        Comparison::Due | Comparison::Repeated => {
            if comparison == Comparison::Repeated {
                asking.now()?.parts.sites.gate.forget_refused();
            }
            let compared = asking.exchange(&parts.parts)?;
            differences.record(hashes, asked);
            compared
        }
    };
    let has_revocations = compared.has_new;
    if has_charter || has_revocations || is_left {
        asking.end_guests(has_charter || is_left)?;
    }
    *is_unfinished = false;
    asking.now()?.parts.sites.gate.record(asked);
    Ok(compared)
}

/// Begins to pass on to the first site what it does not have, unless that goes on: by a thread of
/// its own, because the first site answers after all others have asked it, this one among them.
fn begin_to_pass(dispatcher: &Weak<Dispatcher>, compared: Compared, is_passing: &Arc<AtomicBool>) {
    if compared.differing == [0; 32] || is_passing.swap(true, Ordering::AcqRel) {
        return;
    }
    let dispatcher = Weak::clone(dispatcher);
    let of_thread = Arc::clone(is_passing);
    let passing = move || {
        let Compared { differing, there, .. } = compared;
        let asking = Asking { dispatcher: &dispatcher, site: InodeId::ROOT.site() };
        if let Err(error) = asking.pass_on(&differing, &there) {
            tracing::debug!(%error, "the first office has not taken all revocations over");
        }
        of_thread.store(false, Ordering::Release);
    };
    let started = thread::Builder::new().name("revocations".to_owned()).spawn(passing);
    if let Err(error) = started {
        tracing::warn!(%error, "revocations of this office are passed on later");
        is_passing.store(false, Ordering::Release);
    }
}

/// The result of a comparison of the revocations here and at the first site.
#[derive(Default)]
struct Compared {
    /// One was taken over.
    has_new: bool,
    /// The parts that differ, as bits.
    differing: [u8; 32],
    /// The revocations in these parts that the first site has.
    there: HashSet<[u8; 32]>,
}

/// A round of questions to a site. It keeps the server only while it works for it, and not while it
/// waits.
pub(super) struct Asking<'a> {
    pub(super) dispatcher: &'a Weak<Dispatcher>,
    pub(super) site: u16,
}

impl Asking<'_> {
    fn now(&self) -> Result<Arc<Dispatcher>, Error> {
        self.dispatcher.upgrade().ok_or_else(|| Code::Unavailable.into())
    }

    /// Sends a request to the site, and waits for the answer.
    fn ask(&self, request: Request) -> Result<Reply, Error> {
        self.now()?.parts.sites.upstream(self.site)?.ask_and_wait(request)
    }

    /// Takes over a charter. Returns whether it is a new one.
    fn take_charter(&self, text: &[u8]) -> Result<bool, Error> {
        let now = self.now()?;
        let founder = now.parts.sites.founder().ok_or(Code::Invalid)?;
        match now.parts.policy.take_charter(&Principal(founder), text) {
            // This one knows more.
            Err(error) if error.code == Code::Stale => Ok(false),
            taken => taken,
        }
    }

    /// Takes over the revocations that are missing here. Returns whether there were any.
    ///
    /// # Errors
    /// Those of the site, and of the table. What was taken over before stays in force.
    pub(super) fn take_revocations(&self) -> Result<bool, Error> {
        let parts = self.now()?.parts.policy.revocation_parts();
        Ok(self.exchange(&parts.parts)?.has_new)
    }

    /// Takes over the revocations that are missing here. `parts` has the hashes of the own ones.
    fn exchange(&self, parts: &[u8]) -> Result<Compared, Error> {
        let mut compared = Compared::default();
        let mut after = None;
        for _ in 0..PAGES {
            let request = Request::Revoked { parts: parts.to_vec(), after };
            let Reply::Revoked { revocations, differing, more } = self.ask(request)? else {
                return Err(Code::Bug.into());
            };
            for passed in &revocations {
                let (id, is_new) = self.put(passed)?;
                compared.has_new |= is_new;
                if after.is_some_and(|last| last >= id) {
                    return Err(Code::Invalid.into());
                }
                after = Some(id);
                compared.there.insert(id);
            }
            if !more {
                return Ok(Compared { differing, ..compared });
            }
        }
        Err(Code::Invalid.into())
    }

    /// Puts a revocation in force, unless it is. Returns its id, and whether it is new.
    fn put(&self, passed: &PassedRevocation) -> Result<([u8; 32], bool), Error> {
        let now = self.now()?;
        let mut revoked = now.parts.policy.read_passed(passed)?;
        if now.parts.sites.is_first() {
            revoked = match now.parts.policy.read_passed_by_site(passed) {
                Ok(revoked) => revoked,
                Err(error) => {
                    let site = self.site;
                    tracing::error!(site, %error, "a revocation of another office is refused here");
                    return Ok((revoked.id, false));
                }
            };
        }
        let is_new = !now.parts.policy.is_in_force(&revoked);
        if is_new {
            now.parts.put_revocation(&revoked, passed)?;
        }
        Ok((revoked.id, is_new))
    }

    /// Passes on to the first site what it does not have in these parts.
    fn pass_on(&self, differing: &[u8; 32], there: &HashSet<[u8; 32]>) -> Result<(), Error> {
        let own = self.now()?.parts.policy.revoked_in(differing);
        for id in own.into_iter().filter(|id| !there.contains(id)) {
            let now = self.now()?;
            if now.parts.sites.gate.is_refused(&id) {
                continue;
            }
            let Some(row) = now.parts.shard.revocation(id)? else { continue };
            drop(now);
            let request = Request::PassRevocation { sentence: row.sentence, end: row.end };
            match self.ask(request) {
                Ok(_) => {}
                Err(error) if is_refusal(error) => {
                    tracing::error!(
                        %error,
                        "the first office refuses a revocation, which holds here alone"
                    );
                    self.now()?.parts.sites.gate.refuse(id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until what was taken over is safe, and no guest uses what has ended by it. If the
    /// roots have changed, all guests drop what they have cached.
    ///
    /// # Errors
    /// `TimedOut`; those of the disk.
    pub(super) fn end_guests(&self, all: bool) -> Result<(), Error> {
        let now = self.now()?;
        if let Some(left) = now.parts.policy.unsettled() {
            // Only the clock ends leases of guests of the last run.
            thread::sleep(left);
        }
        let durability = Arc::clone(&now.parts.durability);
        let (sender, safe) = mpsc::channel();
        let is_safe = sender.clone();
        let notify = move |result: Result<(), Error>| {
            let _waits_no_more = is_safe.send(result);
        };
        durability.when_safe(durability.done(), durability.invalidations(), Box::new(notify));
        let late = |_| Error::from(Code::TimedOut);
        safe.recv_timeout(PATIENCE).map_err(late)??;
        now.end_guests_of_changed(all, move || {
            let _waits_no_more = sender.send(Ok(()));
        });
        drop(now);
        safe.recv_timeout(PATIENCE).map_err(late)?
    }
}
