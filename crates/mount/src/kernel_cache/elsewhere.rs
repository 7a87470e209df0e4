//! Invalidation of directories of other sites, which the kernel keeps under leases of the server.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use pelago_fuse::Notifier;
use pelago_wire::{DirectoryCache, InodeId, Then, Touched};

use super::{Invalidation, KernelCache, invalidate};
use crate::lifetimes::{Lost, Touching};

impl DirectoryCache for KernelCache {
    fn begin(&self, changes: &Arc<[Touched]>, then: Then) {
        let Some(state) = self.state.upgrade() else { return then() };
        let Touching { nodes, names, names_until } = state.lifetimes.mark_elsewhere(changes);
        let Some(kernel) = state.kernel.get() else { return then() };
        drop_attributes(kernel, &nodes);
        if names.is_empty() {
            return then();
        }
        let waits = Invalidation { names, expires: names_until, ..Invalidation::default() };
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
