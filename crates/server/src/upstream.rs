//! The connection to the server of another site: one session there for all sessions here.
//!
//! The opens of all sessions here share the numbers of that session, so each has another number
//! there, and so has each owner of locks. A [`Holder`] caches what the other server has leased to
//! this one, and answers from that. The sessions here cache nothing of it: no recall from there
//! would reach them. The kernel below the own mount keeps directories ([`kept_directories`]). If
//! the other server is silent for too long, requests that are not answered from the cache fail at
//! once. What was in the cache when the leases ended is read meanwhile (`pelago_holder`, stale
//! answers).

mod close_bytes;
mod far_clock;
mod kept_directories;
mod line;
mod numbers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_holder::{Copies, Holder, SILENT};
use pelago_wire::{
    Bulk, Code, Context, DataPath, Done, Effect, Error, Handle, InodeId, LeasedService, OpenEffect,
    OpenFlags, OpenId, Origin, Reply, Request, RequestId, Service, SessionId, Tells, Then,
    WriteEra,
};

pub use self::far_clock::FarClock;
pub(crate) use self::kept_directories::{KeptDirectories, LeasesElsewhere, OwnKernel};

use self::close_bytes::CloseBytes;
use self::kept_directories::Announced;
use self::line::Line;
use self::numbers::Numbers;
use crate::completion::{CancelKey, deliver};
use crate::memory::FetchLimits;
use crate::stays::{RecalledStays, Stays};

/// The distance of the numbers of [`Upstream::own_open`] from the largest number, and how many
/// there are.
const OWN_OPENS: u64 = 1 << 42;

/// The connection to the server of another site.
pub(crate) struct Upstream {
    line: Arc<Line>,
    /// Answers under the leases of this server.
    holder: Arc<Holder>,
    /// The directories of the other site that the kernel below the own mount keeps.
    kept: Arc<KeptDirectories>,
    /// The bytes of files of the other site that are here.
    stays: Arc<Stays>,
    next: AtomicU64,
    /// Number of requests that were answered from what was known before.
    stale_answers: AtomicU64,
    /// The same of all other sites.
    all_stale_answers: Arc<AtomicU64>,
    /// What the other server has told of its clock last. A leaf lock.
    clock: Mutex<Option<FarClock>>,
    /// The files that are sent with their close. A leaf lock.
    close_bytes: Mutex<CloseBytes>,
    /// The numbers at the other site. A leaf lock.
    numbers: Mutex<Numbers>,
    /// The number at the other site of each request that may be cancelled. A leaf lock.
    requests: Mutex<HashMap<CancelKey, RequestId>>,
}

/// The parts of this server that the connection to another site uses.
pub(crate) struct UpstreamParts {
    /// The place for copies of what is fetched there, if there is one.
    pub(crate) copies: Option<Arc<dyn Copies>>,
    pub(crate) stays: Arc<Stays>,
    /// The kernel below the own mount.
    pub(crate) kernel: OwnKernel,
    /// Count of requests for all other sites that were answered while those were silent.
    pub(crate) all_stale_answers: Arc<AtomicU64>,
    /// Becomes true once nothing may go to other sites any more.
    pub(crate) is_outdated: Arc<AtomicBool>,
    /// The longest time of a request.
    pub(crate) timeout: Duration,
    /// Limits of what is kept in memory.
    pub(crate) fetched: FetchLimits,
}

impl Upstream {
    /// Returns the connection to the other site `site`, over this service.
    pub(crate) fn new(site: u16, service: Arc<dyn LeasedService>, parts: UpstreamParts) -> Self {
        let UpstreamParts { copies, stays, kernel, all_stale_answers, .. } = parts;
        let UpstreamParts { is_outdated, timeout, fetched, .. } = parts;
        let kept = Arc::new(KeptDirectories::new(site, kernel));
        let line = Arc::new(Line::new(service, is_outdated, timeout));
        let holder = Holder::new(Arc::clone(&line) as Arc<dyn LeasedService>);
        holder.set_only_cache();
        holder.set_deadline(timeout);
        holder.set_fetched_bytes(fetched.bytes);
        holder.set_most_facts(fetched.facts);
        if let Some(copies) = copies {
            holder.set_copies(copies);
        }
        let recalled = RecalledStays { stays: Arc::clone(&stays), site, kept: Arc::clone(&kept) };
        holder.set_cache(Arc::new(recalled));
        if let Err(error) = holder.write_behind() {
            tracing::warn!(%error, "each write to a file of another site waits for its answer");
        }
        Self {
            holder,
            line,
            kept,
            stays,
            next: AtomicU64::new(1),
            stale_answers: AtomicU64::new(0),
            all_stale_answers,
            clock: Mutex::default(),
            close_bytes: Mutex::default(),
            numbers: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    /// Returns how long the other server has been silent.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.line.silence()
    }

    /// Returns whether the other server has been silent for so long that it may be away.
    pub(crate) fn is_silent(&self) -> bool {
        self.silence().is_some_and(|silence| silence >= SILENT)
    }

    /// Returns the number of requests that were sent.
    pub(crate) fn requests(&self) -> u64 {
        self.line.sent()
    }

    /// Returns how many requests were answered while the other server was silent, from what was
    /// known before.
    pub(crate) fn stale_answers(&self) -> u64 {
        self.stale_answers.load(Ordering::Relaxed)
    }

    /// Returns the number of an open that a part of a request makes there: no client has such a
    /// number, and none was given before.
    pub(crate) fn own_open(&self) -> OpenId {
        OpenId(u64::MAX - OWN_OPENS - self.next.fetch_add(1, Ordering::Relaxed) % OWN_OPENS)
    }

    /// Returns the most bytes of a new file that are sent with its close.
    pub(crate) fn close_bytes(&self) -> usize {
        self.close_bytes.lock().most()
    }

    /// Records that a request with so many bytes of a new file was answered after a time.
    pub(crate) fn note_answer(&self, bytes: usize, took: Duration) {
        self.close_bytes.lock().note(bytes, took);
    }

    /// Calls `then` once no request is under way any more that was given up before.
    pub(crate) fn when_settled(&self, then: Then) {
        self.line.when_settled(then);
    }

    /// Holds back no more writes, has the other site get those that are held back, and calls `then`
    /// once it has answered, or has not in time.
    pub(crate) fn end_write_behind(&self, then: Then) {
        self.holder.end_write_behind(then);
    }

    /// Gives up the lease on the bytes of a file, which are written at its home from now on.
    pub(crate) fn give_up_bytes(&self, file: InodeId) {
        self.holder.give_up_bytes(file);
    }

    /// Returns the answer to a request, if it is cached under a lease.
    pub(crate) fn cached(
        &self,
        context: &Context,
        request: &Request,
    ) -> Option<Result<Reply, Error>> {
        let mut answer = self.holder.cached(context, request)?;
        self.show_stays(&mut answer);
        Some(answer)
    }

    /// Shows in a reply what was written here, and the other site does not know yet.
    fn show_stays(&self, result: &mut Result<Reply, Error>) {
        if !self.stays.is_empty() {
            let attrs = result.iter_mut().flat_map(Reply::attrs_mut);
            attrs.for_each(|attr| self.stays.show(attr));
        }
    }

    /// Returns whether this site has the lease on the bytes of the file of an open that writes, so
    /// that no other one reads or writes them.
    pub(crate) fn has_bytes(&self, session: SessionId, open: OpenId) -> bool {
        let there = self.numbers.lock().there(OpenKey { session, open });
        there.is_some_and(|there| self.holder.has_bytes(there))
    }

    /// Returns whether a lock was lost that a program had set through this open.
    pub(crate) fn has_lost_lock(&self, open: OpenKey) -> bool {
        let there = self.numbers.lock().there(open);
        there.is_some_and(|there| self.line.has_lost_lock(there))
    }

    /// Returns the era of the lease on the bytes of the file of an open, if this site has it and
    /// holds back none of them.
    pub(crate) fn bytes_era(&self, session: SessionId, open: OpenId) -> Option<WriteEra> {
        let there = self.numbers.lock().there(OpenKey { session, open })?;
        self.holder.bytes_era(there)
    }

    /// Returns the answer to a request that changes nothing, if the other server is silent and what
    /// was known before suffices. No change may build on it.
    pub(crate) fn answer_stale(
        &self,
        context: &Context,
        request: &Request,
    ) -> Option<Result<Reply, Error>> {
        let is_look = match request.opens() {
            OpenEffect::Nothing | OpenEffect::Makes { .. } => request.tells() != Tells::Nothing,
            OpenEffect::UsesGuarded => matches!(request, Request::Read { .. }),
            OpenEffect::MakesAgain { .. }
            | OpenEffect::Creates { .. }
            | OpenEffect::Locks { .. }
            | OpenEffect::EndsLocks { .. }
            | OpenEffect::Ends(_) => false,
        };
        if !is_look || !self.holder.may_answer_stale() {
            return None;
        }
        let mut request = request.clone();
        let made = self.numbers.lock().map(context.session, &mut request).ok()?;
        let caller = Context::direct(context.uid, context.gid);
        let there = Context { session: context.session, ..caller };
        self.kept.answers_stale();
        let mut result = self.holder.answer_stale(&there, &request)?;
        self.show_stays(&mut result);
        self.stale_answers.fetch_add(1, Ordering::Relaxed);
        self.all_stale_answers.fetch_add(1, Ordering::AcqRel);
        if let (Some(made), Ok(_)) = (made, &result) {
            self.numbers.lock().add(made);
        }
        result.iter_mut().for_each(forbid_caching);
        Some(result)
    }

    /// Records that a request is about to be answered from the record of directories that lead to
    /// own ones.
    pub(crate) fn answers_from_record(&self) {
        self.kept.answers_stale();
    }

    /// Has the kernel below the own mount drop what it keeps of the other site: this connection is
    /// replaced.
    pub(crate) fn drop_kept(&self) {
        self.kept.drop_all(Box::new(|| {}));
    }

    /// Returns whether an open of this session is at the other site.
    pub(crate) fn has_open(&self, session: SessionId, open: OpenId) -> bool {
        self.numbers.lock().has(OpenKey { session, open })
    }

    /// Asks that a request ends soon. Returns whether it was sent over this connection.
    pub(crate) fn cancel(&self, context: &Context) -> bool {
        let request = self.requests.lock().get(&CancelKey::from(context)).copied();
        let Some(request) = request else { return false };
        self.holder.cancel(&Context { request, ..Context::direct(0, 0) });
        true
    }

    /// Asks that all requests end soon that a signal may end: they would keep this connection,
    /// which is replaced.
    pub(crate) fn cancel_all(&self) {
        let requests: Vec<RequestId> = self.requests.lock().values().copied().collect();
        for request in requests {
            self.holder.cancel(&Context { request, ..Context::direct(0, 0) });
        }
    }

    /// Ends the opens of a session at the other site.
    pub(crate) fn end_session(self: &Arc<Self>, session: SessionId) {
        let ended = self.numbers.lock().end_session(session);
        self.line.end_origin(session);
        for open in ended {
            let context = Context::direct(0, 0);
            let release = Request::Release { open };
            let _later = self.holder.ask(&context, release, Bulk::None, &mut || Box::new(|_| {}));
        }
    }

    /// Passes on the request of a client, and calls `done` with its reply: before this returns, or
    /// later on any thread. `may_be_repeated`: an earlier run may have passed it on. The other site
    /// carries it out once.
    pub(crate) fn pass_on(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        may_be_repeated: bool,
        done: Done,
    ) {
        let Context { session, mutation, acknowledged, .. } = *context;
        // The programs of the own mount end with this run. What changes nothing is repeated freely.
        let is_change = matches!(request.describe().effect, Effect::Change { .. });
        let is_numbered = !is_own_mount(session) && mutation > 0 && is_change;
        let done = match request {
            // Its close is decided by the time that this takes without bytes.
            Request::Create { .. } => self.timed(done),
            _ => done,
        };
        let origin = Origin { session, mutation, acknowledged, may_be_repeated };
        let announced = self.announced(context.session, &request);
        let origin = is_numbered.then_some(origin);
        self.send(context, origin, request, bulk, announced, done);
    }

    /// Returns the announcement of a request to the kernel below the own mount, unless that has
    /// sent it.
    fn announced(&self, session: SessionId, request: &Request) -> Option<Announced> {
        if is_own_mount(session) { None } else { self.kept.announced(request) }
    }

    /// Returns a callback that records the time until it is called, and calls `done`.
    fn timed(self: &Arc<Self>, done: Done) -> Done {
        let this = Arc::downgrade(self);
        let began = Instant::now();
        Box::new(move |result| {
            if let Some(this) = this.upgrade().filter(|_| result.is_ok()) {
                this.note_answer(0, began.elapsed());
            }
            done(result);
        })
    }

    /// Sends a request that is a part of another one, and calls `done` with its reply: before this
    /// returns, or later on any thread.
    pub(crate) fn ask(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let announced = self.announced(context.session, &request);
        self.send(context, None, request, bulk, announced, done);
    }

    /// Sends a request of this server itself, for which no program waits, and calls `done` with its
    /// reply. The kernel below the own mount is told of what it changes.
    pub(crate) fn ask_for_none(self: &Arc<Self>, request: Request, done: Done) {
        let announced = self.kept.announced(&request);
        self.send(&Context::direct(0, 0), None, request, Bulk::None, announced, done);
    }

    /// Sends a request of this server itself, and waits for the reply. Meanwhile it does not keep
    /// the upstream: one that is replaced ends, and with it the wait.
    pub(crate) fn ask_and_wait(self: Arc<Self>, request: Request) -> Result<Reply, Error> {
        let (sender, answer) = mpsc::channel();
        let done: Done = Box::new(move |result| {
            let _waits_no_more = sender.send(result);
        });
        self.ask(&Context::direct(0, 0), request, Bulk::None, done);
        drop(self);
        answer.recv().map_err(|_| Error::from(Code::Unavailable))?
    }

    /// Opens a node to read, sends one request through that open, and calls `done` with its reply,
    /// or with the error of the open.
    pub(crate) fn ask_through_open(
        self: &Arc<Self>,
        node: Handle,
        request: impl FnOnce(OpenId) -> Request + Send + 'static,
        done: Done,
    ) {
        let own = Context::direct(0, 0);
        let open = self.own_open();
        let upstream = Arc::downgrade(self);
        let opened: Done = Box::new(move |opened| {
            let (Ok(_), Some(now)) = (&opened, upstream.upgrade()) else {
                let error = opened.err().unwrap_or_else(|| Code::Unavailable.into());
                return done(Err(error));
            };
            let answered: Done = Box::new(move |result| {
                if let Some(now) = upstream.upgrade() {
                    let release = Request::Release { open };
                    now.ask(&own, release, Bulk::None, Box::new(|_released| {}));
                }
                done(result);
            });
            now.ask(&own, request(open), Bulk::None, answered);
        });
        let flags = OpenFlags { no_atime: true, ..OpenFlags::READ };
        self.ask(&own, Request::Open { node, flags, open }, Bulk::None, opened);
    }

    /// Sends a request, once the kernel below the own mount has dropped what it changes.
    fn send(
        self: &Arc<Self>,
        context: &Context,
        origin: Option<Origin>,
        request: Request,
        bulk: Bulk<'_>,
        announced: Option<Announced>,
        done: Done,
    ) {
        let Some(announced) = announced else {
            return self.send_now(context, origin, request, bulk, done);
        };
        let this = Arc::clone(self);
        let context = *context;
        let bytes = bulk.into_bytes();
        let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
        announced.begin(done, move |done| {
            this.send_now(&context, origin, request, bulk, done);
        });
    }

    fn send_now(
        self: &Arc<Self>,
        context: &Context,
        origin: Option<Origin>,
        mut request: Request,
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let waits = matches!(request, Request::SetLock { wait: true, .. });
        hide_pid(context.session, &mut request);
        let mapped = self.numbers.lock().map(context.session, &mut request);
        let made = match mapped {
            Ok(made) => made,
            Err(error) => return done(Err(error)),
        };
        let number = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        // By its session the holder knows the writes of the own mount, which it may hold back.
        let session = context.session;
        let caller = Context::direct(context.uid, context.gid);
        let there = Context { session, request: number, origin, ..caller };
        let cancelled_as = CancelKey::from(context);
        let can_be_cancelled = context.request != RequestId(0);
        if can_be_cancelled {
            self.requests.lock().insert(cancelled_as, number);
        }
        let this = Arc::clone(self);
        let answered: Done = Box::new(move |mut result| {
            if can_be_cancelled {
                this.requests.lock().remove(&cancelled_as);
            }
            if let (Some(made), Ok(_)) = (made, &result) {
                this.numbers.lock().add(made);
            }
            if waits {
                this.numbers.lock().end_wait(session);
            }
            if let (Ok(Reply::Lock(Some(lock))), false) = (&mut result, is_own_mount(session)) {
                lock.pid = 0;
            }
            result.iter_mut().for_each(forbid_caching);
            this.show_stays(&mut result);
            done(result);
        });
        deliver(answered, |later| self.holder.ask(&there, request, bulk, later));
    }
}

/// Returns whether a session is that of the mount in this process. The processes of other sessions
/// are on other machines, or in another namespace.
const fn is_own_mount(session: SessionId) -> bool {
    session.0 == SessionId::DIRECT.0
}

/// Hides the number of a process that is not on this machine: a program here that asks who has a
/// lock would take it for one of its own.
const fn hide_pid(session: SessionId, request: &mut Request) {
    if let (Request::SetLock { lock, .. }, false) = (request, is_own_mount(session)) {
        lock.pid = 0;
    }
}

/// Marks a reply as one that must not be cached above: no recall would reach that cache.
fn forbid_caching(reply: &mut Reply) {
    if let Reply::Created { path, .. } | Reply::Opened { path, .. } = reply {
        *path = DataPath::Direct;
    }
    reply.attrs_mut().into_iter().for_each(|attr| attr.volatile = true);
}
