//! The line between two servers in one process: calls in place of a connection, with leases and
//! recalls as a connection has them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_server::Server;
use pelago_wire::{
    Bulk, Code, Connections, Context, Done, Error, Granted, LeaseHolder, LeasedAnswer, LeasedDone,
    LeasedService, OpenId, Recalled, Reply, Request, Service, SessionId, SessionService, Tells,
    Then,
};

/// The time for which leases are granted: longer than any test takes.
const LEASE: Duration = Duration::from_secs(3600);

/// The loss of a step of a change of two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Losing {
    #[default]
    Nothing,
    Requests,
    Answers,
    /// Each is carried out, and its caller gets this error.
    AnswersBy(Code),
    /// A sync of the bytes of a file fails with this error.
    SyncsBy(Code),
}

/// The parts of a line to a server.
#[derive(Clone)]
pub(super) struct Ends {
    pub(super) there: Weak<Server>,
    pub(super) session: SessionId,
    pub(super) is_cut: Arc<AtomicBool>,
    /// Nothing has come for a while, and the leases still last.
    pub(super) is_silent: Arc<AtomicBool>,
    /// Requests that were sent, without those that come at intervals.
    pub(super) sent: Arc<AtomicU64>,
    /// The steps of changes of two sites that are lost. Their callers hear that they were
    /// interrupted.
    pub(super) losing: Arc<Mutex<Losing>>,
    /// The home has given the locks of this session to others.
    pub(super) loses_locks: Arc<AtomicBool>,
    /// The holder of the leases of this session.
    pub(super) holder: HolderOf,
    /// The next run of that server, and the session there.
    pub(super) moved: Arc<Mutex<Option<NextRun>>>,
    /// Bytes of files and of their hashes that were answered.
    pub(super) received: Arc<AtomicU64>,
    /// The treatment of requests for hashes.
    pub(super) hashing: Arc<Mutex<Hashing>>,
}

/// The treatment of requests for hashes.
#[derive(Default)]
pub(super) struct Hashing {
    /// The requests that were sent.
    pub(super) asked: Vec<Request>,
    /// The error that answers them.
    pub(super) error: Option<Code>,
    /// Done once, before one is carried out.
    pub(super) before: Option<Box<dyn FnOnce() + Send>>,
    /// Done once, after one was carried out and before it is answered.
    pub(super) after: Option<Box<dyn FnOnce() + Send>>,
}

/// A later run of the server at the other end.
pub(super) struct NextRun {
    pub(super) there: Weak<Server>,
    pub(super) session: SessionId,
}

impl Ends {
    /// Returns the server at the other end, and the session there.
    pub(super) fn end(&self) -> (Option<Arc<Server>>, SessionId) {
        match &*self.moved.lock() {
            Some(next) => (next.there.upgrade(), next.session),
            None => (self.there.upgrade(), self.session),
        }
    }

    /// Connects a server to the other end. No recalls reach it.
    pub(super) fn connect(&self, from: &Server) {
        let ends = self.clone();
        from.set_connect(Box::new(move |_| Some(Arc::new(Line(ends.clone())))));
    }

    /// Ends all leases, as their time does.
    pub(super) fn end_leases(&self) {
        let holder = self.holder.lock().as_ref().and_then(Weak::upgrade);
        if let Some(holder) = holder {
            holder.lost();
        }
    }
}

/// The line to a server of another site.
pub(super) struct Line(pub(super) Ends);

impl Line {
    /// Sends a request. `leases` are asked for on its answer.
    fn send(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        let Ends { sent, losing, .. } = &self.0;
        if !matches!(request, Request::Charter { .. }) {
            sent.fetch_add(1, Ordering::AcqRel);
        }
        let (there, session) = self.0.end();
        let session = &session;
        let Some(there) = there else {
            return done(Err(Code::TimedOut.into()), Granted::default());
        };
        let service = there.session_service();
        // A number of its own for each change, as a connection gives.
        let mutation = if request.is_mutation() { context.request.0 } else { 0 };
        // The other server has a session of its own for each client of this one.
        let safe = mutation.saturating_sub(1);
        let known = context.origin.map(|it| service.origin(*session, mutation, safe, &it));
        let origin = match known.transpose() {
            Ok(origin) => origin,
            Err(error) => return done(Err(error), Granted::default()),
        };
        let context = Context { session: *session, mutation, origin, ..*context };
        let is_hashing = matches!(request, Request::Hashes { .. });
        if is_hashing {
            let mut hashing = self.0.hashing.lock();
            hashing.asked.push(request.clone());
            let before = hashing.before.take();
            let error = hashing.error;
            drop(hashing);
            before.into_iter().for_each(|before| before());
            if let Some(code) = error {
                return done(Err(code.into()), Granted::default());
            }
        }
        let is_step = matches!(
            request,
            Request::AddDir { .. }
                | Request::DropDir { .. }
                | Request::RemoveNamedDir { .. }
                | Request::DropBytes { .. }
                | Request::SetBytes { .. }
        ) || sends_all(&request);
        let is_sync = matches!(request, Request::Fsync { .. });
        let losing = match *losing.lock() {
            Losing::SyncsBy(code) if is_sync => return done(Err(code.into()), Granted::default()),
            losing if is_step => losing,
            Losing::Nothing
            | Losing::Requests
            | Losing::Answers
            | Losing::AnswersBy(_)
            | Losing::SyncsBy(_) => Losing::Nothing,
        };
        if losing == Losing::Requests {
            return done(Err(Code::Interrupted.into()), Granted::default());
        }
        let lost = match losing {
            Losing::Answers => Some(Code::Interrupted),
            Losing::AnswersBy(code) => Some(code),
            Losing::Nothing | Losing::Requests | Losing::SyncsBy(_) => None,
        };
        let tells = request.tells();
        let facts = (tells != Tells::Nothing).then(|| (tells.node(), tells.names()));
        let opens_for_writing = request.opens().made().is_some_and(|(_, flags)| flags.write);
        let since = service.lease_moment();
        let changed = service.changed_node(*session, &request);
        let answering = Arc::clone(&service);
        let received = Arc::clone(&self.0.received);
        let hashing = Arc::clone(&self.0.hashing);
        let answered = move |mut result: Result<Reply, Error>| {
            received.fetch_add(bytes_of(&result), Ordering::AcqRel);
            if is_hashing {
                let after = hashing.lock().after.take();
                after.into_iter().for_each(|after| after());
            }
            if let Some(code) = lost {
                return done(Err(code.into()), Granted::default());
            }
            let changed = changed.filter(|_| result.is_ok()).and_then(|node| {
                let since = answering.lease_moment();
                Some((answering.attr(context.session, node)?, since))
            });
            let leases = facts.map_or_else(Default::default, |(node, names)| {
                let result = &mut result;
                let changed = changed.as_ref().map(|it| (&it.0, it.1));
                let answer = LeasedAnswer {
                    node,
                    names,
                    mutation,
                    origin,
                    opens_for_writing,
                    result,
                    changed,
                };
                answering.lease(context.session, since, answer)
            });
            let changed = changed.map(|it| it.0);
            done(result, Granted { leases, changed, may_be_done: false });
        };
        let answered = Mutex::new(Some(answered));
        let mut later = || -> Done { Box::new(answered.lock().take().unwrap()) };
        if let Some(result) = service.ask(&context, request, bulk, &mut later) {
            let answered = answered.lock().take().unwrap();
            answered(result);
        }
    }
}

/// Returns whether a request has all bytes of a small new file, which go home with its close.
fn sends_all(request: &Request) -> bool {
    matches!(request, Request::Write { flags, .. } if flags.commit && flags.behind.is_some())
}

/// Returns the bytes of a file, or of hashes of them, in an answer.
fn bytes_of(result: &Result<Reply, Error>) -> u64 {
    match result {
        Ok(Reply::Data(bytes)) => bytes.as_bytes().len() as u64,
        Ok(Reply::Hashes(hashes)) => 32 * hashes.len() as u64,
        _ => 0,
    }
}

impl Service for Line {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let done = later();
        self.send(context, request, bulk, Box::new(|result, _leases| done(result)));
        None
    }

    fn cancel(&self, context: &Context) {
        if let (Some(there), session) = self.0.end() {
            there.session_service().cancel(&Context { session, ..*context });
        }
    }

    fn silence(&self) -> Option<Duration> {
        let is_cut = self.0.is_cut.load(Ordering::Acquire) || self.0.end().0.is_none();
        let is_silent = self.0.is_silent.load(Ordering::Acquire);
        Some(match (is_cut, is_silent) {
            (true, _) => Duration::from_secs(60),
            (false, true) => Duration::from_secs(6),
            (false, false) => Duration::ZERO,
        })
    }
}

impl LeasedService for Line {
    fn ask_leased(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        self.send(context, request, bulk, done);
    }

    fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        self.send(context, request, bulk, done);
    }

    fn lease_left(&self) -> Duration {
        if self.0.is_cut.load(Ordering::Acquire) { Duration::ZERO } else { LEASE }
    }

    fn has_lost_lock(&self, _open: OpenId) -> bool {
        self.0.loses_locks.load(Ordering::Acquire)
    }

    fn when_settled(&self, then: Then) {
        // This line answers each request in the call.
        then();
    }

    fn end_origin(&self, session: SessionId) {
        if let (Some(there), of_line) = self.0.end() {
            there.session_service().end_origin(of_line, session);
        }
    }

    fn set_holder(&self, holder: Weak<dyn LeaseHolder>) {
        *self.0.holder.lock() = Some(holder);
    }
}

/// The place of the holder of a session's leases.
pub(super) type HolderOf = Arc<Mutex<Option<Weak<dyn LeaseHolder>>>>;

/// The connections of other sites' sessions at a server: recalls go to their holders.
pub(super) struct Recalls {
    pub(super) service: Arc<dyn SessionService>,
    pub(super) holders: Mutex<HashMap<SessionId, HolderOf>>,
    /// The sessions from which something was recalled.
    pub(super) sent: Mutex<Vec<SessionId>>,
}

impl Recalls {
    /// Returns those of a server, which has them recalled from now on.
    pub(super) fn of(server: &Server) -> Arc<Self> {
        let recalls = Arc::new(Self {
            service: server.session_service(),
            holders: Mutex::default(),
            sent: Mutex::default(),
        });
        let connections: Weak<dyn Connections> = Arc::<Self>::downgrade(&recalls);
        recalls.service.set_connections(connections);
        recalls
    }
}

impl Connections for Recalls {
    fn suspend(&self) {}

    fn resume(&self) {}

    fn recall(&self, session: SessionId, number: u64, recalled: &Recalled) {
        self.sent.lock().push(session);
        let service = Arc::clone(&self.service);
        let answer = Box::new(move || service.recalled(session, number));
        let holder = self.holders.lock().get(&session).cloned();
        let holder = holder.and_then(|holder| holder.lock().as_ref().and_then(Weak::upgrade));
        match (holder, recalled) {
            (Some(holder), Recalled::Things(touched)) => {
                holder.recalled(touched.clone().into(), answer);
            }
            (None, _) | (_, Recalled::Everything) => answer(),
        }
    }
}
