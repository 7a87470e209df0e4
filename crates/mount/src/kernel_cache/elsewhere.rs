//! Invalidation of directories of other sites, which the kernel keeps under leases of the server.

use std::sync::Arc;

use pelago_wire::{DirectoryCache, Then, Touched};

use super::{Invalidation, KernelCache, invalidate};
use crate::lifetimes::KeptPart;
use crate::state::State;

impl DirectoryCache for KernelCache {
    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let Some(state) = self.state.upgrade() else { return then() };
        let kept = state.lifetimes.mark_elsewhere(changes);
        self.invalidate_elsewhere(&state, kept, then);
    }

    fn end(&self, changes: &[Touched]) {
        if let Some(state) = self.state.upgrade() {
            state.lifetimes.unmark_elsewhere(changes);
        }
    }

    fn drop_site(&self, site: u16, then: Then) {
        let Some(state) = self.state.upgrade() else { return then() };
        let kept = state.lifetimes.lose_elsewhere(site);
        self.invalidate_elsewhere(&state, kept, then);
    }
}

impl KernelCache {
    /// Invalidates directories of other sites, and calls `then` when that is done, or their
    /// lifetimes are over.
    fn invalidate_elsewhere(&self, state: &State, kept: KeptPart, then: Then) {
        let KeptPart { nodes, names, names_until } = kept;
        let Some(kernel) = state.kernel.get() else { return then() };
        for ino in nodes {
            // The attributes were read by GETATTR: the kernel has the directory, or has forgotten
            // it since.
            let _is_known = invalidate(kernel, ino);
        }
        if names.is_empty() {
            return then();
        }
        let waits = Invalidation { names, expires: names_until, ..Invalidation::default() };
        self.elsewhere.enqueue(waits, then);
    }
}
