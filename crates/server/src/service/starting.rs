//! Requests while the sessions of the last run come back; see [`Grace`].

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{io, thread};

use pelago_meta::reply_cache::RequestKey;
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
        match self.dispatcher.parts.grace.is_over() {
            true => Ok(()),
            false => self.dispatcher.wait_for_sessions(limit),
        }
    }
}

impl Dispatcher {
    /// Waits on a thread of its own for sessions to come back, for at most `limit`.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub(super) fn wait_for_sessions(self: &Arc<Self>, limit: Duration) -> io::Result<()> {
        let sessions = self.parts.grace.sessions();
        tracing::info!(sessions, "waiting for clients");
        let dispatcher = Arc::clone(self);
        let wait = move || {
            while !dispatcher.parts.grace.wait(limit) {
                dispatcher.forget_late_sessions();
                dispatcher.go_on(dispatcher.parts.grace.expire());
            }
        };
        thread::Builder::new().name("grace".to_owned()).spawn(wait).map(drop)
    }

    /// The next run must not wait for sessions that this run gives up: others may get their locks
    /// now. Returns once that is safe, or cannot be made so.
    fn forget_late_sessions(&self) {
        let (shard, durability) = (&self.parts.shard, &self.parts.durability);
        let invalidations = durability.invalidations();
        for session in self.parts.grace.late() {
            if let Err(error) = shard.forget_session(session) {
                tracing::warn!(?session, %error, "the next start waits for a session again");
            }
        }
        let (sender, safe) = channel();
        let tell = move |_safe| {
            // The other end waits below.
            let _sent = sender.send(());
        };
        durability.when_safe(durability.done(), invalidations, Box::new(tell));
        // An error says that the callback is gone.
        let _safe = safe.recv();
    }

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
        let is_placed = self.is_placed(&context, &request);
        let parked = Parked { context, request, bytes, done };
        if let Some(parked) = self.parts.grace.park(parked, is_placed) {
            self.carry_out(parked);
        }
        None
    }

    /// Returns whether a request is an append that the last run has begun. If that cannot be read,
    /// the request fails in its turn.
    fn is_placed(&self, context: &Context, request: &Request) -> bool {
        let is_append = matches!(request, Request::Write { append: true, .. });
        let request_key = RequestKey::of(context).filter(|_| is_append);
        let stored = request_key.map(|request_key| self.parts.shard.cached_reply(&request_key));
        matches!(stored, Some(Ok(Some(_))))
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
            Step::Replay(replays) => self.replay(replays),
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

    /// Carries out, on a thread of its own and one after the other, what the last run has answered
    /// and may have lost.
    fn replay(self: &Arc<Self>, replays: Vec<Parked>) {
        tracing::info!(requests = replays.len(), "carrying out what may be lost");
        let dispatcher = Arc::clone(self);
        let (give, take) = channel();
        let run = move || {
            let replays: Vec<Parked> = take.recv().unwrap_or_default();
            for parked in replays {
                let (over, is_over) = channel();
                let done = parked.done;
                let done: Done = Box::new(move |result| {
                    done(result);
                    // Its receiver waits.
                    let _ = over.send(());
                });
                dispatcher.carry_out(Parked { done, ..parked });
                // An error means that the request was dropped, which its type forbids.
                let _ = is_over.recv();
            }
            dispatcher.go_on(dispatcher.parts.grace.replayed());
        };
        match thread::Builder::new().name("replay".to_owned()).spawn(run) {
            Ok(_) => drop(give.send(replays)),
            Err(error) => {
                tracing::error!(%error, "no thread: what may be lost is not carried out again");
                for parked in replays {
                    (parked.done)(Err(Code::Unavailable.into()));
                }
                self.go_on(self.parts.grace.replayed());
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

/// Returns whether a request does not wait: it opens a file or sets a lock again, or the server's
/// own mount needs it to come up. Sessions can come back only after that.
fn goes_on(context: &Context, request: &Request) -> bool {
    let is_own = context.session == SessionId::DIRECT;
    match request {
        // A file that does not exist yet is opened behind what makes it.
        Request::Reopen { .. } | Request::ReclaimLock { .. } => context.replayed.is_none(),
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
