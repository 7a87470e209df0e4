//! The clients of other sites for which the servers of those pass on mutations.
//!
//! Between two servers there is one session for all clients of a site, and it ends with the run of
//! the site's server. A client goes on in the next run, and repeats the mutations that were not
//! answered. So each client has a session here that only stores replies, and outlives the one by
//! which they came. What was carried out in this run and has no stored reply is known in memory.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use pelago_meta::reply_cache::RequestKey;
use pelago_meta::shard::Shard;
use pelago_wire::{
    AtStart, Code, Context, Description, Error, InodeId, Origin, RecordedPeer, Reply, Request,
    SessionId, SessionRecord, WriteFlags, limits,
};

/// The first number of sessions of origins. Those of connections count from 1 in each epoch.
const FIRST_COUNTER: u32 = 1 << 31;

/// Carries out a mutation that has waited for its twin.
type Waiting = Box<dyn FnOnce() + Send>;

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
    /// Its session at its site has ended: it goes once nothing of it runs.
    has_ended: bool,
    /// The session of its site's server by which its last mutation came.
    via: SessionId,
    /// The numbers of mutations in that session, each with that of the client, of which the site's
    /// server may not know yet that they are safe: it may replay them.
    unsafe_there: BTreeMap<u64, u64>,
    running: HashMap<u64, Vec<Waiting>>,
    /// The newest mutation up to which neither the client nor its site asks any more.
    over: u64,
    /// Mutations of this run that went well and whose replies its client may not have.
    done: BTreeMap<u64, DoneHere>,
}

/// A mutation that was carried out in this run.
struct DoneHere {
    kind: RequestKind,
    /// `None` if it has an open: that was made in a session which may have ended.
    reply: Option<Reply>,
}

/// The operation of a request, and the inodes that it names. A repetition has the same; the numbers
/// of its opens are others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestKind {
    operation: &'static str,
    inodes: [Option<InodeId>; 2],
    /// See [`may_be_done_elsewhere`].
    may_be_elsewhere: bool,
    /// See [`is_stored_with_its_change`].
    is_stored: bool,
}

impl RequestKind {
    pub(crate) fn of(request: &Request) -> Self {
        let Description { operation, subjects, .. } = request.describe();
        let mut inodes = subjects.each_inode();
        Self {
            operation: operation.name(),
            inodes: [inodes.next(), inodes.next()],
            may_be_elsewhere: may_be_done_elsewhere(request),
            is_stored: is_stored_with_its_change(request),
        }
    }
}

/// A mutation in the session of a site's server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PassedOn {
    /// The site.
    pub(crate) site: u16,
    /// The session of its server.
    pub(crate) via: SessionId,
    /// The number of the mutation there.
    pub(crate) mutation: u64,
    /// Up to this number the server knows that its mutations are safe.
    pub(crate) acknowledged: u64,
}

/// The treatment of a mutation that the server of a site passes on.
pub(crate) enum Passed {
    /// It is carried out. [`Origins::end`] follows.
    New,
    /// It was carried out before, with this reply.
    Done(Reply),
    /// It runs already. What was to carry it out is called when that is over.
    Waits,
    /// It may have been carried out, and another time would not be the same.
    Unknown,
}

impl Origins {
    /// Takes over the sessions of the last run.
    pub(crate) fn of_last_run(earlier: &[(SessionId, SessionRecord)]) -> Self {
        let mut state = State::default();
        let mut earlier = earlier.to_vec();
        earlier.sort_by_key(|(own, _)| *own);
        for (own, record) in earlier {
            if let RecordedPeer::Origin { site, session } = record.peer {
                let client = Client::new(site, session, SessionId::DIRECT);
                // The newest one goes last.
                state.uses += 1;
                let used = state.uses;
                state.insert(own, Client { used, is_of_earlier_run: true, ..client });
            }
        }
        Self { state: Mutex::new(state) }
    }

    /// Returns the origin with the session that it has here, and with the newest mutation up to
    /// which no one asks for replies any more: neither the client, nor the server of its site,
    /// which replays what may be lost. A new client gets a row.
    ///
    /// # Errors
    /// `Io` for a repetition of a client that is not known; those of the table.
    pub(crate) fn session(
        &self,
        shard: &Shard,
        passed_on: PassedOn,
        origin: &Origin,
    ) -> Result<Origin, Error> {
        let PassedOn { site, via, .. } = passed_on;
        let mut state = self.state.lock();
        if let Some(own) = state.sessions.get(&(site, origin.session)).copied() {
            return Ok(state.note(own, passed_on, origin));
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
        state.insert(own, Client::new(site, origin.session, via));
        Ok(state.note(own, passed_on, origin))
    }

    /// Returns the origin of a mutation that is cancelled, with the session that it has here;
    /// `None` if its client is new.
    ///
    /// # Errors
    /// `Io` if it runs or was carried out, and no row tells.
    pub(crate) fn cancelled(
        &self,
        shard: &Shard,
        site: u16,
        origin: &Origin,
    ) -> Result<Option<Origin>, Error> {
        let state = self.state.lock();
        let own = state.sessions.get(&(site, origin.session)).copied();
        let Some((own, client)) = own.and_then(|own| Some((own, state.clients.get(&own)?))) else {
            return match origin.may_be_repeated {
                true => Err(Code::Io.into()),
                false => Ok(None),
            };
        };
        let known = Origin { session: own, ..*origin };
        let is_done = client.done.contains_key(&origin.mutation);
        if client.running.contains_key(&origin.mutation)
            || is_done && !has_stored_reply(shard, &known)?
        {
            return Err(Code::Io.into());
        }
        Ok(Some(known))
    }

    /// Ends the session here of a client whose session at its site has ended.
    pub(crate) fn end_session(&self, shard: &Shard, site: u16, there: SessionId) {
        let mut state = self.state.lock();
        let Some(own) = state.sessions.get(&(site, there)).copied() else { return };
        if let Some(client) = state.clients.get_mut(&own) {
            client.has_ended = true;
        }
        state.remove_if_over(shard, own);
    }

    /// Ends the sessions of the clients of a site that has left the volume.
    pub(crate) fn end_site(&self, shard: &Shard, site: u16) {
        let mut state = self.state.lock();
        let of_site = state.clients.iter().filter(|(_, client)| client.site == site);
        let of_site: Vec<_> = of_site.map(|(own, _)| *own).collect();
        for own in of_site {
            if let Some(client) = state.clients.get_mut(&own) {
                client.has_ended = true;
            }
            state.remove_if_over(shard, own);
        }
    }

    /// Decides how a mutation is treated. `origin` has the session here; `has_stored_reply`: there
    /// is a row with its reply. If it waits for its twin, `twin` is kept.
    pub(crate) fn begin(
        &self,
        origin: &Origin,
        kind: RequestKind,
        has_stored_reply: bool,
        twin: impl FnOnce() -> Waiting,
    ) -> Passed {
        let mut state = self.state.lock();
        // It was evicted just now.
        let Some(client) = state.clients.get_mut(&origin.session) else { return Passed::Unknown };
        if origin.mutation <= client.over {
            return Passed::Unknown;
        }
        if let Some(twins) = client.running.get_mut(&origin.mutation) {
            twins.push(twin());
            return Passed::Waits;
        }
        match client.done.get(&origin.mutation) {
            // The folder of its site is a copy, and gives out numbers again.
            Some(done) if done.kind != kind => return Passed::Unknown,
            // Also if it may not be repeated: then it comes late, from an earlier session of its
            // site.
            Some(DoneHere { reply: Some(reply), .. }) => {
                return copy(reply).map_or(Passed::Unknown, Passed::Done);
            }
            // The row tells what to open again.
            Some(DoneHere { reply: None, .. }) if has_stored_reply => {}
            Some(DoneHere { reply: None, .. }) => return Passed::Unknown,
            None if origin.may_be_repeated
                && !has_stored_reply
                && (kind.may_be_elsewhere || client.is_of_earlier_run && !kind.is_stored) =>
            {
                return Passed::Unknown;
            }
            None => {}
        }
        client.running.insert(origin.mutation, Vec::new());
        Passed::New
    }

    /// Forgets what was carried out in the epoch that has ended, and may be lost. Stored replies
    /// tell what is not.
    pub(crate) fn begin_epoch(&self) {
        for client in self.state.lock().clients.values_mut() {
            client.is_of_earlier_run = true;
            client.done.clear();
        }
    }

    /// Ends a mutation that was carried out, with its reply if it went well. Returns its twins.
    pub(crate) fn end(
        &self,
        shard: &Shard,
        origin: &Origin,
        kind: RequestKind,
        reply: Option<&Reply>,
    ) -> Vec<Waiting> {
        let mut state = self.state.lock();
        let Some(client) = state.clients.get_mut(&origin.session) else { return Vec::new() };
        if let Some(reply) = reply {
            let done = DoneHere { kind, reply: copy(reply) };
            client.done.insert(origin.mutation, done);
        }
        let twins = client.running.remove(&origin.mutation).unwrap_or_default();
        state.remove_if_over(shard, origin.session);
        twins
    }
}

impl Client {
    fn new(site: u16, there: SessionId, via: SessionId) -> Self {
        Self {
            site,
            there,
            used: 0,
            is_of_earlier_run: false,
            has_ended: false,
            via,
            unsafe_there: BTreeMap::new(),
            running: HashMap::new(),
            over: 0,
            done: BTreeMap::new(),
        }
    }
}

impl State {
    fn insert(&mut self, own: SessionId, client: Client) {
        self.sessions.insert((client.site, client.there), own);
        self.clients.insert(own, client);
    }

    /// Notes a mutation of a client. Returns its origin, as [`Origins::session`] does.
    fn note(&mut self, own: SessionId, passed_on: PassedOn, origin: &Origin) -> Origin {
        let PassedOn { via, mutation, acknowledged, .. } = passed_on;
        self.uses += 1;
        let known = Origin { session: own, ..*origin };
        let Some(client) = self.clients.get_mut(&own) else { return known };
        client.used = self.uses;
        if via < client.via {
            // It comes late: its session has ended.
            return Origin { acknowledged: client.over, ..known };
        }
        if via > client.via {
            // The server of its site has started again, and replays nothing of before.
            client.via = via;
            client.unsafe_there.clear();
        }
        let of_client = client.unsafe_there.split_off(&acknowledged.saturating_add(1));
        client.unsafe_there = of_client;
        client.unsafe_there.insert(mutation, origin.mutation);
        let first_unsafe = client.unsafe_there.values().min().copied().unwrap_or(u64::MAX);
        let over = origin.acknowledged.min(first_unsafe.saturating_sub(1));
        client.over = client.over.max(over);
        let kept = client.done.split_off(&client.over.saturating_add(1));
        client.done = kept;
        Origin { acknowledged: client.over, ..known }
    }

    /// Removes a client that has ended, unless something of it runs.
    fn remove_if_over(&mut self, shard: &Shard, own: SessionId) {
        let Some(client) = self.clients.get(&own) else { return };
        if !client.has_ended || !client.running.is_empty() {
            return;
        }
        match shard.end_session(own) {
            Ok(()) => self.remove(own),
            // It stays until the site has many others.
            Err(error) => tracing::warn!(%error, "the session of an origin is not deleted"),
        }
    }

    fn remove(&mut self, own: SessionId) {
        let Some(client) = self.clients.remove(&own) else { return };
        let key = (client.site, client.there);
        if self.sessions.get(&key) == Some(&own) {
            self.sessions.remove(&key);
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

/// Returns whether there is a row with the reply to a mutation.
pub(crate) fn has_stored_reply(shard: &Shard, origin: &Origin) -> Result<bool, Error> {
    let context = Context { origin: Some(*origin), ..Context::direct(0, 0) };
    match RequestKey::of(&context) {
        Some(key) => Ok(shard.cached_reply(&key)?.is_some()),
        None => Ok(false),
    }
}

/// Returns whether another site may have carried a request out: the removal of a directory whose
/// name is here, and whose home was there. The name may lead to another one by now.
const fn may_be_done_elsewhere(request: &Request) -> bool {
    matches!(request, Request::RemoveDir { .. })
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
        | Reply::Charter { .. }
        | Reply::Revoked { .. }
        | Reply::Unreached { .. }
        | Reply::Clock { .. }
        | Reply::Hashes(_)
        | Reply::Token(_)
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

    const VIA: SessionId = SessionId::new(1, 1);

    fn passed_on(mutation: u64, acknowledged: u64) -> PassedOn {
        PassedOn { site: 1, via: VIA, mutation, acknowledged }
    }

    /// Returns an origin with its session here. All of it is safe.
    fn known(rig: &Rig, origins: &Origins, origin: Origin) -> Origin {
        let passed_on = passed_on(origin.mutation, origin.mutation - 1);
        origins.session(&rig.shard, passed_on, &origin).unwrap()
    }

    fn begin(origins: &Origins, origin: &Origin) -> Passed {
        origins.begin(origin, RequestKind::of(&WRITE), false, || Box::new(|| ()))
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
        let twin = move || -> Waiting { Box::new(move || over.store(true, Ordering::Release)) };
        assert!(matches!(
            origins.begin(&again, RequestKind::of(&WRITE), false, twin),
            Passed::Waits
        ));
        for twin in origins.end(
            &rig.shard,
            &first,
            RequestKind::of(&WRITE),
            Some(&Reply::Written { bytes: 3, size: 5 }),
        ) {
            twin();
        }
        assert!(is_over.load(Ordering::Acquire));
        let repeated = begin(&origins, &again);
        assert!(matches!(repeated, Passed::Done(Reply::Written { bytes: 3, size: 5 })));
        // Its client has the answer now.
        let next = Origin { acknowledged: 1, ..origin(7, 2, false) };
        let next = known(&rig, &origins, next);
        assert!(matches!(begin(&origins, &next), Passed::New));
        assert!(origins.state.lock().clients[&next.session].done.is_empty());
    }

    /// The server of its site may replay it after a start of this one, although its client has the
    /// answer.
    #[test]
    fn a_reply_is_kept_until_the_site_knows_that_it_is_safe() {
        let rig = Rig::new();
        let origins = Origins::default();
        let pass = |mutation: u64, acknowledged: u64, safe_there: u64| {
            let origin = Origin { acknowledged, ..origin(7, mutation, false) };
            // The session between the servers has other numbers.
            let passed_on = passed_on(100 + mutation, 100 + safe_there);
            origins.session(&rig.shard, passed_on, &origin).unwrap().acknowledged
        };
        assert_eq!(pass(1, 0, 0), 0);
        assert_eq!(pass(2, 1, 0), 0);
        assert_eq!(pass(3, 2, 1), 1);
        assert_eq!(pass(9, 8, 3), 8);
        // Another run of it replays nothing of before.
        let origin = Origin { acknowledged: 9, ..origin(7, 10, false) };
        let via = SessionId::new(1, 2);
        let passed_on = PassedOn { via, ..passed_on(1, 0) };
        assert_eq!(origins.session(&rig.shard, passed_on, &origin).unwrap().acknowledged, 9);
    }

    /// A client that ends leaves a mutation that runs, and its twin.
    #[test]
    fn a_twin_is_carried_out_although_its_client_has_ended() {
        let rig = Rig::new();
        let origins = Origins::default();
        let first = known(&rig, &origins, origin(7, 1, false));
        assert!(matches!(begin(&origins, &first), Passed::New));
        let again = Origin { may_be_repeated: true, ..first };
        assert!(matches!(begin(&origins, &again), Passed::Waits));
        origins.end_session(&rig.shard, 1, SessionId(7));
        assert!(origins.cancelled(&rig.shard, 1, &origin(7, 1, true)).is_err());
        assert_eq!(
            origins.end(&rig.shard, &first, RequestKind::of(&WRITE), Some(&Reply::Done)).len(),
            1
        );
        assert!(origins.state.lock().clients.is_empty());
        assert!(matches!(origins.cancelled(&rig.shard, 1, &origin(7, 1, false)), Ok(None)));
    }

    /// One that failed has changed nothing.
    #[test]
    fn a_failed_mutation_is_carried_out_again() {
        let rig = Rig::new();
        let origins = Origins::default();
        let first = known(&rig, &origins, origin(7, 1, false));
        assert!(matches!(begin(&origins, &first), Passed::New));
        origins.end(&rig.shard, &first, RequestKind::of(&WRITE), None);
        let again = Origin { may_be_repeated: true, ..first };
        assert!(matches!(begin(&origins, &again), Passed::New));
    }

    #[test]
    fn after_a_start_only_stored_replies_are_known() {
        let rig = Rig::new();
        let origins = Origins::default();
        let first = known(&rig, &origins, origin(7, 1, false));
        assert!(matches!(begin(&origins, &first), Passed::New));
        origins.end(&rig.shard, &first, RequestKind::of(&WRITE), Some(&Reply::Done));
        origins.begin_epoch();
        let again = Origin { may_be_repeated: true, ..first };
        assert!(matches!(begin(&origins, &again), Passed::Unknown));
        let rename = Request::Unlink { dir: Handle::ROOT, name: crate::testing::name("f") };
        let nothing = || -> Waiting { Box::new(|| ()) };
        // Its change would have stored the reply.
        assert!(matches!(
            origins.begin(&again, RequestKind::of(&rename), false, nothing),
            Passed::New
        ));
        origins.end(&rig.shard, &again, RequestKind::of(&WRITE), None);
        // The reply is taken from its row.
        assert!(matches!(
            origins.begin(&again, RequestKind::of(&WRITE), true, nothing),
            Passed::New
        ));
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
        let gone = origins.session(shard, passed_on(1, 0), &origin(2, 1, true)).unwrap_err();
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
        let repeated = again.session(shard, passed_on(1, 0), &origin(1, 2, true)).unwrap();
        assert_eq!(repeated.session, first.session);
    }
}
