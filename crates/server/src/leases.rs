//! Leases of other sessions: the driver of [`Grantor`].

use std::collections::HashMap;

use parking_lot::Mutex;
use pelago_proto::leases::{Announced, ChangeId, Grantor, Leased, Recall};
use pelago_wire::{InodeId, LeaseMoment, RequestId, SessionId, Touched};

/// The leases of other sessions.
pub(crate) struct Leases {
    /// A leaf lock.
    state: Mutex<State>,
}

struct State {
    grantor: Grantor,
    /// What goes on once a change waits no longer.
    waiting: HashMap<ChangeId, Waiting>,
    /// No change waits any more.
    is_stopped: bool,
}

/// A change that waits for others to drop what it touches.
struct Waiting {
    /// The request that asks for it.
    asker: Asker,
    then: Box<dyn FnOnce(Wait) + Send>,
}

/// The request that asks for a change.
pub(crate) type Asker = (SessionId, RequestId);

/// How the wait of a change has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// No other session relies on what it touches.
    Over(ChangeId),
    /// The request was cancelled, and the change has ended.
    Cancelled,
}

impl Leases {
    /// Returns at most this many leases.
    pub(crate) fn new(limit: usize) -> Self {
        let state =
            State { grantor: Grantor::new(limit), waiting: HashMap::new(), is_stopped: false };
        Self { state: Mutex::new(state) }
    }

    /// Returns the present moment.
    pub(crate) fn now(&self) -> LeaseMoment {
        self.state.lock().grantor.now()
    }

    /// Grants leases on what was read after `since`. Returns which of them are granted.
    /// `is_right` is asked after the grant whether it may stay: whatever makes it wrong later
    /// announces a change, and finds the lease.
    pub(crate) fn grant(
        &self,
        session: SessionId,
        since: LeaseMoment,
        all: &[Leased],
        is_right: impl Fn(Leased) -> bool,
    ) -> Vec<bool> {
        let mut granted: Vec<bool> = {
            let mut state = self.state.lock();
            all.iter().map(|on| state.grantor.grant(session, *on, since)).collect()
        };
        for (on, granted) in all.iter().zip(&mut granted).filter(|(_, granted)| **granted) {
            if !is_right(*on) {
                self.state.lock().grantor.take_back(session, *on);
                *granted = false;
            }
        }
        granted
    }

    /// Announces a change, and calls `then` once no other session relies on what it touches: before
    /// this returns, or on the thread that brings the last answer to a recall or the cancel.
    pub(crate) fn announce(
        &self,
        asker: Asker,
        touched: &[Touched],
        send: impl Fn(&Recall),
        then: impl FnOnce(Wait) + Send + 'static,
    ) {
        let mut state = self.state.lock();
        let Announced { change, recalls, waits } = state.grantor.announce(asker.0, touched);
        if !waits || state.is_stopped {
            drop(state);
            return then(Wait::Over(change));
        }
        state.waiting.insert(change, Waiting { asker, then: Box::new(then) });
        drop(state);
        recalls.iter().for_each(send);
    }

    /// Ends the change of a request, if it waits. Returns whether it did.
    pub(crate) fn cancel(&self, asker: Asker) -> bool {
        let mut state = self.state.lock();
        let is_its = |(_, waiting): &(&ChangeId, &Waiting)| waiting.asker == asker;
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

    /// A file that is open for writing, so that it has no lease, is about to be closed: what is
    /// read meanwhile may be old.
    pub(crate) fn closing(&self, ino: InodeId) {
        self.state.lock().grantor.begin_untold(Leased::Node(ino));
    }

    /// It is closed.
    pub(crate) fn closed(&self, ino: InodeId) {
        self.state.lock().grantor.end_untold(Leased::Node(ino));
    }

    /// A directory was removed: nothing changes its names any more.
    pub(crate) fn dir_removed(&self, dir: InodeId) {
        self.state.lock().grantor.forget_subject(Leased::Names(dir));
    }

    /// Takes leases away if there are too many to grant this session more of them.
    pub(crate) fn make_room(&self, session: SessionId, send: impl Fn(&Recall)) {
        let recalls = self.state.lock().grantor.make_room(session);
        recalls.iter().for_each(send);
    }

    /// A session has dropped what a recall named.
    pub(crate) fn recalled(&self, session: SessionId, number: u64) {
        self.go_on(|grantor| grantor.recalled(session, number));
    }

    /// The time of the leases of a session is over.
    pub(crate) fn expire(&self, session: SessionId) {
        self.go_on(|grantor| grantor.expire(session));
    }

    /// A session has ended.
    pub(crate) fn forget(&self, session: SessionId) {
        self.go_on(|grantor| grantor.forget(session));
    }

    /// The service stops: no change waits any more.
    pub(crate) fn stop(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|(change, waiting)| (waiting.then)(Wait::Over(change)));
    }

    fn go_on(&self, event: impl FnOnce(&mut Grantor) -> Vec<ChangeId>) {
        let mut state = self.state.lock();
        let ready = event(&mut state.grantor);
        let waiting = |change| Some((change, state.waiting.remove(&change)?));
        let ready: Vec<(ChangeId, Waiting)> = ready.into_iter().filter_map(waiting).collect();
        drop(state);
        ready.into_iter().for_each(|(change, waiting)| (waiting.then)(Wait::Over(change)));
    }
}
