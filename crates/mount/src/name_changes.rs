//! Requests that make or remove a name, and the held attributes that they invalidate.

use std::iter;
use std::sync::Arc;

use pelago_client::{At, Removed};
use pelago_fuse::{Reply, reply};
use pelago_wire::{Attr, Code, Entry, Error, FileKind, Handle, InodeId, Touched};

use crate::dir_attrs::{DirChange, DirQuestion};
use crate::find::HiddenName;
use crate::late_names::touched_name;
use crate::state::State;

impl State {
    /// Begins a request that makes this name. Returns the function that takes its result.
    pub(crate) fn making(
        self: &Arc<Self>,
        at: &At,
        reply: Reply<reply::Entry>,
    ) -> impl FnOnce(Result<Entry, Error>) + Send + 'static {
        let sample = self.sample_name(at);
        let change = self.begin_change(at);
        let state = Arc::clone(self);
        let at = at.clone();
        move |made| {
            state.end_change(change);
            state.reply_made(&sample, &at, made, reply);
        }
    }

    /// Begins a request that removes this name. Returns the function that takes its result.
    pub(crate) fn removing(
        self: &Arc<Self>,
        at: &At,
        reply: Reply<()>,
    ) -> impl FnOnce(Result<Removed, Error>) + Send + 'static {
        let state = Arc::clone(self);
        let change = self.begin_change(at);
        let hidden = HiddenName::of(at);
        let at = at.clone();
        move |removed| {
            state.end_change(change);
            let removed = removed.map_err(|error| unless_hidden(error, hidden));
            let ino = removed.as_ref().ok().map(|removed| removed.attr.ino);
            if let Some(ino) = ino {
                state.entry_attrs.changes(ino);
            }
            if let Ok(Removed { attr }) = &removed
                && attr.links > 0
            {
                state.lost_a_name(attr.ino, &at);
            }
            let is_gone = removed.as_ref().is_ok_and(|removed| removed.attr.links == 0);
            let removed = removed.map(|removed| state.unlinked.add(removed.attr));
            let touched = || iter::once(touched_name(&at)).chain(ino.map(Touched::Node)).collect();
            state.done(removed, reply, touched);
            if is_gone {
                state.has_removed();
            }
        }
    }

    /// Records that this mount has moved an inode to this name.
    pub(crate) fn is_at(&self, moved: Handle, at: &At) {
        if let Some(name) = self.sample_name(at).name_key()
            && !moved.is_under_a_name()
        {
            let _elsewhere = self.seen_names.see(moved.ino, name);
        }
    }

    /// Records that this mount has removed a name of a file that has, or had, others. The row of
    /// such a file is under none of its names.
    pub(crate) fn lost_a_name(&self, ino: InodeId, at: &At) {
        self.inodes.moved(Handle::own(ino));
        if let Some(name) = self.sample_name(at).name_key() {
            self.seen_names.forget_name(ino, name);
        }
    }

    /// Begins a request that changes this name. Returns `None` if the kernel keeps everything.
    pub(crate) fn begin_change(&self, at: &At) -> Option<DirChange> {
        (!self.lifetimes.keeps_everything()).then(|| self.dir_attrs.begin(at.dir.ino))
    }

    /// Drops held attributes of inodes that a request has changed, or that others change, unless
    /// the kernel keeps everything: they may be older, or come from a request that was carried out
    /// before.
    pub(crate) fn changed(&self, inodes: impl IntoIterator<Item = InodeId>) {
        if !self.lifetimes.keeps_everything() {
            for ino in inodes {
                self.entry_attrs.changes(ino);
                self.dir_attrs.changes(ino);
            }
        }
    }

    /// Begins a request for attributes, perhaps of a directory. Returns `None` if the kernel may
    /// keep the reply.
    pub(crate) fn ask_dir(&self, node: InodeId) -> Option<DirQuestion> {
        self.lifetimes.keeps_nothing_of(node).then(|| self.dir_attrs.ask(node))
    }

    /// Records the reply to such a request.
    pub(crate) fn learn_dir(&self, question: Option<DirQuestion>, result: &Result<Attr, Error>) {
        if let (Some(question), Ok(attr)) = (question, result)
            && attr.kind == FileKind::Directory
        {
            self.dir_attrs.learn(&question, *attr);
        }
    }

    /// Ends a request that has changed a name.
    pub(crate) fn end_change(&self, change: Option<DirChange>) {
        if let Some(change) = change {
            self.entry_attrs.changes(change.dir());
            self.dir_attrs.end(&change);
        }
    }
}

/// Returns the error of a removal or rename; for a hidden name that no file has it is `ReadOnly`,
/// because the name can be looked up.
pub(crate) fn unless_hidden(error: Error, hidden: Option<HiddenName>) -> Error {
    match hidden {
        Some(_) if error.code == Code::NotFound => Code::ReadOnly.into(),
        _ => error,
    }
}
