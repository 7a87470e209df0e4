//! The sessions of a server. A session has one connection at a time, outlives it for a term, and
//! carries out each mutation once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{Closing, ClosingCode, Hello, RefusalCode, Refused, Welcome};
use pelago_wire::{
    Context, Error, GuestGrant, GuestRefusal, OlderFolder, RequestId, SessionId, SessionService,
    SiteRefusal, limits, reserved, version,
};

use crate::clients::list::ClientList;
use crate::clock::boot_time;
use crate::key::PublicKey;
use crate::link::{Bytes, Link};
use crate::log_limit::ServerLog;
use crate::peers::{self, PeerRecord, SessionShare};
use crate::session::{Peer, Session, SessionStatus};

use room::make_room;

mod connections;
mod frames;
mod gate;
mod pending_reply;
mod room;

/// All sessions of a server.
pub(crate) struct Sessions {
    pub(crate) service: Arc<dyn SessionService>,
    /// Lock order: this, then a session.
    table: Mutex<HashMap<SessionId, Arc<Session>>>,
    /// The records of the peers that have sessions, or have not answered recalls. Locked within the
    /// table.
    peers: Mutex<HashMap<Peer, Arc<PeerRecord>>>,
    next_id: AtomicU32,
    stopping: AtomicBool,
    /// Clients may connect. Locked for reading while a session gets a connection.
    is_open: RwLock<bool>,
    /// The limits of log lines that clients can cause.
    pub(crate) log: ServerLog,
    /// The time for which a session outlives its last message. The client counts a little less.
    term: Duration,
    /// The time that leases last after the last message that lengthens them; here as `term`.
    lease: Duration,
    /// A leaf lock.
    listening: Mutex<Listening>,
}

/// The time since when this process hears its clients, by [`boot_time`].
#[derive(Debug, Default)]
struct Listening {
    since: Duration,
    looked: Duration,
}

impl Listening {
    /// Records that the process runs now. Returns since when it has run without a long pause.
    fn look(&mut self, now: Duration, term: Duration) -> Duration {
        if now.saturating_sub(self.looked) > term / 4 {
            self.since = now;
        }
        self.looked = now;
        self.since
    }

    /// Begins anew, because no client could reach the server.
    const fn restart(&mut self, now: Duration) {
        self.since = now;
    }
}

impl Sessions {
    /// Returns the sessions of the server's last run, which wait for their clients.
    pub(crate) fn new(service: Arc<dyn SessionService>, term: Duration) -> Self {
        let next_id = AtomicU32::new(1);
        let stopping = AtomicBool::new(false);
        let log = ServerLog::new();
        let listening = Mutex::default();
        let table = Mutex::default();
        let peers = Mutex::default();
        let is_open = RwLock::new(true);
        let sessions = Self {
            service,
            table,
            peers,
            next_id,
            stopping,
            is_open,
            log,
            term,
            lease: term,
            listening,
        };
        sessions.remember();
        sessions
    }

    /// Takes over the sessions of the last run.
    fn remember(&self) {
        let mut earlier = self.service.earlier_sessions();
        earlier.sort_by_key(|(id, _)| *id);
        let mut table = self.table.lock();
        for (id, record) in earlier {
            let Some(peer) = Peer::of_record(record.peer) else { continue };
            let share = self.share(&table, peer);
            table.insert(id, Arc::new(Session::of_last_run(id, record.nonce, peer, share)));
        }
    }

    /// Returns the share of a session of this peer that begins now.
    fn share(&self, table: &HashMap<SessionId, Arc<Session>>, peer: Peer) -> SessionShare {
        let peer = peer.identity();
        let own = table.values().filter(|session| session.peer().identity() == peer);
        let bytes = peers::share(own.map(|session| session.share.bytes).sum());
        let record = Arc::clone(self.peers.lock().entry(peer).or_default());
        SessionShare::new(bytes, record)
    }

    /// Begins a session over this connection, or resumes one.
    pub(crate) fn hello(
        &self,
        hello: &Hello,
        peer: Peer,
        link: &Arc<Link>,
    ) -> Result<(Arc<Session>, Welcome), Refused> {
        if let Some(refused) = self.owner_elsewhere() {
            return Err(refused);
        }
        if self.stopping.load(Ordering::Acquire) {
            return Err(refused(RefusalCode::ShuttingDown));
        }
        let is_open = self.is_open.read();
        if !*is_open {
            return Err(refused(RefusalCode::Starting));
        }
        if hello.role != peer.role() {
            return Err(unknown_role(hello.role));
        }
        let version = self.expect_served(hello)?;
        let known = hello.resume.and_then(|id| self.table.lock().get(&id).cloned());
        if let (Some(session), Some(grant)) = (&known, peer.grant())
            && session.may_be_resumed(hello, peer)
        {
            // Before the session takes the grant.
            self.service.guest_came_back(session.id, grant).map_err(no_access)?;
        }
        let resumed = known.filter(|session| session.resume(hello, peer, link));
        let is_resumed = resumed.is_some();
        let session = match resumed {
            Some(session) => session,
            None if self.service.is_starting() => return Err(refused(RefusalCode::Starting)),
            None => self.begin(hello, peer, link)?,
        };
        let welcome = self.welcome(&session, version, hello.features, is_resumed);
        Ok((session, welcome))
    }

    /// Adds the connection of a site's server for bulk to its session, and welcomes it.
    pub(crate) fn join_bulk(
        &self,
        hello: &Hello,
        peer: Peer,
        link: &Arc<Link>,
    ) -> Result<Arc<Session>, Refused> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(refused(RefusalCode::ShuttingDown));
        }
        let is_open = self.is_open.read();
        if !*is_open {
            return Err(refused(RefusalCode::Starting));
        }
        let version = self.expect_served(hello)?;
        let known = hello.resume.and_then(|id| self.table.lock().get(&id).cloned());
        let joined = known.filter(|session| {
            let body = self.welcome(session, version, hello.features, true).encode();
            let head = self.header(FrameKind::Welcome, 0, body.len(), 0);
            session.join_bulk(hello, peer, link, [head, Bytes::Owned(body)])
        });
        joined.ok_or_else(|| refused(RefusalCode::UnknownSession))
    }

    /// Returns the answer to a hello with these features that has begun or resumed a session.
    fn welcome(&self, session: &Session, version: u16, features: u64, resumed: bool) -> Welcome {
        let served = self.service.served();
        Welcome {
            version,
            features: features & self.features(),
            session: session.id,
            resumed,
            term_ms: millis(self.term),
            lease_ms: millis(session.peer().lease(self.lease)),
            epoch: served.epoch,
            volume: served.volume,
            read_only: served.read_only,
            requests: u32::try_from(limits::SESSION_REQUESTS).unwrap_or(u32::MAX),
            bulk: u32::try_from(session.share.bytes).unwrap_or(u32::MAX),
        }
    }

    /// Checks that a hello speaks a version of the wire that this server speaks, and means what it
    /// serves. Returns the version.
    pub(crate) fn expect_served(&self, hello: &Hello) -> Result<u16, Refused> {
        let version = version::negotiate(hello.wire_min, hello.wire_max)
            .ok_or_else(|| refused(RefusalCode::OtherVersion))?;
        let served = self.service.served();
        if hello.volume.is_some_and(|wanted| wanted != served.volume)
            || hello.shard != 0
            || !serves_site(hello, served.site)
        {
            return Err(not_served(hello, served.site));
        }
        Ok(version)
    }

    /// Returns the features of a connection that this server has.
    fn features(&self) -> u64 {
        if self.service.is_on_store() { version::SHARDS } else { 0 }
    }

    fn begin(&self, hello: &Hello, peer: Peer, link: &Arc<Link>) -> Result<Arc<Session>, Refused> {
        let mut table = self.table.lock();
        // Checked again under the lock: `stop` suspends the sessions that are in the table when it
        // has the lock.
        if self.stopping.load(Ordering::Acquire) {
            return Err(refused(RefusalCode::ShuttingDown));
        }
        let replaced = make_room(&mut table, peer)?;
        // Unique in the volume: each run of a server has an epoch of its own.
        let counter = self.next_id.fetch_add(1, Ordering::Relaxed);
        let id = SessionId::new(self.service.served().epoch, counter);
        let share = self.share(&table, peer);
        let session = Arc::new(Session::new(id, hello.nonce, peer, share, link));
        let begun = match peer.grant() {
            Some(grant) => {
                let begun = self.service.begin_guest(id, grant, &session.record());
                begun.map_err(no_access)
            }
            None => self.record(&session),
        };
        if begun.is_ok() {
            table.insert(id, Arc::clone(&session));
        }
        drop(table);
        for unused in replaced {
            self.log_end(&unused, "another session of its client took its place");
            self.service.end_session(unused.id);
        }
        begun.map(|()| session)
    }

    /// Records a session for the next run of the server.
    fn record(&self, session: &Session) -> Result<(), Refused> {
        let recorded = self.service.begin_session(session.id, session.record());
        recorded.map_err(|error| {
            self.log_not_recorded(error);
            refused(RefusalCode::NotRecorded)
        })
    }

    pub(crate) fn log_not_recorded(&self, error: Error) {
        if let Some(left_out) = self.log.failed.admit() {
            tracing::warn!(%error, left_out, "a session cannot be recorded");
        }
    }

    /// Ends a session that has begun over this connection and that its client does not know, unless
    /// it has continued over another one.
    pub(crate) fn abandon(&self, session: &Arc<Session>, link: &Arc<Link>) {
        if session.end_unknown(link) {
            self.table.lock().remove(&session.id);
            self.log_end(session, "its connection ended before its client was told of it");
            self.service.end_session(session.id);
        }
    }

    fn log_end(&self, session: &Session, why: &str) {
        if let Some(left_out) = self.log.ended.admit() {
            let peer = session.peer();
            tracing::info!(session = ?session.id, ?peer, why, left_out, "a session ended");
        }
    }

    /// Ends a session: its connection, its waiting requests, and, once no request runs any more,
    /// its open files. A second call does nothing.
    pub(crate) fn end(&self, session: &Arc<Session>, why: &str) {
        let Some(running) = session.end() else { return };
        self.table.lock().remove(&session.id);
        self.log_end(session, why);
        // Now, although requests of the session still run: they may wait for requests of other
        // sessions, which may wait for these leases.
        self.service.leases_lost(session.id);
        if running.is_empty() {
            return self.service.end_session(session.id);
        }
        self.service.ending(session.id);
        for number in running {
            self.service.cancel(&context(session.id, number));
        }
    }

    /// Ends the sessions that earlier runs of a site's server have left. A server has one session
    /// here and, after a start, a new one; others would wait for the leases of the old one. Called
    /// at the first frame of a session: its server lives, and that of each older session is dead.
    pub(crate) fn end_earlier(&self, session: &Session) {
        if !session.is_site() {
            return;
        }
        let peer = session.peer();
        let is_earlier = |other: &Arc<Session>| other.peer() == peer && other.id < session.id;
        for earlier in self.all().into_iter().filter(is_earlier) {
            self.end(&earlier, "its site's server has started again");
        }
    }

    /// Returns the time after which all leases have ended by the clock of their client.
    fn lease_limit(&self, session: &Session) -> Duration {
        let lease = session.peer().lease(self.lease);
        lease + lease / 64
    }

    /// Ends a session by its client's wish. A recall that has waited for a while counts as not
    /// answered: otherwise a client could delay others for as long as leases last, and begin a new
    /// session each time.
    pub(crate) fn goodbye(&self, session: &Arc<Session>) {
        let now = boot_time();
        if session.leases_ended(now, self.lease / 8) {
            session.share.peer.not_answered(now, self.lease_limit(session));
        }
        self.end(session, "the client said goodbye");
    }

    /// Ends the sessions that were silent for a term. Called several times a second. After a longer
    /// time without a call this process did not run (it was stopped, or the machine slept), and
    /// frames of clients are not read yet: the term begins anew. It also begins anew while the
    /// server may not answer.
    pub(crate) fn expire(&self) {
        let now = boot_time();
        let listens = {
            let mut listening = self.listening.lock();
            if !self.service.may_answer() {
                listening.restart(now);
            }
            now.saturating_sub(listening.look(now, self.term))
        };
        if !*self.is_open.read() {
            // No client can send anything.
            return;
        }
        self.service.look_at_guests();
        let limit = self.term + self.term / 64;
        let is_starting = self.service.is_starting();
        for session in self.all() {
            if let Peer::Site(peer) = session.peer()
                && !self.service.is_site(&peer)
                && !session.is_answering()
            {
                self.end(&session, "its site is not served any more");
                continue;
            }
            if !is_starting {
                session.share.narrow();
            }
            let lease_limit = self.lease_limit(&session);
            if session.silent(now, self.term / 4).min(listens) > limit {
                if session.leases_ended(now, self.lease / 2) {
                    // Others have waited for long, and another session of its client could do the
                    // same.
                    session.share.peer.not_answered(now, lease_limit);
                }
                self.end(&session, "it was silent for a term");
            } else if session.leases_ended(now, lease_limit) {
                // While the session is overdue, so that it is granted no lease in between.
                self.service.leases_lost(session.id);
                session.forget_recalls(now, lease_limit);
                if let Some(left_out) = self.log.overdue.admit() {
                    tracing::warn!(session = ?session.id, left_out, "a recall was not answered");
                }
            }
        }
        let is_known = |peer: &Arc<PeerRecord>| Arc::strong_count(peer) > 1;
        self.peers.lock().retain(|_, peer| is_known(peer) || peer.is_remembered(now));
    }

    /// Ends the sessions of guests whose grants are not valid any more. When this returns, nothing
    /// more is sent to them.
    pub(crate) fn end_guests(&self) {
        let is_over = |session: &Arc<Session>| {
            let peer = session.peer();
            // The guest of an earlier run presents its credentials when it comes back.
            let grant = peer.grant().filter(|grant| grant.chain != GuestGrant::NO_CHAIN);
            grant.is_some_and(|grant| !self.service.has_access(grant))
                && !self.service.has_leases(session.id)
        };
        for session in self.all().into_iter().filter(is_over) {
            let closing = Closing { code: ClosingCode::NoAccess, text: String::new() }.encode();
            let head = self.header(FrameKind::Closing, 0, closing.len(), 0);
            session.send([head, Bytes::Owned(closing)]);
            self.end(&session, "its credential grants nothing any more");
        }
    }

    /// Ends the sessions of machines that the list does not have any more.
    pub(crate) fn end_removed(&self, clients: &ClientList) {
        let all = self.all();
        let key = |session: &Arc<Session>| match session.peer() {
            Peer::Machine(key) => Some(key),
            Peer::User(_) | Peer::Guest(_) | Peer::Site(_) => None,
        };
        let connected: Vec<PublicKey> = all.iter().filter_map(key).collect();
        let removed = clients.removed(&connected);
        for session in all {
            if key(&session).is_some_and(|key| removed.contains(&key)) {
                self.end(&session, "its key was removed");
            }
        }
    }

    /// Returns whether nothing has come from the client of a session for so long that it would have
    /// sent two pings: the line is dead.
    pub(crate) fn is_dead(&self, session: &Session) -> bool {
        session.silent(boot_time(), self.term / 4) > self.term * 2 / 3
    }

    /// Ends all connections, and refuses new ones. The sessions wait for the server's next run.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let closing = self.last_closing().encode();
        for session in self.all() {
            self.table.lock().remove(&session.id);
            let closing = closing.clone();
            let head = self.header(FrameKind::Closing, 0, closing.len(), 0);
            session.suspend([head, Bytes::Owned(closing)]);
        }
    }

    /// Returns the frame of a recall; `None` if the server may not answer: its connection ends.
    fn recall_frame(&self, number: u64, body: &Arc<[u8]>) -> Option<[Bytes; 2]> {
        let head = self.header(FrameKind::Recall, number, body.len(), 0);
        self.service.may_answer().then(|| [head, Bytes::Shared(Arc::clone(body))])
    }

    /// Sends the recalls once more that the client of a session has not answered; after the Welcome
    /// of a connection.
    pub(crate) fn recall_again(&self, session: &Session) {
        session.recall_again(|number, body| self.recall_frame(number, body));
    }

    /// Returns the state of all sessions.
    pub(crate) fn status(&self) -> Vec<SessionStatus> {
        let now = boot_time();
        let mut all: Vec<_> = self.all().iter().map(|session| session.status(now)).collect();
        all.sort_by_key(|session| session.id);
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.lock().is_empty()
    }

    fn all(&self) -> Vec<Arc<Session>> {
        self.table.lock().values().cloned().collect()
    }

    /// Sends a pong to a client whose bytes arrive, if nothing was sent to it for a while: a frame
    /// may take longer than a term, and the client's ping waits after it.
    pub(crate) fn encourage(&self, link: &Link) {
        link.look();
        let said = link.said();
        if link.heard() > said && boot_time().saturating_sub(said) > self.term / 3 {
            self.tell(link, [self.header(FrameKind::Pong, 0, 0, 0)]);
        }
    }

    /// Returns the header of a frame that lengthens no lease.
    pub(crate) fn header(&self, kind: FrameKind, number: u64, body: usize, bulk: usize) -> Bytes {
        self.encode_header(kind, kind.may_be_overdue(), number, [body, bulk])
    }

    /// Returns the header of a frame that lengthens the leases of a session, unless a recall waits
    /// for its client.
    fn header_to(
        &self,
        session: &Session,
        kind: FrameKind,
        number: u64,
        sizes: [usize; 2],
    ) -> Bytes {
        self.encode_header(kind, session.is_overdue(), number, sizes)
    }

    fn encode_header(
        &self,
        kind: FrameKind,
        is_overdue: bool,
        number: u64,
        sizes: [usize; 2],
    ) -> Bytes {
        let (_, progress) = self.service.progress();
        // Bodies and bulk are below their limits, which are far below 4 GiB.
        let [body, bulk] = sizes.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        Bytes::Header(Header { body, bulk, kind, is_overdue, number, progress }.encode())
    }
}

/// Returns the context of a request, without its caller.
const fn context(session: SessionId, number: u64) -> Context {
    Context { session, request: RequestId(number), ..Context::direct(0, 0) }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// Returns the refusal of a site.
pub(crate) fn site_refused(why: SiteRefusal) -> Refused {
    let (code, text) = match why {
        SiteRefusal::NotInvited(text) => (RefusalCode::NotInvited, text),
        SiteRefusal::Older { folder: OlderFolder::OfAsker, text } => (RefusalCode::Older, text),
        SiteRefusal::Older { folder: OlderFolder::OfAnswerer, text } => {
            (RefusalCode::Outdated, text)
        }
    };
    Refused { text, ..refused(code) }
}

/// Returns the refusal of a guest.
pub(crate) fn no_access(why: GuestRefusal) -> Refused {
    Refused { text: why.0, ..refused(RefusalCode::NoAccess) }
}

pub(crate) fn unknown_role(role: u16) -> Refused {
    let text = format!("role {role}{}", reserved::says(reserved::ROLES, role));
    Refused { text, ..refused(RefusalCode::UnknownRole) }
}

/// Returns whether a hello names this site. Clients and guests need not name one.
fn serves_site(hello: &Hello, own: u16) -> bool {
    let names_none = hello.site == 0;
    let is_site = matches!(hello.role, Hello::SITE | Hello::BULK | Hello::REVERSE);
    hello.site == own || (names_none && !is_site)
}

fn not_served(hello: &Hello, own: u16) -> Refused {
    let Hello { shard, site, .. } = hello;
    let text = match *shard == 0 && serves_site(hello, own) {
        true => "its volume is another one".to_owned(),
        false => format!(
            "shard {shard} of site {site} was asked for, and there is only shard 0 of site {own}"
        ),
    };
    Refused { text, ..refused(RefusalCode::NotServed) }
}

/// Returns the refusal with this code.
pub(crate) fn refused(code: RefusalCode) -> Refused {
    let retry_ms = match code {
        RefusalCode::TooManyStrangers => 100,
        RefusalCode::TooManySessions
        | RefusalCode::TooManyOfPeer
        | RefusalCode::Starting
        | RefusalCode::NotRecorded
        | RefusalCode::NotCurrent
        | RefusalCode::NotOwner => 1000,
        _ => 0,
    };
    let wire_min = version::OLDEST;
    let wire_max = version::NEWEST;
    Refused { code, wire_min, wire_max, retry_ms, text: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERM: Duration = Duration::from_secs(10);

    #[test]
    fn a_term_begins_anew_when_the_server_goes_on_after_a_pause() {
        let mut listening = Listening::default();
        let at = Duration::from_millis;
        assert_eq!(listening.look(at(100_000), TERM), at(100_000));
        for now in (100_250..130_000).step_by(250) {
            assert_eq!(listening.look(at(now), TERM), at(100_000));
        }
        // Two sockets look, each several times a second; a busy moment is no pause.
        assert_eq!(listening.look(at(131_000), TERM), at(100_000));
        assert_eq!(listening.look(at(143_000), TERM), at(143_000));
        assert_eq!(listening.look(at(143_000), TERM), at(143_000));
    }
}
