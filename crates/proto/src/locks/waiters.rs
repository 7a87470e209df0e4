//! Requests that wait for a lock, found by their id, holder, open or number.

use std::collections::{BTreeMap, BTreeSet};

use pelago_wire::{OpenId, RequestId, SessionId};

use super::{FileKey, Holder, SessionOpen};

/// Names a request that waits. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

impl WaiterId {
    /// Before the first id.
    pub(super) const NONE: Self = Self(0);
}

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    last: u64,
    pub(super) all: BTreeMap<WaiterId, Waiter>,
    by_holder: BTreeSet<(Holder, WaiterId)>,
    by_open: BTreeSet<(SessionOpen, WaiterId)>,
    /// The waiting requests with a number other than 0.
    pub(super) by_request: BTreeMap<(SessionId, RequestId), WaiterId>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Waiter {
    pub(super) file: FileKey,
    pub(super) holder: Holder,
    pub(super) open: OpenId,
    pub(super) request: RequestId,
}

impl Waiters {
    pub(super) fn add(&mut self, waiter: Waiter) -> WaiterId {
        self.last += 1;
        let id = WaiterId(self.last);
        let Waiter { holder, open, request, .. } = waiter;
        self.by_holder.insert((holder, id));
        self.by_open.insert(((holder.session, open), id));
        if request != RequestId(0) {
            self.by_request.insert((holder.session, request), id);
        }
        self.all.insert(id, waiter);
        id
    }

    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.all.remove(&id)?;
        let Waiter { holder, open, request, .. } = waiter;
        self.by_holder.remove(&(holder, id));
        self.by_open.remove(&((holder.session, open), id));
        self.by_request.remove(&(holder.session, request));
        Some(waiter)
    }

    pub(super) fn of_open(&self, open: SessionOpen) -> Vec<WaiterId> {
        let range = (open, WaiterId(0))..=(open, WaiterId(u64::MAX));
        self.by_open.range(range).map(|(_, id)| *id).collect()
    }

    pub(super) fn of_session(&self, session: SessionId) -> Vec<WaiterId> {
        let (first, last) = Holder::all_of(session);
        self.of_holders(first, last).collect()
    }

    /// Returns the requests of the holders from `first` to `last`.
    pub(super) fn of_holders(&self, first: Holder, last: Holder) -> impl Iterator<Item = WaiterId> {
        let range = (first, WaiterId(0))..=(last, WaiterId(u64::MAX));
        self.by_holder.range(range).map(|(_, id)| *id)
    }
}
