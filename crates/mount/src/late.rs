//! Requests whose callers were killed before the answer came.
//!
//! The kernel has ended such a request with an error and lets other programs go on, at the same
//! name too. What the request does all the same, later, is to it as if another session did it: it
//! is told of it afterwards, and its references and opens that it never got are given back.

use std::sync::Arc;

use pelago_client::Written;
use pelago_fuse::{Reply, reply};
use pelago_wire::{Error, InodeId, Touched};

use crate::notices::DirEntryKey;
use crate::replies::{done, written};
use crate::state::State;

impl State {
    /// Tells the kernel what was changed by a request whose caller is gone.
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
                    // A listing is in pages.
                    self.stale_pages.add(*dir, 0, u64::MAX);
                    names.push(DirEntryKey { dir: *dir, name: name.clone() });
                }
            }
        }
        if !names.is_empty() {
            self.tell_names(names);
        }
    }

    /// Replies without a value to a request that has changed what `touched` returns.
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

    /// Invalidates names by threads of their own: the kernel takes the directory's lock, which a
    /// program of this mount may hold until the server has answered it.
    fn tell_names(self: &Arc<Self>, names: Vec<DirEntryKey>) {
        if !self.late_names.add(names) {
            return;
        }
        let state = Arc::clone(self);
        let spawned = pelago_threads::spawn("fuse-late", move || state.tell_queued_names());
        if let Err(error) = spawned {
            tracing::error!(%error, "a name that was changed late is not told");
            self.late_names.has_failed();
        }
    }

    fn tell_queued_names(&self) {
        while let Some(name) = self.late_names.next() {
            if let Some(kernel) = self.kernel.get()
                && let Err(error) = name.invalidate(kernel)
            {
                tracing::debug!(%error, dir = %name.dir, "a name that was changed late is unknown");
            }
        }
    }
}
