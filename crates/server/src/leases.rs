//! The leases of other sessions: the locked state of [`Grantor`], and the changes that wait for
//! recalls.
//!
//! A change that touches leased things waits without a thread. It goes on when the sessions have
//! answered the recall or their terms are over, when its request is cancelled, or at a stop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pelago_proto::leases::{Announced, ChangeId, Grantor, Leased, Recall};
use pelago_wire::{InodeId, LeaseMoment, SessionId, Touched};

use crate::completion::CancelKey;

/// The leases of other sessions.
pub(crate) struct Leases {
    /// A leaf lock.
    state: Mutex<State>,
    /// Number of files on whose bytes a session has the lease. Changed under the lock only.
    writers: AtomicUsize,
}

struct State {
    grantor: Grantor,
    /// The changes that wait.
    waiting: HashMap<ChangeId, Waiting>,
    /// True after the stop: no change waits any more.
    is_stopped: bool,
}

/// A change that waits for other sessions to drop what it touches.
struct Waiting {
    /// The request that makes it.
    request: CancelKey,
    then: Box<dyn FnOnce(Wait) + Send>,
}

/// The end of the wait of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// No other session relies on what it touches.
    Over(ChangeId),
    /// The request was cancelled, and the change has ended.
    Cancelled,
}

impl Leases {
    /// Returns a table of at most `limit` leases, without any.
    pub(crate) fn new(limit: usize) -> Self {
        let state =
            State { grantor: Grantor::new(limit), waiting: HashMap::new(), is_stopped: false };
        Self { state: Mutex::new(state), writers: AtomicUsize::new(0) }
    }

    /// Returns the present moment in the order of changes.
    pub(crate) fn now(&self) -> LeaseMoment {
        self.state.lock().grantor.now()
    }

    /// Grants leases on things that were read after `since`. Returns which of them are granted.
    /// After each grant `is_right` is called and decides whether it stays: a request that makes it
    /// wrong later announces a change, and finds the lease. A lease that the session had before
    /// stays in any case, because its client may rely on it.
    pub(crate) fn grant(
        &self,
        session: SessionId,
        since: LeaseMoment,
        all: &[Leased],
        is_right: impl Fn(Leased) -> bool,
    ) -> Vec<bool> {
        let granted: Vec<(bool, bool)> = {
            let mut state = self.state.lock();
            let mut grant = |on: &Leased| {
                let had = state.grantor.has(session, *on);
                (state.grantor.grant(session, *on, since), had)
            };
            all.iter().map(&mut grant).collect()
        };
        let stays = |(on, (granted, had)): (&Leased, (bool, bool))| {
            let is_right = granted && is_right(*on);
            if granted && !is_right && !had {
                self.state.lock().grantor.take_back(session, *on);
            }
            is_right
        };
        all.iter().zip(granted).map(stays).collect()
    }

    /// Grants the lease on the bytes of a file whose attributes were read after `since`; see
    /// [`Leases::grant`]. `is_right` returns whether no other session has the file open.
    pub(crate) fn grant_bytes(
        &self,
        session: SessionId,
        since: LeaseMoment,
        ino: InodeId,
        is_right: impl FnOnce() -> bool,
    ) -> bool {
        let granted = {
            let mut state = self.state.lock();
            let granted = state.grantor.grant_bytes(session, ino, since);
            self.count_writers(&state);
            granted
        };
        let is_right = granted && is_right();
        if granted && !is_right {
            self.end_bytes(session, ino);
        }
        is_right
    }

    /// Ends the lease on the bytes of a file, which the session has closed, or of which its client
    /// is not informed.
    pub(crate) fn end_bytes(&self, session: SessionId, ino: InodeId) {
        if self.writers.load(Ordering::SeqCst) > 0 {
            let mut state = self.state.lock();
            state.grantor.end_bytes(session, ino);
            self.count_writers(&state);
        }
    }

    /// Returns those of these files on whose bytes another session has the lease. Called after an
    /// open or a read; without any such lease it costs one atomic load.
    pub(crate) fn written_by_others(
        &self,
        session: SessionId,
        files: impl Iterator<Item = InodeId>,
    ) -> Vec<InodeId> {
        if self.writers.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let state = self.state.lock();
        files.filter(|ino| state.grantor.is_written_by_other(session, *ino)).collect()
    }

    /// Begins a write of bytes that the client of a session has held back. Returns whether the
    /// session has the lease; if so, [`Leases::end_write`] must follow.
    pub(crate) fn begin_write(&self, session: SessionId, ino: InodeId) -> bool {
        self.state.lock().grantor.begin_write(session, ino)
    }

    /// Ends a write of such bytes, which succeeded or failed.
    pub(crate) fn end_write(&self, session: SessionId, ino: InodeId) {
        self.go_on(|grantor| grantor.end_write(session, ino));
    }

    /// Returns whether a session has the lease on the bytes of any file.
    pub(crate) fn has_writes(&self, session: SessionId) -> bool {
        self.writers() > 0 && self.state.lock().grantor.has_writes(session)
    }

    /// Returns whether the client of a session may use what it has cached: it has a lease, or has
    /// not answered a recall.
    pub(crate) fn has_any(&self, session: SessionId) -> bool {
        self.state.lock().grantor.has_any(session)
    }

    /// Returns whether a session has had a lease, or was barred.
    pub(crate) fn has_begun(&self, session: SessionId) -> bool {
        self.state.lock().grantor.has_begun(session)
    }

    /// Counts the files on whose bytes a session has the lease.
    pub(crate) fn writers(&self) -> usize {
        self.writers.load(Ordering::SeqCst)
    }

    fn count_writers(&self, state: &State) {
        self.writers.store(state.grantor.writers(), Ordering::SeqCst);
    }

    /// Announces a change, by which the rights of the sessions in `barred` may change, and calls
    /// `then` when no other session relies on what it touches: before
    /// this returns, or on the thread that brings the last answer to a recall, or the cancel.
    pub(crate) fn announce(
        &self,
        request: CancelKey,
        touched: &[Touched],
        barred: &[SessionId],
        send: impl Fn(&Recall),
        then: impl FnOnce(Wait) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        let announced = state.grantor.announce_barring(request.session, touched, barred);
        let Announced { change, recalls, waits } = announced;
        if !waits || state.is_stopped {
            drop(state);
            return then(Wait::Over(change));
        }
        state.waiting.insert(change, Waiting { request, then: Box::new(then) });
        drop(state);
        recalls.iter().for_each(send);
    }

    /// Ends the change of a request, if it waits. Returns whether it did.
    pub(crate) fn cancel(&self, request: CancelKey) -> bool {
        let mut state = self.state.lock();
        let is_its = |(_, waiting): &(&ChangeId, &Waiting)| waiting.request == request;
        let change = state.waiting.iter().find(is_its).map(|(change, _)| *change);
        let waiting = change.and_then(|change| {
            state.grantor.end(change);
            state.waiting.remove(&change)
        });
        drop(state);
        let was_waiting = waiting.is_some();
        if let Some(Waiting { then, .. }) = waiting {
            then(Wait::Cancelled);
        }
        was_waiting
    }

    /// Ends a change that was carried out, or will not be.
    pub(crate) fn end(&self, change: ChangeId) {
        self.state.lock().grantor.end(change);
    }

    /// Records that a file which is open for writing, and so has no lease, is about to be closed:
    /// attributes that are read meanwhile may be old, and get no lease.
    pub(crate) fn closing(&self, ino: InodeId) {
        self.state.lock().grantor.begin_untold(Leased::Node(ino));
    }

    /// Records that the file is closed.
    pub(crate) fn closed(&self, ino: InodeId) {
        self.state.lock().grantor.end_untold(Leased::Node(ino));
    }

    /// Forgets the leases on the names of a directory that was removed: they change no more.
    pub(crate) fn dir_removed(&self, dir: InodeId) {
        self.state.lock().grantor.forget_subject(Leased::Names(dir));
    }

    /// Recalls leases if there are too many to grant this session more.
    pub(crate) fn make_room(&self, session: SessionId, send: impl Fn(&Recall)) {
        let recalls = self.state.lock().grantor.make_room(session);
        recalls.iter().for_each(send);
    }

    /// Records that a session has dropped what a recall names.
    pub(crate) fn recalled(&self, session: SessionId, number: u64) {
        self.go_on(|grantor| grantor.recalled(session, number));
    }

    /// Ends the leases of a session, whose term is over.
    pub(crate) fn expire(&self, session: SessionId) {
        self.go_on(|grantor| grantor.expire(session));
    }

    /// As [`Leases::expire`], unless `grants` returns that leases may be granted by now. It is
    /// called under the lock: a lease that is granted after it has returned true stays.
    pub(crate) fn expire_unless(&self, session: SessionId, grants: impl FnOnce() -> bool) {
        self.go_on(|grantor| if grants() { Vec::new() } else { grantor.expire(session) });
    }

    /// Forgets a session that has ended.
    pub(crate) fn forget(&self, session: SessionId) {
        self.go_on(|grantor| grantor.forget(session));
    }

    /// Stops: changes that wait, and later ones, go on at once.
    pub(crate) fn stop(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|(change, waiting)| (waiting.then)(Wait::Over(change)));
    }

    /// Applies an event, and continues the changes that wait no longer.
    fn go_on(&self, event: impl FnOnce(&mut Grantor) -> Vec<ChangeId>) {
        let mut state = self.state.lock();
        let ready = event(&mut state.grantor);
        let waiting = |change| Some((change, state.waiting.remove(&change)?));
        let ready: Vec<(ChangeId, Waiting)> = ready.into_iter().filter_map(waiting).collect();
        self.count_writers(&state);
        drop(state);
        ready.into_iter().for_each(|(change, waiting)| (waiting.then)(Wait::Over(change)));
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::RequestId;

    use super::*;

    /// The attributes of a new file are leased with its creation; later answers have them as those
    /// of a file that is being written.
    #[test]
    fn a_lease_that_cannot_be_granted_again_stays() {
        let leases = Leases::new(100);
        let one = SessionId::new(1, 1);
        let other = SessionId::new(1, 2);
        let on = [Leased::Node(InodeId::from_raw(20))];
        assert_eq!(leases.grant(one, leases.now(), &on, |_| true), [true]);
        assert_eq!(leases.grant(one, leases.now(), &on, |_| false), [false]);
        assert_eq!(leases.grant(other, leases.now(), &on, |_| false), [false]);
        let sent = Mutex::new(Vec::new());
        let waits = std::sync::Arc::new(AtomicUsize::new(1));
        let over = std::sync::Arc::clone(&waits);
        let change = CancelKey { session: SessionId::DIRECT, request: RequestId(1) };
        let touched = [Touched::Node(InodeId::from_raw(20))];
        let send = |recall: &Recall| sent.lock().push((recall.session, recall.number));
        leases.announce(change, &touched, &[], send, move |_| over.store(0, Ordering::SeqCst));
        let sent = sent.into_inner();
        assert!(sent.len() == 1 && sent[0].0 == one, "{sent:?}");
        assert_eq!(waits.load(Ordering::SeqCst), 1);
        leases.recalled(one, sent[0].1);
        assert_eq!(waits.load(Ordering::SeqCst), 0);
    }
}
