//! Requests while the sessions of the last run come back; see [`Grace`].

use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use pelago_wire::{Bulk, Code, Context, Done, Error, InodeId, Reply, Request, SessionId};

use super::{Dispatcher, LocalService, shared};
use crate::grace::{Grace, Parked, Step};
use crate::service::Call;

impl LocalService {
    /// Waits on a thread of its own for the sessions of the last run, for at most `limit`.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub(crate) fn wait_for_sessions(&self, limit: Duration) -> io::Result<()> {
        if self.dispatcher.parts.grace.is_over() {
            return Ok(());
        }
        let sessions = self.dispatcher.parts.grace.sessions();
        tracing::info!(sessions, "waiting for clients of the last run");
        let dispatcher = Arc::clone(&self.dispatcher);
        let wait = move || {
            while !dispatcher.parts.grace.wait(limit) {
                dispatcher.go_on(dispatcher.parts.grace.expire());
            }
        };
        thread::Builder::new().name("grace".to_owned()).spawn(wait).map(drop)
    }
}

impl Dispatcher {
    /// Takes a request while not all sessions are back: files are opened again now, all else waits.
    #[cold]
    pub(super) fn ask_early(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        if goes_on(context, &request) {
            return self.ask_any(context, request, bulk, later);
        }
        let (context, bytes, done) = (*context, bulk.into_bytes(), later());
        if let Some(parked) = self.parts.grace.park(Parked { context, request, bytes, done }) {
            self.carry_out(parked);
        }
        None
    }

    /// Carries out a request of any session.
    pub(super) fn ask_any(
        self: &Arc<Self>,
        context: &Context,
        request: Request,
        bulk: Bulk<'_>,
        later: &mut dyn FnMut() -> Done,
    ) -> Option<Result<Reply, Error>> {
        match context.session {
            SessionId::DIRECT => self.ask(&Call::from(context), request, bulk, later),
            _ => shared::ask(self, context, request, bulk, later),
        }
    }

    /// A session has come back or has ended, or a repeated request was carried out.
    pub(super) fn go_on(self: &Arc<Self>, step: Step) {
        match step {
            Step::Wait => {}
            Step::Repeat(repeated) => {
                for parked in repeated {
                    let (of_done, done) = (Arc::clone(self), parked.done);
                    let done: Done = Box::new(move |result| {
                        done(result);
                        of_done.go_on(of_done.parts.grace.repeated());
                    });
                    self.carry_out(Parked { done, ..parked });
                }
            }
            Step::Over(others) => {
                tracing::info!("serving requests");
                (self.parts.notify_orphans)();
                others.into_iter().for_each(|parked| self.carry_out(parked));
            }
        }
    }

    fn carry_out(self: &Arc<Self>, parked: Parked) {
        let Parked { context, request, bytes, done } = parked;
        let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
        let mut done = Some(done);
        let now = self.ask_any(&context, request, bulk, &mut || {
            done.take().expect("a service asks for one callback")
        });
        if let (Some(result), Some(done)) = (now, done) {
            done(result);
        }
    }
}

/// Returns whether a request does not wait: it opens a file again or sets a lock again, or the server's own mount needs
/// it to come up. Sessions can come back only after that.
fn goes_on(context: &Context, request: &Request) -> bool {
    let is_own = context.session == SessionId::DIRECT;
    match request {
        Request::Reopen { .. } | Request::ReclaimLock { .. } => true,
        Request::GetAttr { node } => is_own && node.ino == InodeId::ROOT,
        Request::StatFs => is_own,
        _ => false,
    }
}

/// Answers what waits, as the service stops.
pub(super) fn stop(grace: &Grace) {
    for parked in grace.stop() {
        (parked.done)(Err(Code::Unavailable.into()));
    }
}
