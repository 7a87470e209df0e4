//! The cuts: the sender asks for one, the group commit takes it, and its changes are sent or are
//! part of the next one.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use pelago_meta::shard::{ChangedRows, RowCut, RowRisk};
use pelago_store::clock;
use pelago_wire::{Code, Time};

use super::group::SendError;
use super::{Commit, Mirror};

/// A cut, with its time.
pub(super) struct TakenCut {
    pub(super) rows: RowCut,
    /// The group commit that has cut.
    pub(super) commit: Commit,
    /// It has written everything that open files had in memory before it began.
    pub(super) has_all: bool,
    pub(super) at: Time,
    /// The same time, by the clock that no one sets.
    pub(super) since: Instant,
}

/// The answer to a question for a cut.
pub(super) enum Polled {
    Cut(Box<TakenCut>),
    NotYet,
    /// The server has stopped.
    Stopped,
}

impl Mirror {
    /// Takes a cut if the sender asks for one, and there are changes or a caller waits. Called by
    /// the group commit of this number, after it has written the memory of open files. `has_all`:
    /// it has written all of that memory.
    pub(crate) fn cut_if_wanted(&self, commit: Commit, has_all: bool) {
        let mut state = self.state.lock();
        if !state.wants_cut {
            return;
        }
        state.waits.committed(has_all);
        if !state.waits.want_cut() && !state.wants_empty_cut && !self.has_changes() {
            return;
        }
        let Self { parts, .. } = self;
        // If the table has stopped, the next group commit tries again.
        let Ok(rows) = parts.shard.cut(|| parts.opens.changes().cut()) else { return };
        assert!(state.cut.is_none(), "one cut is sent at a time");
        state.under_way = rows.changed.risk();
        let at = clock::now();
        let since = Instant::now();
        state.groups.cut(rows.stamp, since);
        state.cut = Some(TakenCut { rows, commit, has_all, at, since });
        state.wants_cut = false;
        state.wants_empty_cut = false;
        self.changed.notify_all();
    }

    pub(super) fn has_changes(&self) -> bool {
        let rows = self.parts.shard.row_risk().unwrap_or_default();
        rows.since.is_some() || rows.has_more || self.parts.opens.changes().any()
    }

    /// Takes the cut that is ready, or asks for one and waits for it, for at most `patience`.
    /// `is_wanted`: it is taken at once, even if nothing has changed.
    pub(super) fn poll_cut(&self, is_wanted: bool, patience: Duration) -> Polled {
        let mut state = self.state.lock();
        if state.has_stopped {
            return Polled::Stopped;
        }
        if state.cut.is_none() {
            // One cut at a time: if two failed, the changes of one would be lost.
            state.wants_cut = true;
            state.wants_empty_cut |= is_wanted;
            if state.wants_empty_cut || state.waits.are_urgent() {
                self.parts.durability.flush_soon();
            }
            if !patience.is_zero() {
                self.changed.wait_for(&mut state, patience);
            }
        }
        match state.cut.take() {
            Some(cut) => Polled::Cut(Box::new(cut)),
            None => Polled::NotYet,
        }
    }

    /// Waits until the rows of a cut are safe here.
    ///
    /// # Errors
    /// [`SendError::Primary`] if they may be lost.
    pub(super) fn wait_until_safe(&self, cut: &RowCut) -> Result<(), SendError> {
        let (sender, answer) = mpsc::channel();
        let when_safe = Box::new(move |result| {
            let _waits_no_more = sender.send(result);
        });
        self.parts.durability.when_safe(cut.sequence, cut.invalidations, when_safe);
        match answer.recv() {
            Ok(result) => Ok(result?),
            Err(_) => Err(SendError::Primary(Code::Unavailable.into())),
        }
    }

    /// Records that the mirror has a cut, of which so many bytes were sent.
    pub(super) fn record_mirrored(&self, cut: &TakenCut, bytes: u64) {
        let TakenCut { commit, has_all, at, since, .. } = cut;
        self.backlog.sent(bytes, since.elapsed());
        let mut state = self.state.lock();
        state.under_way = RowRisk::default();
        state.groups.end();
        state.groups.mirrored(cut.rows.stamp);
        state.as_of = Some(*at);
        self.changed.notify_all();
        let answers = state.waits.mirrored(*commit, *has_all);
        drop(state);
        for answer in answers {
            answer(Ok(()));
        }
        // Callers that are held back need not wait for the next group commit.
        self.tick();
    }

    /// Takes back a cut that the sender has not taken, and asks for none any more.
    pub(super) fn drop_cut(&self) {
        let mut state = self.state.lock();
        state.wants_cut = false;
        state.close = None;
        let untaken = state.cut.take();
        drop(state);
        if let Some(cut) = untaken {
            take_back(self, cut.rows.changed);
        }
    }
}

/// Makes the changes of a cut those of the next one.
pub(super) fn take_back(mirror: &Mirror, changed: ChangedRows) {
    mirror.parts.shard.take_back(changed);
    mirror.parts.opens.changes().take_back();
    let mut state = mirror.state.lock();
    state.under_way = RowRisk::default();
    state.groups.end();
}
