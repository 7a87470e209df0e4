//! The harness of the tests of sessions: a server with sessions around a service of the test.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_wire::{
    Attr, Buffer, Bulk, Connections, Context, Done, Entry, Error, GuestGrant, GuestRefusal, Handle,
    Reply, Request, Served, Service, SessionId, SessionRecord, SessionService, SiteHello, SitePeer,
    SiteRefusal,
};

/// A deadline for events that must come; no test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A service with sessions, around one that answers requests.
pub(crate) struct WithSessions<S> {
    pub(crate) service: S,
    volume: [u8; 16],
    /// The run of the server.
    epoch: u32,
    begun: Mutex<HashMap<SessionId, SessionRecord>>,
    /// The newest sequence that is safe. Each mutation has sequence 1.
    safe: u64,
    /// The server waits for the clients of the last run.
    is_starting: bool,
    /// The mutations that an earlier run has carried out, and the entry that each has made.
    pub(crate) stored: Mutex<HashMap<u64, Entry>>,
    /// Sessions whose clients have sent Flushed: their buffered writes are answered.
    pub(crate) flushed: Mutex<Vec<SessionId>>,
    /// Revoked credentials.
    pub(crate) revoked: Mutex<Vec<[u8; 32]>>,
    pub(crate) store: StoreSwitch,
}

/// Answers each read with one byte.
pub(crate) struct Reads;

impl Service for Reads {
    fn ask(
        &self,
        _: &Context,
        _: Request,
        _: Bulk<'_>,
        _: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        Some(Ok(Reply::Data(Buffer::new(vec![7]))))
    }
}

/// A callback of [`SessionService::when_recorded`].
type Recorded = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// The behaviour of a server of a shared store. It is off at first.
#[derive(Default)]
pub(crate) struct StoreSwitch {
    pub(crate) is_on_store: AtomicBool,
    /// The server may not answer.
    pub(crate) is_mute: AtomicBool,
    pub(crate) owner: Mutex<Option<String>>,
    /// Rows of sessions do not become safe by themselves.
    pub(crate) holds: AtomicBool,
    pub(crate) held: Mutex<Vec<Recorded>>,
    connections: Mutex<Option<Weak<dyn Connections>>>,
}

impl StoreSwitch {
    /// Calls the callbacks that wait for rows.
    pub(crate) fn record(&self, result: Result<(), Error>) {
        let held = std::mem::take(&mut *self.held.lock());
        held.into_iter().for_each(|recorded| recorded(result));
    }

    pub(crate) fn connections(&self) -> Arc<dyn Connections> {
        self.connections.lock().as_ref().and_then(Weak::upgrade).unwrap()
    }
}

impl<S: Service> WithSessions<S> {
    pub(crate) fn new(service: S) -> Arc<Self> {
        Self::of_volume(7, service)
    }

    /// Returns the service of a volume whose id has this number.
    pub(crate) fn of_volume(number: u8, service: S) -> Arc<Self> {
        let begun = Mutex::default();
        Arc::new(Self {
            service,
            volume: [number; 16],
            epoch: 3,
            begun,
            safe: 1,
            is_starting: false,
            stored: Mutex::default(),
            flushed: Mutex::default(),
            revoked: Mutex::default(),
            store: StoreSwitch::default(),
        })
    }

    /// Returns the service of another run, which knows the sessions of the last one. Its mutations
    /// are not safe.
    pub(crate) fn of_run(epoch: u32, last: Option<&Self>, service: S) -> Arc<Self> {
        let begun = last.map(|last| last.begun.lock().clone()).unwrap_or_default();
        let begun = Mutex::new(begun);
        Arc::new(Self {
            service,
            volume: [7; 16],
            epoch,
            begun,
            safe: 0,
            is_starting: false,
            stored: Mutex::default(),
            flushed: Mutex::default(),
            revoked: Mutex::default(),
            store: StoreSwitch::default(),
        })
    }

    /// As [`WithSessions::of_run`], while it waits for the clients of the last run.
    pub(crate) fn of_starting_run(epoch: u32, last: &Self, service: S) -> Arc<Self> {
        let begun = Mutex::new(last.begun.lock().clone());
        Arc::new(Self {
            service,
            volume: [7; 16],
            epoch,
            begun,
            safe: 0,
            is_starting: true,
            stored: Mutex::default(),
            flushed: Mutex::default(),
            revoked: Mutex::default(),
            store: StoreSwitch::default(),
        })
    }

    /// Returns the sessions that have begun and have not ended.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.begun.lock().keys().copied().collect()
    }

    fn expect(&self, session: SessionId) {
        assert!(self.begun.lock().contains_key(&session), "its session has begun");
    }
}

impl<S: Service + 'static> WithSessions<S> {
    /// Serves on this Unix socket.
    pub(crate) fn serve(self: &Arc<Self>, socket: &Path) -> SessionServer {
        let service = Arc::clone(self) as Arc<dyn SessionService>;
        let server = SessionServer::start(service).unwrap();
        server.listen_unix(socket).unwrap();
        server
    }
}

impl<S: Service> Service for WithSessions<S> {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        self.expect(context.session);
        self.service.ask(context, request, bulk, later)
    }

    fn cancel(&self, context: &Context) {
        self.service.cancel(context);
    }
}

impl<S: Service> SessionService for WithSessions<S> {
    fn served(&self) -> Served {
        Served { volume: self.volume, epoch: self.epoch, read_only: false, site: 0 }
    }

    fn earlier_sessions(&self) -> Vec<(SessionId, SessionRecord)> {
        self.begun.lock().iter().map(|(id, record)| (*id, *record)).collect()
    }

    fn is_starting(&self) -> bool {
        self.is_starting
    }

    fn set_connections(&self, connections: Weak<dyn Connections>) {
        *self.store.connections.lock() = Some(connections);
    }

    fn is_on_store(&self) -> bool {
        self.store.is_on_store.load(Ordering::SeqCst)
    }

    fn may_answer(&self) -> bool {
        !self.store.is_mute.load(Ordering::SeqCst)
    }

    fn owner_elsewhere(&self) -> Option<String> {
        self.store.owner.lock().clone()
    }

    fn when_recorded(&self, then: Recorded) {
        match self.store.holds.load(Ordering::SeqCst) {
            true => self.store.held.lock().push(then),
            false => then(Ok(())),
        }
    }

    fn begin_session(&self, session: SessionId, record: SessionRecord) -> Result<(), Error> {
        let before = self.begun.lock().insert(session, record);
        assert_eq!(before, None, "a session begins once");
        Ok(())
    }

    /// Admits any key with the one credential `grant N`, where N is a number of one digit.
    fn admit_guest(
        &self,
        principal: &[u8; 32],
        chain: &[Vec<u8>],
        _address: Option<IpAddr>,
    ) -> Result<GuestGrant, GuestRefusal> {
        let text = chain.first().filter(|_| chain.len() == 1);
        let number = text.and_then(|text| text.strip_prefix(b"grant ")).and_then(<[u8]>::first);
        let number = number.ok_or_else(|| GuestRefusal("it grants nothing".to_owned()))?;
        Ok(GuestGrant {
            principal: *principal,
            first: [*number; 32],
            chain: [*number; 32],
            address: None,
            ends: None,
        })
    }

    fn begin_guest(
        &self,
        session: SessionId,
        _grant: &GuestGrant,
        record: &SessionRecord,
    ) -> Result<(), GuestRefusal> {
        let before = self.begun.lock().insert(session, *record);
        assert_eq!(before, None, "a session begins once");
        Ok(())
    }

    fn guest_came_back(
        &self,
        _session: SessionId,
        _grant: &GuestGrant,
    ) -> Result<(), GuestRefusal> {
        Ok(())
    }

    /// Admits any key, as that of site 1.
    fn admit_site(
        &self,
        key: &[u8; 32],
        _presented: Option<&SiteHello<'_>>,
    ) -> Result<SitePeer, SiteRefusal> {
        Ok(SitePeer { key: *key, site: 1 })
    }

    fn look_at_guests(&self) {
        self.store.connections().end_guests();
    }

    fn has_access(&self, grant: &GuestGrant) -> bool {
        !self.revoked.lock().contains(&grant.chain)
    }

    fn reclaimed(&self, session: SessionId) {
        self.expect(session);
    }

    fn flushed(&self, session: SessionId) {
        self.expect(session);
        self.flushed.lock().push(session);
    }

    fn ending(&self, session: SessionId) {
        self.expect(session);
    }

    fn end_session(&self, session: SessionId) {
        assert!(self.begun.lock().remove(&session).is_some(), "a session ends once");
    }

    fn progress(&self) -> (u64, u64) {
        (1, self.safe)
    }

    fn sequence_of(&self, _: SessionId, _: u64) -> u64 {
        u64::from(self.safe == 0)
    }

    fn stored_reply(&self, _: SessionId, mutation: u64) -> Result<Option<Reply>, Error> {
        Ok(self.stored.lock().get(&mutation).copied().map(Reply::Entry))
    }

    fn when_safe(&self, then: Box<dyn FnOnce() + Send>) {
        if self.safe > 0 {
            then();
        }
    }

    fn changed_node(&self, _: SessionId, _: &Request) -> Option<Handle> {
        None
    }

    fn attr(&self, _: SessionId, _: Handle) -> Option<Attr> {
        None
    }
}

/// Connects to a server on a Unix socket.
pub(crate) fn connect(socket: &Path) -> Remote {
    connect_to(ServerTarget::Unix(socket.to_owned()), None)
}

/// Connects to a server. Requests fail after `give_up`.
pub(crate) fn connect_to(target: ServerTarget, give_up: Option<Duration>) -> Remote {
    let role = ClientRole::Client;
    let options = RemoteOptions { target, read_only: false, role, give_up };
    Remote::connect(options, PATIENCE).unwrap()
}

/// Waits until `is_so` is true. Fails after [`PATIENCE`].
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "still not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}
