//! The driver: answers a request from the cache, or sends it to the service in the right order.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use std::{fmt, mem};

use parking_lot::Mutex;
use pelago_wire::{
    Buffer, Bulk, Code, Context, Done, Error, Granted, InodeId, Kind, LeasedService, Leases,
    LocalCache, OpenId, Reply, Request, RequestId, Service, Tells, Then, Touched, limits,
};

use crate::copies::Copies;
use crate::leased_cache::LeasedCache;
use crate::most_facts::MostFacts;
use crate::read_ahead::LargerRead;
use crate::reply_facts::{ReplyFacts, SentRequest, ShowsDirty};
use crate::state::{State, WritePath};
use crate::timer::Timer;

/// A service that answers from replies that it has cached under leases.
pub struct Holder {
    pub(crate) service: Arc<dyn LeasedService>,
    /// Copies of blocks that outlive their leases.
    pub(crate) copies: OnceLock<Arc<dyn Copies>>,
    /// The cache below, which caches the answers of this service.
    pub(crate) cache: OnceLock<Arc<dyn LocalCache>>,
    /// A leaf lock: nothing is called under it.
    pub(crate) state: Mutex<State>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) this: Weak<Self>,
}

/// The bytes and opens that the server must have before it gets a request.
struct Prerequisites {
    /// The files whose dirty bytes are sent first.
    dirty: Vec<InodeId>,
    /// The opens that are reported first.
    unreported: Vec<OpenId>,
}

impl Holder {
    /// Returns a holder over a service.
    #[must_use]
    pub fn new(service: Arc<dyn LeasedService>) -> Arc<Self> {
        let holder = Arc::new_cyclic(|this| Self {
            service,
            copies: OnceLock::new(),
            cache: OnceLock::new(),
            state: Mutex::default(),
            timer: Arc::default(),
            this: Weak::clone(this),
        });
        let weak: Weak<Self> = Arc::downgrade(&holder);
        holder.service.set_holder(weak);
        holder
    }

    /// Sets the cache below, which drops what is recalled. A second call does nothing.
    pub fn set_cache(&self, cache: Arc<dyn LocalCache>) {
        if self.cache.set(Arc::clone(&cache)).is_ok() {
            cache.set_shared(true);
        }
    }

    /// Says that no cache below keeps the answers of this holder, as that of a kernel does. From
    /// now on bytes that programs read are fetched ahead and kept, and listings bring attributes.
    pub fn set_only_cache(&self) {
        self.state.lock().is_only_cache = true;
    }

    /// Sets how many fetched bytes are kept in memory: [`pelago_wire::limits::FETCHED_BYTES`]
    /// at most.
    pub fn set_fetched_bytes(&self, bytes: usize) {
        self.state.lock().fetched.set_most_bytes(bytes);
    }

    /// Sets how many nodes, and how many names, are cached: [`pelago_wire::limits::HOLDER_NODES`]
    /// at most. What is cached is dropped.
    pub fn set_most_facts(&self, facts: usize) {
        let most = MostFacts::of(facts.min(limits::HOLDER_NODES));
        self.state.lock().cached = LeasedCache::new(most);
    }

    /// Sets the place for copies of blocks that are fetched. A second call does nothing.
    pub fn set_copies(&self, copies: Arc<dyn Copies>) {
        let _is_first = self.copies.set(copies);
    }

    /// Returns the answer to a request that changes nothing, if it is cached under a lease.
    #[must_use]
    pub fn cached(&self, context: &Context, request: &Request) -> Option<Result<Reply, Error>> {
        let reads = request.tells() != Tells::Nothing && !self.service.lease_left().is_zero();
        if reads { self.state.lock().answer(context, request) } else { None }
    }

    /// Answers a request without the server, if that is possible.
    fn answer(&self, context: &Context, request: &Request) -> Option<Result<Reply, Error>> {
        // One of a process with locks ends them, whatever open they were set through.
        if let Request::Flush { open, owner: None } = request {
            return self.state.lock().opens.is_here(*open).then_some(Ok(Reply::Done));
        }
        if let Request::Release { open } = request {
            let mut state = self.state.lock();
            let is_local = state.opens.is_here(*open) || state.opens.failure(*open).is_some();
            if is_local {
                state.remove_open(*open);
            }
            return is_local.then_some(Ok(Reply::Done));
        }
        self.cached(context, request)
    }

    /// Returns the bytes of a read that were read ahead, in the memory that came with the request
    /// if there is any; `None` if the server is to be asked.
    fn answer_read(&self, request: &Request, bulk: &mut Bulk<'_>) -> Option<Buffer> {
        let Request::Read { open, offset, size } = *request else { return None };
        if self.service.lease_left().is_zero() || self.service.has_lost_lock(open) {
            return None;
        }
        let mut state = self.state.lock();
        let bytes = state.bytes_ahead(open, offset, size)?;
        Some(into_room(bytes, bulk))
    }

    /// Sends a request after its prerequisites.
    fn send_after(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        sent: SentRequest,
        before: Prerequisites,
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let holder = Arc::clone(self);
        let context = *context;
        let bytes = bulk.into_bytes();
        let go: Then = Box::new(move || {
            let mut state = holder.state.lock();
            // A report that was not sent leaves the open unknown to the server.
            let is_unknown = state.names_unreported(&request);
            let unknown = is_unknown.then_some(Code::HostDown);
            let open_error = state.failure(&request).or(unknown);
            let write_error = state.write_error(&request);
            let is_flush = matches!(request, Request::Flush { .. });
            if let Some(code) = open_error.or_else(|| write_error.filter(|_| !is_flush)) {
                state.give_up(&request, &sent);
                drop(state);
                return done(Err(code.into()));
            }
            drop(state);
            let done: Done = match write_error {
                // A flush is sent all the same: it ends locks at the server.
                Some(code) => Box::new(move |result| done(result.and(Err(code.into())))),
                None => done,
            };
            let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
            holder.forward(&context, request, sent, bulk, done);
        });
        let holder = Arc::clone(self);
        let Prerequisites { dirty, unreported } = before;
        let report: Then = Box::new(move || holder.report_all(&unreported, go));
        self.flush_all(&dirty, report);
    }

    /// Reports an open and sends a read through it at once, so that both take one round trip. The
    /// read is sent once more if it has overtaken the report.
    fn read_with_report(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        sent: SentRequest,
        open: OpenId,
        done: Done,
    ) {
        self.report(open, Box::new(|_reported| {}));
        let holder = Arc::clone(self);
        let context = *context;
        let mut again = request.clone();
        let answered = move |result: Result<Reply, Error>| match result {
            Err(Error { code: Code::BadOpen }) => {
                let this = Arc::clone(&holder);
                let read = move |reported: Result<(), Code>| match reported {
                    Ok(()) => {
                        let sent = this.state.lock().send(&mut again, context.session);
                        this.forward(&context, again, sent, Bulk::None, done);
                    }
                    Err(code) => done(Err(code.into())),
                };
                holder.report(open, Box::new(read));
            }
            result => done(result),
        };
        self.forward(&context, request, sent, Bulk::None, Box::new(answered));
    }

    /// Returns whether a request reads bytes through an open that was made under a lease which has
    /// not ended. Otherwise another session may have bytes of the file in its buffer: the server
    /// waits for those before it answers the report of the open, but not before it reads.
    fn reads_under_lease(&self, state: &State, request: &Request) -> bool {
        let (Request::Read { open, .. } | Request::Hashes { open, .. }) = request else {
            return false;
        };
        state.opens.is_unreported_under(*open, state.changes.era())
            && !self.service.lease_left().is_zero()
    }

    /// Flushes an open whose dirty bytes go with one request, which commits them.
    fn commit(self: &Arc<Self>, ino: InodeId, open: OpenId, done: Done) {
        let holder = Arc::clone(self);
        let answer: Then = Box::new(move || {
            let error = holder.state.lock().opens.error(open);
            done(error.map_or(Ok(Reply::Done), |code| Err(code.into())));
        });
        self.flush_all(&[ino], answer);
    }

    /// Sends a request, and handles its reply.
    fn forward(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        sent: SentRequest,
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let holder = Arc::clone(self);
        let context = *context;
        let answered = move |result: Result<Reply, Error>, granted: Granted| {
            if !is_of_server(&result) || !holder.ends_stale() {
                return holder.answered(&context, sent, result, granted, done);
            }
            let ended = Arc::clone(&holder);
            holder.end_stale(Box::new(move || {
                ended.answered(&context, sent, result, granted, done);
            }));
        };
        self.service.ask_leased(&context, request, bulk, Box::new(answered));
    }

    /// Handles the reply to a request.
    fn answered(
        self: &Arc<Self>,
        context: &Context,
        mut sent: SentRequest,
        mut result: Result<Reply, Error>,
        mut granted: Granted,
        done: Done,
    ) {
        if self.service.lease_left().is_zero() {
            // The reply came after the end of its leases. Nothing would drop its facts when the
            // leases begin anew.
            granted.leases = Leases::default();
        }
        if let (ReplyFacts::Bytes(read), Err(error)) = (&sent.facts, &result)
            && error.kind() == Kind::Corrupt
        {
            // Perhaps none of the bytes that the program wants.
            let read = *read;
            self.state.lock().answered(sent, &mut result, granted);
            return self.read_again(context, read, done);
        }
        let shows_dirty = sent.shows_dirty.take();
        let mut state = self.state.lock();
        state.answered(sent, &mut result, granted);
        let unsettled = mem::take(&mut state.unsettled);
        let again = shows_dirty.and_then(|shown| {
            let old = state.old_files(&shown.files, &mut result);
            (!old.is_empty()).then_some((shown, old))
        });
        drop(state);
        self.settle(unsettled);
        match again {
            Some((shown, old)) => self.ask_again(context, shown, &old, done),
            None => done(result),
        }
    }

    /// Ends changes by requests that have failed here once they are over: what they touch may be
    /// cached again.
    pub(crate) fn settle(&self, touched: Vec<Touched>) {
        if touched.is_empty() {
            return;
        }
        let holder = Weak::clone(&self.this);
        self.service.when_settled(Box::new(move || {
            if let Some(holder) = holder.upgrade() {
                holder.state.lock().changes.end(&touched);
            }
        }));
    }

    /// Sends a read once more that has failed, for the bytes that the program wants.
    fn read_again(self: &Arc<Self>, context: &Context, read: LargerRead, done: Done) {
        let size = u32::try_from(read.wanted).unwrap_or(u32::MAX);
        let mut request = Request::Read { open: read.open, offset: read.offset, size };
        let sent = self.state.lock().send(&mut request, context.session);
        self.forward(context, request, sent, Bulk::None, done);
    }

    /// Sends a request once more whose reply was too old for these files. If all leases have ended
    /// since, requests with some of their bytes may still be under way: the server takes or refuses
    /// those bytes first.
    fn ask_again(
        self: &Arc<Self>,
        context: &Context,
        shown: ShowsDirty,
        old: &[InodeId],
        done: Done,
    ) {
        let holder = Arc::clone(self);
        let context = *context;
        let go: Then = Box::new(move || {
            let ShowsDirty { files, mut request } = shown;
            let mut sent = holder.state.lock().send(&mut request, context.session);
            if let Some(again) = &mut sent.shows_dirty {
                // The reply need not show what was written after the program's request.
                again.files.retain(|ino| files.contains(ino));
            }
            holder.forward(&context, request, sent, Bulk::None, done);
        });
        self.flush_all(old, go);
    }

    /// Sends a request after what the server must have before it; or answers with an error that is
    /// known here.
    pub(crate) fn send_in_order(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let mut bulk = bulk;
        let mut request = request;
        let mut state = self.state.lock();
        if let Some(code) = state.failure(&request) {
            return Some(Err(code.into()));
        }
        if let Some((ino, open)) = state.commit_with_bytes(&request) {
            drop(state);
            self.commit(ino, open, later());
            return None;
        }
        let sent = state.send(&mut request, context.session);
        if let ReplyFacts::Bytes(_) = sent.facts {
            // The caller's memory is for the bytes that it wants.
            bulk = Bulk::None;
        }
        let dirty = state.dirty_before(&request, &sent);
        let unreported = state.unreported(&request, &sent);
        let goes_with_report = dirty.is_empty() && self.reads_under_lease(&state, &request);
        let goes_at_once = dirty.is_empty() && !state.opens.has_errors();
        drop(state);
        match unreported[..] {
            [open] if goes_with_report => {
                self.read_with_report(context, request, sent, open, later());
            }
            [] if goes_at_once => self.forward(context, request, sent, bulk, later()),
            _ => {
                let before = Prerequisites { dirty, unreported };
                self.send_after(context, request, sent, before, bulk, later());
            }
        }
        None
    }
}

impl Service for Holder {
    fn ask(
        &self,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        let Some(this) = self.this.upgrade() else { return Some(Err(Code::Unavailable.into())) };
        if let Some(answer) = self.answer(context, &request) {
            return Some(answer);
        }
        let mut bulk = bulk;
        if let Some(bytes) = self.answer_read(&request, &mut bulk) {
            return Some(Ok(Reply::Data(bytes)));
        }
        if let Request::Write { .. } = request {
            match self.buffer_write(context, &request, &bulk) {
                WritePath::Answered(reply) => return Some(Ok(reply)),
                WritePath::WaitsForRoom => {
                    self.wait_for_room(context, request, bulk, later());
                    return None;
                }
                WritePath::ToServer => {}
            }
        }
        if let Some(read) = self.fetchable(context, &request) {
            if let Some(bytes) = self.take_fetched(&read) {
                return Some(Ok(Reply::Data(into_room(&bytes, &mut bulk))));
            }
            this.fetch_or_send(read, later());
            return None;
        }
        this.send_in_order(context, request, bulk, later)
    }

    fn cancel(&self, context: &Context) {
        if context.request == RequestId(0) || !self.cancel_read(context.request) {
            self.service.cancel(context);
        }
    }

    fn forsake(&self, context: &Context) {
        self.service.forsake(context);
    }

    fn losses(&self) -> u64 {
        self.service.losses()
    }

    fn silence(&self) -> Option<Duration> {
        self.service.silence()
    }
}

/// Returns whether a result came from the server: not if the server was silent, or the caller did
/// not wait.
const fn is_of_server(result: &Result<Reply, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => !matches!(error.code, Code::HostDown | Code::TimedOut | Code::Interrupted),
    }
}

/// Copies bytes into the memory that came with a request, if there is enough.
fn into_room(bytes: &[u8], bulk: &mut Bulk<'_>) -> Buffer {
    match bulk.parts().1.and_then(|room| room.get_mut(..bytes.len())) {
        Some(room) => {
            room.copy_from_slice(bytes);
            Buffer::in_room(bytes.len())
        }
        None => Buffer::new(bytes.to_vec()),
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.timer.end();
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder")
    }
}
