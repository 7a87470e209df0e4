//! The server's end of leases.

use std::collections::{BTreeMap, HashMap, HashSet};

use pelago_wire::{SessionId, limits};

use super::{GrantNumber, Leased};

/// The server's end of leases: who has which, and which changes wait for their end.
#[derive(Debug, Default)]
pub struct Grantor {
    subjects: HashMap<Leased, Subject>,
    sessions: HashMap<SessionId, Sent>,
    changes: HashMap<ChangeId, Change>,
    last_change: u64,
}

/// What is known of something that a lease is on.
#[derive(Debug, Default)]
struct Subject {
    /// Changes that were announced and have not ended.
    changes: HashSet<ChangeId>,
    leases: BTreeMap<SessionId, Lease>,
}

/// A lease of a session.
#[derive(Debug, Clone, Copy)]
struct Lease {
    number: GrantNumber,
    is_recalled: bool,
}

/// What a session was sent.
#[derive(Debug, Default)]
struct Sent {
    last: GrantNumber,
    leases: usize,
    /// Leases that are recalled and not released.
    recalled: usize,
}

/// A change that was announced.
#[derive(Debug)]
struct Change {
    touched: Vec<Leased>,
    /// Leases that it waits for.
    waits_for: HashSet<(Leased, SessionId)>,
}

/// Names a change that was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId(u64);

/// Asks a session to release a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recall {
    /// The session.
    pub session: SessionId,
    /// What the lease is on.
    pub on: Leased,
    /// The newest grant that it ends.
    pub number: GrantNumber,
}

/// What follows from the announcement of a change.
#[derive(Debug, PartialEq, Eq)]
pub struct Announced {
    /// The change.
    pub change: ChangeId,
    /// What is sent to other sessions. A lease that is recalled already is not recalled again.
    pub recalls: Vec<Recall>,
    /// Whether the change waits for any of them, or for an earlier recall.
    pub waits: bool,
    /// Up to this number the leases of the author have ended on what the change touches.
    pub ended: GrantNumber,
}

impl Grantor {
    /// Grants a lease, before what it is on is read for the answer that carries it. Returns `None`
    /// while a change of it was announced, and if the session has its share. A lease that the
    /// session has on it gets the new number.
    pub fn grant(&mut self, session: SessionId, on: Leased) -> Option<GrantNumber> {
        let sent = self.sessions.entry(session).or_default();
        let subject = self.subjects.entry(on).or_default();
        let is_new = !subject.leases.contains_key(&session);
        if !subject.changes.is_empty() || (is_new && sent.leases >= limits::SESSION_LEASES) {
            self.forget_empty(on);
            return None;
        }
        sent.last.0 += 1;
        sent.leases += usize::from(is_new);
        subject.leases.insert(session, Lease { number: sent.last, is_recalled: false });
        Some(sent.last)
    }

    /// Announces a change by `author`: nothing is granted on what it touches until
    /// [`Grantor::end`]. The author's leases on it have ended.
    pub fn announce(&mut self, author: SessionId, touched: &[Leased]) -> Announced {
        self.last_change += 1;
        let change = ChangeId(self.last_change);
        let (mut recalls, mut waits_for) = (Vec::new(), HashSet::new());
        for on in touched {
            let subject = self.subjects.entry(*on).or_default();
            subject.changes.insert(change);
            if subject.leases.contains_key(&author) {
                self.take_lease(author, *on);
            }
            let Some(subject) = self.subjects.get_mut(on) else { continue };
            for (session, lease) in &mut subject.leases {
                waits_for.insert((*on, *session));
                if !std::mem::replace(&mut lease.is_recalled, true) {
                    recalls.push(Recall { session: *session, on: *on, number: lease.number });
                    self.sessions.entry(*session).or_default().recalled += 1;
                }
            }
        }
        let waits = !waits_for.is_empty();
        let ended = self.sessions.get(&author).map_or(GrantNumber(0), |sent| sent.last);
        self.changes.insert(change, Change { touched: touched.to_vec(), waits_for });
        Announced { change, recalls, waits, ended }
    }

    /// Ends a change that was carried out or has failed, or is not wanted any more.
    pub fn end(&mut self, change: ChangeId) {
        let Some(Change { touched, .. }) = self.changes.remove(&change) else { return };
        for on in touched {
            if let Some(subject) = self.subjects.get_mut(&on) {
                subject.changes.remove(&change);
            }
            self.forget_empty(on);
        }
    }

    /// A session has released its lease, by itself or because it was recalled. Returns the changes
    /// that wait no longer. A number that is not the newest one says nothing: a later grant has
    /// crossed the release.
    pub fn released(
        &mut self,
        session: SessionId,
        on: Leased,
        number: GrantNumber,
    ) -> Vec<ChangeId> {
        let lease = self.subjects.get(&on).and_then(|subject| subject.leases.get(&session));
        match lease {
            Some(lease) if lease.number <= number => self.end_leases(session, &[on]),
            _ => Vec::new(),
        }
    }

    /// The time of a session is over, or it has ended: so have its leases. Returns the changes that
    /// wait no longer.
    pub fn expire(&mut self, session: SessionId) -> Vec<ChangeId> {
        let has = |(on, subject): (&Leased, &Subject)| {
            subject.leases.contains_key(&session).then_some(*on)
        };
        let all: Vec<Leased> = self.subjects.iter().filter_map(has).collect();
        let ready = self.end_leases(session, &all);
        self.sessions.remove(&session);
        ready
    }

    /// Returns whether a session has leases that were recalled and that it has not released. Then
    /// no answer lengthens its time: it would never end otherwise.
    #[must_use]
    pub fn is_overdue(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|sent| sent.recalled > 0)
    }

    /// Returns how many leases there are. While there is none, a change need not be announced to
    /// sessions.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.sessions.values().map(|sent| sent.leases).sum()
    }

    /// Returns whether nothing is left of sessions and changes that have ended.
    #[cfg(test)]
    pub(super) fn knows_nothing(&self) -> bool {
        self.subjects.is_empty() && self.changes.is_empty() && self.leases() == 0
    }

    fn end_leases(&mut self, session: SessionId, all: &[Leased]) -> Vec<ChangeId> {
        let mut ready = Vec::new();
        for on in all {
            self.take_lease(session, *on);
            let waiting = self.subjects.get(on).into_iter().flat_map(|it| it.changes.iter());
            for id in waiting {
                if let Some(change) = self.changes.get_mut(id)
                    && change.waits_for.remove(&(*on, session))
                    && change.waits_for.is_empty()
                {
                    ready.push(*id);
                }
            }
            self.forget_empty(*on);
        }
        ready.sort_unstable();
        ready
    }

    fn take_lease(&mut self, session: SessionId, on: Leased) {
        let lease = self.subjects.get_mut(&on).and_then(|it| it.leases.remove(&session));
        if let (Some(lease), Some(sent)) = (lease, self.sessions.get_mut(&session)) {
            sent.leases -= 1;
            sent.recalled -= usize::from(lease.is_recalled);
        }
    }

    fn forget_empty(&mut self, on: Leased) {
        if self.subjects.get(&on).is_some_and(|it| it.changes.is_empty() && it.leases.is_empty()) {
            self.subjects.remove(&on);
        }
    }
}
