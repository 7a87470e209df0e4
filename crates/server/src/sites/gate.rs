//! The gate of guests: whether this site knows what was taken back, so that it may serve them.
//!
//! The first site has the roots and the revocations of all. Another site asks it every few seconds;
//! what it is told holds for a while after the question was sent. If the first site cannot be
//! reached, guests are served by what is known, for a day. The first sign of life after that closes
//! the gate until a question is answered: so nothing is served by what was taken back meanwhile.
//!
//! The folder of the first site may be an older copy that was put back: after a start it serves no
//! guest before it has asked the others, those that can be reached.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_store::clock::since_boot;
use pelago_wire::{Code, Done, limits};

/// Whether guests are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestService {
    Yes,
    /// Not before the first site has answered; at that one, not before it has asked the others.
    Asking,
    /// Not before the first site can be reached again: it was silent for this long.
    Alone(Duration),
    /// Not by this folder, which is a copy or an older one: what was taken back may be unknown.
    Outdated,
}

/// The answered questions to the first site. A state machine without a clock of its own.
#[derive(Debug)]
struct Answered {
    /// The time at which the last answered question was sent; `None` before the first one of this
    /// run.
    asked: Option<Duration>,
    /// The time for which guests are served although the first site cannot be reached.
    alone: Duration,
}

impl Answered {
    /// Records that a question was answered that was sent at this time.
    fn record(&mut self, asked: Duration) {
        self.asked = self.asked.max(Some(asked));
    }

    /// Returns whether guests are served now. `is_silent`: nothing has come from the first site for
    /// so long that it cannot be reached.
    fn decide(&self, now: Duration, is_silent: bool) -> GuestService {
        let Some(asked) = self.asked else { return GuestService::Asking };
        let age = now.saturating_sub(asked);
        match () {
            // The clock of the first site may be faster.
            () if age <= limits::CHARTER_FRESH * 63 / 64 => GuestService::Yes,
            () if !is_silent => GuestService::Asking,
            () if age <= self.alone => GuestService::Yes,
            () => GuestService::Alone(age),
        }
    }
}

/// A request of a guest that waits for the next answer.
pub(crate) type Parked = Box<dyn FnOnce() + Send>;

/// The number of revocations of each site that are passed on now. A leaf lock.
type Passes = Mutex<HashMap<u16, usize>>;

/// A revocation of another site that is passed on, until this is dropped.
pub(crate) struct Pass {
    passes: Arc<Passes>,
    site: u16,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut passes = self.passes.lock();
        if let Some(count) = passes.get_mut(&self.site) {
            *count = count.saturating_sub(1);
        }
    }
}

/// The gate of guests.
pub(crate) struct Gate {
    /// A leaf lock.
    answered: Mutex<Answered>,
    /// A leaf lock.
    parked: Mutex<Vec<Parked>>,
    /// Requests of the first site that wait for the next answer. A leaf lock.
    waiting: Mutex<Vec<Done>>,
    /// Of the first site: the time at which each other one has asked last. A leaf lock.
    asked_by: Mutex<HashMap<u16, Duration>>,
    /// The time at which the run began: a site may have asked the last one right before.
    begun: Duration,
    /// Of the first site: true once it has asked the others in this run, or needs not to.
    has_asked_others: AtomicBool,
    /// Of the first site: the revocations of each other one that are passed on now.
    passes: Arc<Passes>,
    /// Revocations that the first site has refused. A leaf lock.
    refused: Mutex<HashSet<[u8; 32]>>,
    /// Wakes the thread that asks, or that signs at the first site.
    pub(crate) wakes: OnceLock<Sender<()>>,
}

impl Gate {
    /// Guests are served for `alone` although the first site cannot be reached. `asks_others`: this
    /// is the first site, and it asks the others before it serves guests.
    pub(crate) fn new(alone: Duration, asks_others: bool) -> Self {
        Self {
            answered: Mutex::new(Answered { asked: None, alone }),
            parked: Mutex::default(),
            waiting: Mutex::default(),
            asked_by: Mutex::default(),
            begun: since_boot(),
            has_asked_others: AtomicBool::new(!asks_others),
            passes: Arc::default(),
            refused: Mutex::default(),
            wakes: OnceLock::new(),
        }
    }

    /// Returns whether guests are served now.
    pub(crate) fn decide(&self, is_silent: bool) -> GuestService {
        self.answered.lock().decide(since_boot(), is_silent)
    }

    /// Returns whether a question was answered in this run.
    pub(crate) fn is_begun(&self) -> bool {
        self.answered.lock().asked.is_some()
    }

    /// Records that a question was answered that was sent at this time, and that what it has told
    /// is in force.
    pub(crate) fn record(&self, asked: Duration) {
        self.answered.lock().record(asked);
    }

    /// Has a request go on after the next question is over; at once if none will be asked.
    pub(crate) fn park(&self, parked: Parked) {
        self.parked.lock().push(parked);
        if !self.wake() {
            self.take_parked().into_iter().for_each(|parked| parked());
        }
    }

    /// Returns the requests of guests that wait.
    pub(crate) fn take_parked(&self) -> Vec<Parked> {
        mem::take(&mut self.parked.lock())
    }

    /// Has requests that were taken go on after the next question is over.
    pub(crate) fn put_back(&self, parked: Vec<Parked>) {
        self.parked.lock().extend(parked);
    }

    /// Has a request of the first site answered after the next question is over.
    pub(crate) fn wait(&self, done: Done) {
        if self.wakes.get().is_none() {
            // No question is asked.
            return done(Err(Code::Unavailable.into()));
        }
        self.waiting.lock().push(done);
        if !self.wake() {
            self.end_waiting();
        }
    }

    /// Returns the requests of the first site that wait.
    pub(crate) fn take_waiting(&self) -> Vec<Done> {
        mem::take(&mut self.waiting.lock())
    }

    /// Has the thread look at once. Returns false if that has ended, or could not be started.
    pub(crate) fn wake(&self) -> bool {
        self.wakes.get().is_none_or(|wakes| wakes.send(()).is_ok())
    }

    /// Answers all that wait: the server stops.
    pub(crate) fn stop(&self) {
        self.end_waiting();
        self.take_parked().into_iter().for_each(|parked| parked());
    }

    fn end_waiting(&self) {
        for done in self.take_waiting() {
            done(Err(Code::Unavailable.into()));
        }
    }

    /// Returns whether the first site has asked the others in this run, or needs not to.
    #[inline]
    pub(crate) fn has_asked_others(&self) -> bool {
        self.has_asked_others.load(Ordering::Acquire)
    }

    /// Records that the first site has asked the others, and that what they have told is in force.
    pub(crate) fn record_others(&self) {
        self.has_asked_others.store(true, Ordering::Release);
    }

    /// Begins to pass on a revocation of another site; `None` if it has [`limits::PASSES`] of them
    /// under way.
    pub(crate) fn begin_pass(&self, site: u16) -> Option<Pass> {
        let mut passes = self.passes.lock();
        let count = passes.entry(site).or_default();
        if *count >= limits::PASSES {
            return None;
        }
        *count += 1;
        Some(Pass { passes: Arc::clone(&self.passes), site })
    }

    /// Records that another site has asked.
    pub(crate) fn asked_by(&self, site: u16) {
        self.asked_by.lock().insert(site, since_boot());
    }

    /// Returns how long one of these sites may still serve guests by what it was told last, as if
    /// it could reach this one.
    pub(crate) fn may_be_fresh(&self, sites: &[u16]) -> Duration {
        let asked_by = self.asked_by.lock();
        let asked = |site| asked_by.get(site).copied().unwrap_or(self.begun);
        let last = sites.iter().map(asked).max();
        let until = last.map(|last| last + limits::CHARTER_FRESH * 65 / 64);
        until.unwrap_or_default().saturating_sub(since_boot())
    }

    /// Returns whether the first site has refused a revocation lately.
    pub(crate) fn is_refused(&self, id: &[u8; 32]) -> bool {
        self.refused.lock().contains(id)
    }

    /// Records that the first site refuses a revocation.
    pub(crate) fn refuse(&self, id: [u8; 32]) {
        self.refused.lock().insert(id);
    }

    /// Has all that the first site has refused passed on again.
    pub(crate) fn forget_refused(&self) {
        self.refused.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_gate_is_open_after_an_answer_and_while_the_first_site_cannot_be_reached() {
        let day = at(24 * 60 * 60);
        let mut answered = Answered { asked: None, alone: day };
        for is_silent in [false, true] {
            assert_eq!(answered.decide(at(100), is_silent), GuestService::Asking, "after a start");
        }
        answered.record(at(100));
        for is_silent in [false, true] {
            assert_eq!(answered.decide(at(107), is_silent), GuestService::Yes);
        }
        // The line is cut, and comes back.
        assert_eq!(answered.decide(at(109), true), GuestService::Yes);
        assert_eq!(answered.decide(at(5000), true), GuestService::Yes);
        assert_eq!(answered.decide(at(5000), false), GuestService::Asking);
        // An answer to a question of before the cut tells nothing.
        answered.record(at(101));
        assert_eq!(answered.decide(at(5001), false), GuestService::Asking);
        answered.record(at(5000));
        assert_eq!(answered.decide(at(5001), false), GuestService::Yes);
        // An answer that was late does not put the time back.
        answered.record(at(4000));
        assert_eq!(answered.decide(at(5001), false), GuestService::Yes);
        assert_eq!(answered.decide(at(5000) + day, true), GuestService::Yes);
        let over = at(5001) + day;
        assert_eq!(answered.decide(over, true), GuestService::Alone(day + at(1)));
        assert_eq!(answered.decide(over, false), GuestService::Asking);
    }

    #[test]
    fn nothing_waits_for_a_thread_that_could_not_be_started() {
        let gate = Gate::new(at(1), false);
        let (wakes, woken) = mpsc::channel();
        gate.wakes.set(wakes).unwrap();
        drop(woken);
        let (sender, answers) = mpsc::channel();
        let parked = sender.clone();
        gate.park(Box::new(move || parked.send(None).unwrap()));
        assert_eq!(answers.try_recv(), Ok(None));
        gate.wait(Box::new(move |result| sender.send(result.err()).unwrap()));
        assert_eq!(answers.try_recv(), Ok(Some(Code::Unavailable.into())));
    }

    #[test]
    fn a_site_has_a_limited_number_of_revocations_under_way() {
        let gate = Gate::new(at(1), false);
        let mut passes: Vec<Pass> =
            (0..limits::PASSES).filter_map(|_| gate.begin_pass(1)).collect();
        assert_eq!(passes.len(), limits::PASSES);
        assert!(gate.begin_pass(1).is_none());
        assert!(gate.begin_pass(2).is_some(), "another site has its own");
        passes.pop();
        assert!(gate.begin_pass(1).is_some());
    }
}
