//! Invalidation of directories of other sites, which the kernel keeps under leases of the server.

use std::sync::Arc;

use pelago_wire::{DirectoryCache, InodeId, Then, Touched};

use super::{Invalidation, KernelCache, invalidate};
use crate::lifetimes::KeptPart;
use crate::state::State;

impl DirectoryCache for KernelCache {
    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let Some(state) = self.state.upgrade() else { return then() };
        let KeptPart { nodes, names, names_until } = state.lifetimes.mark_elsewhere(changes);
        drop_attributes(&state, &nodes);
        if names.is_empty() {
            return then();
        }
        let waits = Invalidation { names, expires: names_until, ..Invalidation::default() };
        self.elsewhere.enqueue(waits, then);
    }

    fn end(&self, changes: &[Touched]) {
        if let Some(state) = self.state.upgrade() {
            state.lifetimes.unmark_elsewhere(changes);
        }
    }

    /// Sends no notices for single names: no name may have changed, and each would detach what is
    /// mounted below it.
    fn drop_site(&self, site: u16, then: Then) {
        let Some(state) = self.state.upgrade() else { return then() };
        let kept = state.lifetimes.lose_elsewhere(site);
        drop_attributes(&state, &kept.nodes);
        if kept.names_until.is_none() || self.elsewhere.invalidate_all_names() {
            return then();
        }
        let is_of_all = true;
        let expires = kept.names_until;
        let waits = Invalidation { expires, is_of_all, ..Invalidation::default() };
        self.elsewhere.enqueue(waits, then);
    }
}

/// Invalidates attributes that were read by GETATTR: the kernel has these directories, or has
/// forgotten them since.
fn drop_attributes(state: &State, dirs: &[InodeId]) {
    let Some(kernel) = state.kernel.get() else { return };
    for ino in dirs {
        let _is_known = invalidate(kernel, *ino);
    }
}
