//! Listens between a server and its sessions: counts leases, and sees two writers of one file.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pelago_wire::{
    Attr, Bulk, Connections, Context, Done, Error, GuestGrant, GuestRefusal, Handle, InodeId,
    LeaseMoment, LeasedAnswer, Leases, Origin, Recalled, Reply, Request, Served, Service,
    SessionId, SessionRecord, SessionService, SiteHello, SitePeer, SiteRefusal, Touched,
};

use crate::history::History;

/// A service whose requests and replies are recorded in the history.
pub(crate) struct Tap {
    service: Arc<dyn SessionService>,
    history: Arc<Mutex<History>>,
    /// The session that holds the lease on the bytes of each file.
    writers: Arc<Mutex<BTreeMap<InodeId, SessionId>>>,
    recalls: Arc<Recalls>,
}

/// The recalls that are not answered.
struct Recalls {
    connections: Mutex<Option<Weak<dyn Connections>>>,
    history: Arc<Mutex<History>>,
    sent: Mutex<BTreeMap<(SessionId, u64), Vec<Touched>>>,
}

impl Tap {
    pub(crate) fn new(service: Arc<dyn SessionService>, history: &Arc<Mutex<History>>) -> Self {
        let history = Arc::clone(history);
        let (connections, sent) = Default::default();
        let recalls = Recalls { connections, history: Arc::clone(&history), sent };
        Self { service, history, writers: Arc::default(), recalls: Arc::new(recalls) }
    }

    fn note(&self, leases: Leases, wanted: bool) {
        let mut history = self.history.lock();
        let Leases { node, names, changed, made: _, bytes } = leases;
        let all = [
            (node, "leases on nodes"),
            (names, "leases on names"),
            (changed, "leases on what was changed"),
            (bytes.is_some(), "leases on bytes"),
            (wanted && leases == Leases::default(), "answers without a lease"),
        ];
        for (_, what) in all.into_iter().filter(|(is_granted, _)| *is_granted) {
            history.count(what);
        }
    }

    /// Records that the session holds the lease on the bytes of a file.
    fn begin_writer(&self, session: SessionId, ino: InodeId) {
        let other = self.writers.lock().insert(ino, session).filter(|other| *other != session);
        if let Some(other) = other {
            let what = format!("{session:?} and {other:?} have the lease on the bytes of {ino}");
            self.history.lock().wrong.push(what);
        }
    }

    fn end_writer(&self, session: SessionId, ends: impl Fn(InodeId) -> bool) {
        self.writers.lock().retain(|ino, writer| *writer != session || !ends(*ino));
    }
}

impl Service for Tap {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        if let Request::Release { .. } = request {
            // The file is not known here: other sessions may hold the lease from now on.
            self.end_writer(context.session, |_| true);
        }
        self.service.ask(context, request, bulk, later)
    }

    fn cancel(&self, context: &Context) {
        self.service.cancel(context);
    }

    fn losses(&self) -> u64 {
        self.service.losses()
    }
}

impl SessionService for Tap {
    fn served(&self) -> Served {
        self.service.served()
    }

    fn set_connections(&self, connections: Weak<dyn Connections>) {
        *self.recalls.connections.lock() = Some(connections);
        let weak: Weak<Recalls> = Arc::downgrade(&self.recalls);
        self.service.set_connections(weak);
    }

    fn is_on_store(&self) -> bool {
        self.service.is_on_store()
    }

    fn may_answer(&self) -> bool {
        self.service.may_answer()
    }

    fn owner_elsewhere(&self) -> Option<String> {
        self.service.owner_elsewhere()
    }

    fn when_recorded(&self, then: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        self.service.when_recorded(then);
    }

    fn earlier_sessions(&self) -> Vec<(SessionId, SessionRecord)> {
        self.service.earlier_sessions()
    }

    fn is_starting(&self) -> bool {
        self.service.is_starting()
    }

    fn begin_session(&self, session: SessionId, record: SessionRecord) -> Result<(), Error> {
        self.history.lock().count("sessions begun");
        self.service.begin_session(session, record)
    }

    fn guests_wait(&self) -> Option<String> {
        self.service.guests_wait()
    }

    fn admit_guest(
        &self,
        principal: &[u8; 32],
        chain: &[Vec<u8>],
        address: Option<IpAddr>,
    ) -> Result<GuestGrant, GuestRefusal> {
        self.service.admit_guest(principal, chain, address)
    }

    fn admit_site(
        &self,
        key: &[u8; 32],
        presented: Option<&SiteHello<'_>>,
    ) -> Result<SitePeer, SiteRefusal> {
        self.service.admit_site(key, presented)
    }

    fn is_site(&self, peer: &SitePeer) -> bool {
        self.service.is_site(peer)
    }

    fn begin_guest(
        &self,
        session: SessionId,
        grant: &GuestGrant,
        record: &SessionRecord,
    ) -> Result<(), GuestRefusal> {
        self.history.lock().count("sessions of guests");
        self.service.begin_guest(session, grant, record)
    }

    fn guest_came_back(&self, session: SessionId, grant: &GuestGrant) -> Result<(), GuestRefusal> {
        self.history.lock().count("guests that came back");
        self.service.guest_came_back(session, grant)
    }

    fn has_leases(&self, session: SessionId) -> bool {
        self.service.has_leases(session)
    }

    fn look_at_guests(&self) {
        self.service.look_at_guests();
    }

    fn has_access(&self, grant: &GuestGrant) -> bool {
        self.service.has_access(grant)
    }

    fn reclaimed(&self, session: SessionId) {
        self.history.lock().count("sessions that came back");
        self.service.reclaimed(session);
    }

    fn flushed(&self, session: SessionId) {
        self.history.lock().count("sessions that have flushed");
        self.service.flushed(session);
    }

    fn ending(&self, session: SessionId) {
        self.service.ending(session);
    }

    fn end_session(&self, session: SessionId) {
        self.history.lock().count("sessions ended");
        self.end_writer(session, |_| true);
        self.service.end_session(session);
    }

    fn lease_moment(&self) -> LeaseMoment {
        self.service.lease_moment()
    }

    fn lease(&self, session: SessionId, since: LeaseMoment, answer: LeasedAnswer<'_>) -> Leases {
        let LeasedAnswer { result, .. } = answer;
        let leases =
            self.service.lease(session, since, LeasedAnswer { result: &mut *result, ..answer });
        if let (Some(_), Ok(reply)) = (leases.bytes, &*result)
            && let Some(attr) = reply.opened()
        {
            self.begin_writer(session, attr.ino);
        }
        self.note(leases, result.is_ok());
        leases
    }

    fn recalled(&self, session: SessionId, number: u64) {
        self.history.lock().count("recalls answered");
        let touched = self.recalls.sent.lock().remove(&(session, number)).unwrap_or_default();
        self.end_writer(session, |ino| touched.contains(&Touched::Node(ino)));
        self.service.recalled(session, number);
    }

    fn leases_lost(&self, session: SessionId) {
        self.history.lock().count("leases lost");
        self.end_writer(session, |_| true);
        self.service.leases_lost(session);
    }

    fn changed_node(&self, session: SessionId, request: &Request) -> Option<Handle> {
        self.service.changed_node(session, request)
    }

    fn attr(&self, session: SessionId, node: Handle) -> Option<Attr> {
        self.service.attr(session, node)
    }

    fn progress(&self) -> (u64, u64) {
        self.service.progress()
    }

    fn origin(
        &self,
        session: SessionId,
        mutation: u64,
        acknowledged: u64,
        origin: &Origin,
    ) -> Result<Origin, Error> {
        self.service.origin(session, mutation, acknowledged, origin)
    }

    fn cancelled_origin(
        &self,
        session: SessionId,
        origin: &Origin,
    ) -> Result<Option<Origin>, Error> {
        self.service.cancelled_origin(session, origin)
    }

    fn end_origin(&self, session: SessionId, ended: SessionId) {
        self.service.end_origin(session, ended);
    }

    fn stored_reply(&self, session: SessionId, mutation: u64) -> Result<Option<Reply>, Error> {
        self.service.stored_reply(session, mutation)
    }

    fn sequence_of(&self, session: SessionId, mutation: u64) -> u64 {
        self.service.sequence_of(session, mutation)
    }

    fn when_safe(&self, then: Box<dyn FnOnce() + Send>) {
        self.service.when_safe(then);
    }
}

impl Recalls {
    fn connections(&self) -> Option<Arc<dyn Connections>> {
        self.connections.lock().as_ref()?.upgrade()
    }
}

impl Connections for Recalls {
    fn suspend(&self) {
        if let Some(connections) = self.connections() {
            connections.suspend();
        }
    }

    fn resume(&self) {
        if let Some(connections) = self.connections() {
            connections.resume();
        }
    }

    fn end_guests(&self) {
        if let Some(connections) = self.connections() {
            connections.end_guests();
        }
    }

    fn recall(&self, session: SessionId, number: u64, recalled: &Recalled) {
        self.history.lock().count("recalls sent");
        let touched = match recalled {
            Recalled::Things(touched) => touched.clone(),
            Recalled::Everything => {
                self.history.lock().count("recalls of everything");
                Vec::new()
            }
        };
        self.sent.lock().insert((session, number), touched);
        if let Some(connections) = self.connections() {
            connections.recall(session, number, recalled);
        }
    }
}
