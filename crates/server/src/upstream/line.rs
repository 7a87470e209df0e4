//! The session at another site's server: it refuses requests while that server is silent, and
//! counts those that are sent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use pelago_holder::SILENT;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, Granted, LeaseHolder, LeasedDone, LeasedService, OpenEffect,
    OpenId, Reply, Request, Service, SessionId, Then,
};

/// The session at another site's server.
pub(super) struct Line {
    service: Arc<dyn LeasedService>,
    /// True once the own folder is known to be a copy, or an older one.
    is_outdated: Arc<AtomicBool>,
    /// The silence after which requests are refused.
    silent: Duration,
    /// Number of requests that were sent, without those that come at intervals.
    sent: AtomicU64,
}

impl Line {
    /// Returns the session that this service has. Requests are refused after a silence of
    /// `timeout`, or longer, and once `is_outdated` is true.
    pub(super) fn new(
        service: Arc<dyn LeasedService>,
        is_outdated: Arc<AtomicBool>,
        timeout: Duration,
    ) -> Self {
        Self { service, is_outdated, silent: timeout.max(SILENT), sent: AtomicU64::new(0) }
    }

    /// Returns the number of requests that were sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Counts a request that is about to be sent.
    ///
    /// # Errors
    /// `HostDown` if the other server is silent, or the own folder is an older one. A close is sent
    /// even while the other server is silent: nothing else ends the open, and the locks of its
    /// process.
    fn admit(&self, request: &Request) -> Result<(), Error> {
        if self.is_outdated.load(Ordering::Acquire) {
            return Err(Code::HostDown.into());
        }
        let after = match request.opens() {
            OpenEffect::Ends(_) | OpenEffect::EndsLocks { .. } => Duration::MAX,
            // One that is sent and not answered is lost to its program, although the line comes
            // back.
            OpenEffect::Makes { .. } => SILENT,
            OpenEffect::Creates { .. }
            | OpenEffect::MakesAgain { .. }
            | OpenEffect::Nothing
            | OpenEffect::UsesGuarded
            | OpenEffect::Locks { .. } => self.silent,
        };
        if self.silence().is_some_and(|silence| silence >= after) {
            return Err(Code::HostDown.into());
        }
        // As heartbeats, the questions what was taken back, and what time it is, and those for
        // tokens, are asked for no program.
        let is_of_server = matches!(
            request,
            Request::Charter { .. }
                | Request::Clock
                | Request::RenewToken { .. }
                | Request::KeepToken { .. }
        );
        if !is_of_server {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
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
        match self.admit(&request) {
            Ok(()) => self.service.ask(context, request, bulk, later),
            Err(error) => Some(Err(error)),
        }
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

impl LeasedService for Line {
    fn ask_leased(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        match self.admit(&request) {
            Ok(()) => self.service.ask_leased(context, request, bulk, done),
            Err(error) => done(Err(error), Granted::default()),
        }
    }

    fn ask_first(&self, context: &Context, request: Request, bulk: Bulk<'_>, done: LeasedDone) {
        match self.admit(&request) {
            Ok(()) => self.service.ask_first(context, request, bulk, done),
            Err(error) => done(Err(error), Granted::default()),
        }
    }

    fn lease_left(&self) -> Duration {
        self.service.lease_left()
    }

    fn has_lost_lock(&self, open: OpenId) -> bool {
        self.service.has_lost_lock(open)
    }

    fn when_settled(&self, then: Then) {
        self.service.when_settled(then);
    }

    fn end_origin(&self, session: SessionId) {
        self.service.end_origin(session);
    }

    fn set_holder(&self, holder: Weak<dyn LeaseHolder>) {
        self.service.set_holder(holder);
    }
}
