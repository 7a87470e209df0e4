//! Invalidation of directories of other sites, which the kernel keeps under leases of the server.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use pelago_client::At;
use pelago_fuse::Notifier;
use pelago_wire::{DirectoryCache, InodeId, Then, Touched};

use super::{Invalidation, KernelCache, invalidate};
use crate::lifetimes::{Lost, Touching};
use crate::notices::DirEntryKey;
use crate::state::State;

impl DirectoryCache for KernelCache {
    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let Some(state) = self.state.upgrade() else { return then() };
        let Touching { nodes, names, names_until } = state.lifetimes.mark_elsewhere(changes);
        let Some(kernel) = state.kernel.get() else { return then() };
        drop_attributes(kernel, &nodes);
        if names.is_empty() {
            return then();
        }
        let (installing, nodes) = (Vec::new(), Vec::new());
        let waits = Invalidation { names, expires: names_until, installing, nodes };
        self.invalidator.enqueue(waits, then);
    }

    fn end(&self, changes: &[Touched]) {
        if let Some(state) = self.state.upgrade() {
            state.lifetimes.unmark_elsewhere(changes);
        }
    }

    fn drop_site(&self, site: u16) {
        let Some(state) = self.state.upgrade() else { return };
        let Lost { nodes, names_until } = state.lifetimes.lose_elsewhere(site);
        let Some(kernel) = state.kernel.get() else { return };
        drop_attributes(kernel, &nodes);
        if let Some(until) = names_until
            && !self.invalidator.invalidate_all_names()
        {
            // The notice was not possible; but no name holds for longer than this.
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Invalidates attributes that were read by GETATTR: the kernel has these directories, or has
/// forgotten them since.
fn drop_attributes(kernel: &Notifier, dirs: &[InodeId]) {
    for ino in dirs {
        let _is_known = invalidate(kernel, *ino);
    }
}

impl State {
    /// Invalidates all names after this mount has moved one of these, with the lifetime that it got
    /// under a lease: the server has no lease on the new name. Called before the reply to the
    /// rename. Returns what is to be invalidated after it, because the notice was not possible.
    pub(crate) fn moved_elsewhere(&self, names: [&At; 2]) -> Vec<DirEntryKey> {
        if !self.lifetimes.keeps_elsewhere(names) {
            return Vec::new();
        }
        let invalidator = self.invalidator.get().and_then(Weak::upgrade);
        match invalidator.is_some_and(|invalidator| invalidator.invalidate_all_names()) {
            true => Vec::new(),
            false => names.map(DirEntryKey::from).to_vec(),
        }
    }
}
