//! The news for the homes of files: what changed since they were told, and the callers who wait.

use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_meta::shard::without_privileges;
use pelago_store::rows::{StayRow, StayState};
use pelago_wire::{Attr, Handle, InodeId, Then};

use super::{News, OnTold, Stay, Stays};

impl Stays {
    /// Begins to tell the home of the file of a node what has changed, and has `then` called once
    /// it knows. Returns what is to be told, if it is not being told already; and `then` if there
    /// is nothing to tell.
    pub(crate) fn begin_telling(
        &self,
        node: InodeId,
        then: OnTold,
    ) -> (Option<News>, Option<OnTold>) {
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node) else { return (None, Some(then)) };
        if !stay.is_dirty && !stay.is_telling {
            return (None, Some(then));
        }
        stay.waiting.push(then);
        if stay.is_telling {
            return (None, None);
        }
        (Some(Self::next_news(node, stay)), None)
    }

    fn next_news(node: InodeId, stay: &mut Stay) -> News {
        stay.is_telling = true;
        // What is written from now on is told the next time.
        stay.is_dirty = false;
        let kills_privileges = mem::take(&mut stay.kills_privileges);
        let may_arrive = stay.may_arrive;
        News { node, row: stay.row, kills_privileges, may_arrive }
    }

    /// Takes the callbacks that wait until sent bytes have arrived or have not, for files of homes
    /// that are silent.
    pub(crate) fn take_stuck(&self, is_silent: impl Fn(u16) -> bool) -> Vec<OnTold> {
        let mut state = self.state.lock();
        let is_stuck = |stay: &&mut Stay| {
            let is_sent = stay.may_arrive && stay.is_telling;
            is_sent && !stay.waiting.is_empty() && is_silent(stay.row.file.ino.site())
        };
        let stuck = state.by_node.values_mut().filter(is_stuck);
        stuck.flat_map(|stay| mem::take(&mut stay.waiting)).collect()
    }

    /// Takes the callbacks that wait for what is about to be told.
    pub(crate) fn take_waiting(&self, node: InodeId) -> Vec<OnTold> {
        let mut state = self.state.lock();
        let waiting = state.by_node.get_mut(&node).map(|stay| mem::take(&mut stay.waiting));
        waiting.unwrap_or_default()
    }

    /// Records that the home of the file of a node is about to be told.
    pub(crate) fn note_told(&self, node: InodeId) {
        if let Some(stay) = self.state.lock().by_node.get_mut(&node) {
            stay.was_told = true;
        }
    }

    /// Returns whether the home of the file of a node has never been told anything.
    pub(crate) fn is_unheard_of(&self, node: InodeId) -> bool {
        let state = self.state.lock();
        let stay = state.by_node.get(&node);
        stay.is_some_and(|stay| stay.row.state == StayState::New && !stay.was_told)
    }

    /// Returns whether a node has a version that others have passed over.
    pub(crate) fn is_kept(&self, node: InodeId) -> bool {
        self.row(node).is_some_and(|row| row.state == StayState::Kept)
    }

    /// Records that the home was told, with this size, or was not. Returns the row to be written,
    /// and what is to be told next.
    pub(crate) fn end_telling(
        &self,
        news: News,
        told: Option<u64>,
    ) -> (Option<StayRow>, Option<News>) {
        let News { node, kills_privileges, .. } = news;
        let mut state = self.state.lock();
        let Some(stay) = state.by_node.get_mut(&node) else { return (None, None) };
        stay.is_telling = false;
        match told {
            Some(size) => {
                stay.row.told_size = size;
                if matches!(stay.row.state, StayState::New | StayState::Sent) {
                    stay.row.state = StayState::Changing;
                }
            }
            None => {
                stay.is_dirty |= stay.is_of_file();
                stay.kills_privileges |= kills_privileges;
            }
        }
        let next = !stay.waiting.is_empty();
        let next = next.then(|| Self::next_news(node, stay));
        (Self::settle(stay), next)
    }

    /// Records that the home of a file is to be told again.
    pub(crate) fn tell_again(&self, node: InodeId) {
        if let Some(stay) = self.state.lock().by_node.get_mut(&node) {
            stay.is_dirty |= stay.is_of_file();
        }
    }

    /// Returns the nodes of which the homes do not know all, although no program writes there any
    /// more under a lease. `has_bytes`: this site has the lease on the bytes of an open file.
    pub(crate) fn untold(&self, has_bytes: impl Fn(u16, OpenKey) -> bool) -> Vec<InodeId> {
        let state = self.state.lock();
        let is_leased = |file: InodeId| {
            let mut of_file = state.opens.iter().filter(|(_, open)| open.file.ino == file);
            of_file.any(|(key, _)| has_bytes(file.site(), *key))
        };
        let is_it = |stay: &Stay| {
            let is_written = stay.writers > 0 && stay.is_used() && is_leased(stay.row.file.ino);
            stay.is_dirty && !stay.is_telling && !is_written && stay.is_of_file()
        };
        state.by_node.iter().filter(|(_, stay)| is_it(stay)).map(|(node, _)| *node).collect()
    }

    /// Returns the nodes whose homes may have forgotten them: nothing is written there.
    pub(crate) fn quiet(&self) -> Vec<News> {
        let state = self.state.lock();
        let quiet = state.by_node.iter().filter(|(_, stay)| {
            let is_known = matches!(stay.row.state, StayState::Told | StayState::Given);
            let is_written = stay.writers > 0 && stay.is_used();
            is_known && !stay.is_dirty && !stay.is_telling && !is_written
        });
        let nodes = quiet.map(|(node, _)| *node);
        let asked = |node: InodeId| News {
            node,
            row: state.by_node[&node].row,
            kills_privileges: false,
            may_arrive: false,
        };
        nodes.map(asked).collect()
    }

    /// Shows in attributes what was written here and is not told yet.
    pub(crate) fn show(&self, attr: &mut Attr) {
        if self.is_empty() {
            return;
        }
        let state = self.state.lock();
        let Some(node) = state.by_file.get(&attr.ino).copied() else { return };
        let Some(stay) = state.by_node.get(&node) else { return };
        if !stay.is_dirty && !stay.is_telling && stay.changing == 0 {
            return;
        }
        if stay.kills_privileges {
            attr.mode = without_privileges(attr.mode);
        }
        drop(state);
        if let Ok(here) = self.shard.attr(Handle::own(node)) {
            attr.size = here.size;
            attr.blocks = here.blocks;
            attr.mtime = attr.mtime.max(here.mtime);
            attr.ctime = attr.ctime.max(here.ctime);
        }
    }

    /// Tells the homes of all files what has changed, and calls `then`.
    pub(crate) fn tell_everything(self: &Arc<Self>, then: Then) {
        self.tell_all(self.dirty(), then);
    }

    /// Returns the nodes of which the homes do not know all.
    pub(super) fn dirty(&self) -> Vec<InodeId> {
        let state = self.state.lock();
        let dirty = state.by_node.iter().filter(|(_, stay)| stay.is_dirty && stay.is_of_file());
        dirty.map(|(node, _)| *node).collect()
    }

    /// Tells the homes of the files of these nodes what has changed, one after the other, and calls
    /// `then`.
    pub(super) fn tell_all(self: &Arc<Self>, mut nodes: Vec<InodeId>, then: Then) {
        let Some(node) = nodes.pop() else { return then() };
        let Some(tell) = self.tell.get() else { return then() };
        let this = Arc::clone(self);
        // What could not be told is told later, or is refused.
        tell(node, Box::new(move |_told| this.tell_all(nodes, then)));
    }

    /// Tells a site what has changed in all its files, at once, and calls `then` after the last
    /// answer. Files whose bytes were sent, and may arrive still, are told later: what was given up
    /// before is waited for, and the site may wait for this.
    pub(super) fn tell_site(self: &Arc<Self>, site: u16, then: Then) {
        let last = Arc::new(AfterLast(Mutex::new(Some(then))));
        let mut untold = Vec::new();
        let mut state = self.state.lock();
        for (node, stay) in &mut state.by_node {
            let is_of_site = stay.row.file.ino.site() == site && stay.is_of_file();
            if !is_of_site || stay.may_arrive || !(stay.is_dirty || stay.is_telling) {
                continue;
            }
            let last = Arc::clone(&last);
            stay.answered.push(Box::new(move || drop(last)));
            if !stay.is_telling {
                untold.push(*node);
            }
        }
        drop(state);
        for node in untold {
            let this = Arc::clone(self);
            // If there is nothing to tell any more, nothing is answered.
            self.tell_all(vec![node], Box::new(move || this.answer(node)));
        }
    }

    /// Calls the functions that wait until the home has answered what it was told of a node.
    pub(crate) fn answer(&self, node: InodeId) {
        let mut state = self.state.lock();
        let answered = state.by_node.get_mut(&node).map(|stay| mem::take(&mut stay.answered));
        drop(state);
        answered.into_iter().flatten().for_each(|then| then());
    }

    /// Tells the homes of these files what has changed, one after the other, and calls `then`. For
    /// a file whose node is being made this waits until it is.
    pub(super) fn tell_of_files(self: &Arc<Self>, mut files: Vec<InodeId>, then: Then) {
        let Some(file) = files.pop() else { return then() };
        let this = Arc::clone(self);
        let made = move || {
            let again = Arc::clone(&this);
            let rest: Then = Box::new(move || again.tell_of_files(files, then));
            this.tell_all(this.node_of(file).into_iter().collect(), rest);
        };
        self.when_made(file, Box::new(made));
    }
}

/// Calls a function when the last one of its owners drops it.
struct AfterLast(Mutex<Option<Then>>);

impl Drop for AfterLast {
    fn drop(&mut self) {
        if let Some(then) = self.0.get_mut().take() {
            then();
        }
    }
}
