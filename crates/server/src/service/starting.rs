//! Requests during the grace of a start, and the thread that carries them out; see [`Grace`].
//!
//! Rows about sessions that are given up, and about write eras, must be safe before other requests
//! go on: else the next run would let their clients reclaim what others have by then.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{io, thread};

use pelago_meta::reply_cache::RequestKey;
use pelago_store::table;
use pelago_trace::RequestSpan;
use pelago_wire::{AtStart, Bulk, Code, Context, Done, Error, Reply, Request, SessionId, WriteEra};

use super::{Dispatcher, LocalService, Submission};
use crate::completion::deliver;
use crate::grace::{Grace, Parked, Round, Step};

/// The pause before a row of a session is written again after a failure.
const RETRY: Duration = Duration::from_millis(100);
/// The pause between two looks at a table that has stopped.
const PAUSE: Duration = Duration::from_millis(5);

impl LocalService {
    /// Starts a thread that waits for the sessions of the last run, for at most `limit`.
    ///
    /// # Errors
    /// The system's, if it gives no thread, and those of the table.
    pub(crate) fn wait_for_sessions(&self, limit: Duration) -> io::Result<()> {
        self.dispatcher.wait_for_sessions(limit)
    }
}

impl Dispatcher {
    /// Starts a thread that waits for sessions to come back, for at most `limit`, and carries out
    /// the requests that wait for them.
    ///
    /// # Errors
    /// The system's, if it gives no thread, and those of the table.
    pub(super) fn wait_for_sessions(self: &Arc<Self>, limit: Duration) -> io::Result<()> {
        if limit.is_zero() && !self.parts.earlier.is_empty() {
            // Other requests go on at once, and there is no group commit yet.
            let eras = self.others.next_eras();
            let begun = self.parts.shard.begin_write_eras(&eras);
            begun.map_err(io::Error::other)?;
            self.parts.table.persist().map_err(io::Error::other)?;
            self.others.set_eras(eras);
        }
        if !self.parts.grace.needs_thread() {
            return Ok(());
        }
        let sessions = self.parts.grace.sessions();
        tracing::info!(sessions, "waiting for clients");
        let dispatcher = Arc::clone(self);
        let steps = move || while dispatcher.take_step(limit) {};
        let spawned = thread::Builder::new().name("grace".to_owned()).spawn(steps);
        spawned.map(drop).inspect_err(|_| self.parts.grace.has_no_thread())
    }

    /// Takes the next step of the grace. Returns whether there is another one.
    fn take_step(self: &Arc<Self>, limit: Duration) -> bool {
        let grace = &self.parts.grace;
        let (round, step) = grace.next(limit);
        match step {
            Step::Late(sessions) => {
                self.forget_sessions(&sessions);
                for session in grace.give_up_late(round) {
                    self.remember_session(session);
                }
            }
            Step::Replay(replays) => {
                tracing::info!(requests = replays.len(), "carrying out what may be lost");
                self.replay(replays, round, limit);
                grace.replayed(round);
            }
            Step::Repeat(repeated) => {
                for parked in repeated {
                    let of_done = Arc::clone(self);
                    let done = parked.done;
                    let done: Done = Box::new(move |result| {
                        done(result);
                        of_done.parts.grace.repeated(round);
                    });
                    self.carry_out(Parked { done, ..parked });
                }
            }
            Step::EndEras => self.end_write_eras(),
            Step::Over(others) => {
                tracing::info!("serving requests");
                (self.parts.notify_orphans)();
                others.into_iter().for_each(|parked| self.carry_out(parked));
                return false;
            }
        }
        true
    }

    /// Deletes the rows of sessions that this run gives up, and returns when that is safe: from
    /// then on other sessions may get their locks or write their files, so the next run must not
    /// know them.
    pub(super) fn forget_sessions(&self, sessions: &[SessionId]) {
        let shard = &self.parts.shard;
        self.make_safe(|| sessions.iter().try_for_each(|it| shard.forget_session(*it)));
    }

    /// Records the write eras of sessions, and returns when that is safe: from then on other
    /// sessions may write where bytes were held back, so the next run must know the eras.
    pub(super) fn record_write_eras(&self, eras: &[(SessionId, WriteEra)]) {
        self.make_safe(|| self.parts.shard.begin_write_eras(eras));
    }

    /// Ends the write eras of all sessions: writes that their clients have held back since the last
    /// run are refused, and other requests go on.
    pub(super) fn end_write_eras(&self) {
        let eras = self.others.next_eras();
        self.record_write_eras(&eras);
        self.others.set_eras(eras);
    }

    /// Writes rows about sessions, and returns when they are safe. After a failure of the table it
    /// returns too: the table is opened again, and all sessions are waited for anew.
    fn make_safe(&self, write: impl Fn() -> Result<(), Error>) {
        let durability = &self.parts.durability;
        let invalidations = durability.invalidations();
        while let Err(error) = write() {
            tracing::warn!(%error, "cannot write of sessions; will retry");
            if *self.stopped.read_recursive() || durability.invalidations() != invalidations {
                return;
            }
            thread::sleep(RETRY);
        }
        let (sender, safe) = channel();
        let notify = move |_safe| {
            // The receiver waits below.
            let _sent = sender.send(());
        };
        durability.when_safe(durability.done(), invalidations, Box::new(notify));
        // An error means that the callback was dropped.
        let _safe = safe.recv();
    }

    /// Writes again the row of a session that was given up and came back late. It has lost the
    /// locks that it did not reclaim in time, so the next run may know it.
    pub(super) fn remember_session(&self, session: SessionId) {
        if let Err(error) = self.parts.shard.remember_session(session) {
            tracing::warn!(?session, %error, "the next start will not know a session");
        }
    }

    /// Parks a request while not all sessions are back. Requests that open files again are carried
    /// out now.
    #[cold]
    pub(super) fn park_or_dispatch(
        self: &Arc<Self>,
        context: &Context,
        submission: Submission<'_>,
    ) -> Option<Result<Reply, Error>> {
        let request = &submission.request;
        if goes_on(context, request) || self.opens_existing(context, request) {
            return self.dispatch_and_await_writers(context, submission);
        }
        let Submission { request, bulk, later } = submission;
        let context = *context;
        let bytes = bulk.into_bytes();
        let done = later();
        let is_placed = self.is_placed(&context, &request);
        let parked = Parked { context, request, bytes, done, span: RequestSpan::current() };
        if let Some(parked) = self.parts.grace.park(parked, is_placed) {
            self.carry_out(parked);
        }
        None
    }

    /// Returns whether a request opens an existing file for reading: so a client that comes back
    /// reports opens that it has made under a lease, before others may remove the file.
    fn opens_existing(&self, context: &Context, request: &Request) -> bool {
        let Some((node, flags)) = request.opens().existing() else { return false };
        let reads = !flags.write && !flags.truncate;
        let is_other = context.session != SessionId::DIRECT && context.replayed.is_none();
        reads && is_other && self.parts.shard.attr(node).is_ok()
    }

    /// Returns whether a request is an append that the last run has begun, so that its offset is
    /// recorded. If the row cannot be read, the request fails in its turn.
    fn is_placed(&self, context: &Context, request: &Request) -> bool {
        let is_append = matches!(request, Request::Write { flags, .. } if flags.append);
        let request_key = RequestKey::of(context).filter(|_| is_append);
        let stored = request_key.map(|request_key| self.parts.shard.cached_reply(&request_key));
        matches!(stored, Some(Ok(Some(_))))
    }

    /// Carries out, one after the other, requests that the last run has answered and may have lost.
    /// Each gets `limit`. If the table fails, the reply waits until the connections have ended: the
    /// clients send all of them again, and an error would tell them that the change is lost.
    fn replay(self: &Arc<Self>, replays: Vec<Parked>, round: Round, limit: Duration) {
        for parked in replays {
            let (over, is_over) = channel();
            let done = parked.done;
            let done: Done = Box::new(move |result| {
                if let Err(late) = over.send((done, result)) {
                    let (done, result) = late.0;
                    done(result);
                }
            });
            match self.parts.grace.is_in(round) {
                true => self.carry_out(Parked { done, ..parked }),
                false => done(Err(Code::Unavailable.into())),
            }
            let Ok((done, result)) = is_over.recv_timeout(limit) else {
                tracing::error!("what may be lost is not carried out in time");
                continue;
            };
            if result.is_err() {
                self.wait_while_stopped(round);
            }
            done(result);
        }
    }

    /// Waits, if the table has stopped, until it is about to be opened again: by then the
    /// connections of the clients have ended.
    fn wait_while_stopped(&self, round: Round) {
        let is_stopped = || matches!(self.parts.table.get(&[0]), Err(table::Error::Stopped));
        while is_stopped() && self.parts.grace.is_in(round) && !*self.stopped.read_recursive() {
            self.parts.durability.flush_soon();
            thread::sleep(PAUSE);
        }
    }

    /// Carries out a request that has waited.
    fn carry_out(self: &Arc<Self>, parked: Parked) {
        let Parked { context, request, bytes, done, span } = parked;
        let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Owned(bytes) };
        deliver(done, |later| {
            span.in_scope(|| {
                self.dispatch_and_await_writers(&context, Submission { request, bulk, later })
            })
        });
    }
}

/// Returns whether a request is carried out without waiting for the sessions of the last run.
fn goes_on(context: &Context, request: &Request) -> bool {
    match request.at_start() {
        // A replayed request may open a file that another replayed request makes first.
        AtStart::Restores => context.replayed.is_none(),
        AtStart::ForOwnMount => context.session == SessionId::DIRECT,
        AtStart::InTurn | AtStart::BeforeNew => false,
    }
}

/// Ends the grace; requests that wait fail with this error.
pub(super) fn stop(grace: &Grace, error: Code) {
    for parked in grace.stop() {
        (parked.done)(Err(error.into()));
    }
}
