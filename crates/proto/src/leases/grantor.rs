//! The server's end of leases: grants, announcements of changes, and recalls.

use std::collections::{BTreeMap, HashMap, HashSet};

use pelago_wire::{InodeId, LeaseMoment, Recalled, SessionId, Touched, limits};

use super::granted::GrantedLeases;
use super::recency::Recency;
use super::writer::Writer;
use super::{ChangeId, Leased};

/// Leases that are recalled at a time, if there are too many.
const TAKEN: usize = 512;

/// The server's end of leases: the leases of each session, and the changes that wait for their end.
#[derive(Debug)]
pub struct Grantor {
    pub(super) subjects: HashMap<Leased, Subject>,
    pub(super) sessions: HashMap<SessionId, Holder>,
    pub(super) changes: HashMap<ChangeId, Change>,
    pub(super) recency: Recency,
    /// The number of leases of all sessions, without those on bytes.
    leases: usize,
    /// The most leases that there may be.
    limit: usize,
    /// The number of leases on the bytes of files.
    pub(super) writers: usize,
    last_change: u64,
    /// The changes of rights that have not ended.
    barring: usize,
    /// The end of the last one.
    barring_ended: LeaseMoment,
}

/// The state of a thing that leases are on.
#[derive(Debug, Default)]
pub(super) struct Subject {
    /// The authors of the changes that were announced and have not ended.
    pub(super) authors: Vec<SessionId>,
    /// The sessions with a lease on it.
    pub(super) holders: Vec<SessionId>,
    /// Recalls of it that ended leases and are not answered.
    pub(super) recalls: Vec<(SessionId, u64)>,
    /// The lease on the bytes of a node.
    pub(super) writer: Option<Writer>,
}

/// The leases and recalls of a session.
#[derive(Debug, Default)]
pub(super) struct Holder {
    leases: GrantedLeases,
    /// The files on whose bytes it has the lease.
    pub(super) writes: HashSet<InodeId>,
    last_recall: u64,
    /// Recalls that are not answered.
    recalls: BTreeMap<u64, Unanswered>,
    /// The changes of its rights that have not ended: until then it is granted no lease.
    barred: usize,
    /// The end of the last one. No lease is granted on what was read before.
    barred_until: LeaseMoment,
}

/// A recall that is not answered.
#[derive(Debug, Default)]
struct Unanswered {
    /// The leases that have ended by it.
    ended: Vec<Leased>,
    /// The changes that wait for it.
    changes: Vec<ChangeId>,
}

/// A change that was announced.
#[derive(Debug)]
pub(super) struct Change {
    author: SessionId,
    touched: Vec<Leased>,
    /// The sessions whose rights may change by it.
    barred: Vec<SessionId>,
    /// The number of recalls that it waits for, and of files whose last writes run under a lease
    /// that has ended.
    pub(super) waits: usize,
}

/// A recall: the session must drop what it has cached of these things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recall {
    /// The session.
    pub session: SessionId,
    /// The number of the recall in its session, from 1.
    pub number: u64,
    /// The recalled things.
    pub recalled: Recalled,
}

/// The result of the announcement of a change.
#[derive(Debug, PartialEq, Eq)]
pub struct Announced {
    /// The change.
    pub change: ChangeId,
    /// The recalls that are sent to other sessions.
    pub recalls: Vec<Recall>,
    /// The change waits for one of them, or for an earlier recall.
    pub waits: bool,
}

impl Grantor {
    /// Returns a grantor of at most this many leases to all sessions.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            subjects: HashMap::new(),
            sessions: HashMap::new(),
            changes: HashMap::new(),
            recency: Recency::default(),
            leases: 0,
            limit,
            writers: 0,
            last_change: 0,
            barring: 0,
            barring_ended: LeaseMoment(0),
        }
    }

    /// Returns the present moment.
    #[must_use]
    pub const fn now(&self) -> LeaseMoment {
        self.recency.now()
    }

    /// Grants a lease on a thing that was read after `since`, unless another session has changed it
    /// since, or changes it now, or there are too many leases. Returns whether it is granted.
    pub fn grant(&mut self, session: SessionId, on: Leased, since: LeaseMoment) -> bool {
        let is_author = |author: &SessionId| *author == session;
        let changes = self.subjects.get(&on).map(|subject| subject.authors.as_slice());
        if !changes.unwrap_or(&[]).iter().all(is_author)
            || self.recency.others_changed(on, session, since)
        {
            return false;
        }
        let is_full = self.is_full();
        if !self.has_settled_rights(session, since) {
            return false;
        }
        let holder = self.sessions.entry(session).or_default();
        if holder.leases.contains(on) {
            return true;
        }
        if is_full || holder.leases.len() >= limits::SESSION_LEASES {
            return false;
        }
        holder.leases.add(on);
        self.leases += 1;
        self.subjects.entry(on).or_default().holders.push(session);
        true
    }

    /// Returns whether no change of a session's rights is under way, or has ended after `since`.
    /// One that is under way does not know of a session that has come since its announcement, so
    /// each counts for a session without a lease so far.
    pub(super) fn has_settled_rights(&self, session: SessionId, since: LeaseMoment) -> bool {
        let (barred, until) = match self.sessions.get(&session) {
            Some(holder) => (holder.barred, holder.barred_until),
            None => (self.barring, self.barring_ended),
        };
        barred == 0 && since >= until
    }

    /// Returns whether a session has had a lease, or was barred. Until then it is granted none
    /// while rights of any session change.
    #[must_use]
    pub fn has_begun(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// Returns whether a session has this lease.
    #[must_use]
    pub fn has(&self, session: SessionId, on: Leased) -> bool {
        self.sessions.get(&session).is_some_and(|holder| holder.leases.contains(on))
    }

    /// Returns whether the client of a session may use what it has cached: it has a lease, or has
    /// not answered a recall.
    #[must_use]
    pub fn has_any(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|holder| {
            !holder.leases.is_empty() || !holder.writes.is_empty() || !holder.recalls.is_empty()
        })
    }

    /// Returns whether there are as many leases as there may be, those on bytes included.
    pub(super) const fn is_full(&self) -> bool {
        self.leases + self.writers >= self.limit
    }

    /// Ends a lease that its session does not know of.
    pub fn take_back(&mut self, session: SessionId, on: Leased) {
        self.remove(session, on);
        self.forget_empty(on);
    }

    /// Recalls leases on nodes if this session can be granted no more: its own if it has too many,
    /// otherwise those of the session with most leases. No change waits for these recalls.
    pub fn make_room(&mut self, session: SessionId) -> Vec<Recall> {
        let count = |holder: &Holder| holder.leases.len();
        let is_full = self.sessions.get(&session).map_or(0, count) >= limits::SESSION_LEASES;
        let victim = match is_full {
            true => Some(session),
            false if !self.is_full() => None,
            false => self.sessions.iter().max_by_key(|(_, it)| count(it)).map(|(id, _)| *id),
        };
        let Some((victim, holder)) = victim.and_then(|id| Some((id, self.sessions.get_mut(&id)?)))
        else {
            return Vec::new();
        };
        // Nothing says which of them is needed again, but the files of the last minutes are more
        // likely to be. A recall of a node ends the lease on its bytes, which only an open grants.
        let Holder { leases, writes, .. } = holder;
        let nodes = leases.take_oldest_nodes(TAKEN, |ino| writes.contains(&ino));
        for ino in &nodes {
            self.ended(victim, Leased::Node(*ino));
        }
        let touched = nodes.chunks(limits::RECALL_THINGS);
        let touched = touched.map(|part| part.iter().copied().map(Touched::Node).collect());
        touched.map(|part| self.recall(victim, part, None)).collect()
    }

    /// Ends all leases on something that will not change any more.
    pub fn forget_subject(&mut self, on: Leased) {
        let holders = self.subjects.get(&on).map(|subject| subject.holders.clone());
        holders.into_iter().flatten().for_each(|session| self.remove(session, on));
        self.forget_empty(on);
    }

    /// Announces a change by `author`: until [`Grantor::end`] other sessions are granted no lease
    /// on what it touches. The author's own leases stay: the target of a name that it removes may
    /// be unknown to it.
    pub fn announce(&mut self, author: SessionId, touched: &[Touched]) -> Announced {
        self.announce_barring(author, touched, &[])
    }

    /// As [`Grantor::announce`], for a change by which the rights of the sessions in `barred` may
    /// change: everything is recalled from them, and until the end they are granted no lease.
    pub fn announce_barring(
        &mut self,
        author: SessionId,
        touched: &[Touched],
        barred: &[SessionId],
    ) -> Announced {
        self.last_change += 1;
        let change = ChangeId(self.last_change);
        let on: Vec<Leased> = touched.iter().filter_map(Leased::of).collect();
        let mut recalled: BTreeMap<SessionId, Vec<Touched>> = BTreeMap::new();
        let earlier = barred.iter().map(|session| self.wait_for_recalls(*session, change));
        let mut waits = earlier.sum();
        // First: what follows finds these recalls, and no lease of these sessions.
        let mut recalls: Vec<Recall> =
            barred.iter().filter_map(|session| self.bar(*session, change)).collect();
        for (touched, on) in touched.iter().filter_map(|it| Some((it, Leased::of(it)?))) {
            self.recency.note(on, author);
            let subject = self.subjects.entry(on).or_default();
            subject.authors.push(author);
            for (session, number) in &subject.recalls {
                let holder = self.sessions.get_mut(session).filter(|_| *session != author);
                if let Some(earlier) = holder.and_then(|it| it.recalls.get_mut(number)) {
                    earlier.changes.push(change);
                    waits += 1;
                }
            }
            let holders = subject.holders.clone();
            let writer = subject.writer.as_mut().filter(|writer| writer.session != author);
            let (writer, waits_for_writes) = match writer {
                Some(writer) => writer.announce(change),
                None => (None, false),
            };
            waits += usize::from(waits_for_writes);
            for session in holders.iter().chain(&writer).filter(|session| **session != author) {
                let named = recalled.entry(*session).or_default();
                if named.last() != Some(touched) {
                    named.push(touched.clone());
                }
            }
            if let Leased::Node(_) = on {
                let others = holders.into_iter().filter(|session| *session != author);
                others.for_each(|session| self.remove(session, on));
            }
        }
        recalls.extend(
            recalled
                .into_iter()
                .map(|(session, touched)| self.recall(session, touched, Some(change))),
        );
        waits += recalls.len();
        let barred = barred.to_vec();
        self.barring += usize::from(!barred.is_empty());
        self.changes.insert(change, Change { author, touched: on, barred, waits });
        Announced { change, recalls, waits: waits > 0 }
    }

    /// Ends a change that was carried out, has failed, or was given up.
    pub fn end(&mut self, change: ChangeId) {
        let Some(Change { author, touched, barred, .. }) = self.changes.remove(&change) else {
            return;
        };
        touched.into_iter().for_each(|on| self.end_of(on, author));
        if !barred.is_empty() {
            let now = self.recency.tick();
            self.barring -= 1;
            self.barring_ended = now;
            for session in barred {
                if let Some(holder) = self.sessions.get_mut(&session) {
                    holder.barred = holder.barred.saturating_sub(1);
                    holder.barred_until = now;
                }
            }
        }
    }

    /// Ends all leases of a session, and grants it none until the end of a change. Returns the
    /// recall of what its client has cached, if anything.
    fn bar(&mut self, session: SessionId, change: ChangeId) -> Option<Recall> {
        let holder = self.sessions.entry(session).or_default();
        holder.barred += 1;
        let mut all: Vec<Leased> = holder.leases.iter().collect();
        let writes: Vec<InodeId> = holder.writes.iter().copied().collect();
        all.iter().for_each(|on| self.remove(session, *on));
        for ino in writes {
            let on = Leased::Node(ino);
            let writer = self.subjects.get_mut(&on).and_then(|subject| subject.writer.as_mut());
            writer.into_iter().for_each(|writer| writer.is_recalled = true);
            all.push(on);
        }
        if all.is_empty() {
            return None;
        }
        let number = self.add_recall(session, all, Some(change));
        Some(Recall { session, number, recalled: Recalled::Everything })
    }

    /// Has a change wait for the earlier recalls that a session has not answered: its client may
    /// still use what they name. Returns their number.
    fn wait_for_recalls(&mut self, session: SessionId, change: ChangeId) -> usize {
        let Some(holder) = self.sessions.get_mut(&session) else { return 0 };
        holder.recalls.values_mut().for_each(|unanswered| unanswered.changes.push(change));
        holder.recalls.len()
    }

    /// Begins a change of a thing without leases, without an announcement. No lease on the thing is
    /// granted until [`Grantor::end_untold`], and none on what was read before that.
    pub fn begin_untold(&mut self, on: Leased) {
        self.recency.note(on, SessionId::DIRECT);
        self.subjects.entry(on).or_default().authors.push(SessionId::DIRECT);
    }

    /// Ends a change that [`Grantor::begin_untold`] has begun.
    pub fn end_untold(&mut self, on: Leased) {
        self.end_of(on, SessionId::DIRECT);
    }

    fn end_of(&mut self, on: Leased, author: SessionId) {
        self.recency.note(on, author);
        if let Some(subject) = self.subjects.get_mut(&on)
            && let Some(at) = subject.authors.iter().position(|other| *other == author)
        {
            subject.authors.swap_remove(at);
        }
        self.forget_empty(on);
    }

    /// Records that a session has dropped what a recall named. Returns the changes that wait no
    /// longer. A number of no recall has no effect.
    pub fn recalled(&mut self, session: SessionId, number: u64) -> Vec<ChangeId> {
        let holder = self.sessions.get_mut(&session);
        match holder.and_then(|holder| holder.recalls.remove(&number)) {
            Some(unanswered) => self.answered(session, number, unanswered),
            None => Vec::new(),
        }
    }

    /// Ends all leases of a session whose time is over, or that has ended. Returns the changes that
    /// wait no longer.
    pub fn expire(&mut self, session: SessionId) -> Vec<ChangeId> {
        let Some(Holder { leases, writes, recalls, last_recall, barred, barred_until }) =
            self.sessions.remove(&session)
        else {
            return Vec::new();
        };
        for on in leases.iter() {
            self.leases -= 1;
            if let Some(subject) = self.subjects.get_mut(&on) {
                subject.holders.retain(|other| *other != session);
            }
            self.forget_empty(on);
        }
        // A number must not mean two recalls.
        let holder = Holder { last_recall, barred, barred_until, ..Holder::default() };
        self.sessions.insert(session, holder);
        let mut ready = Vec::new();
        for (number, unanswered) in recalls {
            ready.extend(self.answered(session, number, unanswered));
        }
        writes.into_iter().for_each(|ino| self.end_writer(session, ino));
        ready
    }

    /// Forgets a session that has ended. Returns the changes that wait no longer.
    pub fn forget(&mut self, session: SessionId) -> Vec<ChangeId> {
        let ready = self.expire(session);
        self.sessions.remove(&session);
        ready
    }

    /// Returns how many leases there are.
    #[must_use]
    pub const fn leases(&self) -> usize {
        self.leases
    }

    fn recall(
        &mut self,
        session: SessionId,
        touched: Vec<Touched>,
        change: Option<ChangeId>,
    ) -> Recall {
        let things = touched.iter().filter_map(Leased::of);
        // The lease on the names of a directory stays when some of them are recalled.
        let ended = things.filter(|on| matches!(on, Leased::Node(_))).collect();
        let number = self.add_recall(session, ended, change);
        Recall { session, number, recalled: Recalled::Things(touched) }
    }

    /// Adds a recall, by which these leases have ended. Returns its number.
    fn add_recall(
        &mut self,
        session: SessionId,
        ended: Vec<Leased>,
        change: Option<ChangeId>,
    ) -> u64 {
        let holder = self.sessions.entry(session).or_default();
        holder.last_recall += 1;
        let number = holder.last_recall;
        for on in &ended {
            self.subjects.entry(*on).or_default().recalls.push((session, number));
        }
        let changes = change.into_iter().collect();
        holder.recalls.insert(number, Unanswered { ended, changes });
        number
    }

    fn answered(
        &mut self,
        session: SessionId,
        number: u64,
        unanswered: Unanswered,
    ) -> Vec<ChangeId> {
        for on in unanswered.ended {
            if let Some(subject) = self.subjects.get_mut(&on) {
                subject.recalls.retain(|recall| *recall != (session, number));
            }
            self.end_recalled_writer(session, on, &unanswered.changes);
            self.forget_empty(on);
        }
        self.wait_less(&unanswered.changes)
    }

    /// Has these changes wait for one thing less. Returns those that wait for nothing.
    pub(super) fn wait_less(&mut self, changes: &[ChangeId]) -> Vec<ChangeId> {
        let mut ready = Vec::new();
        for id in changes {
            if let Some(change) = self.changes.get_mut(id) {
                change.waits -= 1;
                if change.waits == 0 {
                    ready.push(*id);
                }
            }
        }
        ready
    }

    fn remove(&mut self, session: SessionId, on: Leased) {
        let holder = self.sessions.get_mut(&session);
        if holder.is_some_and(|holder| holder.leases.remove(on)) {
            self.ended(session, on);
        }
    }

    /// Counts the end of a lease that a session had.
    fn ended(&mut self, session: SessionId, on: Leased) {
        self.leases -= 1;
        if let Some(subject) = self.subjects.get_mut(&on) {
            subject.holders.retain(|other| *other != session);
        }
    }

    pub(super) fn forget_empty(&mut self, on: Leased) {
        let is_empty = |subject: &Subject| {
            let Subject { authors, holders, recalls, writer } = subject;
            authors.is_empty() && holders.is_empty() && recalls.is_empty() && writer.is_none()
        };
        if self.subjects.get(&on).is_some_and(is_empty) {
            self.subjects.remove(&on);
        }
    }

    /// Returns whether nothing is left of leases and changes.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.subjects.is_empty() && self.changes.is_empty() && self.leases == 0
    }
}
