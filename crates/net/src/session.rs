//! One session at the server: its connection, its clock, and its numbers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_proto::session::{Repetition, ServerSession, SessionError};
use pelago_wire::codec::DecodeError;
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::Hello;
use pelago_wire::{GuestGrant, SessionId, SessionRecord, limits};

use crate::clock::{boot_time, real_time};
use crate::link::{Bytes, Link};
use crate::peers::SessionShare;
use links::Links;
use recalls::Recalls;

pub use peer::Peer;

mod links;
mod peer;
mod recalls;

/// Requests that a client replays: mutations, and the open files that they make.
const MOST_REPLAYS: usize = 2 * limits::SESSION_MUTATIONS as usize;

/// The time for which a guest's leases end before its rights do.
const ENDING: Duration = Duration::from_secs(1);

/// A session of one client.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Random bytes that the mounting process chose: a copy of its machine is another client.
    nonce: [u8; 16],
    peer: Peer,
    /// The grant of a guest whose session began in an earlier run, and which has come back.
    returned: OnceLock<GuestGrant>,
    pub(crate) share: SessionShare,
    /// The next run of the server knows the session, or need not.
    recorded: AtomicBool,
    /// Under this lock only a connection is used.
    state: Mutex<State>,
}

struct State {
    machine: ServerSession,
    links: Links,
    /// When the client was heard last, by [`boot_time`].
    heard: Duration,
    /// A frame of the session has come: its client lives, and knows it.
    is_known: bool,
    /// A request has come: the client may have files open, and locks.
    is_used: bool,
    /// The numbers of the requests that run, without those that wait for locks.
    running: HashSet<u64>,
    /// The running requests that an earlier run has answered: they do not count as requests.
    replays: HashSet<u64>,
    /// The numbers of the requests that wait for locks: other requests must get past them, among
    /// them those that unlock.
    waiting: HashSet<u64>,
    /// Counts the epochs that the server has begun since the session began.
    epochs: u32,
    recalls: Recalls,
    /// No request is taken any more.
    ended: bool,
    /// The next run of the server continues the session.
    suspended: bool,
}

/// The way of the answer to a request.
pub(crate) struct Answered {
    /// The connection for it.
    pub(crate) link: Option<Arc<Link>>,
    /// The answer that is sent instead, because the mutation may be lost.
    pub(crate) lost: Option<Arc<[u8]>>,
    /// It was the last request of a session that has ended.
    pub(crate) is_last: bool,
}

/// The state of a session, for `status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionStatus {
    /// The session's id.
    pub id: SessionId,
    /// The peer.
    pub peer: Peer,
    /// True if it has a connection.
    pub connected: bool,
    /// The time since the client was heard last.
    pub silent: Duration,
    /// Requests that run.
    pub running: usize,
}

/// The reason for which the connection of a session ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Violation {
    /// A message that cannot be decoded.
    #[error("a malformed message: {0}")]
    Malformed(#[from] DecodeError),
    /// Numbers that no correct client sends.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// More requests than were agreed.
    #[error("too many requests are under way")]
    TooMany,
    /// Two requests under one number.
    #[error("request {0} is under way already")]
    SameNumber(u64),
    /// A mutation without a number, or another request with one.
    #[error("a request is a mutation or not, and its number says the opposite")]
    WrongMutation,
    /// Bulk bytes of a request that has none.
    #[error("a request has bulk bytes that it cannot have")]
    Bulk,
    /// A cancel without a mutation number.
    #[error("a cancel has no mutation number")]
    ShortCancel,
    /// The end of an origin without its session.
    #[error("the end of an origin has no session")]
    ShortOriginEnd,
    /// A message that a client does not send.
    #[error("an unexpected message of kind {0:?}")]
    Unexpected(FrameKind),
    /// The session has ended, or has another connection.
    #[error("the session has another connection")]
    Replaced,
}

impl Session {
    /// Returns a session that begins over this connection.
    pub(crate) fn new(
        id: SessionId,
        nonce: [u8; 16],
        peer: Peer,
        share: SessionShare,
        link: &Arc<Link>,
    ) -> Self {
        let mut state = State::new(ServerSession::default());
        link.join(&share.account);
        state.links.begin(Arc::clone(link));
        let returned = OnceLock::new();
        let recorded = AtomicBool::new(false);
        Self { id, nonce, peer, returned, share, recorded, state: Mutex::new(state) }
    }

    /// Returns a session of the server's last run. It waits for its client.
    pub(crate) fn of_last_run(
        id: SessionId,
        nonce: [u8; 16],
        peer: Peer,
        share: SessionShare,
    ) -> Self {
        let mut state = State::new(ServerSession::of_earlier_run());
        state.is_known = true;
        state.is_used = true;
        share.widen();
        let returned = OnceLock::new();
        let recorded = AtomicBool::new(true);
        Self { id, nonce, peer, returned, share, recorded, state: Mutex::new(state) }
    }

    /// Returns the peer.
    pub(crate) fn peer(&self) -> Peer {
        self.returned.get().map_or(self.peer, |grant| Peer::Guest(*grant))
    }

    /// Returns whether the session is that of another site's server.
    pub(crate) fn is_site(&self) -> bool {
        matches!(self.peer(), Peer::Site(_))
    }

    /// Returns whether the session is that of the client which says this hello.
    pub(crate) fn may_be_resumed(&self, hello: &Hello, peer: Peer) -> bool {
        hello.nonce == self.nonce && self.is_of(peer)
    }

    /// Returns whether a client may continue the session. The record of a guest's session of an
    /// earlier run has no grant: its guest comes back with any.
    fn is_of(&self, peer: Peer) -> bool {
        match (self.peer(), peer) {
            (Peer::Guest(known), Peer::Guest(guest)) if known.chain == GuestGrant::NO_CHAIN => {
                known.principal == guest.principal
            }
            (known, peer) => known == peer,
        }
    }

    /// Returns the session's record for the volume.
    pub(crate) fn record(&self) -> SessionRecord {
        SessionRecord::new(self.nonce, self.peer().into())
    }

    /// Continues over a new connection, and ends the old one: no frame of it is handled any more.
    /// Returns `false` for a client that is not the one of this session, and if it has ended.
    pub(crate) fn resume(&self, hello: &Hello, peer: Peer, link: &Arc<Link>) -> bool {
        if !self.may_be_resumed(hello, peer) {
            return false;
        }
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        if let (Peer::Guest(grant), true) = (peer, self.peer() != peer) {
            // Under the lock, so that only one connection comes back.
            let _first = self.returned.set(grant);
        }
        state.heard = boot_time();
        link.join(&self.share.account);
        state.links.begin(Arc::clone(link));
        true
    }

    /// Adds a connection for bulk, over which `welcome` goes first. Returns `false` for a client
    /// that is not the one of this session, if the session has no other connection, and if it had
    /// one for bulk: then all end.
    pub(crate) fn join_bulk(
        &self,
        hello: &Hello,
        peer: Peer,
        link: &Arc<Link>,
        welcome: [Bytes; 2],
    ) -> bool {
        if !self.may_be_resumed(hello, peer) {
            return false;
        }
        let mut state = self.state.lock();
        if state.ended || state.links.main().is_none() {
            return false;
        }
        if state.links.has_bulk() {
            // The client has lost that one, and with it replies.
            state.links.end();
            return false;
        }
        link.join(&self.share.account);
        // Before any reply.
        link.send(welcome);
        state.links.add_bulk(Arc::clone(link));
        true
    }

    /// Returns whether this is the connection for bulk.
    pub(crate) fn is_bulk(&self, link: &Arc<Link>) -> bool {
        self.state.lock().links.is_bulk(link)
    }

    /// Records that the client was heard, and that it has the answers up to `acknowledged`. Returns
    /// whether this is the first frame of the session: its client knows it.
    pub(crate) fn heard(&self, link: &Arc<Link>, acknowledged: u64) -> Result<bool, Violation> {
        let mut state = self.state.lock();
        if !state.links.has(link) {
            return Err(Violation::Replaced);
        }
        state.heard = boot_time();
        state.machine.acknowledge(acknowledged)?;
        Ok(!std::mem::replace(&mut state.is_known, true))
    }

    /// Admits a request. A mutation that has come before is not carried out again. `waits`: it
    /// waits for a lock. All requests that a client replays may be under way at a time.
    pub(crate) fn admit(
        &self,
        number: u64,
        mutation: u64,
        hash: u64,
        is_replay: bool,
        waits: bool,
    ) -> Result<Repetition, Violation> {
        let mut state = self.state.lock();
        if state.ended {
            return Err(Violation::Replaced);
        }
        state.is_used = true;
        let is_known = state.running.contains(&number) || state.waiting.contains(&number);
        let repetition = match mutation {
            // A read that came over the old connection, and still runs, is answered once.
            0 if is_known => Repetition::Running,
            0 => Repetition::None,
            mutation => state.machine.mutation(mutation, hash)?,
        };
        if repetition == Repetition::None {
            if is_known {
                return Err(Violation::SameNumber(number));
            }
            let replays = state.replays.len();
            let (count, limit) = match () {
                () if waits => (state.waiting.len(), limits::LOCK_WAITERS),
                () if is_replay => (replays, MOST_REPLAYS),
                () => (state.running.len() - replays, limits::SESSION_REQUESTS),
            };
            if count >= limit {
                return Err(Violation::TooMany);
            }
            if is_replay {
                state.replays.insert(number);
            }
            let requests = if waits { &mut state.waiting } else { &mut state.running };
            requests.insert(number);
        }
        Ok(repetition)
    }

    /// Returns the answer to a mutation that is over. For one that did not arrive, `before` is its
    /// answer from now on. `None` for a mutation that runs, and for another request.
    pub(crate) fn cancel(
        &self,
        mutation: u64,
        before: &Arc<[u8]>,
    ) -> Result<Option<Arc<[u8]>>, Violation> {
        match mutation {
            0 => Ok(None),
            mutation => Ok(self.state.lock().machine.cancel(mutation, before)?),
        }
    }

    /// Records the end of a request, with the answer if it is a mutation. The reply has `bulk`
    /// bytes of a file.
    ///
    /// `epochs` is [`Session::epochs`] from before a mutation was carried out. If it has changed,
    /// the mutation may be lost, and `lost` is recorded in place of the answer.
    pub(crate) fn answered(
        &self,
        number: u64,
        mutation: u64,
        epochs: u32,
        answer: Option<Arc<[u8]>>,
        bulk: usize,
        lost: impl FnOnce() -> Arc<[u8]>,
    ) -> Answered {
        let mut state = self.state.lock();
        let is_lost = answer.is_some() && epochs != state.epochs;
        let lost = is_lost.then(lost);
        let answer = lost.clone().or(answer);
        state.replays.remove(&number);
        if !state.running.remove(&number) {
            state.waiting.remove(&number);
        }
        if let Some(answer) = answer {
            state.machine.answered(mutation, answer);
        }
        let is_idle = state.running.is_empty() && state.waiting.is_empty();
        let is_last = state.ended && !state.suspended && is_idle;
        let link = state.links.of_reply(if lost.is_some() { 0 } else { bulk }).cloned();
        Answered { link, lost, is_last }
    }

    /// Ends the connections: the client comes back once it can.
    pub(crate) fn disconnect(&self) {
        let mut state = self.state.lock();
        state.links.end();
        state.heard = boot_time();
    }

    /// Begins a new epoch of the server. The client has the whole time again to answer recalls: it
    /// could not while the server took no connections.
    pub(crate) fn begin_epoch(&self) {
        let mut state = self.state.lock();
        let now = boot_time();
        state.machine.begin_epoch();
        state.epochs += 1;
        self.share.widen();
        state.heard = now;
        state.recalls.restart(now);
    }

    /// Returns how many epochs the server has begun since the session began.
    pub(crate) fn epochs(&self) -> u32 {
        self.state.lock().epochs
    }

    /// Records that a connection has ended. Replies may be lost with it, so the other one ends,
    /// too: the client repeats its requests. The session waits for another connection, for a term
    /// from now: a thread that was held up notices the end late.
    pub(crate) fn lost(&self, link: &Arc<Link>) {
        let mut state = self.state.lock();
        if state.links.has(link) {
            state.links.end();
            state.heard = boot_time();
        }
    }

    /// Ends the session and its connections. Returns the requests that still run; `None` if it had
    /// ended before.
    pub(crate) fn end(&self) -> Option<Vec<u64>> {
        let mut state = self.state.lock();
        state.links.end();
        let is_first = !std::mem::replace(&mut state.ended, true);
        is_first.then(|| state.running.iter().chain(&state.waiting).copied().collect())
    }

    /// Sends a recall, and repeats it over later connections until it is answered. From now on
    /// answers do not lengthen the leases: if the client does not answer, its own clock must end
    /// them. Returns `false` if the session has ended.
    pub(crate) fn recall(
        &self,
        number: u64,
        body: Arc<[u8]>,
        frame: impl FnOnce(&Arc<[u8]>) -> Option<[Bytes; 2]>,
    ) -> bool {
        let mut state = self.state.lock();
        if state.ended {
            return false;
        }
        // Under the lock, so that recalls are sent in the order of their numbers.
        if let Some(link) = state.links.main() {
            send_or_close(link, frame(&body));
        }
        state.recalls.sent(number, body);
        true
    }

    /// Sends the recalls that are not answered once more.
    pub(crate) fn recall_again(&self, frame: impl Fn(u64, &Arc<[u8]>) -> Option<[Bytes; 2]>) {
        let state = self.state.lock();
        if let Some(link) = state.links.main() {
            let unanswered = state.recalls.unanswered();
            unanswered.for_each(|(number, body)| send_or_close(link, frame(number, body)));
        }
    }

    /// Records the answer to a recall. Returns whether a recall has waited for it.
    pub(crate) fn recalled(&self, number: u64) -> bool {
        self.state.lock().recalls.answered(number)
    }

    /// Returns whether the client has not answered a recall, now or a while ago, or the session has
    /// ended: it is granted no leases, and those that it has are not lengthened.
    pub(crate) fn is_overdue(&self) -> bool {
        let state = self.state.lock();
        let is_overdue = state.ended || state.recalls.is_overdue();
        drop(state);
        is_overdue || self.is_ending()
    }

    /// Returns whether the rights of a guest end before a lease would that is lengthened now.
    fn is_ending(&self) -> bool {
        let peer = self.peer();
        let Some(ends) = peer.grant().and_then(|grant| grant.ends) else { return false };
        real_time() + limits::GUEST_LEASE + ENDING >= Duration::from_secs(ends)
    }

    /// Returns whether leases may be granted: not to a peer that has not answered recalls, also of
    /// its other sessions. The leases that this session has are lengthened all the same.
    pub(crate) fn may_lease(&self) -> bool {
        !self.share.peer.is_distrusted() && !self.is_overdue()
    }

    /// Returns whether the client has not answered a recall for longer than `limit`: its leases
    /// have ended by its own clock.
    pub(crate) fn leases_ended(&self, now: Duration, limit: Duration) -> bool {
        self.state.lock().recalls.has_older(now, limit)
    }

    /// Forgets the recalls that were not answered for longer than `limit`, and grants no leases for
    /// a while: each of them would delay a change by others for as long.
    pub(crate) fn forget_recalls(&self, now: Duration, limit: Duration) {
        self.state.lock().recalls.forget_older(now, limit);
        self.share.peer.not_answered(now, limit);
    }

    /// Returns whether the client has no connection and has never sent a request.
    pub(crate) fn is_unused(&self) -> bool {
        self.state.lock().is_unused()
    }

    /// Returns whether the next run of the server knows the session, or need not know it.
    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    /// Records that the next run of the server knows the session.
    pub(crate) fn note_recorded(&self) {
        self.recorded.store(true, Ordering::Release);
    }

    /// Ends the session if it was not used and its connection is still this one. Returns whether it
    /// has ended by that.
    pub(crate) fn end_unknown(&self, link: &Arc<Link>) -> bool {
        let mut state = self.state.lock();
        let ends = state.links.is_main(link) && !state.is_used && !state.ended;
        if ends {
            // The refusal is still to be sent over it.
            state.links.forget();
            state.ended = true;
        }
        ends
    }

    /// Ends the session if it is unused. Returns whether it was.
    pub(crate) fn end_unused(&self) -> bool {
        let mut state = self.state.lock();
        let is_unused = state.is_unused();
        state.ended |= is_unused;
        is_unused
    }

    /// Ends the connection with a last frame. No frame of the session is handled any more in this
    /// run of the server.
    pub(crate) fn suspend(&self, last: [Bytes; 2]) {
        let mut state = self.state.lock();
        state.ended = true;
        state.suspended = true;
        if let Some(link) = state.links.main() {
            link.send(last);
        }
        state.links.end();
    }

    /// Sends a frame over the present connection, if there is one.
    pub(crate) fn send(&self, frame: [Bytes; 2]) {
        if let Some(link) = self.state.lock().links.main() {
            link.send(frame);
        }
    }

    /// Returns the newest mutation up to which the client has all answers.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.state.lock().machine.acknowledged()
    }

    /// Returns for how long the client was silent. It does not count as silent while the thread
    /// that reads its connection is held up for longer than `patience`, or while the connection is
    /// paused because of requests that the server has not answered. If it is paused because of
    /// answers, the client must take some.
    pub(crate) fn silent(&self, now: Duration, patience: Duration) -> Duration {
        let state = self.state.lock();
        let is_held_up = |link: &Arc<Link>| now.saturating_sub(link.looked()) > patience;
        match state.links.main() {
            Some(link) if is_held_up(link) => Duration::ZERO,
            Some(_) if self.share.account.is_paused() => match state.links.taken() {
                Some(taken) => now.saturating_sub(state.last_heard().max(taken)),
                None => Duration::ZERO,
            },
            // Frames that were sent during a pause are not read yet.
            _ => now.saturating_sub(state.last_heard().max(self.share.account.resumed())),
        }
    }

    /// Returns whether requests run, besides those that wait for locks.
    pub(crate) fn is_answering(&self) -> bool {
        !self.state.lock().running.is_empty()
    }

    pub(crate) fn status(&self, now: Duration) -> SessionStatus {
        let state = self.state.lock();
        SessionStatus {
            id: self.id,
            peer: self.peer(),
            connected: state.links.main().is_some(),
            silent: now.saturating_sub(state.last_heard()),
            running: state.running.len() + state.waiting.len(),
        }
    }
}

impl State {
    fn new(machine: ServerSession) -> Self {
        Self {
            machine,
            links: Links::default(),
            heard: boot_time(),
            is_known: false,
            is_used: false,
            running: HashSet::new(),
            replays: HashSet::new(),
            waiting: HashSet::new(),
            epochs: 0,
            recalls: Recalls::default(),
            ended: false,
            suspended: false,
        }
    }

    fn is_unused(&self) -> bool {
        self.links.main().is_none() && !self.is_used && !self.ended
    }

    /// Returns when bytes came last.
    fn last_heard(&self) -> Duration {
        self.links.heard().map_or(self.heard, |heard| self.heard.max(heard))
    }
}

/// Sends a frame, or ends the connection if there is no frame, because the server may not answer.
fn send_or_close(link: &Link, frame: Option<[Bytes; 2]>) {
    match frame {
        Some(frame) => link.send(frame),
        None => link.close(),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use mio::Token;

    use super::*;
    use crate::account::Resume;
    use crate::peers::PeerRecord;

    struct Reader;

    impl Resume for Reader {
        fn resume(&self, _: Token) {}
    }

    /// Frames that the client has sent during the pause are read only now.
    #[test]
    fn a_session_that_goes_on_after_a_pause_has_a_term_from_then_on() {
        let share = SessionShare::new(limits::SESSION_BYTES, Arc::new(PeerRecord::default()));
        let account = Arc::clone(&share.account);
        let session = Session::of_last_run(SessionId::new(1, 1), [1; 16], Peer::User(0), share);
        let heard = boot_time();
        let reader = Arc::new(Reader) as Arc<dyn Resume>;
        account.pause(&reader, Token(1));
        // The clock of a pause counts milliseconds.
        while boot_time() < heard + Duration::from_millis(2) {
            thread::yield_now();
        }
        account.resume();
        let later = Duration::from_secs(1);
        let patience = Duration::from_secs(9);
        assert_eq!(session.silent(account.resumed() + later, patience), later);
    }
}
