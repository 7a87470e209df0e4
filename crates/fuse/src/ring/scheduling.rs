//! Scheduling policy of the thread of a queue, set from round to round.

use std::sync::Arc;
use std::time::Instant;

use rustix::thread::{Pid, gettid};

use super::policy::{Choice, Policy, Standing};
use super::system::{Schedstat, bind, set_policy};
use super::watch::{Turns, Watch};

/// The policy of this thread.
#[derive(Debug)]
pub(super) struct Scheduling {
    thread: Pid,
    processor: u16,
    schedstat: Schedstat,
    turns: Arc<Turns>,
    choice: Choice,
    watch: Arc<Watch>,
}

impl Scheduling {
    /// Returns the scheduling of this thread, which is watched from its next round on.
    pub(super) fn of_this_thread(watch: Arc<Watch>, processor: u16) -> Self {
        let thread = gettid();
        let schedstat = Schedstat::of_this_thread();
        let turns = Arc::default();
        let choice = Choice::default();
        watch.add(thread, &turns);
        Self { thread, processor, schedstat, turns, choice, watch }
    }

    /// Sets the policy that is best now. Called in each round, after the wait.
    pub(super) fn round(&mut self) {
        // Before the policy changes: a thread that has `SCHED_IDLE` is watched.
        self.watch.round(&self.turns);
        let standing = self.turns.standing();
        if standing == Standing::Rescued {
            self.turns.set(Standing::Has(Policy::Other));
        }
        let chosen = self.choice.round(Instant::now(), standing, || self.schedstat.delays());
        let Some(policy) = chosen else { return };
        if policy == Policy::Idle {
            // Once more: if the processor was offline meanwhile, Linux has removed the binding.
            bind(self.processor);
        }
        match set_policy(self.thread, policy) {
            Ok(()) => self.turns.set(Standing::Has(policy)),
            Err(error) => tracing::debug!(%error, ?policy, "a thread of the ring keeps its policy"),
        }
    }
}
