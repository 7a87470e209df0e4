//! Opens of files of other sites by programs of this one.

use pelago_data::OpenKey;
use pelago_store::rows::StayState;
use pelago_wire::{Attr, InodeId, SessionId, Time};

use super::{RemoteOpen, State, Stays};

impl Stays {
    /// Records an open of a file, which is empty since the given time if there is one. Returns the
    /// node that has its bytes, if that is here.
    pub(crate) fn add_open(
        &self,
        open: OpenKey,
        mut remote: RemoteOpen,
        empty_since: Option<Time>,
    ) -> Option<InodeId> {
        let mut state = self.state.lock();
        if let Some(since) = empty_since {
            let of_file = |open: &&mut RemoteOpen| open.file.ino == remote.file.ino;
            for open in state.opens.values_mut().filter(of_file) {
                open.empty_since = open.may_stay().then_some(since);
            }
            remote.empty_since = remote.may_stay().then_some(since);
        }
        state.opens.insert(open, remote);
        self.count(&state);
        state.by_file.get(&remote.file.ino).copied()
    }

    /// Returns whether an open is of a file of another site.
    pub(crate) fn has_open(&self, open: OpenKey) -> bool {
        !self.is_empty() && self.state.lock().opens.contains_key(&open)
    }

    /// Forgets an open that ends.
    pub(crate) fn remove_open(&self, open: OpenKey) {
        let mut state = self.state.lock();
        state.opens.remove(&open);
        self.count(&state);
    }

    /// Forgets the opens of a session that ends. What was written through them is told later.
    pub(crate) fn end_session(&self, session: SessionId) {
        if self.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let State { by_node, by_file, opens, .. } = &mut *state;
        opens.retain(|open, remote| {
            if open.session != session {
                return true;
            }
            let node = by_file.get(&remote.file.ino).filter(|_| remote.flags.write);
            if let Some(stay) = node.and_then(|node| by_node.get_mut(node)) {
                stay.writers = stay.writers.saturating_sub(1);
                stay.is_dirty = true;
            }
            false
        });
        self.count(&state);
    }

    /// Records the `mtime` of a file that a program here has set, and that may be empty. Returns
    /// the node whose row is to be written.
    pub(crate) fn note_set(&self, attr: &Attr) -> Option<InodeId> {
        let mut state = self.state.lock();
        for open in state.opens.values_mut().filter(|open| open.file.ino == attr.ino) {
            open.empty_since = open.empty_since.map(|_| attr.mtime);
        }
        let node = state.by_file.get(&attr.ino).copied()?;
        let stay = state.by_node.get_mut(&node)?;
        if stay.row.state != StayState::New {
            return None;
        }
        stay.row.since = attr.mtime;
        Some(node)
    }

    /// Returns how many changes of bytes have gone to the home of a file so far.
    pub(crate) fn went_home(&self) -> u64 {
        self.state.lock().went_home
    }

    /// Records the size of a file that was set at its home; none of its bytes are here. Those that
    /// are written from now on may stay here, if it is empty and nothing else has gone home since
    /// the count was `went_home`. Returns the node whose row is to be written: a program may have
    /// begun to write one meanwhile.
    pub(crate) fn note_size(&self, attr: &Attr, went_home: u64) -> Option<InodeId> {
        let mut state = self.state.lock();
        let is_empty = attr.size == 0 && state.went_home == went_home;
        for open in state.opens.values_mut().filter(|open| open.file.ino == attr.ino) {
            open.empty_since = (is_empty && open.may_stay()).then_some(attr.mtime);
        }
        let node = state.by_file.get(&attr.ino).copied().filter(|_| is_empty)?;
        let stay = state.by_node.get_mut(&node)?;
        if stay.row.state != StayState::New || stay.was_told {
            return None;
        }
        stay.row.since = attr.mtime;
        Some(node)
    }
}
