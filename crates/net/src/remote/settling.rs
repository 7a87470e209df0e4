//! Callbacks that wait until mutations are over that were given up.

use std::collections::VecDeque;

use pelago_wire::Then;

/// The callbacks, in the order of their mutations.
#[derive(Default)]
pub(super) struct Settling(VecDeque<Waiting>);

struct Waiting {
    /// The mutations that were given up have this number or lower ones.
    last: u64,
    then: Then,
}

impl Settling {
    /// Has a callback wait for mutations with numbers up to `last`, which is not lower than any
    /// before.
    pub(super) fn push(&mut self, last: u64, then: Then) {
        self.0.push_back(Waiting { last, then });
    }

    /// Has all callbacks wait for mutations with numbers up to `last`: a new session has given them
    /// new numbers.
    pub(super) fn renumber(&mut self, last: u64) {
        self.0.iter_mut().for_each(|waiting| waiting.last = last);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes all callbacks: the session ends, and what it has under way with it.
    pub(super) fn take_all(&mut self) -> Vec<Then> {
        self.0.drain(..).map(|waiting| waiting.then).collect()
    }

    /// Takes the callbacks whose mutations are over. `first` is the lowest number of a mutation
    /// that was given up and is not over.
    pub(super) fn take(&mut self, first: Option<u64>) -> Vec<Then> {
        let is_over = |waiting: &&Waiting| first.is_none_or(|first| waiting.last < first);
        let over = self.0.iter().take_while(is_over).count();
        self.0.drain(..over).map(|waiting| waiting.then).collect()
    }
}
