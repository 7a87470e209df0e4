//! Requests of a session: those under way, those that wait for their turn, and their callers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use pelago_proto::locks::ClientLocks;
use pelago_proto::session::{AnswerTo, ClientOpens, ClientSession};
use pelago_wire::codec::{DecodedReply, ReplyStamp};
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::Welcome;
use pelago_wire::{
    Code, Error, FileKind, Granted, LeasedDone, Leases, OpenId, Origin, Reply, RequestId,
    SessionId, Then, codec, limits,
};

use crate::clock::boot_time;
use crate::key::address::ServerAddress;
use crate::link::Link;
use crate::remote::call::{Call, FitsReply};
use crate::remote::connect_error::{ConnectError, older_folder};
use crate::remote::ended_origins::EndedOrigins;
use crate::remote::flush::Flush;
use crate::remote::guest_chains::GuestChains;
use crate::remote::lease_clock::{LeaseClock, Pings};
use crate::remote::replay_log::ReplayLog;
use crate::remote::role::{OpenUse, Role};
use crate::remote::round_trip::RoundTrip;
use crate::remote::servers::{StoreNews, StoreServers};
use crate::remote::settling::Settling;
use crate::remote::status::{OnDir, RemoteStatus};
use crate::remote::window_bytes::WindowBytes;

mod cancel;

/// The time between two looks at deadlines while there is no connection.
const DEADLINES: Duration = Duration::from_millis(250);

/// A request that was numbered.
pub(super) struct UnderWay {
    pub(super) caller: RequestId,
    pub(super) mutation: u64,
    /// As in [`Call`].
    pub(super) origin: Option<Origin>,
    pub(super) waits: bool,
    /// Its caller has cancelled it. The cancel is repeated with the request.
    pub(super) is_cancelled: bool,
    pub(super) body: Arc<[u8]>,
    pub(super) bulk: Arc<[u8]>,
    pub(super) payload: usize,
    pub(super) opens: OpenUse,
    pub(super) fits: FitsReply,
    /// `None` if the caller does not wait any more, and for a request of the session itself.
    pub(super) done: Option<LeasedDone>,
    pub(super) since: Instant,
    /// When it was sent first, by [`boot_time`]: its answer proves that the server heard the client
    /// then or later.
    pub(super) asked: Duration,
}

/// The requests of a session.
pub(super) struct Calls {
    /// After this time a request fails.
    give_up: Option<Duration>,
    /// The callback for the attributes of directories that come with answers.
    pub(super) on_dir: OnceLock<OnDir>,
    /// The clock of the leases, with their holder.
    pub(super) leases: LeaseClock,
    /// A lock was lost at some time.
    lost_locks: Arc<AtomicBool>,
    /// No callback runs under it, and connections are used under it.
    pub(super) state: Mutex<State>,
    /// Notified when the connection was lost or made, and when the session has ended.
    pub(super) changed: Condvar,
}

pub(super) struct State {
    pub(super) machine: ClientSession,
    pub(super) under_way: BTreeMap<u64, UnderWay>,
    /// The bytes of the requests under way.
    pub(super) payload: usize,
    /// The number of requests under way that wait for locks.
    pub(super) waits: usize,
    /// The bounds of these bytes.
    pub(super) bytes: WindowBytes,
    /// Mutations that are answered and not safe.
    pub(super) replay_log: ReplayLog,
    /// The callbacks that wait until abandoned mutations are over.
    pub(super) settling: Settling,
    /// Requests beyond the window.
    pub(super) backlog: VecDeque<Call>,
    /// The open files of programs.
    pub(super) opens: ClientOpens,
    /// The locks that programs hold.
    pub(super) locks: ClientLocks,
    /// As in [`Calls`].
    pub(super) lost_locks: Arc<AtomicBool>,
    /// Files are being opened again, and locks set again: nothing else is sent.
    pub(super) reclaiming: bool,
    /// The flush of writes that were buffered in an earlier epoch.
    pub(super) flush: Flush,
    /// The connection, once it has a session.
    pub(super) link: Option<Arc<Link>>,
    /// The connection for bulk beside it.
    pub(super) bulk: Option<Arc<Link>>,
    /// The connection over which the session has said goodbye, until the server ends it.
    pub(super) parting: Option<Arc<Link>>,
    pub(super) welcome: Option<Welcome>,
    /// When the server was heard last, by [`boot_time`].
    pub(super) heard: Duration,
    /// When something was sent last, by [`boot_time`].
    pub(super) sent: Duration,
    /// When the newest request or ping was sent that was answered, by [`boot_time`]: the server has
    /// heard the client then or later. 0 in a session that has answered nothing.
    pub(super) heard_by_server: Duration,
    pub(super) pings: Pings,
    pub(super) round_trip: RoundTrip,
    /// Pings are sent at their intervals also if there are requests, to measure round trips.
    is_measured: bool,
    /// The credentials of a guest.
    pub(super) chains: GuestChains,
    /// The servers of the store, if the volume lies on one.
    pub(super) servers: StoreServers,
    /// Sessions that have ended for which requests were passed on, and of which the server is to be
    /// told.
    pub(super) ended_origins: EndedOrigins,
    connections: u64,
    /// Requests that were answered.
    answers: u64,
    /// Requests that were given a number.
    requests: u64,
    /// The error of requests, if the server has refused the client for good.
    refused: Option<Code>,
    pub(super) ended: bool,
}

/// The callback of a caller, and its result.
pub(super) type Answered = (LeasedDone, Result<Reply, Error>);

impl Calls {
    pub(super) fn new(give_up: Option<Duration>) -> Self {
        let state = State {
            machine: ClientSession::new(),
            under_way: BTreeMap::new(),
            payload: 0,
            replay_log: ReplayLog::default(),
            waits: 0,
            bytes: WindowBytes::of(limits::SESSION_BYTES),
            settling: Settling::default(),
            backlog: VecDeque::new(),
            opens: ClientOpens::default(),
            locks: ClientLocks::default(),
            lost_locks: Arc::default(),
            reclaiming: false,
            flush: Flush::default(),
            chains: GuestChains::default(),
            link: None,
            bulk: None,
            parting: None,
            welcome: None,
            heard: boot_time(),
            sent: boot_time(),
            heard_by_server: Duration::ZERO,
            pings: Pings::default(),
            round_trip: RoundTrip::default(),
            is_measured: false,
            servers: StoreServers::default(),
            ended_origins: EndedOrigins::default(),
            connections: 0,
            answers: 0,
            requests: 0,
            refused: None,
            ended: false,
        };
        let on_dir = OnceLock::new();
        let leases = LeaseClock::default();
        let lost_locks = Arc::clone(&state.lost_locks);
        let state = Mutex::new(state);
        Self { give_up, on_dir, leases, lost_locks, state, changed: Condvar::new() }
    }

    /// Measures round trips from now on.
    pub(super) fn measure(&self) {
        self.state.lock().is_measured = true;
    }

    /// Sends a request, or queues it until it can be sent.
    pub(super) fn begin(&self, call: Call) {
        let mut state = self.state.lock();
        if state.ended {
            drop(state);
            return fail(call.done, Code::Unavailable);
        }
        if let Some(code) = state.refused {
            drop(state);
            return fail(call.done, code);
        }
        if state.has_lost_lock(&call.opens) {
            drop(state);
            return fail(call.done, Code::Io);
        }
        if call.waits && state.waits >= limits::LOCK_WAITERS {
            drop(state);
            return fail(call.done, Code::NoLocks);
        }
        let is_next = call.is_first || call.waits || state.backlog.is_empty();
        if is_next && state.has_room(&call) {
            state.number(call);
        } else if call.is_first {
            state.backlog.push_front(call);
        } else {
            state.backlog.push_back(call);
        }
    }

    /// Gives an answer to its caller. An answer with an unknown number is a repeated one. Returns
    /// whether the answer fits its request. If not, the caller gets `Io`, and the request is not
    /// repeated, because its effect is unknown.
    pub(super) fn answered(&self, link: &Arc<Link>, frame: &Header, answer: DecodedReply) -> bool {
        let DecodedReply { stamp, result, mut granted } = answer;
        if frame.is_overdue {
            granted.leases = Leases::default();
        }
        let number = frame.number;
        let mut state = self.state.lock();
        if !state.is_present(link) {
            // The request is repeated over another connection, or the session has ended.
            return true;
        }
        state.heard = boot_time();
        state.note_safe(frame.progress);
        if state.grants_late(number, &result) {
            state.lock_again(number);
            return true;
        }
        // A request that has failed has nothing to replay.
        let stamp = if result.is_ok() { stamp } else { ReplyStamp::default() };
        let is_kept = match state.machine.answered(number, stamp) {
            AnswerTo::Nothing => return true,
            AnswerTo::Replay { is_kept } => {
                state.replayed(number, is_kept, stamp, &result);
                return true;
            }
            AnswerTo::Request { is_kept } => is_kept,
        };
        let Some(call) = state.under_way.remove(&number) else { return true };
        state.forget_size(&call);
        state.heard_by_server = state.heard_by_server.max(call.asked);
        state.answers += u64::from(!matches!(call.opens.role, Role::ListsServers));
        let fits = result.as_ref().map_or(true, call.fits);
        let result = if fits { result } else { Err(Code::Io.into()) };
        if is_kept {
            state.log_for_replay(number, &call, stamp, &result);
        }
        let result = state.note_answer(number, &call, result);
        let was_reclaiming = state.reclaiming;
        let failed = if was_reclaiming { state.reclaim() } else { Vec::new() };
        let has_reclaimed = was_reclaiming && !state.reclaiming;
        state.send_backlog();
        state.send_origin_ends();
        let lease = state.lease();
        let settled = state.take_settled();
        drop(state);
        if has_reclaimed {
            self.changed.notify_all();
        }
        if !frame.is_overdue {
            self.leases.renew(call.asked, lease);
        }
        if let (Some(changed), Some(on_dir)) = (granted.changed, self.on_dir.get())
            && changed.kind == FileKind::Directory
        {
            on_dir(changed, call.since);
        }
        if let Some(done) = call.done {
            done(result, granted);
        }
        call_back(failed);
        settled.into_iter().for_each(|then| then());
        fits
    }

    /// Does the work of a tick: fails requests that wait too long, and keeps the session alive.
    /// Returns whether the server was silent for too long.
    pub(super) fn tick(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let mut answered = Vec::new();
        if let Some(give_up) = self.give_up {
            answered = state.fail_older(now, give_up);
        }
        let at = boot_time();
        let patience = state.patience();
        let is_dead = state.link.is_some() && at.saturating_sub(state.last_heard()) > patience;
        if is_dead {
            state.servers.note_silence();
        }
        state.request_servers();
        let last = if state.is_measured { state.pings.last_sent() } else { state.sent };
        if at.saturating_sub(last) > state.heartbeat() {
            state.send_ping();
        }
        drop(state);
        self.leases.look();
        call_back(answered);
        is_dead
    }

    /// Continues the session over a new connection.
    pub(super) fn connected(self: &Arc<Self>, link: &Arc<Link>, welcome: Welcome) {
        let mut state = self.state.lock();
        if state.ended {
            // The server is to know it now: the session would hold others up for a term.
            link.send([state.header(FrameKind::Goodbye, 0, 0, 0)]);
            return link.close();
        }
        let before = state.welcome.as_ref();
        let is_new = before.is_some_and(|it| !welcome.resumed || it.epoch != welcome.epoch);
        if is_new {
            // Before Reclaimed is sent: the server does not wait for this client any more then.
            MutexGuard::unlocked(&mut state, || self.leases.lose());
        }
        let flush = is_new.then(|| state.flush.begin());
        state.connections += 1;
        state.refused = None;
        state.heard = boot_time();
        state.servers.begin_connection();
        let answered = state.resume(link, welcome);
        state.request_servers();
        let settled = state.take_settled();
        drop(state);
        self.changed.notify_all();
        call_back(answered);
        settled.into_iter().for_each(|then| then());
        if let Some(round) = flush {
            self.flush(round);
        }
    }

    /// Fails all requests, and those that begin, until the server gives a session after all: it has
    /// refused the client for good, and no request can say so to a program that waits.
    pub(super) fn refused(&self, why: &ConnectError) {
        // An office whose folder is an older one is cut off, and may come back.
        let code = match older_folder(why) {
            Some(_) => Code::HostDown,
            None => Code::AccessDenied,
        };
        let mut state = self.state.lock();
        let is_first = state.refused.replace(code).is_none();
        if is_first {
            tracing::warn!(%why, "requests fail until the server gives a session");
        }
        let numbers: Vec<u64> = state.machine.under_way().collect();
        let abandoned = numbers.into_iter().flat_map(|number| state.abandon(number, code));
        let mut answered: Vec<Answered> = abandoned.collect();
        let backlog = std::mem::take(&mut state.backlog);
        answered.extend(backlog.into_iter().map(|call| (call.done, Err(code.into()))));
        drop(state);
        match is_first {
            true => self.leases.refuse(),
            false => self.leases.lose(),
        }
        call_back(answered);
    }

    /// Records that a connection has ended.
    pub(super) fn disconnected(&self, link: &Arc<Link>) {
        let mut state = self.state.lock();
        state.end_other(link);
        state.parting.take_if(|known| Arc::ptr_eq(known, link));
        drop(state);
        self.changed.notify_all();
    }

    /// Fails requests at their deadlines while there is no connection: otherwise the reactor's
    /// ticks do that. Returns once the session has ended.
    pub(super) fn keep_deadlines(&self) {
        while !self.has_ended() {
            // A deadline is missed by this time at most.
            thread::sleep(DEADLINES);
            if self.state.lock().link.is_none() {
                self.tick(Instant::now());
            }
        }
    }

    /// Waits until there is no connection. Returns `false` once the session has ended.
    pub(super) fn wait_for_loss(&self) -> bool {
        let mut state = self.state.lock();
        while state.link.is_some() && !state.ended {
            self.changed.wait(&mut state);
        }
        !state.ended
    }

    /// Returns how many requests were answered.
    pub(super) fn answers(&self) -> u64 {
        self.state.lock().answers
    }

    /// Calls `then` once no mutation is under way any more that was abandoned before.
    pub(super) fn when_settled(&self, then: Then) {
        let mut state = self.state.lock();
        state.when_settled(then);
        let settled = state.take_settled();
        drop(state);
        settled.into_iter().for_each(|then| then());
    }

    /// Tells the server that a session has ended for which requests were passed on, once none of
    /// them can be sent any more.
    pub(super) fn end_origin(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.ended_origins.add(session);
        state.send_origin_ends();
    }

    /// Returns whether a lock was lost that was set through this open.
    pub(super) fn has_lost_lock(&self, open: OpenId) -> bool {
        self.lost_locks.load(Ordering::Acquire) && self.state.lock().locks.is_lost(open)
    }

    /// Returns the session to resume.
    pub(super) fn session(&self) -> Option<SessionId> {
        self.state.lock().session()
    }

    /// Returns the volume of the session, once there is one.
    pub(super) fn volume(&self) -> Option<[u8; 16]> {
        self.state.lock().welcome.as_ref().map(|welcome| welcome.volume)
    }

    /// Returns the servers of the store, as the owner has listed them, and the news of the owner
    /// since the last call.
    pub(super) fn servers(&self) -> (Vec<ServerAddress>, StoreNews) {
        self.state.lock().servers.take()
    }

    /// Records the owner that a server has named in its last frame.
    pub(super) fn note_owner(&self, text: String) {
        self.state.lock().servers.note_owner(text);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().ended
    }

    /// Returns the time since the server was heard last.
    pub(super) fn silence(&self) -> Duration {
        boot_time().saturating_sub(self.state.lock().last_heard())
    }

    pub(super) fn status(&self) -> RemoteStatus {
        let state = self.state.lock();
        RemoteStatus {
            session: state.welcome.as_ref().map(|welcome| welcome.session),
            connected: state.link.is_some(),
            wire: state.welcome.as_ref().map(|welcome| welcome.version),
            round_trip: state.round_trip.smoothed(),
            silent: boot_time().saturating_sub(state.last_heard()),
            waiting: state.under_way.len() + state.backlog.len(),
            kept: state.replay_log.count(),
            connections: state.connections,
            requests: state.requests,
            locks_lost: state.locks.lost(),
        }
    }
}

impl State {
    /// Gives a request its numbers, and sends it if there is a connection.
    pub(super) fn number(&mut self, call: Call) {
        let Call {
            caller,
            is_mutation,
            origin,
            waits,
            mut body,
            bulk,
            payload,
            opens,
            fits,
            done,
            since,
            ..
        } = call;
        let numbers = self.machine.begin(is_mutation);
        let done = match self.note_request(numbers.number, opens.role, waits) {
            true => lost(done),
            false => done,
        };
        self.requests += 1;
        let mutation = numbers.mutation;
        set_mutation(&mut body, mutation);
        let body = body.into();
        let done = Some(done);
        let asked = boot_time();
        let call = UnderWay {
            caller,
            mutation,
            origin,
            waits,
            is_cancelled: false,
            body,
            bulk,
            payload,
            opens,
            fits,
            done,
            since,
            asked,
        };
        self.note_size(&call);
        self.under_way.insert(numbers.number, call);
        self.send(numbers.number);
    }

    /// Returns when bytes came last.
    pub(super) fn last_heard(&self) -> Duration {
        self.link.as_ref().map_or(self.heard, |link| self.heard.max(link.heard()))
    }

    /// Returns whether this is the present connection of the session. Frames of an older one do not
    /// count: its server may have lost the session, or the volume.
    pub(super) fn is_current_link(&self, link: &Arc<Link>) -> bool {
        self.link.as_ref().is_some_and(|present| Arc::ptr_eq(present, link))
    }

    /// Takes over a connection. Returns the session's last welcome.
    pub(super) fn connect(&mut self, link: &Arc<Link>, welcome: Welcome) -> Option<Welcome> {
        self.end_bulk();
        self.link = Some(Arc::clone(link));
        self.replay_log.forget_ping();
        self.bytes = WindowBytes::of(usize::try_from(welcome.bulk).unwrap_or(usize::MAX));
        self.welcome.replace(welcome)
    }
}

/// Puts the mutation number into the body of a request.
pub(super) fn set_mutation(body: &mut [u8], mutation: u64) {
    body[codec::MUTATION].copy_from_slice(&mutation.to_le_bytes());
}

/// Answers callers of requests that the server may still carry out.
fn call_back(answered: Vec<Answered>) {
    let granted = Granted { may_be_done: true, ..Granted::default() };
    answered.into_iter().for_each(|(done, result)| done(result, granted));
}

/// Returns the callback of a close that fails, so that the process learns that its locks were lost.
fn lost(done: LeasedDone) -> LeasedDone {
    Box::new(move |result, granted| done(result.and(Err(Code::Io.into())), granted))
}

/// Answers a caller with an error.
pub(super) fn fail(done: LeasedDone, code: Code) {
    done(Err(code.into()), Granted::default());
}
