//! The gate before changes of the bytes in a node: it is closed while they are given or sent.

use std::mem;

use pelago_store::rows::StayState;
use pelago_wire::{InodeId, Then};

use super::{Gate, Stays};

impl Stays {
    /// Begins a change of the bytes in a node.
    pub(crate) fn begin_change(&self, node: InodeId) -> Gate {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node) else { return Gate::Gone };
        if stay.is_closed {
            return Gate::Closed;
        }
        if !stay.is_used() {
            return Gate::Gone;
        }
        stay.changing += 1;
        // The home may have what was sent, but not what is written now.
        let was_sent = stay.row.state == StayState::Sent;
        if was_sent {
            stay.row.state = StayState::New;
        }
        Gate::Begun(was_sent.then_some(stay.row))
    }

    /// Has `then` called once the gate of a node opens: at once if it is open.
    pub(crate) fn when_open(&self, node: InodeId, then: Then) {
        let mut state = self.state.lock();
        match state.by_node.get_mut(&node) {
            Some(stay) if stay.is_closed => stay.parked.push(then),
            Some(_) | None => {
                drop(state);
                then();
            }
        }
    }

    /// Ends a change that was begun. `kills_privileges`: a user has made it who may not keep the
    /// setuid and setgid bits.
    pub(crate) fn end_change(&self, node: InodeId, kills_privileges: bool) {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node) else { return };
        stay.changing -= 1;
        // Not when it began: what is told meanwhile may be without it.
        stay.is_dirty |= stay.is_of_file();
        stay.kills_privileges |= kills_privileges;
        let quiet = if stay.changing == 0 { stay.closing.take() } else { None };
        drop(state);
        if let Some(quiet) = quiet {
            quiet();
        }
    }

    /// Lets no more change of the bytes begin, and calls `quiet` once none is under way. Returns
    /// whether the gate was open.
    pub(crate) fn close_gate(&self, node: InodeId, quiet: Then) -> bool {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node).filter(|stay| !stay.is_closed) else {
            return false;
        };
        stay.is_closed = true;
        if stay.changing > 0 {
            stay.closing = Some(quiet);
            return true;
        }
        drop(state);
        quiet();
        true
    }

    /// Returns whether nothing was written into a node after all of it was sent to its home.
    pub(crate) fn is_as_sent(&self, node: InodeId) -> bool {
        let state = self.state.lock();
        let stay = state.by_node.get(&node);
        stay.is_some_and(|stay| stay.row.state == StayState::Sent && !stay.is_dirty)
    }

    /// Lets changes begin again.
    pub(crate) fn open_gate(&self, node: InodeId) {
        let parked = match self.state.lock().by_node.get_mut(&node) {
            Some(stay) => {
                stay.is_closed = false;
                mem::take(&mut stay.parked)
            }
            None => return,
        };
        parked.into_iter().for_each(|then| then());
    }
}
