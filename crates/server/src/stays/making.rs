//! Nodes in the making: the first change of a new or emptied file.

use pelago_data::OpenKey;
use pelago_wire::{InodeId, Then};

use super::{FirstChange, Stays};

impl Stays {
    /// Decides what becomes of a change of the bytes of a file through an open, if the file has no
    /// node yet. A write to an empty file begins to make one: [`Stays::end_making`] follows.
    pub(crate) fn first_change(&self, open: OpenKey, is_write: bool) -> FirstChange {
        let mut state = self.state.lock();
        let Some(remote) = state.opens.get(&open).copied() else { return FirstChange::GoesHome };
        let file = remote.file.ino;
        if state.making.contains_key(&file) {
            return FirstChange::Waits(file);
        }
        if state.by_file.contains_key(&file) {
            return FirstChange::Stays;
        }
        if is_write && remote.empty_since.is_some() {
            state.making.insert(file, Vec::new());
            return FirstChange::Makes(remote);
        }
        state.note_written_there(file);
        FirstChange::GoesHome
    }

    /// Records that the node is made and open, or is not: then the file is written at its home. The
    /// changes that have waited for it go on.
    pub(crate) fn end_making(&self, file: InodeId, is_made: bool) {
        let mut state = self.state.lock();
        if !is_made {
            state.note_written_there(file);
        }
        let waiting = state.making.remove(&file).unwrap_or_default();
        drop(state);
        waiting.into_iter().for_each(|then| then());
    }

    /// Has `then` called once no node is being made for the bytes of a file: at once if none is.
    pub(crate) fn when_made(&self, file: InodeId, then: Then) {
        let mut state = self.state.lock();
        match state.making.get_mut(&file) {
            Some(waiting) => waiting.push(then),
            None => {
                drop(state);
                then();
            }
        }
    }
}
