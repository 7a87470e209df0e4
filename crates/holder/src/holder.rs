//! The driver: answers from what is kept, or asks.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Granted, InodeId, LeasedService, Leases, LocalCache, OpenId,
    Reply, Request, Service, Tells, Then,
};

use crate::state::State;
use crate::timer::Timer;
use crate::told::{Sent, ShowsDirty};
use crate::writes::Written;

/// A service that answers from what it keeps under leases.
pub struct Holder {
    pub(crate) service: Arc<dyn LeasedService>,
    /// The cache below, which keeps what it is answered.
    pub(crate) cache: OnceLock<Arc<dyn LocalCache>>,
    /// A leaf lock: nothing is called under it.
    pub(crate) state: Mutex<State>,
    pub(crate) timer: Arc<Timer>,
    pub(crate) this: Weak<Self>,
}

impl Holder {
    /// Returns a holder over a service.
    #[must_use]
    pub fn new(service: Arc<dyn LeasedService>) -> Arc<Self> {
        let holder = Arc::new_cyclic(|this| Self {
            service,
            cache: OnceLock::new(),
            state: Mutex::default(),
            timer: Arc::default(),
            this: Weak::clone(this),
        });
        let weak: Weak<Self> = Arc::downgrade(&holder);
        holder.service.set_holder(weak);
        holder
    }

    /// Sets the cache below, which is told of recalls. A second call does nothing.
    pub fn set_cache(&self, cache: Arc<dyn LocalCache>) {
        if self.cache.set(Arc::clone(&cache)).is_ok() {
            cache.set_shared(true);
        }
    }

    /// Answers a request from what is kept.
    fn answer(&self, context: &Context, request: &Request) -> Option<Result<Reply, Error>> {
        if let Request::Flush { open, .. } = request {
            return self.state.lock().opens.is_here(*open).then_some(Ok(Reply::Done));
        }
        if let Request::Release { open } = request {
            let mut state = self.state.lock();
            let is_local = state.opens.is_here(*open) || state.opens.failure(*open).is_some();
            if is_local {
                state.opens.remove(*open);
            }
            return is_local.then_some(Ok(Reply::Done));
        }
        if request.tells() == Tells::Nothing || self.service.lease_left().is_zero() {
            return None;
        }
        self.state.lock().answer(context, request)
    }

    /// Asks the service once the server has the bytes and the opens that it must have before.
    fn send_after(
        self: &Arc<Self>,
        context: &Context,
        (request, sent): (Request, Sent),
        (dirty, unreported): (Vec<InodeId>, Vec<OpenId>),
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let holder = Arc::clone(self);
        let context = *context;
        let bytes = bulk.into_bytes();
        let go: Then = Box::new(move || {
            let mut state = holder.state.lock();
            let failed = state.failure(&request);
            let lost = state.write_error(&request);
            let fails =
                failed.or_else(|| lost.filter(|_| !matches!(request, Request::Flush { .. })));
            if let Some(code) = fails {
                state.give_up(&request, &sent);
                drop(state);
                return done(Err(code.into()));
            }
            drop(state);
            let done: Done = match lost {
                // The flush lets go of locks.
                Some(code) => Box::new(move |result| done(result.and(Err(code.into())))),
                None => done,
            };
            let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
            holder.forward(&context, (request, sent), bulk, done);
        });
        let holder = Arc::clone(self);
        let report: Then = Box::new(move || holder.report_all(&unreported, go));
        self.flush_all(&dirty, report);
    }

    /// Sends a read right behind the open that it names, so that both take one round trip; and once
    /// more if it has overtaken the open.
    fn read_behind(
        self: &Arc<Self>,
        context: &Context,
        (request, sent): (Request, Sent),
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
                        let sent = this.state.lock().send(&mut again);
                        this.forward(&context, (again, sent), Bulk::None, done);
                    }
                    Err(code) => done(Err(code.into())),
                };
                holder.report(open, Box::new(read));
            }
            result => done(result),
        };
        self.forward(&context, (request, sent), Bulk::None, Box::new(answered));
    }

    /// Returns whether a request reads bytes through an open that was made under a lease which goes
    /// on. Else another session may have written since and keep that back, and the server waits for
    /// it before it answers the open, but not before it reads.
    fn reads_under_lease(&self, state: &State, request: &Request) -> bool {
        let Request::Read { open, .. } = request else { return false };
        state.opens.is_here_under(*open, state.changes.era())
            && !self.service.lease_left().is_zero()
    }

    /// Flushes an open whose dirty bytes go with one request, which commits them.
    fn commit(self: &Arc<Self>, (ino, open): (InodeId, OpenId), done: Done) {
        let holder = Arc::clone(self);
        let answer: Then = Box::new(move || {
            let lost = holder.state.lock().opens.error(open);
            done(lost.map_or(Ok(Reply::Done), |code| Err(code.into())));
        });
        self.flush_all(&[ino], answer);
    }

    /// Asks the service. What the request changes is not kept meanwhile.
    fn forward(
        self: &Arc<Self>,
        context: &Context,
        (request, sent): (Request, Sent),
        bulk: Bulk<'_>,
        done: Done,
    ) {
        let holder = Arc::clone(self);
        let context = *context;
        let answered = move |mut result: Result<Reply, Error>, mut granted: Granted| {
            if holder.service.lease_left().is_zero() {
                // It came too late. Nothing would drop it when the leases begin anew.
                granted.leases = Leases::default();
            }
            let mut sent = sent;
            let shows_dirty = sent.shows_dirty.take();
            let mut state = holder.state.lock();
            state.answered(sent, &mut result, granted);
            if let Some(shown) = shows_dirty {
                let old = state.old_files(&shown.files, &mut result);
                if !old.is_empty() {
                    drop(state);
                    return holder.ask_again(&context, shown, &old, done);
                }
            }
            drop(state);
            done(result);
        };
        self.service.ask_leased(&context, request, bulk, Box::new(answered));
    }

    /// Asks once more, as the answer was too old for these files. If all leases have ended
    /// meanwhile, some of their bytes may still be on their way: the server takes or refuses them
    /// before.
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
            let mut sent = holder.state.lock().send(&mut request);
            if let Some(again) = &mut sent.shows_dirty {
                // The answer need not show what was written after the program has asked.
                again.files.retain(|ino| files.contains(ino));
            }
            holder.forward(&context, (request, sent), Bulk::None, done);
        });
        self.flush_all(old, go);
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
        if let Request::Write { .. } = request {
            match self.keep_write(context, &request, &bulk) {
                Written::Here(reply) => return Some(Ok(reply)),
                Written::Full => {
                    self.wait_for_room(context, (request, bulk), later());
                    return None;
                }
                Written::Through => {}
            }
        }
        let mut request = request;
        let (sent, before) = {
            let mut state = self.state.lock();
            if let Some(code) = state.failure(&request) {
                return Some(Err(code.into()));
            }
            if let Some(open) = state.commit_with_bytes(&request) {
                drop(state);
                this.commit(open, later());
                return None;
            }
            let sent = state.send(&mut request);
            let dirty = state.dirty_before(&request, (&sent.touched, sent.is_blind));
            let unreported = state.unreported(&request, &sent);
            let goes_behind = dirty.is_empty() && self.reads_under_lease(&state, &request);
            match &unreported[..] {
                [open] if goes_behind => {
                    let open = *open;
                    drop(state);
                    this.read_behind(context, (request, sent), open, later());
                    return None;
                }
                [] if dirty.is_empty() && !state.opens.has_errors() => (sent, None),
                _ => (sent, Some((dirty, unreported))),
            }
        };
        match before {
            None => this.forward(context, (request, sent), bulk, later()),
            Some(before) => this.send_after(context, (request, sent), before, bulk, later()),
        }
        None
    }

    fn cancel(&self, context: &Context) {
        self.service.cancel(context);
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
