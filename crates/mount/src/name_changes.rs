//! Requests that make or remove a name, and what they tell of its directory.

use std::sync::Arc;

use pelago_client::{At, Removed};
use pelago_fuse::{Reply, reply};
use pelago_wire::{Entry, Error, InodeId};

use crate::dir_attrs::DirChange;
use crate::replies::done;
use crate::state::State;

impl State {
    /// A request begins that makes this name. Returns what gets its answer.
    pub(crate) fn making(
        self: &Arc<Self>,
        at: &At,
        reply: Reply<reply::Entry>,
    ) -> impl FnOnce(Result<Entry, Error>) + Send + 'static {
        let (sample, change) = (self.sample_name(at), self.begin_change(at));
        let state = Arc::clone(self);
        move |made| {
            state.end_change(change);
            state.reply_entry(&sample, made, reply);
        }
    }

    /// A request begins that removes this name. Returns what gets its answer.
    pub(crate) fn removing(
        self: &Arc<Self>,
        at: &At,
        reply: Reply<()>,
    ) -> impl FnOnce(Result<Removed, Error>) + Send + 'static {
        let (state, change) = (Arc::clone(self), self.begin_change(at));
        move |removed| {
            state.end_change(change);
            if let Ok(removed) = &removed {
                state.entry_attrs.changes(removed.attr.ino);
            }
            done(removed.map(|removed| state.unlinked.add(removed.attr)), reply);
        }
    }

    /// A request begins that changes this name, if the kernel keeps nothing.
    pub(crate) fn begin_change(&self, at: &At) -> Option<DirChange> {
        self.lifetimes.keeps_nothing().then(|| self.dir_attrs.begin(at.dir.ino))
    }

    /// A request begins or has ended that changes these directories, if the kernel keeps nothing.
    pub(crate) fn change_dirs(&self, dirs: [InodeId; 2]) {
        if self.lifetimes.keeps_nothing() {
            for dir in dirs {
                self.dir_attrs.changes(dir);
            }
        }
    }

    /// That request was answered.
    pub(crate) fn end_change(&self, change: Option<DirChange>) {
        if let Some(change) = change {
            self.dir_attrs.end(&change);
        }
    }
}
