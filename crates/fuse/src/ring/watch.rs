//! Watch over the threads of the queues: one that does not get its processor loses `SCHED_IDLE`.
//!
//! A thread of its own looks, only while requests come: a queue's thread has `SCHED_IDLE` only as
//! long as it is watched, and gets the usual policy back before the looks end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::thread::Pid;

use super::policy::{Policy, QUIET, Standing};
use super::system::{Stat, set_policy};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(2);
/// Count of looks in which a thread could have run and did not, after which it is rescued. The
/// kernel counts its time at each tick, which comes every 4 ms or more often on most kernels.
const PATIENCE: u32 = 3;

/// Watches the threads of the queues.
#[derive(Debug, Default)]
pub(super) struct Watch {
    is_asleep: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queues: Vec<Watched>,
    is_wanted: bool,
    has_ended: bool,
}

/// The state that a queue's thread shares with its watcher.
#[derive(Debug)]
pub(super) struct Turns {
    /// Count of rounds: how often the thread had its processor.
    rounds: AtomicU64,
    standing: AtomicU8,
}

/// A queue's thread, and the observations of it.
#[derive(Debug)]
struct Watched {
    thread: Pid,
    stat: Stat,
    turns: Arc<Turns>,
    observed: Observed,
}

/// Observations of a thread.
#[derive(Debug)]
struct Observed {
    rounds: u64,
    /// Looks since the last round of the thread.
    looks: u32,
    /// Count of the last looks at which it could have run and had not run since the first of them.
    runnable: u32,
    /// Time that it had run by the first of them.
    runtime: Duration,
}

/// The finding of a look at a thread.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// The thread gets its processor, or may still get it.
    Good,
    /// Other threads have its processor.
    Starves,
    /// No requests come.
    Rests,
}

impl Watch {
    /// Watches a thread from its next round on.
    pub(super) fn add(&self, thread: Pid, turns: &Arc<Turns>) {
        let stat = Stat::of(thread);
        let turns = Arc::clone(turns);
        self.state.lock().queues.push(Watched {
            thread,
            stat,
            turns,
            observed: Observed::default(),
        });
    }

    /// Records a round of a thread, which is watched before it changes its policy.
    pub(super) fn round(&self, turns: &Turns) {
        turns.rounds.fetch_add(1, Ordering::SeqCst);
        // A thread with `SCHED_IDLE` is watched already. It takes no lock here: if it starved with
        // this lock, the watcher could not rescue it.
        let is_idle = turns.standing() == Standing::Has(Policy::Idle);
        if !is_idle && self.is_asleep.load(Ordering::SeqCst) {
            self.state.lock().is_wanted = true;
            self.changed.notify_all();
        }
    }

    /// Watches until [`Watch::end`].
    pub(super) fn run(&self) {
        let mut state = self.state.lock();
        while !state.has_ended {
            if state.look() {
                self.changed.wait_for(&mut state, INTERVAL);
                continue;
            }
            self.is_asleep.store(true, Ordering::SeqCst);
            // A round since the look has not observed the flag.
            if !state.has_news() && !state.is_wanted {
                self.changed.wait(&mut state);
            }
            self.is_asleep.store(false, Ordering::SeqCst);
            state.is_wanted = false;
        }
    }

    /// Ends [`Watch::run`].
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }
}

impl State {
    /// Looks at all threads. Returns whether any is to be looked at again.
    fn look(&mut self) -> bool {
        let mut again = false;
        for queue in &mut self.queues {
            again |= queue.look();
        }
        again
    }

    fn has_news(&self) -> bool {
        self.queues.iter().any(|queue| queue.observed.rounds != queue.turns.rounds())
    }
}

impl Watched {
    /// Returns whether the thread is to be looked at again.
    fn look(&mut self) -> bool {
        let Self { thread, stat, turns, observed } = self;
        if observed.is_at_rest() && observed.rounds == turns.rounds() {
            return false;
        }
        match observed.look(turns.rounds(), || stat.runtime_if_runnable()) {
            Finding::Good => {}
            Finding::Starves => give_back(*thread, turns, Standing::Rescued),
            Finding::Rests => {
                give_back(*thread, turns, Standing::Has(Policy::Other));
                return false;
            }
        }
        true
    }
}

/// Gives a thread the usual policy. If the thread chooses `SCHED_IDLE` at the same time, it has had
/// a round, and is watched on.
fn give_back(thread: Pid, turns: &Turns, standing: Standing) {
    if turns.standing() == Standing::Has(Policy::Idle) {
        turns.set(standing);
    }
    if let Err(error) = set_policy(thread, Policy::Other) {
        tracing::debug!(%error, ?thread, "a thread of the ring keeps its policy");
    }
}

impl Default for Observed {
    /// Returns the observations of a thread that rests.
    fn default() -> Self {
        Self { rounds: 0, looks: Self::LOOKS, runnable: 0, runtime: Duration::ZERO }
    }
}

impl Observed {
    /// Count of looks after which a thread without a round rests.
    #[expect(clippy::cast_possible_truncation, reason = "a few")]
    const LOOKS: u32 = (QUIET.as_millis() / INTERVAL.as_millis()) as u32;

    const fn is_at_rest(&self) -> bool {
        self.looks >= Self::LOOKS && self.runnable == 0
    }

    /// Adds a look. `runtime` returns the time that the thread has run, if it could run now.
    fn look(&mut self, rounds: u64, runtime: impl FnOnce() -> Option<Duration>) -> Finding {
        if self.rounds != rounds {
            *self = Self { rounds, looks: 0, ..Self::default() };
            return Finding::Good;
        }
        self.looks = self.looks.saturating_add(1);
        match runtime() {
            None => self.runnable = 0,
            Some(runtime) if runtime == self.runtime => {
                self.runnable = self.runnable.saturating_add(1);
            }
            Some(runtime) => (self.runtime, self.runnable) = (runtime, 1),
        }
        if self.runnable >= PATIENCE {
            return Finding::Starves;
        }
        if self.is_at_rest() { Finding::Rests } else { Finding::Good }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self { rounds: AtomicU64::new(0), standing: AtomicU8::new(OTHER) }
    }
}

/// The numbers of [`Standing`] in memory.
const OTHER: u8 = 0;
const IDLE: u8 = 1;
const RESCUED: u8 = 2;

impl Turns {
    /// Returns what is known of the policy of the thread.
    pub(super) fn standing(&self) -> Standing {
        match self.standing.load(Ordering::SeqCst) {
            IDLE => Standing::Has(Policy::Idle),
            RESCUED => Standing::Rescued,
            _ => Standing::Has(Policy::Other),
        }
    }

    pub(super) fn set(&self, standing: Standing) {
        let number = match standing {
            Standing::Has(Policy::Other) => OTHER,
            Standing::Has(Policy::Idle) => IDLE,
            Standing::Rescued => RESCUED,
        };
        self.standing.store(number, Ordering::SeqCst);
    }

    fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    #[test]
    fn a_thread_that_could_run_and_does_not_starves() {
        let mut observed = Observed::default();
        for _ in 0..3 {
            assert_eq!(observed.look(1, || millis(7)), Finding::Good);
        }
        assert_eq!(observed.look(1, || millis(7)), Finding::Starves);
        assert_eq!(observed.look(1, || millis(7)), Finding::Starves, "until it runs");
        assert_eq!(observed.look(2, || millis(7)), Finding::Good);
        assert_eq!(observed.look(2, || millis(7)), Finding::Good);
        assert_eq!(observed.look(2, || millis(7)), Finding::Good);
        assert_eq!(observed.look(2, || None), Finding::Good);
        assert_eq!(observed.look(2, || millis(7)), Finding::Good, "it slept in between");
    }

    #[test]
    fn a_thread_that_computes_long_does_not_starve() {
        let mut observed = Observed::default();
        for tick in 0..100 {
            for _ in 0..2 {
                assert_eq!(observed.look(1, || millis(4 * tick)), Finding::Good, "{tick}");
            }
        }
    }

    #[test]
    fn a_thread_without_requests_rests_but_not_while_it_could_run() {
        let mut observed = Observed::default();
        assert!(observed.is_at_rest());
        observed.look(1, || millis(7));
        for _ in 1..Observed::LOOKS {
            assert_eq!(observed.look(1, || None), Finding::Good);
        }
        assert_eq!(observed.look(1, || millis(7)), Finding::Good);
        assert!(!observed.is_at_rest());
        assert_eq!(observed.look(1, || None), Finding::Rests);
        assert!(observed.is_at_rest());
    }
}
