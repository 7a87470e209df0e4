//! Requests that make or remove a name, and what they tell of its directory.

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
    /// A request begins that makes this name. Returns what gets its answer.
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

    /// A request begins that removes this name. Returns what gets its answer.
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

    /// This mount has moved an inode to this name.
    pub(crate) fn is_at(&self, moved: Handle, at: &At) {
        if let Some(name) = self.sample_name(at).name_key()
            && !moved.is_under_a_name()
        {
            let _elsewhere = self.seen_names.see(moved.ino, name);
        }
    }

    /// This mount has removed a name of a file that has, or had, others. Such a file has no place
    /// under a name.
    pub(crate) fn lost_a_name(&self, ino: InodeId, at: &At) {
        self.inodes.moved(Handle::own(ino));
        if let Some(name) = self.sample_name(at).name_key() {
            self.seen_names.forget_name(ino, name);
        }
    }

    /// A request begins that changes this name, unless the kernel keeps everything.
    pub(crate) fn begin_change(&self, at: &At) -> Option<DirChange> {
        (!self.lifetimes.keeps_everything()).then(|| self.dir_attrs.begin(at.dir.ino))
    }

    /// A request was answered that has changed these inodes, or others change them, unless the
    /// kernel keeps everything. What is known of them may be older, or may come from a request that
    /// was carried out before.
    pub(crate) fn changed(&self, inodes: impl IntoIterator<Item = InodeId>) {
        if !self.lifetimes.keeps_everything() {
            for ino in inodes {
                self.entry_attrs.changes(ino);
                self.dir_attrs.changes(ino);
            }
        }
    }

    /// Attributes are about to be asked for, perhaps of a directory.
    pub(crate) fn ask_dir(&self, node: InodeId) -> Option<DirQuestion> {
        self.lifetimes.keeps_nothing_of(node).then(|| self.dir_attrs.ask(node))
    }

    /// They were told.
    pub(crate) fn learn_dir(&self, question: Option<DirQuestion>, result: &Result<Attr, Error>) {
        if let (Some(question), Ok(attr)) = (question, result)
            && attr.kind == FileKind::Directory
        {
            self.dir_attrs.learn(&question, *attr);
        }
    }

    /// That request was answered.
    pub(crate) fn end_change(&self, change: Option<DirChange>) {
        if let Some(change) = change {
            self.entry_attrs.changes(change.dir());
            self.dir_attrs.end(&change);
        }
    }
}

/// Returns why a name that is no file cannot be removed: as a hidden one it exists.
pub(crate) fn unless_hidden(error: Error, hidden: Option<HiddenName>) -> Error {
    match hidden {
        Some(_) if error.code == Code::NotFound => Code::ReadOnly.into(),
        _ => error,
    }
}
