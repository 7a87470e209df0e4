//! The clients of other sites for which the servers of those pass on mutations.
//!
//! Between two servers there is one session for all clients of a site, and it ends with the run of
//! the site's server. A client goes on in the next run, and repeats the mutations that were not
//! answered. So each client has a session here that only stores replies, and outlives the one by
//! which they came. What was carried out in this run and has no stored reply is known in memory.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use pelago_meta::shard::Shard;
use pelago_wire::{
    AtStart, Code, Error, Origin, RecordedPeer, Reply, Request, SessionId, SessionRecord,
    WriteFlags, limits,
};

/// The first number of sessions of origins. Those of connections count from 1 in each epoch.
const FIRST_COUNTER: u32 = 1 << 31;

/// Carries out a mutation that has waited for its twin.
type Twin = Box<dyn FnOnce() + Send>;

/// The clients of other sites.
#[derive(Default)]
pub(crate) struct Origins {
    /// Locked while the row of a session is written.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the site and the session there.
    sessions: HashMap<(u16, SessionId), SessionId>,
    /// By the session here.
    clients: HashMap<SessionId, Client>,
    last_counter: u32,
    /// The number of uses, by which the least recently used one is found.
    uses: u64,
}

/// A client of another site.
struct Client {
    site: u16,
    there: SessionId,
    /// The value of [`State::uses`] at its last use.
    used: u64,
    /// Its session is of an earlier run or epoch of this server, of which only stored replies are
    /// known.
    is_of_earlier_run: bool,
    running: HashMap<u64, Vec<Twin>>,
    /// Replies of this run that its client may not have.
    replies: BTreeMap<u64, Reply>,
}

/// The treatment of a mutation that the server of a site passes on.
pub(crate) enum Passed {
    /// It is carried out. [`Origins::end`] follows.
    New,
    /// It was carried out before, with this reply.
    Done(Reply),
    /// It runs already. What was to carry it out is called when that is over.
    Waits,
    /// An earlier run may have carried it out, and another time would not be the same.
    Unknown,
}

impl Origins {
    /// Takes over the sessions of the last run.
    pub(crate) fn of_last_run(earlier: &[(SessionId, SessionRecord)]) -> Self {
        let mut state = State::default();
        for (own, record) in earlier {
            if let RecordedPeer::Origin { site, session } = record.peer {
                state.insert(*own, site, session, true);
            }
        }
        Self { state: Mutex::new(state) }
    }

    /// Returns the session here of a client of this site. A new one gets a row.
    ///
    /// # Errors
    /// `Io` for a repetition of a client that is not known; those of the table.
    pub(crate) fn session(
        &self,
        shard: &Shard,
        site: u16,
        origin: &Origin,
    ) -> Result<SessionId, Error> {
        let mut state = self.state.lock();
        state.uses += 1;
        let uses = state.uses;
        if let Some(own) = state.sessions.get(&(site, origin.session)).copied() {
            if let Some(client) = state.clients.get_mut(&own) {
                client.used = uses;
                let kept = client.replies.split_off(&origin.acknowledged.saturating_add(1));
                client.replies = kept;
            }
            return Ok(own);
        }
        if origin.may_be_repeated {
            return Err(Code::Io.into());
        }
        while let Some(unused) = state.surplus(site) {
            shard.end_session(unused)?;
            state.remove(unused);
        }
        let counter = FIRST_COUNTER + state.last_counter;
        let own = SessionId::new(shard.epoch(), counter);
        let peer = RecordedPeer::Origin { site, session: origin.session };
        shard.begin_session(own, &SessionRecord::new([0; 16], peer))?;
        state.last_counter = (state.last_counter + 1) % FIRST_COUNTER;
        state.insert(own, site, origin.session, false);
        Ok(own)
    }

    /// Ends the session here of a client whose session at its site has ended.
    pub(crate) fn end_session(&self, shard: &Shard, site: u16, there: SessionId) {
        let mut state = self.state.lock();
        let Some(own) = state.sessions.get(&(site, there)).copied() else { return };
        match shard.end_session(own) {
            Ok(()) => state.remove(own),
            // It stays until the site has many others.
            Err(error) => tracing::warn!(%error, "the session of an origin is not deleted"),
        }
    }

    /// Decides how a mutation is treated. `origin` has the session here; `has_stored_reply`: there
    /// is a row with its reply. If it waits for its twin, `twin` is kept.
    pub(crate) fn begin(
        &self,
        origin: &Origin,
        request: &Request,
        has_stored_reply: bool,
        twin: impl FnOnce() -> Twin,
    ) -> Passed {
        let mut state = self.state.lock();
        // It was evicted just now.
        let Some(client) = state.clients.get_mut(&origin.session) else { return Passed::Unknown };
        if let Some(twins) = client.running.get_mut(&origin.mutation) {
            twins.push(twin());
            return Passed::Waits;
        }
        if origin.may_be_repeated && !has_stored_reply {
            if let Some(reply) = client.replies.get(&origin.mutation).and_then(copy) {
                return Passed::Done(reply);
            }
            if client.is_of_earlier_run && !is_stored_with_its_change(request) {
                return Passed::Unknown;
            }
        }
        client.running.insert(origin.mutation, Vec::new());
        Passed::New
    }

    /// Forgets what was carried out in the epoch that has ended, and may be lost. Stored replies
    /// tell what is not.
    pub(crate) fn begin_epoch(&self) {
        for client in self.state.lock().clients.values_mut() {
            client.is_of_earlier_run = true;
            client.replies.clear();
        }
    }

    /// Ends a mutation that was carried out, with its reply if it went well. Returns its twins.
    pub(crate) fn end(&self, origin: &Origin, reply: Option<&Reply>) -> Vec<Twin> {
        let mut state = self.state.lock();
        let Some(client) = state.clients.get_mut(&origin.session) else { return Vec::new() };
        if let Some(reply) = reply.and_then(copy) {
            client.replies.insert(origin.mutation, reply);
        }
        client.running.remove(&origin.mutation).unwrap_or_default()
    }
}

impl State {
    fn insert(&mut self, own: SessionId, site: u16, there: SessionId, is_of_earlier_run: bool) {
        let used = self.uses;
        let running = HashMap::new();
        let replies = BTreeMap::new();
        let client = Client { site, there, used, is_of_earlier_run, running, replies };
        self.sessions.insert((site, there), own);
        self.clients.insert(own, client);
    }

    fn remove(&mut self, own: SessionId) {
        if let Some(client) = self.clients.remove(&own) {
            self.sessions.remove(&(client.site, client.there));
        }
    }

    /// Returns the least recently used client of a site that has as many as it may have. Clients
    /// with mutations that run stay.
    fn surplus(&self, site: u16) -> Option<SessionId> {
        let of_site = self.clients.iter().filter(|(_, client)| client.site == site);
        if of_site.clone().count() < limits::SITE_ORIGINS {
            return None;
        }
        let idle = of_site.filter(|(_, client)| client.running.is_empty());
        idle.min_by_key(|(_, client)| client.used).map(|(own, _)| *own)
    }
}

/// Returns whether the reply to a request is stored no later than what it changes: if none is
/// stored, it was not carried out.
fn is_stored_with_its_change(request: &Request) -> bool {
    match request {
        Request::Write { flags: WriteFlags { append, .. }, .. } => *append,
        request => match request.at_start() {
            AtStart::InTurn => true,
            AtStart::BeforeNew | AtStart::Restores | AtStart::ForOwnMount => false,
        },
    }
}

/// Returns a copy of a reply without an open, whose facts are of the past; `None` for a reply with
/// one: it was made in a session that may have ended.
fn copy(reply: &Reply) -> Option<Reply> {
    let mut copy = match reply {
        Reply::Done => Reply::Done,
        Reply::Entry(entry) => Reply::Entry(*entry),
        Reply::Attr(attr) => Reply::Attr(*attr),
        Reply::Removed(attr) => Reply::Removed(*attr),
        Reply::Renamed { moved, replaced } => Reply::Renamed { moved: *moved, replaced: *replaced },
        Reply::Written { bytes, size } => Reply::Written { bytes: *bytes, size: *size },
        Reply::Created { .. }
        | Reply::Opened { .. }
        | Reply::Data(_)
        | Reply::Bytes(_)
        | Reply::Listed { .. }
        | Reply::Offset(_)
        | Reply::Volume(_)
        | Reply::Lock(_)
        | Reply::Found(_)
        | Reply::Tagged(_)
        | Reply::Issued(_)
        | Reply::Access(_)
        | Reply::Audited(_)
        | Reply::Stepped { .. }
        | Reply::Servers(_) => return None,
    };
    copy.attrs_mut().into_iter().for_each(|attr| attr.volatile = true);
    Some(copy)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use pelago_wire::{Handle, OpenId};

    use super::*;
    use crate::testing::Rig;

    const WRITE: Request = Request::Write { open: OpenId(1), offset: 0, flags: WriteFlags::NONE };

    fn origin(session: u64, mutation: u64, may_be_repeated: bool) -> Origin {
        Origin { session: SessionId(session), mutation, acknowledged: 0, may_be_repeated }
    }

    /// Returns an origin with its session here.
    fn known(rig: &Rig, origins: &Origins, origin: Origin) -> Origin {
        let shard = &rig.shard;
        Origin { session: origins.session(shard, 1, &origin).unwrap(), ..origin }
    }

    fn begin(origins: &Origins, origin: &Origin) -> Passed {
        origins.begin(origin, &WRITE, false, || Box::new(|| ()))
    }

    #[test]
    fn a_twin_waits_and_a_repetition_gets_the_reply() {
        let rig = Rig::new();
        let origins = Origins::default();
        let first = known(&rig, &origins, origin(7, 1, false));
        assert!(matches!(begin(&origins, &first), Passed::New));
        let again = known(&rig, &origins, origin(7, 1, true));
        assert_eq!(again.session, first.session);
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let twin = move || -> Twin { Box::new(move || over.store(true, Ordering::Release)) };
        assert!(matches!(origins.begin(&again, &WRITE, false, twin), Passed::Waits));
        for twin in origins.end(&first, Some(&Reply::Written { bytes: 3, size: 5 })) {
            twin();
        }
        assert!(is_over.load(Ordering::Acquire));
        let repeated = begin(&origins, &again);
        assert!(matches!(repeated, Passed::Done(Reply::Written { bytes: 3, size: 5 })));
        // Its client has the answer now.
        let next = Origin { acknowledged: 1, ..origin(7, 2, false) };
        let next = known(&rig, &origins, next);
        assert!(matches!(begin(&origins, &next), Passed::New));
        assert!(origins.state.lock().clients[&next.session].replies.is_empty());
    }

    /// One that failed has changed nothing.
    #[test]
    fn a_failed_mutation_is_carried_out_again() {
        let rig = Rig::new();
        let origins = Origins::default();
        let first = known(&rig, &origins, origin(7, 1, false));
        assert!(matches!(begin(&origins, &first), Passed::New));
        origins.end(&first, None);
        let again = Origin { may_be_repeated: true, ..first };
        assert!(matches!(begin(&origins, &again), Passed::New));
    }

    #[test]
    fn after_a_start_only_stored_replies_are_known() {
        let rig = Rig::new();
        let origins = Origins::default();
        let first = known(&rig, &origins, origin(7, 1, false));
        assert!(matches!(begin(&origins, &first), Passed::New));
        origins.end(&first, Some(&Reply::Done));
        origins.begin_epoch();
        let again = Origin { may_be_repeated: true, ..first };
        assert!(matches!(begin(&origins, &again), Passed::Unknown));
        let rename = Request::Unlink { dir: Handle::ROOT, name: crate::testing::name("f") };
        let nothing = || -> Twin { Box::new(|| ()) };
        // Its change would have stored the reply.
        assert!(matches!(origins.begin(&again, &rename, false, nothing), Passed::New));
        origins.end(&again, None);
        // The reply is taken from its row.
        assert!(matches!(origins.begin(&again, &WRITE, true, nothing), Passed::New));
    }

    /// The rows of those that go are deleted.
    #[test]
    fn a_site_has_a_limited_number_of_clients() {
        let rig = Rig::new();
        let origins = Origins::default();
        let first = known(&rig, &origins, origin(1, 1, false));
        assert!(matches!(begin(&origins, &first), Passed::New));
        let most = limits::SITE_ORIGINS as u64;
        for session in 2..=most + 1 {
            known(&rig, &origins, origin(session, 1, false));
        }
        // The first one is the oldest, and has a mutation under way.
        let shard = &rig.shard;
        assert_eq!(known(&rig, &origins, origin(1, 1, true)).session, first.session);
        let gone = origins.session(shard, 1, &origin(2, 1, true)).unwrap_err();
        assert_eq!(gone.code, Code::Io);
        assert!(matches!(
            begin(&origins, &Origin { session: SessionId(2), ..first }),
            Passed::Unknown
        ));
        let rows = |rig: &Rig| rig.shard.earlier_sessions().unwrap().len();
        assert_eq!(rows(&rig), limits::SITE_ORIGINS);
        origins.end_session(shard, 1, SessionId(3));
        assert_eq!(rows(&rig), limits::SITE_ORIGINS - 1);
        let again = Origins::of_last_run(&shard.earlier_sessions().unwrap());
        assert_eq!(again.session(shard, 1, &origin(1, 2, true)).unwrap(), first.session);
    }
}
