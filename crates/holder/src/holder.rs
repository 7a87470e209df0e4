//! The driver: answers from what is kept, or asks.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, LeasedService, LocalCache, Reply, Request, Service, Then,
};

use crate::state::State;
use crate::told::Sent;

/// A service that answers from what it keeps under leases.
pub struct Holder {
    pub(crate) service: Arc<dyn LeasedService>,
    /// The cache below, which keeps what it is answered.
    pub(crate) cache: OnceLock<Arc<dyn LocalCache>>,
    /// A leaf lock: nothing is called under it.
    pub(crate) state: Mutex<State>,
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
        match request {
            Request::Lookup { .. }
            | Request::Parent { .. }
            | Request::List { .. }
            | Request::GetAttr { .. }
            | Request::ReadLink { .. }
            | Request::GetXattr { .. }
            | Request::ListXattr { .. }
            | Request::Open { .. } => {
                if self.service.lease_left().is_zero() {
                    return None;
                }
                self.state.lock().answer(context, request)
            }
            Request::Flush { open, .. } => {
                self.state.lock().opens.is_here(*open).then_some(Ok(Reply::Done))
            }
            Request::Release { open } => {
                let mut state = self.state.lock();
                let is_local = state.opens.is_here(*open) || state.opens.failure(*open).is_some();
                if is_local {
                    state.opens.remove(*open);
                }
                is_local.then_some(Ok(Reply::Done))
            }
            _ => None,
        }
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
        let answered = move |mut result: Result<Reply, Error>, granted| {
            holder.state.lock().answered(sent, &mut result, granted);
            done(result);
        };
        self.service.ask_leased(context, request, bulk, Box::new(answered));
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
        let mut request = request;
        let (sent, unreported) = {
            let mut state = self.state.lock();
            if let Some(code) = state.failure(&request) {
                return Some(Err(code.into()));
            }
            let sent = state.send(&mut request);
            let unreported = state.unreported(&request, &sent);
            (sent, unreported)
        };
        let done = later();
        if unreported.is_empty() {
            this.forward(context, (request, sent), bulk, done);
            return None;
        }
        let (holder, context) = (Arc::clone(&this), *context);
        let bytes = bulk.into_bytes();
        let go: Then = Box::new(move || {
            let failed = holder.state.lock().failed_before(&request, &sent);
            if let Some(code) = failed {
                return done(Err(code.into()));
            }
            let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
            holder.forward(&context, (request, sent), bulk, done);
        });
        this.report_all(&unreported, go);
        None
    }

    fn cancel(&self, context: &Context) {
        self.service.cancel(context);
    }

    fn losses(&self) -> u64 {
        self.service.losses()
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder")
    }
}
