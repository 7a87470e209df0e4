//! The way to the server of another site: one session there for all sessions here.
//!
//! The opens of all sessions here share the numbers of that session, so each has another number
//! there. Nothing is kept of what is answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_data::OpenKey;
use pelago_wire::{
    Bulk, Code, Context, DataPath, Done, Error, OpenEffect, OpenId, Reply, Request, RequestId,
    Service, SessionId, limits,
};

use crate::completion::{CancelKey, deliver};

/// A server that is well and idle says nothing for less than that: its signs of life come three
/// times in a term.
const SILENT: Duration = Duration::from_secs(limits::TERM_SECONDS / 2);

/// The way to the server of another site.
pub(crate) struct Upstream {
    service: Arc<dyn Service>,
    timeout: Duration,
    next: AtomicU64,
    /// Requests that were sent.
    sent: AtomicU64,
    /// The number there of each open. A leaf lock.
    opens: Mutex<HashMap<OpenKey, OpenId>>,
    /// The number there of each request that may be cancelled. A leaf lock.
    requests: Mutex<HashMap<CancelKey, RequestId>>,
}

/// An open that a request makes.
#[derive(Clone, Copy)]
struct Made {
    here: OpenKey,
    there: OpenId,
}

impl Upstream {
    pub(crate) fn new(service: Arc<dyn Service>, timeout: Duration) -> Self {
        Self {
            service,
            timeout,
            next: AtomicU64::new(1),
            sent: AtomicU64::new(0),
            opens: Mutex::default(),
            requests: Mutex::default(),
        }
    }

    /// Returns how long the other server has said nothing.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.service.silence()
    }

    /// Returns how many requests were sent.
    pub(crate) fn requests(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns whether an open of this session is there.
    pub(crate) fn has_open(&self, session: SessionId, open: OpenId) -> bool {
        self.opens.lock().contains_key(&OpenKey { session, open })
    }

    /// Asks that a request ends soon. Returns whether it is one of this way.
    pub(crate) fn cancel(&self, context: &Context) -> bool {
        let request = self.requests.lock().get(&CancelKey::from(context)).copied();
        let Some(request) = request else { return false };
        self.service.cancel(&Context { request, ..Context::direct(0, 0) });
        true
    }

    /// Ends what a session has open there.
    pub(crate) fn end_session(self: &Arc<Self>, session: SessionId) {
        let mut opens = self.opens.lock();
        let ended: Vec<OpenId> =
            opens.extract_if(|here, _| here.session == session).map(|(_, there)| there).collect();
        drop(opens);
        for open in ended {
            let context = Context::direct(0, 0);
            let release = Request::Release { open };
            let _later = self.service.ask(&context, release, Bulk::None, &mut || Box::new(|_| {}));
        }
    }

    /// Sends a request, and calls `done` with its answer: before this returns, or on any thread.
    pub(crate) fn ask(
        self: &Arc<Self>,
        context: &Context,
        mut request: Request,
        bulk: Bulk<'_>,
        done: Done,
    ) {
        // A close goes there as soon as it can: nothing else ends the open.
        let is_close = matches!(request.opens(), OpenEffect::Ends(_));
        let silent = self.timeout.max(SILENT);
        if !is_close && self.silence().is_some_and(|silence| silence >= silent) {
            return done(Err(Code::HostDown.into()));
        }
        let made = match self.map_opens(context.session, &mut request) {
            Ok(made) => made,
            Err(error) => return done(Err(error)),
        };
        self.sent.fetch_add(1, Ordering::Relaxed);
        let number = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        let there = Context { request: number, ..Context::direct(context.uid, context.gid) };
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
            if let (Some(Made { here, there }), Ok(_)) = (made, &result) {
                this.opens.lock().insert(here, there);
            }
            result.iter_mut().for_each(keep_nothing);
            done(result);
        });
        deliver(answered, |later| self.service.ask(&there, request, bulk, later));
    }

    /// Puts the numbers there into a request. Returns the open that it makes, with its number
    /// there.
    ///
    /// # Errors
    /// `BadOpen`.
    fn map_opens(&self, session: SessionId, request: &mut Request) -> Result<Option<Made>, Error> {
        let effect = request.opens();
        let made = effect.made().map(|(open, _)| OpenKey { session, open });
        let mut opens = self.opens.lock();
        let mut is_unknown = false;
        let mut number_made = None;
        request.each_open_mut(&mut |open| {
            let here = OpenKey { session, open: *open };
            let known = opens.get(&here).copied();
            *open = match (known, made == Some(here)) {
                (Some(there), _) => there,
                (None, true) => OpenId(self.next.fetch_add(1, Ordering::Relaxed)),
                (None, false) => {
                    is_unknown = true;
                    *open
                }
            };
            if made == Some(here) {
                number_made = Some(Made { here, there: *open });
            }
        });
        if let OpenEffect::Ends(open) = effect {
            opens.remove(&OpenKey { session, open });
        }
        if is_unknown { Err(Code::BadOpen.into()) } else { Ok(number_made) }
    }
}

/// Marks an answer as one of which nothing may be kept: no lease would recall it.
fn keep_nothing(reply: &mut Reply) {
    if let Reply::Created { path, .. } | Reply::Opened { path, .. } = reply {
        *path = DataPath::Direct;
    }
    reply.attrs_mut().into_iter().for_each(|attr| attr.volatile = true);
}
