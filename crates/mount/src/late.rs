//! Late requests: their callers were killed before the reply.
//!
//! The kernel has ended such a request with an error and lets other programs go on, with the same
//! name too. The server may carry the request out all the same, later. For the kernel that is a
//! change by another session: the nodes and names that it changed are invalidated afterwards, and
//! references and opens that the kernel never got are given back.

use std::sync::Arc;

use pelago_client::Written;
use pelago_fuse::{Reply, reply};
use pelago_wire::{Error, InodeId, Touched};

use crate::notices::DirEntryKey;
use crate::replies::{done, written};
use crate::state::State;

impl State {
    /// Invalidates the nodes and names that a late request has changed.
    pub(crate) fn changed_late(self: &Arc<Self>, touched: &[Touched]) {
        let mut names = Vec::new();
        for change in touched {
            match change {
                Touched::Node(ino) => {
                    self.changed([*ino]);
                    self.forget_attr(*ino);
                }
                Touched::Bytes(ino) => self.stale_pages.add(*ino, 0, u64::MAX),
                Touched::Name { dir, name } => {
                    self.changed([*dir]);
                    self.forget_attr(*dir);
                    // The kernel caches a listing in pages of the directory.
                    self.stale_pages.add(*dir, 0, u64::MAX);
                    names.push(DirEntryKey { dir: *dir, name: name.clone() });
                }
            }
        }
        if !names.is_empty() {
            self.invalidate_names(names);
        }
    }

    /// Replies without a value to a request that has changed the nodes and names in `touched`.
    pub(crate) fn done(
        self: &Arc<Self>,
        result: Result<(), Error>,
        mut reply: Reply<()>,
        touched: impl FnOnce() -> Vec<Touched>,
    ) {
        if reply.claim() {
            return done(result, reply);
        }
        if result.is_ok() {
            self.changed_late(&touched());
        }
    }

    /// Replies to a request that has changed bytes of a file.
    pub(crate) fn written(
        self: &Arc<Self>,
        node: InodeId,
        result: Result<Written, Error>,
        mut reply: Reply<reply::Written>,
    ) {
        if reply.claim() {
            return written(result, reply);
        }
        if result.is_ok() {
            self.changed_late(&[Touched::Node(node), Touched::Bytes(node)]);
        }
    }

    /// Invalidates names by threads of their own: Linux takes the lock of the directory for it,
    /// which a program of this mount may hold until its request has a reply.
    pub(crate) fn invalidate_names(self: &Arc<Self>, names: Vec<DirEntryKey>) {
        if !self.late_names.add(names) {
            return;
        }
        let state = Arc::clone(self);
        let spawned = pelago_threads::spawn("fuse-late", move || state.invalidate_queued_names());
        if let Err(error) = spawned {
            tracing::error!(%error, "a name that was changed late is not told");
            self.late_names.has_failed();
        }
    }

    fn invalidate_queued_names(&self) {
        while let Some(name) = self.late_names.next() {
            if let Some(kernel) = self.kernel.get()
                && let Err(error) = name.invalidate(kernel)
            {
                tracing::debug!(%error, dir = %name.dir, "a name that was changed late is unknown");
            }
        }
    }
}
